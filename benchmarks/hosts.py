"""All-reduce between hosts in a cluster in a box: 2 hosts of 4 ranks, each host behind one NIC of 1 Gb/s.

Gloo, this backend, and this backend with bf16 on the wire are in the same processes and take turns. `limit` is what the
NIC needs for the bytes that must cross it at least: of two hosts each sends its whole sum once.
Options: --size 25MiB, --rounds N.
"""

import argparse
import json
import os
import sys
from typing import Any

from benchmarks.algorithms import emulated
from benchmarks.contestants import race
from benchmarks.result import Result
from meshwright.units import format_bytes, parse_bytes

HOSTS, RANKS_PER_HOST, NIC, NIC_BYTES_PER_S = 2, 4, "1Gbps", 125e6
WIRE_BYTES = {"gloo": 4, "meshwright": 4, "meshwright, bf16 on the wire": 2}  # of an element


def run(arguments: list[str]) -> Result:
    """Measure in an emulated cluster and return one row a contestant."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hosts", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default=25 * 2**20)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    times_s = emulated("benchmarks.hosts", HOSTS, NIC, [options.size, options.rounds], ranks_per_node=RANKS_PER_HOST)
    limits_s = {kind: options.size / NIC_BYTES_PER_S * wire / 4 for kind, wire in WIRE_BYTES.items()}
    rows = [
        {
            "contestant": kind,
            "size": format_bytes(options.size),
            "time_ms": time_s * 1e3,
            "limit_ms": limits_s[kind] * 1e3,
            "over_limit": time_s / limits_s[kind],
            "gloo_over_it": times_s["gloo"] / time_s,
        }
        for kind, time_s in times_s.items()
    ]
    return Result(f"all-reduce, {HOSTS} hosts x {RANKS_PER_HOST} ranks, NICs of {NIC}", rows)


def work(size_bytes: int, rounds: int) -> None:
    """Measure on one rank of the emulated cluster; rank 0 prints the report."""
    import torch
    import torch.distributed as dist

    import meshwright  # noqa: F401  (registers the backend)
    from meshwright.backend.options import GroupOptions

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups: dict[str, Any] = {
        "gloo": dist.group.WORLD,
        "meshwright": dist.new_group(backend="meshwright"),
        "meshwright, bf16 on the wire": dist.new_group(backend="meshwright", pg_options=GroupOptions(wire="bf16")),
    }
    tensor = torch.zeros(size_bytes // 4)
    contestants = {kind: (lambda group=group: dist.all_reduce(tensor, group=group)) for kind, group in groups.items()}
    times_s = race(contestants, rounds, groups["meshwright"])
    if os.environ["RANK"] == "0":
        print("REPORT " + json.dumps(times_s), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
