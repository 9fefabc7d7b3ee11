"""The result of a benchmark, how it is printed, and the description of the machine beside it."""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# a folder that takes results, pictures and pages in place of those of the repository: for a trial
TRIAL = os.environ.get("MESHWRIGHT_TRIAL", "")
RESULTS = Path(TRIAL) if TRIAL else Path(__file__).parent / "results"
DOCS = Path(TRIAL) if TRIAL else Path(__file__).parents[1] / "docs"
GENERATED = DOCS if TRIAL else DOCS / "generated"  # whole pages that programs write
MODULES = {"async": "asynchronous"}  # names that no module can have, for they are keywords


def banner(command: str) -> str:
    """Return the line below the heading of a page that a command writes as a whole."""
    return f"> Generated page: `{command}` writes it, and a change made here is lost.\n"


def module_of(name: str) -> str:
    """Return the module of a benchmark."""
    return MODULES.get(name, name)


@dataclass(frozen=True)
class Result:
    """Rows (one dict each; what one lacks of the others' keys is empty) and what a reader must know about them."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    keys: Sequence[str] = ()  # columns that say what a row measured, where rows are kept by make of machine (`makes`)

    def __post_init__(self) -> None:
        columns = dict.fromkeys(key for row in self.rows for key in row)
        self.rows[:] = [{key: row.get(key, "") for key in columns} for row in self.rows]


def known_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark's last results, for one that is run part by part."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def alternating_medians(
    contestants: dict[str, Callable[[], float]], rounds: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Call each contestant once a round, in turn; return the median of what each returned, and all samples."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            samples[name].append(measure())
    return {name: statistics.median(values) for name, values in samples.items()}, samples


def print_table(result: Result) -> None:
    """Print the rows as a table."""
    table = Table(title=result.title, title_justify="left")
    columns: Sequence[str] = list(result.rows[0]) if result.rows else []
    for name in columns:
        table.add_column(name, justify="right" if isinstance(result.rows[0][name], int | float) else "left")
    for row in result.rows:
        table.add_row(*(f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]) for c in columns))
    console = Console()
    console.print(table)
    for note in result.notes:
        console.print(f"- {note}", highlight=False)


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to compare the figures with their own."""
    make = make_of_machine()
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "cpu": make.split(", family")[0],
        "make": make,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "commit": commit.stdout.strip(),
    }


def write_document(
    path: Path, name: str, machine: dict[str, Any], rows: list[dict[str, Any]], notes: list[str]
) -> Path:
    """Write the results of a benchmark with the machine that they were measured on; return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": name, "machine": machine, "rows": rows, "notes": notes}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def make_of_machine() -> str:
    """Return the processor's name with family and model, by which the makes behind one name differ."""
    facts = dict(
        [part.strip() for part in line.split(":", 1)]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if ":" in line
    )
    name = facts.get("model name", "unknown")
    return f"{name}, family {facts['cpu family']}, model {facts['model']}" if "cpu family" in facts else name
