"""All-reduce and the other collectives on one host: this backend, Gloo and MPI in one run, in turns, medians.

Every rank holds all contestants at once and runs them one after the other, round after round, so that a change of the
machine's mood meets all of them. Where the pages of a process lie decides as much, so that all are started anew some
times and the medians of those launches are taken. `copy` is every rank copying the payload once in its own memory at
the same time. Options: --ranks 2 4, --launches N, --rounds N, --only all_reduce ..., --max 128MiB, --plot (writes
docs/backend-speed.md and its pictures).
MPI takes part where `pip install 'meshwright[mpi]'` was done.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result import DOCS, Result, describe_machine
from meshwright.units import format_bytes, parse_bytes

KI, MI = 2**10, 2**20
ALL_REDUCE_SIZES = (KI, 64 * KI, MI, 25 * MI, 128 * MI)
OTHER_SIZES = (4 * KI, 64 * KI, 4 * MI, 64 * MI)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
CONTESTANTS = ("meshwright", "gloo", "mpi", "copy")
BLOCK_S = 0.01  # short collectives are timed in blocks of about this length
LEAST_CALLS = 3  # of a block, so that it weighs less how far apart the ranks begin


def run(arguments: list[str]) -> Result:
    """Run all rank counts and return one row for each collective, rank count and size."""
    options = _options(arguments)
    rows = []
    for ranks in options.ranks:
        launches = [launch("collectives", ranks, arguments) for _ in range(options.launches)]
        rows += [_row(*same) for same in zip(*launches, strict=True)]
    notes = [
        "times are medians in microseconds over rounds in which the contestants take turns; the slowest rank counts",
        f"and medians over {options.launches} launches of all processes",
    ]
    if not has_mpi():
        notes.append("MPI did not take part: pip install 'meshwright[mpi]'")
    if options.plot:
        pictures = _plots(rows)
        notes += [f"table: {_table(rows, pictures).relative_to(DOCS.parent)}"]
    return Result("collectives on one host", rows, notes)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks collectives")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=COLLECTIVES, default=list(COLLECTIVES))
    parser.add_argument("--max", type=parse_bytes, default=128 * MI)
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def has_mpi() -> bool:
    """Return whether MPI can take part."""
    return importlib.util.find_spec("mpi4py") is not None and _mpiexec() is not None


def _mpiexec() -> str | None:
    return shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def launch(module: str, ranks: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Start the ranks of a module of this package, under mpiexec where there is MPI, and return what they measured."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "rows.json")
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--output", output, "--folder", folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "CUDA_VISIBLE_DEVICES": ""}
        mpiexec = _mpiexec() if has_mpi() else None
        if mpiexec is not None:
            subprocess.run([mpiexec, "-n", str(ranks), *command], env=environment, check=True)
        else:
            children = [subprocess.Popen(command, env=environment | {"RANK": str(rank)}) for rank in range(ranks)]
            codes = [child.wait() for child in children]
            if any(codes):
                raise SystemExit("a rank of the benchmark failed")
        rows: list[dict[str, Any]] = json.loads(Path(output).read_text())
        return rows


# ---- on a rank


def join(folder: str) -> tuple[int, int, Any]:
    """Make the default group, over Gloo; return this rank, the number of ranks, and MPI's communicator or None."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    comm = None
    if "RANK" not in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    rank = comm.Get_rank() if comm is not None else int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", size), rank=rank, world_size=size)
    return rank, size, comm


