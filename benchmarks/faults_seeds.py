"""Results that accumulate by seed over several runs of a command: a line of JSON for each, the newest counts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def seed_range(text: str) -> range:
    """Return the seeds that "1..200" or "7" names."""
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def known(path: Path, keys: Sequence[str]) -> list[Row]:
    """Return the rows of a file in the order of these keys, one for each of their values."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = {tuple(row[key] for key in keys): row for row in map(json.loads, lines)}
    return [rows[values] for values in sorted(rows)]


def store(path: Path, row: Row, keys: Sequence[str]) -> None:
    """Add a row, in place of one that has the same values of these keys."""
    rows = {tuple(one[key] for key in keys): one for one in [*known(path, keys), row]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(rows[values]) + "\n" for values in sorted(rows)))
