"""Small collectives on one host: how much of a call is torch's, and what each way into the C helper adds.

In turns, in one run, medians over launches: `torch` is what torch.distributed itself takes to come to a group (one that
answers at once), `in_c` all of a call, `ctypes` the same without the extension module, `python` without the C helper;
`mpi` is MPICH through mpi4py. Options: --ranks 2 4, --launches N, --rounds N.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.collectives import has_mpi, join, launch, mpi_call, race, torch_call
from benchmarks.result import Result
from meshwright.units import format_bytes

SIZES = {"all_reduce": 1024, "all_gather": 4096, "reduce_scatter": 4096, "broadcast": 4096, "all_to_all": 4096}


def run(arguments: list[str]) -> Result:
    """Return one row for each collective and number of ranks, in microseconds."""
    options = _options(arguments)
    rows = []
    for ranks in options.ranks:
        launches = [launch("small", ranks, arguments) for _ in range(options.launches)]
        for same in zip(*launches, strict=True):
            row: dict[str, Any] = {key: same[0][key] for key in ("collective", "ranks", "size")}
            for kind in same[0]["times_s"]:
                row[f"{kind}_us"] = round(statistics.median(one["times_s"][kind] for one in same) * 1e6, 2)
            rows.append(row)
    notes = [f"medians of {options.launches} launches of {options.rounds} rounds in turns; the slowest rank counts"]
    if not has_mpi():
        notes.append("MPI did not take part: pip install 'meshwright[mpi]'")
    return Result("small collectives on one host", rows, notes)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks small")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


class _AtOnce:
    """Answers every call at once: what is left is torch's part."""

    def __init__(self, answer: Any) -> None:
        self._work = answer

    def _answer(self, *_: object) -> Any:
        return self._work

    all_reduce = broadcast = all_gather_single = reduce_scatter_single = all_to_all_single = _answer


def _rank_main() -> None:
    options = _options(sys.argv[1:])
    import torch.distributed as dist

    from meshwright.backend.group import native_calls as calls
    from meshwright.backend.group.work import DONE

    rank, size, comm = join(options.folder)
    groups = {"torch": dist.new_group(backend="meshwright"), "in_c": dist.new_group(backend="meshwright")}
    groups["torch"]._usual = _AtOnce(DONE)
    calls.load_calls = lambda: None
    groups["ctypes"] = dist.new_group(backend="meshwright")
    os.environ["MESHWRIGHT_HELPER"] = "0"
    groups["python"] = dist.new_group(backend="meshwright")
    rows = []
    for name, size_bytes in SIZES.items():
        contestants = {kind: torch_call(name, size_bytes, size, group) for kind, group in groups.items()}
        if comm is not None:
            contestants["mpi"] = mpi_call(name, size_bytes, size, comm)
        times = race(contestants, options.rounds, groups["in_c"])
        rows.append({"collective": name, "ranks": size, "size": format_bytes(size_bytes), "times_s": times})
    if rank == 0:
        Path(options.output).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank_main()
