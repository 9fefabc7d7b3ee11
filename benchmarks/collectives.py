"""All-reduce and the other collectives on one host: this backend, Gloo and three MPIs in one run, in turns, medians.

A launch has this backend, Gloo and one MPI in the same processes, which run them one after the other, round after
round, so that a change of the machine's mood meets all of them; the MPIs take turns from launch to launch, since a
process can hold one. Where the pages of a process lie decides as much, so that each is launched some times; ratios are
medians over launches of the ratio within a launch. `copy` is every rank copying the payload once in its own memory at
the same time. Options: --ranks 2 4, --launches N (with each MPI), --rounds N, --only all_reduce ..., --sizes 64KiB ...,
--cold (buffers that were long not touched), --mpi mpich openmpi intel (installed below build/mpi where they are not).
docs/generated/backend-speed.md shows the rows of each make of machine.
"""

import argparse
import statistics
import sys
from math import log10
from pathlib import Path
from typing import Any

from benchmarks import speed_page
from benchmarks.contestants import COLLECTIVES, KI, MI, finish, join, mpi_call, race, sets_of, torch_call
from benchmarks.mpis import PACKAGES, launch, this_mpi, turns
from benchmarks.result import DOCS, Result
from meshwright.units import format_bytes, format_time, parse_bytes

SIZES = (4 * KI, 64 * KI, MI, 4 * MI, 25 * MI, 128 * MI)
LEAST = {"all_reduce": KI}  # bytes, in place of the first of SIZES
CONTESTANTS = ("meshwright", "gloo", *PACKAGES, "copy")


def run(arguments: list[str]) -> Result:
    """Run all rank counts and return one row for each collective, rank count and size."""
    options = _options(arguments)
    kinds, buffers = turns(options.mpi, options.launches), "cold" if options.cold else "warm"
    rows = []
    for ranks in options.ranks:
        launches = [launch("collectives", ranks, arguments, kind) for kind in kinds]
        rows += [{"buffers": buffers} | _row(*same) for same in zip(*launches, strict=True)]
    notes = [
        "times are medians in microseconds over rounds in which the contestants take turns; the slowest rank counts",
        f"and medians over {len(kinds)} launches of all processes; buffers {buffers}",
        speed_page.summary(rows),
    ]
    if kinds[0] is None:
        notes.append("no MPI took part: --mpi mpich openmpi intel")
    return Result("collectives on one host", rows, notes, keys=("buffers", "collective", "ranks", "bytes"))


def publish() -> None:
    """Write the page of all makes, with pictures."""
    speed_page.write(_plots)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks collectives")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=COLLECTIVES, default=list(COLLECTIVES))
    parser.add_argument("--sizes", type=parse_bytes, nargs="+")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--mpi", nargs="+", choices=list(PACKAGES))
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _sizes(name: str, chosen: list[int] | None) -> tuple[int, ...]:
    return tuple(chosen) if chosen else (LEAST.get(name, SIZES[0]), *SIZES[1:])


def _rank_main() -> None:
    options = _options(sys.argv[1:])
    import torch
    import torch.distributed as dist

    import meshwright  # noqa: F401  (registers the backend)

    rank, ranks, comm = join(options.folder)
    groups = {"meshwright": dist.new_group(backend="meshwright"), "gloo": dist.group.WORLD}
    rows = []
    for name in options.only:
        for size in _sizes(name, options.sizes):
            sets = sets_of(size, ranks, options.cold)
            contestants = {kind: torch_call(name, size, ranks, group, sets) for kind, group in groups.items()}
            if comm is not None:
                contestants[this_mpi()] = mpi_call(name, size, ranks, comm, sets)
            if name == "all_reduce":
                a, b = torch.zeros(size // 4), torch.ones(size // 4)
                contestants["copy"] = lambda a=a, b=b: a.copy_(b)
            times_s = race(contestants, options.rounds, groups["meshwright"])
            rows.append({"collective": name, "ranks": ranks, "bytes": size, "times_s": times_s})
    finish(rank, options.output, rows)


def _row(*launches: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one collective, rank count and size from what each launch measured of it."""
    row: dict[str, Any] = {key: launches[0][key] for key in ("collective", "ranks", "bytes")}
    row["size"] = format_bytes(row["bytes"])
    times_s = [one["times_s"] for one in launches]
    over: dict[str, float] = {}
    for kind in CONTESTANTS:
        mine = [times for times in times_s if kind in times]
        row[f"{kind}_us"] = round(statistics.median(times[kind] for times in mine) * 1e6, 2) if mine else None
        if mine:
            over[kind] = statistics.median(times[kind] / times["meshwright"] for times in mine)
    mpis = [over[kind] for kind in PACKAGES if kind in over]
    row["gloo/ours"] = round(over["gloo"], 2)
    row["best mpi/ours"] = round(min(mpis), 2) if mpis else None
    row["ours/copy"] = round(1 / over["copy"], 2) if "copy" in over else None
    return row


def _bytes_tick(size_bytes: float) -> str:
    """Return a power of ten in bytes with its unit."""
    power = min(3, int(log10(size_bytes)) // 3)
    return f"{size_bytes / 1000**power:g} {('B', 'kB', 'MB', 'GB')[power]}"


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
        path.write_text(
            log_log_svg(f"{name}, {ranks} ranks", "size", "time", lines, _bytes_tick, lambda us: format_time(us * 1e-6))
        )
        paths.append(path)
    return paths


if __name__ == "__main__":
    _rank_main()
