"""docs/generated/backend-speed.md: what `collectives` has measured, by make of machine."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.contestants import KI
from benchmarks.makes import days, documents
from benchmarks.mpis import PACKAGES
from benchmarks.result import GENERATED, banner
from meshwright.units import format_bytes

PAGE = GENERATED / "backend-speed.md"
RATIOS = {
    "best mpi/ours": "Time of the best MPI over ours",
    "gloo/ours": "Gloo's time over ours",
    "ours/copy": "Our time over that of every rank copying as much in its own memory at once, which bounds large ones",
}


def write(draw: Callable[[list[dict[str, Any]]], list[Path]]) -> None:
    """Write the page of all makes; `draw` makes pictures of the rows of the make that was measured last."""
    makes = documents("collectives")
    lines = [
        "# Collectives on one host",
        "",
        banner("python -m benchmarks collectives --mpi mpich openmpi intel"),
        "All contestants move tensors of torch's allocator and take turns in the same processes; ratios are",
        "medians over launches of the ratio within a launch. Sizes are of the whole: all-gather's output,",
        "reduce-scatter's input. Warm: the same buffers again; cold: buffers that together are four times the last",
        "cache, in turns.",
    ]
    for document in makes:
        lines += ["", *_section(document)]
    drawn = most_ranks(makes)
    make = drawn["machine"]["make"]
    lines += ["", f"## Time over size: {make}", "", *ranks_not_measured(makes, make)]
    for picture in draw([row for row in drawn["rows"] if row["buffers"] == "warm"]):
        _, collective, ranks = picture.stem.split("-")
        lines.append(f"![time over size of {collective} on {ranks} ranks](../images/{picture.name})")
    PAGE.write_text("\n".join(lines) + "\n")


def most_ranks(makes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the make that was measured with most numbers of ranks, warm; of equals the first, which is the newest."""
    return max(makes, key=lambda one: len({row["ranks"] for row in one["rows"] if row["buffers"] == "warm"}))


def ranks_not_measured(makes: Sequence[Mapping[str, Any]], make: str) -> list[str]:
    """Return a paragraph about the numbers of ranks that other makes have and `make` has not; none where it has all."""
    of_make = {document["machine"]["make"]: {row["ranks"] for row in document["rows"]} for document in makes}
    missing = set().union(*of_make.values()) - of_make.get(make, set())
    if not missing:
        return []
    ranks = " and ".join(map(str, sorted(missing)))
    return [f"With {ranks} ranks nothing has been measured on this make, so that no picture is drawn of them.", ""]


def _section(document: dict[str, Any]) -> list[str]:
    machine, rows = document["machine"], document["rows"]
    lines = [
        f"## {machine['make']}",
        "",
        f"{machine['cores']} cores, kernel {machine['kernel']}, torch {machine['torch']}, measured {days(document)}.",
    ]
    for buffers, mine in groupby(rows, key=lambda row: row["buffers"]):
        part = list(mine)
        lines += ["", f"### {buffers.capitalize()} buffers", "", summary(part)]
        for column, title in RATIOS.items():
            if any(row.get(column) is not None for row in part):
                lines += ["", f"{title}:", "", *_grid(part, column)]
        lines += ["", "Microseconds:", "", *_grid(part, "meshwright_us")]
    return lines


def _grid(rows: list[dict[str, Any]], column: str) -> list[str]:
    """Return a table with a row for each collective and number of ranks, and a column for each size."""
    shown = [row for row in rows if row.get(column) is not None]
    sizes = sorted({row["bytes"] for row in shown})
    lines = [f"| | ranks | {' | '.join(map(format_bytes, sizes))} |", f"|---|---|{'---|' * len(sizes)}"]
    for (name, ranks), same in groupby(shown, key=lambda row: (row["collective"], row["ranks"])):
        of_size = {row["bytes"]: f"{row[column]:g}" for row in same}
        cells = (of_size.get(size, "") for size in sizes)
        lines.append(f"| {name} | {ranks} | {' | '.join(cells)} |")
    return lines


def summary(rows: list[dict[str, Any]]) -> str:
    """Return one line about the cells from 64 KiB on, against the best MPI of each and against Gloo."""
    gloo = f"Gloo's time over ours: least {min(row['gloo/ours'] for row in rows):.2f} of all cells."
    large = [row["best mpi/ours"] for row in rows if row["bytes"] >= 64 * KI and row["best mpi/ours"] is not None]
    if not large:
        return f"Against MPI ({', '.join(PACKAGES)}): not measured. {gloo}"
    behind = sum(ratio < 1 for ratio in large)
    return (
        f"From 64 KiB on, the best MPI's time over ours: median {statistics.median(large):.2f}, "
        f"least {min(large):.2f}, {behind} of {len(large)} cells below 1. {gloo}"
    )
