"""Tables of Gloo's own benchmark: the median time of each number of elements of 4 bytes."""

import re

from ..table import Row
from .tables import ReadTable

_ALGORITHM = re.compile(r"^\s*Algorithm:\s+(?P<what>\w+)")
_OPTIONS = re.compile(r"^\s*Options:\s+processes=(?P<ranks>\d{1,6})\b")
_COLUMNS = re.compile(r"^\s*(?:size \(B\)\s+)?elements\s+min \(us\)\s+p50 \(us\)")
_ROW = re.compile(r"^\s*\d+(?:\s+\d+(?:\.\d+)?){5,7}\s*$")
_WIDTHS = (2, 4, 8)
_STARTS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
}


def read_gloo(text: str, where: str) -> list[ReadTable]:
    """Return the tables of Gloo's benchmark; [] where there is none."""
    tables: list[ReadTable] = []
    what, ranks = "", None
    columns: list[str] = []
    rows: list[Row] = []
    for line in [*text.splitlines(), "Algorithm:   none"] if "p50 (us)" in text else ():
        if algorithm := _ALGORITHM.match(line):
            if rows:
                tables.append(
                    ReadTable(
                        name=what, tool="Gloo benchmark", collective=_collective(what), ranks=ranks, rows=tuple(rows)
                    )
                )
            what, ranks, columns, rows = algorithm["what"], None, [], []
        elif options := _OPTIONS.match(line):
            ranks = int(options["ranks"]) or None
        elif _COLUMNS.match(line):
            columns = re.findall(r"\S+(?: \([^)]*\))?", line)
        elif columns and _ROW.match(line) and len(words := line.split()) == len(columns):
            row = _row(dict(zip(columns, map(float, words), strict=True)), _collective(what), ranks)
            rows += [row] if row else []
    return tables


def _collective(what: str) -> str | None:
    return next((name for start, name in _STARTS.items() if what.lower().removeprefix("cuda_").startswith(start)), None)


def _row(values: dict[str, float], collective: str | None, ranks: int | None) -> Row | None:
    elements, time_s = round(values["elements"]), values["p50 (us)"] * 1e-6
    if not elements or time_s <= 0 or (collective == "all_gather" and ranks is None):
        return None
    said = values.get("avg (GB/s)", 0.0) * 2**30 * time_s / elements  # gigabytes are powers of two there
    width = min(_WIDTHS, key=lambda w: abs(w - said)) if values.get("avg (GB/s)", 0.0) > 0.1 else 4
    size = round(values["size (B)"]) if "size (B)" in values else elements * width
    return Row(
        collective=collective, backend="gloo", ranks=ranks, time_s=time_s, element_bytes=width,
        bytes=size * (ranks or 1) if collective == "all_gather" else size,
    )  # fmt: skip
