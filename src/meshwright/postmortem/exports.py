"""Logs as services export them, one line of the job in each record: JSON, CSV, the outputs of a notebook.

Docker, Kaggle, Google Cloud, CloudWatch, Loki, journald, loggers of programs. What a record says of time, pod and rank
goes in front of its line, as launchers put it there.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..files import without_halves

_RECORD = ('{"', '[{"', ',{"')  # how a record begins, alone or in a list
_BESIDE: dict[str, frozenset[str]] = {  # the keys of a record's text, and the ones of which it then has one, too
    "log": frozenset({"stream", "time", "kubernetes", "docker"}),
    "data": frozenset({"stream_name"}),  # Kaggle's
    "textPayload": frozenset({"insertId", "timestamp", "logName"}),
    "MESSAGE": frozenset({"__REALTIME_TIMESTAMP", "_PID", "_HOSTNAME"}),
    "line": frozenset({"labels"}),
    "message": frozenset(
        {"ingestionTime", "logStreamName", "severity", "insertId", "level", "levelname", "stream", "kubernetes"}
    ),
}
_NO_LINE = {"reason", "involvedObject"}  # of an event of Kubernetes
_TIMES = ("timestamp", "time", "@timestamp", "asctime")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_FIELD = re.compile(
    r"^\s+\"(?:textPayload|message)\": (?P<text>\"(?:[^\"\\]|\\.)*+\"),?$"
)  # of a record on several lines
_FIELD_ROWS = re.compile(r"^[ \t]+\"(?:textPayload|message)\": \"", re.MULTILINE)
_OF_RECORDS = ('"textPayload": ', '"ingestionTime": ')
_ELEMENT = re.compile(r"^\s+(?:\"text\": )?(?P<text>\"(?:[^\"\\]|\\.)*+\"),?$")  # of the lists of a notebook
_COLUMNS = {"@message", "message", "Line", "textPayload", "Message"}
_TIME_COLUMNS = {"@timestamp", "timestamp", "Time", "Date", "tsNs", "time"}
_FEW = 3  # fields, which a file of another kind may have


def lines_of(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of a log with their numbers in its file, out of the records in which a service keeps them."""
    numbered: Iterable[tuple[int, str]] = enumerate(text.split("\n"), first)
    head = text[:4096].lstrip("\ufeff \t\r\n")
    if head.startswith("{") and '"nbformat"' in text and '"outputs"' in text:
        yield from _of_notebook(numbered)
    elif (
        head[:1] in {"[", "{"} and any(sign in text for sign in _OF_RECORDS) and len(_FIELD_ROWS.findall(text)) >= _FEW
    ):
        yield from _of_fields(numbered)
    elif (column := _column(head.partition("\n")[0])) is not None:
        yield from _of_table(text, column, first)
    else:
        for number, line in numbered:
            if line.startswith(_RECORD):
                for part in _of_record(line).split("\n"):
                    yield number, part
            else:
                yield number, line


def _of_record(line: str) -> str:
    """Return the job's own lines out of one record; a line that is none as it is."""
    try:
        value = json.loads(line.strip().lstrip("[,").rstrip("],"))
    except (ValueError, RecursionError):
        return line
    if not isinstance(value, dict) or value.keys() & _NO_LINE:
        return line
    inner = value.get("jsonPayload")
    record = {**value, **inner} if isinstance(inner, dict) else value
    for key, beside in _BESIDE.items():
        said = record.get(key)
        if isinstance(said, str) and record.keys() & beside:
            before = _before(record) if key != "log" else ""
            return "\n".join(before + without_halves(part) for part in said.rstrip("\r\n").split("\n"))
    return line


def _before(record: dict[str, Any]) -> str:
    """Return what a record says of its pod, its time and its rank, as launchers and viewers write it before a line."""
    resource = record.get("resource")
    places = [record, record.get("labels"), record.get("kubernetes"), resource]
    places.append(resource.get("labels") if isinstance(resource, dict) else None)
    pods = {p[key] for p in places if isinstance(p, dict) for key in ("pod", "pod_name") if isinstance(p.get(key), str)}
    stamps = [told for key in _TIMES if isinstance(told := record.get(key), str) and _STAMP.fullmatch(told)]
    rank = record.get("rank")
    before = f"[pod/{pods.pop()}/log] " if len(pods) == 1 else ""
    before += f"{stamps[0]}\t" if stamps else ""
    return before + (f"[rank{rank}]: " if type(rank) is int and rank >= 0 else "")


def _of_fields(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines in a list of records that is laid out on several lines each."""
    for number, row in numbered:
        if field := _FIELD.match(row):
            for part in json.loads(field["text"], strict=False).rstrip("\r\n").split("\n"):
                yield number, without_halves(part)


def _of_notebook(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the outputs of the cells of a notebook (.ipynb), without what these were made of."""
    is_output = False
    for number, row in numbered:
        if '"outputs": [' in row or '"source": ' in row:
            is_output = '"outputs": [' in row
        elif is_output and (element := _ELEMENT.match(row)):
            for part in json.loads(element["text"], strict=False).rstrip("\r\n").split("\n"):
                yield number, without_halves(part)


def _column(head: str) -> int | None:
    """Return the place of the column of lines in the head of a table of times and lines, None where it is no such."""
    names = [name.strip().strip('"') for name in head.strip().split(",")]
    columns = [place for place, name in enumerate(names) if name in _COLUMNS]
    return columns[0] if len(columns) == 1 and set(names) & _TIME_COLUMNS else None


def _of_table(text: str, column: int, first: int) -> Iterator[tuple[int, str]]:
    """Yield the lines in one column of a table (CSV), as far as it can be read."""
    reader = csv.reader(text.splitlines(keepends=True))
    begun = 0
    try:
        for row in reader:
            if begun and column < len(row):
                for at, part in enumerate(row[column].split("\n")):
                    yield first + begun + at, part
            begun = reader.line_num
    except csv.Error:
        return
