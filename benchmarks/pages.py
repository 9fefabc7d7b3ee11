"""Tables of measurements in the pages of docs/: what benchmarks/results holds, put between marks, never typed.

A page asks for the results of a benchmark by two lines: `<!-- measured: NAME -->` and `<!-- end of NAME -->`; for some
of the rows by `<!-- measured: NAME column=value -->`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.result import DOCS, RESULTS

PART = re.compile(r"<!-- measured: (\w+)((?: \S+=\S+)*) -->\n.*?<!-- end of \1 -->\n", re.DOTALL)


def refresh() -> None:
    """Write every page anew whose results have changed."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if (now := with_results(text)) != text:
            page.write_text(now)


def with_results(text: str) -> str:
    """Return a page's text with the table of each part as benchmarks/results has it."""
    return PART.sub(lambda part: _part(part[1], part[2]), text)


def grid(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of the same keys as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _part(name: str, chosen: str) -> str:
    """Return the chosen rows with four digits, notes, and the machine that they were measured on."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    machine = found["machine"]
    where = (
        f"`python -m benchmarks {name}`: {machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, "
        f"torch {machine['torch']}, commit {machine['commit']}"
    )
    notes = "".join(f"- {note}\n" for note in [*found["notes"], where])
    wanted = dict(word.split("=", 1) for word in chosen.split())
    rows = [row for row in found["rows"] if all(str(row[key]) == value for key, value in wanted.items())]
    if not rows:
        raise SystemExit(f"benchmarks/results/{name}.json has no rows with{chosen}, which a page of docs/ asks for")
    told = [key for key in rows[0] if any(row[key] != "" for row in rows)]  # what other rows say is left out
    table = grid([{key: _cell(value) for key, value in row.items() if key in told} for row in rows])
    return f"<!-- measured: {name}{chosen} -->\n\n{table}\n{notes}\n<!-- end of {name} -->\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "yes" if value is True else "**no**" if value is False else "" if value is None else str(value)
