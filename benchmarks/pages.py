"""Tables of measurements in the pages of docs/: what benchmarks/results holds, put between marks, never typed.

A page asks for the results of a benchmark by two lines: `<!-- measured: NAME -->` and `<!-- end of NAME -->`; for some
of the rows by `<!-- measured: NAME column=value -->`. Results by make of machine come as one table for each make.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.makes import days, documents
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
    """Return the chosen rows of each make of machine, or of the one machine that they were measured on."""
    path = RESULTS / f"{name}.json"
    by_make = not path.exists()
    found = documents(name) if by_make else [json.loads(path.read_text())]
    tables = [table for document in found if (table := _table(document, chosen, by_make))]
    if not tables:
        file = name if by_make else f"{name}.json"
        raise SystemExit(f"benchmarks/results/{file} has no rows with{chosen}, which a page of docs/ asks for")
    shown = "\n".join(tables)
    return f"<!-- measured: {name}{chosen} -->\n\n{shown}\n<!-- end of {name} -->\n"


def _table(document: dict[str, Any], chosen: str, by_make: bool) -> str:
    """Return the chosen rows with four digits, notes, and the machine that they were measured on; "" of no rows."""
    wanted = dict(word.split("=", 1) for word in chosen.split())
    rows = [row for row in document["rows"] if all(str(row[key]) == value for key, value in wanted.items())]
    if not rows:
        return ""
    machine = document["machine"]
    where = (
        f"`python -m benchmarks {document['benchmark']}`: {machine['cores']} cores of "
        f"{machine['make' if by_make else 'cpu']}, Linux {machine['kernel']}, "
        f"torch {machine['torch']}, commit {machine['commit']}"
    )
    if by_make:
        where += f", measured {days(document)}"
    notes = "".join(f"- {note}\n" for note in [*document["notes"], where])
    keys = dict.fromkeys(key for row in rows for key in row)  # rows of older runs may lack some
    told = [key for key in keys if key != "date" and any(row.get(key, "") != "" for row in rows)]
    return f"{grid([{key: _cell(row.get(key)) for key in told} for row in rows])}\n{notes}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "yes" if value is True else "**no**" if value is False else "" if value is None else str(value)