def _rank_main() -> None:
    options = _options(sys.argv[1:])
    import torch
    import torch.distributed as dist

    import meshwright  # noqa: F401  (registers the backend)

    rank, size, comm = join(options.folder)
    groups = {"meshwright": dist.new_group(backend="meshwright"), "gloo": dist.group.WORLD}
    rows = []
    for name in options.only:
        for size_bytes in ALL_REDUCE_SIZES if name == "all_reduce" else OTHER_SIZES:
            if size_bytes <= options.max:
                contestants = {kind: torch_call(name, size_bytes, size, group) for kind, group in groups.items()}
                if comm is not None:
                    contestants["mpi"] = mpi_call(name, size_bytes, size, comm)
                if name == "all_reduce":
                    a, b = torch.zeros(size_bytes // 4), torch.ones(size_bytes // 4)
                    contestants["copy"] = lambda a=a, b=b: a.copy_(b)
                times = race(contestants, options.rounds, groups["meshwright"])
                rows.append({"collective": name, "ranks": size, "bytes": size_bytes, "times_s": times})
    if rank == 0:
        Path(options.output).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def torch_call(name: str, size_bytes: int, ranks: int, group: Any) -> Callable[[], object]:
    """Return the collective on tensors of its own; `size_bytes` is the payload of all-reduce and broadcast, and the
    larger of input and output of the others.
    """
    import torch
    import torch.distributed as dist

    whole, part = torch.zeros(size_bytes // 4), torch.zeros(size_bytes // 4 // ranks)
    other = torch.zeros_like(whole)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "all_gather": lambda: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }
    return calls[name]


def mpi_call(name: str, size_bytes: int, ranks: int, comm: Any) -> Callable[[], object]:
    """Return the same collective of MPI."""
    import numpy as np
    from mpi4py import MPI

    count = size_bytes // 4
    whole, part, other = np.zeros(count, "f"), np.zeros(count // ranks, "f"), np.zeros(count, "f")
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: comm.Allreduce(MPI.IN_PLACE, whole),
        "broadcast": lambda: comm.Bcast(whole, 0),
        "all_gather": lambda: comm.Allgather(part, whole),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(whole, part),
        "all_to_all": lambda: comm.Alltoall(whole, other),
    }
    return calls[name]


def _repeats(call: Callable[[], object], group: Any) -> int:
    """Return how many calls make a block; the first few are slower, and tell too little."""
    import torch
    import torch.distributed as dist

    calls, slowest_s = 1, 0.0
    while calls < 1000 and slowest_s < BLOCK_S / 2:
        calls *= 4
        dist.barrier(group=group)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(took, dist.ReduceOp.MAX, group=group)
        slowest_s = took.item()
    return int(max(LEAST_CALLS, min(1000, calls * BLOCK_S / slowest_s)))


def race(contestants: dict[str, Callable[[], object]], rounds: int, group: Any) -> dict[str, float]:
    """Return the median seconds of one call for each contestant, of the slowest rank, over rounds in turns."""
    import torch
    import torch.distributed as dist

    repeats = {kind: _repeats(call, group) for kind, call in contestants.items()}
    samples: dict[str, list[float]] = {kind: [] for kind in contestants}
    for _ in range(rounds):
        for kind, call in contestants.items():
            dist.barrier(group=group)
            call()
            start = time.perf_counter()
            for _ in range(repeats[kind]):
                call()
            samples[kind].append((time.perf_counter() - start) / repeats[kind])
    table = torch.tensor(list(samples.values()), dtype=torch.float64)
    dist.all_reduce(table, dist.ReduceOp.MAX, group=group)
    return {kind: statistics.median(values) for kind, values in zip(samples, table.tolist(), strict=True)}


def _row(*launches: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one collective, rank count and size from what each launch measured of it."""
    first = launches[0]
    times_s = {kind: statistics.median(launch["times_s"][kind] for launch in launches) for kind in first["times_s"]}
    ours = times_s["meshwright"]
    row: dict[str, Any] = {key: first[key] for key in ("collective", "ranks", "bytes")}
    row["size"] = format_bytes(first["bytes"])
    for kind in CONTESTANTS:
        row[f"{kind}_us"] = round(times_s[kind] * 1e6, 2) if kind in times_s else None
    for kind in ("gloo", "mpi"):
        row[f"{kind}/ours"] = round(times_s[kind] / ours, 2) if kind in times_s else None
    row["ours/copy"] = round(ours / times_s["copy"], 2) if "copy" in times_s else None
    return row


def _table(rows: list[dict[str, Any]], pictures: list[Path]) -> Path:
    """Write the rows as a table into docs/, and the pictures below."""
    machine = describe_machine()
    columns = [name for name in rows[0] if name != "bytes"]
    lines = [
        "# Collectives on one host",
        "",
        "Written by `python -m benchmarks collectives --plot`: medians in microseconds, in turns, in one run.",
        f"{machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}, torch {machine['torch']}, commit "
        f"{machine['commit']}. `copy`: every rank copies the payload once in its own memory, at the same time.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    lines += [f"| {' | '.join('' if row[name] is None else str(row[name]) for name in columns)} |" for row in rows]
    lines += ["", "Time over size, with the copy as the limit of an all-reduce:", ""]
    lines += [f"![{picture.stem.replace('-', ' ')}](images/{picture.name})" for picture in pictures]
    path = DOCS / "backend-speed.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def _plots(rows: list[dict[str, Any]]) -> list[Path]:
    """Draw time over size, log-log, one picture for each collective and rank count, with the copy as the limit."""
    from benchmarks.plots import log_log_svg

    paths = []
    (DOCS / "images").mkdir(parents=True, exist_ok=True)
    for name, ranks in dict.fromkeys((row["collective"], row["ranks"]) for row in rows):
        mine = [row for row in rows if (row["collective"], row["ranks"]) == (name, ranks)]
        lines = {
            kind: [(row["bytes"], row[f"{kind}_us"], row[f"{kind}_us"]) for row in mine]
            for kind in CONTESTANTS
            if mine[0][f"{kind}_us"] is not None
        }
        path = DOCS / "images" / f"speed-{name}-{ranks}.svg"
        path.write_text(log_log_svg(f"{name}, {ranks} ranks", "bytes", "microseconds", lines))
        paths.append(path)
    return paths


if __name__ == "__main__":
    _rank_main()
