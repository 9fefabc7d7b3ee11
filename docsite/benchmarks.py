"""The page of benchmark results, from benchmarks/results: every figure as it was written by its benchmark."""

import ast
import json
from pathlib import Path
from typing import Any

from benchmarks.result import module_of

ROOT = Path(__file__).parents[1]
MAX_ROWS = 60


def benchmarks_page() -> str:
    """Return the page as Markdown."""
    parts = [
        "# Benchmarks\n\nGenerated from `benchmarks/results/` with the site; `python -m benchmarks NAME` "
        "measures one anew, its peer in the same run. A file that is not there has not been measured."
    ]
    results = ROOT / "benchmarks/results"
    files = [*results.glob("*.json"), *results.glob("*/*.json")]  # the latter by make of machine
    parts += [_section(json.loads(path.read_text()), path) for path in sorted(files)]
    return "\n\n".join(parts) + "\n"


def heading(document: dict[str, Any], path: Path) -> str:
    """Return the heading of a file of results: the benchmark, and the make of machine where it has a file for each."""
    name = document["benchmark"]
    return f"{name}: {document['machine']['make']}" if path.parent.name == name else name


def _section(document: dict[str, Any], path: Path) -> str:
    name, machine, rows = document["benchmark"], document["machine"], document["rows"]
    source = (ROOT / "benchmarks" / f"{module_of(name)}.py").read_text()
    about = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
    where = ", ".join(f"{key}: {value}" for key, value in machine.items())
    lines = [f"## {heading(document, path)}", "", about, "", f"{where}.", ""]
    if rows:
        columns = list(dict.fromkeys(key for row in rows for key in row))  # rows of older runs may lack some
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(_cell(row.get(key, "")) for key in columns) + " |" for row in rows[:MAX_ROWS]]
        if len(rows) > MAX_ROWS:
            lines += ["", f"{len(rows) - MAX_ROWS} more rows are in `benchmarks/results/{name}`."]
    if document.get("notes"):
        lines += ["", *(f"- {note}" for note in document["notes"])]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
