"""docs/generated/backend-speed.md: what `collectives` has measured, by make of machine.

The rows of each make lie in results/speed/, so that a table stays when the next machine is of another make; a part that
is measured again replaces its own rows.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.contestants import KI
from benchmarks.mpis import PACKAGES
from benchmarks.result import GENERATED, RESULTS, banner, describe_machine
from meshwright.units import format_bytes

FOLDER = RESULTS / "speed"
PAGE = GENERATED / "backend-speed.md"
KEY = ("buffers", "collective", "ranks", "bytes")
RATIOS = {"best mpi/ours": "Time of the best MPI over ours", "gloo/ours": "Gloo's time over ours"}


def keep(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Put rows beside those of this make that are known; return all of them, with what is said of the machine."""
    machine = describe_machine()
    make = make_of_machine()
    path = FOLDER / f"{make.lower().replace(',', '').replace(' ', '-')}.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    fresh = {_key(row): row | {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": machine["commit"]} for row in rows}
    merged = {_key(row): row for row in known} | fresh
    document = {"make": make, "machine": machine, "rows": [merged[key] for key in sorted(merged)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return document


def make_of_machine() -> str:
    """Return the processor's name with family and model, by which the makes behind one name differ."""
    facts = dict(
        [part.strip() for part in line.split(":", 1)]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if ":" in line
    )
    name = facts.get("model name", "unknown")
    return f"{name}, family {facts['cpu family']}, model {facts['model']}" if "cpu family" in facts else name


def write(pictures: list[Path]) -> None:
    """Write the page of all makes; the pictures are of this machine's."""
    lines = [
        "# Collectives on one host",
        "",
        banner("python -m benchmarks collectives --mpi mpich openmpi intel --plot"),
        "All contestants move tensors of torch's allocator and take turns in the same processes; ratios are",
        "medians over launches of the ratio within a launch. Sizes are of the whole: all-gather's output,",
        "reduce-scatter's input. Warm: the same buffers again; cold: buffers that together are four times the last",
        "cache, in turns.",
    ]
    documents = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    for document in documents:
        lines += ["", *_section(document)]
    if pictures:
        make = make_of_machine()
        lines += ["", f"## Time over size: {make}", "", *ranks_not_measured(documents, make)]
        for picture in pictures:
            _, collective, ranks = picture.stem.split("-")
            lines.append(f"![time over size of {collective} on {ranks} ranks](../images/{picture.name})")
    PAGE.write_text("\n".join(lines) + "\n")


def ranks_not_measured(documents: Sequence[Mapping[str, Any]], make: str) -> list[str]:
    """Return a paragraph about the numbers of ranks that other makes have and `make` has not; none where it has all."""
    of_make = {document["make"]: {row["ranks"] for row in document["rows"]} for document in documents}
    missing = set().union(*of_make.values()) - of_make.get(make, set())
    if not missing:
        return []
    ranks = " and ".join(map(str, sorted(missing)))
    return [f"With {ranks} ranks nothing has been measured on this make, so that no picture is drawn of them.", ""]


def _section(document: dict[str, Any]) -> list[str]:
    machine, rows = document["machine"], document["rows"]
    dates = sorted({row["date"] for row in rows})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    lines = [
        f"## {document['make']}",
        "",
        f"{machine['cores']} cores, kernel {machine['kernel']}, torch {machine['torch']}, measured {span}.",
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
    sizes = sorted({row["bytes"] for row in rows})
    lines = [f"| | ranks | {' | '.join(map(format_bytes, sizes))} |", f"|---|---|{'---|' * len(sizes)}"]
    for (name, ranks), same in groupby(rows, key=lambda row: (row["collective"], row["ranks"])):
        of_size = {row["bytes"]: row.get(column) for row in same}
        cells = ("" if of_size.get(size) is None else f"{of_size[size]:g}" for size in sizes)
        lines.append(f"| {name} | {ranks} | {' | '.join(cells)} |")
    return lines


def summary(rows: list[dict[str, Any]]) -> str:
    """Return one line about the cells from 64 KiB on against the best MPI of each."""
    large = [row["best mpi/ours"] for row in rows if row["bytes"] >= 64 * KI and row["best mpi/ours"] is not None]
    if not large:
        return f"Against MPI ({', '.join(PACKAGES)}): not measured."
    behind = sum(ratio < 1 for ratio in large)
    return (
        f"From 64 KiB on, the best MPI's time over ours: median {statistics.median(large):.2f}, "
        f"least {min(large):.2f}, {behind} of {len(large)} cells below 1."
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)
