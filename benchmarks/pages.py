"""Tables of measurements in the pages of docs/: written between two marks by the benchmark that measured them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import Result, describe_machine

PAGES = Path(__file__).parents[1] / "docs"


def grid(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of the same keys as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_part(page: Path, name: str, text: str) -> None:
    """Put text between the marks of a part of a page; ValueError where the page has no such part."""
    first, last = f"<!-- {name}: written by `python -m benchmarks {name} --write` -->\n", f"<!-- end of {name} -->"
    before, opening, rest = page.read_text().partition(first)
    _, closing, after = rest.partition(last)
    if not opening or not closing:
        raise ValueError(f"{page}: expected the lines {first.strip()!r} and {last!r}")
    page.write_text(f"{before}{first}\n{text}\n{last}{after}")


def measured_part(result: Result) -> str:
    """Return rows with four digits, notes, and the machine that they were measured on."""
    machine = describe_machine()
    where = f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, commit {machine['commit']}"
    notes = "".join(f"- {note}\n" for note in [*result.notes, where])
    return grid([{name: _cell(value) for name, value in row.items()} for row in result.rows]) + "\n" + notes


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "yes" if value is True else "**no**" if value is False else str(value)
