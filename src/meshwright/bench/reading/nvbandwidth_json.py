"""The JSON of nvbandwidth (-j): the matrices that it prints as text, one of each test case."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...files import sound
from .json_objects import json_objects
from .matrices import damage_in, damaged_table, matrix_table, without_figures
from .tables import ReadTable

_DEVICE = re.compile(r"^\d+: (\w[^(]*?) \(")  # as newer versions list the GPUs
_SLACK = 1e-4  # of a sum: cells have six digits


def read_nvbandwidth_json(text: str, where: str) -> list[ReadTable]:
    """Return a table for each test case with a matrix of bandwidths; [] where a text is no such JSON."""
    found = [data["nvbandwidth"] for data in json_objects(text) if isinstance(data.get("nvbandwidth"), dict)]
    tables: list[ReadTable] = []
    for data in found:
        sound(data, where=where)
        dicts = _cases(data)
        devices = [match[1] for words in data.values() if isinstance(words, list) for match in _listed(words)]
        tables += _with_failures([table for case in dicts if (table := _table(case, devices, where))], data, dicts)
    if found and not tables:
        said = next((str(data["error"]) for data in found if data.get("error")), _nothing_measured(found))
        raise InputError(f"{where}: nvbandwidth measured no bandwidth: {said[:200]}")
    return tables


def _cases(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    cases = data.get("testcases")
    return [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []


def _nothing_measured(found: Sequence[Mapping[str, Any]]) -> str:
    cases = [case for data in found for case in _cases(data)]
    waived = [str(case.get("name", "")) for case in cases if case.get("status") == "Waived"]
    return without_figures(waived) or "no test case has a matrix"


def _with_failures(
    tables: Sequence[ReadTable], data: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]
) -> list[ReadTable]:
    """Return the tables with what failed beside them: data that was damaged on its way, other errors, tests left out.

    An error of a test stands at the root as well; the test is the last that did not pass.
    """
    failed = [case for case in cases if str(case.get("status", "Passed")) not in {"Passed", "Waived"}]
    names = [str(case.get("name", "")) for case in failed or cases]
    errors = dict.fromkeys(str(one["error"]) for one in (data, *failed) if one.get("error"))
    found = [
        *tables,
        *(damaged_table(names[-1] if names else "", damage_in(words)) for words in errors if damage_in(words)),
    ]
    waived = without_figures([str(case.get("name", "")) for case in cases if case.get("status") == "Waived"])
    notes = [f"nvbandwidth ended with an error: {words[:200]}" for words in errors if not damage_in(words)]
    if found and (waived or notes):
        found[-1] = replace(found[-1], notes=(*found[-1].notes, *notes, *([waived] if waived else ())))
    return found


def _listed(words: Sequence[Any]) -> list[re.Match[str]]:
    return [match for word in words if isinstance(word, str) and (match := _DEVICE.match(word))]


def _table(case: Mapping[str, Any], devices: Sequence[str], where: str) -> ReadTable | None:
    """Return the matrix of a test case, None where it was waived, failed or measured a latency."""
    name, title, rows = str(case.get("name", "")), case.get("bandwidth_description"), case.get("bandwidth_matrix")
    if not isinstance(title, str) or "bandwidth" not in title or not isinstance(rows, list):
        return None
    at = f"{where}: {name or title}"
    if not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows) or not rows or not rows[0]:
        raise InputError(f"{at}: expected a matrix with rows of one length")
    cells = [[str(cell) for cell in row] for row in rows]
    table = matrix_table(title, [str(i) for i in range(len(cells[0]))], cells, name, devices, at)
    total, said = case.get("sum"), sum(rate.rate_bytes_per_s for rate in table.rates) / 1e9
    if isinstance(total, int | float) and abs(total - said) > _SLACK * len(table.rates) * max(abs(total), said, 1.0):
        raise InputError(f"{at}: sum {total:g} is not that of the matrix, {said:g}")
    return table
