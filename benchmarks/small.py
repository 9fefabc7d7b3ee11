"""Small collectives on one host: how much of a call is torch's, and what each way into the C helper adds.

In turns, in one run, medians over launches: `torch` is what torch.distributed itself takes to come to a group (one that
answers at once), `in_c` all of a call, `ctypes` the same without the extension module, `python` without the C helper;
the MPIs, through mpi4py, take turns from launch to launch; `limit` is 1.2 times the best of them and what torch takes.
Options: --ranks 2 4, --launches N (with each MPI), --rounds N, --bytes SIZE (of all, in place of 1 and 4 KiB),
--mpi mpich openmpi intel.
"""

import argparse
import os
import statistics
import sys
from typing import Any

from benchmarks.contestants import finish, join, mpi_call, race, torch_call
from benchmarks.mpis import PACKAGES, launch, this_mpi, turns
from benchmarks.result import Result
from meshwright.units import format_bytes, parse_bytes

SIZES = {"all_reduce": 1024, "all_gather": 4096, "reduce_scatter": 4096, "broadcast": 4096, "all_to_all": 4096}


def run(arguments: list[str]) -> Result:
    """Return one row for each collective and number of ranks, in microseconds."""
    options = _options(arguments)
    kinds = turns(options.mpi, options.launches)
    rows = []
    for ranks in options.ranks:
        launches = [launch("small", ranks, arguments, kind) for kind in kinds]
        rows += [_row(*same) for same in zip(*launches, strict=True)]
    notes = [f"medians of {len(kinds)} launches of {options.rounds} rounds in turns; the slowest rank counts"]
    if kinds[0] is None:
        notes.append("no MPI took part: --mpi mpich openmpi intel")
    return Result("small collectives on one host", rows, notes, keys=("ranks", "collective", "size"))


def _row(*launches: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one collective and size from what each launch measured of it."""
    row: dict[str, Any] = {key: launches[0][key] for key in ("collective", "ranks", "size")}
    for kind in dict.fromkeys(kind for one in launches for kind in one["times_s"]):
        times_s = [one["times_s"][kind] for one in launches if kind in one["times_s"]]
        row[f"{kind}_us"] = round(statistics.median(times_s) * 1e6, 2)
    mpis = [row[f"{kind}_us"] for kind in PACKAGES if f"{kind}_us" in row]
    if mpis:
        row["limit_us"] = round(1.2 * min(mpis) + row["torch_us"], 2)
        row["over_limit"] = round(row["in_c_us"] / row["limit_us"], 2)
    return row


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks small")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=parse_bytes, help="of all collectives, in place of 1 and 4 KiB")
    parser.add_argument("--mpi", nargs="+", choices=list(PACKAGES))
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
    for name, usual_bytes in SIZES.items():
        size_bytes = options.bytes or usual_bytes
        contestants = {kind: torch_call(name, size_bytes, size, group) for kind, group in groups.items()}
        if comm is not None:
            contestants[this_mpi()] = mpi_call(name, size_bytes, size, comm)
        times = race(contestants, options.rounds, groups["in_c"])
        rows.append({"collective": name, "ranks": size, "size": format_bytes(size_bytes), "times_s": times})
    finish(rank, options.output, rows)


if __name__ == "__main__":
    _rank_main()
