"""Results by make of machine: a folder of benchmarks/results for each such benchmark, and in it a file for each make.

A table stays when the next machine is of another make; rows that are measured again replace those of their make. Every
row has the day on which it was measured.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.result import RESULTS, Result, describe_machine, write_document


def keep(name: str, result: Result) -> Path:
    """Put the rows of a benchmark beside those of this make that are known; return the file."""
    machine = describe_machine()
    path = RESULTS / name / f"{'-'.join(re.findall('[a-z0-9]+', machine['make'].lower()))}.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    fresh = [row | {"date": day} for row in result.rows]
    rows = list({_key(row, result.keys): row for row in [*known, *fresh]}.values())
    if len(rows) > len(known):  # otherwise each stays in its place
        rows.sort(key=lambda row: _key(row, result.keys))
    return write_document(path, name, machine, rows, result.notes)


def documents(name: str) -> list[dict[str, Any]]:
    """Return what is known of each make, the one measured last first."""
    found = [json.loads(path.read_text()) for path in sorted((RESULTS / name).glob("*.json"))]
    return sorted(found, key=lambda document: max(row["date"] for row in document["rows"]), reverse=True)


def days(document: dict[str, Any]) -> str:
    """Return when the rows were measured: a day, or the first and the last one."""
    first, *_, last = sorted(row["date"] for row in document["rows"] * 2)
    return first if first == last else f"{first} to {last}"


def _key(row: dict[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)
