"""Collectives between hosts in a cluster in a box: 2 hosts, each behind one NIC, of 1 Gb/s or without a limit.

Gloo, this backend, (all-reduce) this backend with bf16 on the wire and, with --mpi, MPICH over TCP are in the same
processes and take turns.
`limit` is what the bytes take that must cross the NIC at least: where the NIC has a rate, by that rate; where it has
none, as measured in the same turns of `plain`: each rank and its partner on the other host send each other their part
of these bytes over one TCP connection, and do nothing else.
Options: --nic 1Gbps|unlimited, --ranks-per-node N, --only all_reduce all_to_all, --sizes 25MiB ..., --rounds N, --mpi.
"""

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.algorithms import emulated
from benchmarks.contestants import MI, mpi_call, race, torch_call
from benchmarks.mpi_hosts import emulated_by_mpi, join_by_mpi
from benchmarks.result import Result
from meshwright.units import format_bytes, parse_bytes, parse_rate

HOSTS = 2
UNLIMITED = "unlimited"
COLLECTIVES = ("all_reduce", "all_to_all")
WIRE = "meshwright, bf16 on the wire"
PIECE_BYTES = 4 * MI
KEYS = ("nic", "ranks", "collective", "bytes", "contestant")


def run(arguments: list[str]) -> Result:
    """Measure in an emulated cluster and return one row for each collective, size and contestant."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hosts", description=__doc__)
    parser.add_argument("--nic", default="1Gbps")
    parser.add_argument("--ranks-per-node", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=COLLECTIVES, default=["all_reduce"])
    parser.add_argument("--sizes", type=parse_bytes, nargs="+", default=[25 * MI])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mpi", action="store_true")
    options = parser.parse_args(arguments)
    nic = None if options.nic == UNLIMITED else options.nic
    told = [options.only, options.sizes, options.rounds, nic is None]
    launch = emulated_by_mpi if options.mpi else emulated
    measured = launch("benchmarks.hosts", HOSTS, nic, told, ranks_per_node=options.ranks_per_node)
    rows = []
    for name, size, times_s in measured:
        crossing = crossing_bytes(name, size, options.ranks_per_node)
        for kind, time_s in times_s.items():
            whole_s = times_s["plain"] if nic is None else crossing / parse_rate(nic)
            limit_s = whole_s / 2 if kind == WIRE else whole_s
            rows.append(
                {
                    "nic": options.nic,
                    "ranks": f"{HOSTS} x {options.ranks_per_node}",
                    "collective": name,
                    "bytes": size,
                    "size": format_bytes(size),
                    "contestant": kind,
                    "time_ms": round(time_s * 1e3, 3),
                    "limit_ms": round(limit_s * 1e3, 3),
                    "limit/time": round(limit_s / time_s, 3),
                    "gloo/time": round(times_s["gloo"] / time_s, 2),
                }
            )
    return Result("collectives between hosts", rows, keys=KEYS)


def crossing_bytes(name: str, size_bytes: int, ranks_per_host: int) -> float:
    """Return the bytes that each of two hosts sends the other at least."""
    return size_bytes if name == "all_reduce" else size_bytes / 2 * ranks_per_host


def work(names: list[str], sizes: list[int], rounds: int, plain: bool) -> None:
    """Measure on one rank of the emulated cluster; rank 0 prints the report."""
    import torch
    import torch.distributed as dist

    import meshwright  # noqa: F401  (registers the backend)
    from meshwright.backend.group.options import GroupOptions

    torch.set_num_threads(1)
    comm = join_by_mpi()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups: dict[str, Any] = {"gloo": dist.group.WORLD, "meshwright": dist.new_group(backend="meshwright")}
    narrow = dist.new_group(backend="meshwright", pg_options=GroupOptions(wire="bf16"))
    partner = _partner(rank, ranks) if plain else None
    rows = []
    for name in names:
        for size in sizes:
            contestants = {kind: torch_call(name, size, ranks, group) for kind, group in groups.items()}
            if name == "all_reduce":
                contestants[WIRE] = torch_call(name, size, ranks, narrow)
            if comm is not None:
                contestants["mpich"] = mpi_call(name, size, ranks, comm)
            if partner is not None:
                part = int(crossing_bytes(name, size, ranks // HOSTS)) // (ranks // HOSTS)
                contestants["plain"] = _both_ways(partner, part)
            rows.append((name, size, race(contestants, rounds, groups["meshwright"])))
    if rank == 0:
        print("REPORT " + json.dumps(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _partner(rank: int, ranks: int) -> socket.socket:
    """Return a connection to the rank with the same place on the other host."""
    import torch.distributed as dist

    from meshwright.backend.hosts.addresses import network_address

    there: list[Any] = [None] * ranks
    with socket.create_server((network_address(os.environ["MASTER_ADDR"]), 0)) as server:
        dist.all_gather_object(there, server.getsockname())
        if rank < ranks // HOSTS:
            connection = server.accept()[0]
        else:
            connection = socket.create_connection(there[rank - ranks // HOSTS])
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _both_ways(connection: socket.socket, size_bytes: int) -> Callable[[], None]:
    """Return a call that sends a number of bytes and receives as many at the same time."""
    out, into = memoryview(bytearray(size_bytes)), memoryview(bytearray(size_bytes))

    def receive() -> None:
        got = 0
        while got < size_bytes:
            count = connection.recv_into(into[got : got + PIECE_BYTES])
            if not count:
                raise ConnectionError("the partner has gone")
            got += count

    def both() -> None:
        receiver = threading.Thread(target=receive)
        receiver.start()
        connection.sendall(out)
        receiver.join()

    return both


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
