"""Records of services that keep logs: which line of the job one holds, and what it says of its time, pod and rank."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .clocks import STAMP, stamp_of_count

Record = dict[str, Any]

_BESIDE: dict[str, frozenset[str]] = {  # the keys of a record's text, and the ones of which it then has one, too
    "log": frozenset({"stream", "time", "kubernetes", "docker"}),
    "data": frozenset({"stream_name"}),  # Kaggle's
    "textPayload": frozenset({"insertId", "timestamp", "logName"}),
    "MESSAGE": frozenset({"__REALTIME_TIMESTAMP", "_PID", "_HOSTNAME"}),
    "line": frozenset({"labels", "stream", "fields", "date"}),
    "@message": frozenset({"@timestamp", "@logStream", "@ptr"}),
    "_raw": frozenset({"_time"}),  # Splunk's
    "message": frozenset(
        {
            *("ingestionTime", "logStreamName", "logStream", "severity", "insertId", "level", "levelname", "stream"),
            *("kubernetes", "@timestamp", "service"),
        }
    ),
}
_NO_LINE = {"reason", "involvedObject"}  # of an event of Kubernetes
_INNER = ("jsonPayload", "content", "attributes", "_source", "result")  # where some keep a record's own fields
_LISTS = ("events", "data", "result", "hits", "logs", "entries", "results")  # where some keep their records
_DEEPEST = 4
_TIMES = ("timestamp", "time", "@timestamp", "asctime", "Time", "Date", "_time", "tsNs", "date")
_STAMP = re.compile(STAMP)
_IN_UTC = re.compile(r"(?P<clock>[\d-]{10}[T ]\d\d:\d\d:\d\d)(?:\.(?P<parts>\d+))?Z")
_STREAMS = ("logStreamName", "@logStream", "logStream")
_RANK = re.compile(r"rank[_-]?(\d{1,6})(?!.*rank[_-]?\d)", re.IGNORECASE)
_LABEL = re.compile(r"\[[A-Za-z_]+(\d{1,6})\]:|\[rank(\d{1,6})\]")
_HEAD = 160  # characters in which a label stands
_OF_POD = ("pod", "pod_name")


def records_in(value: object, depth: int = 0) -> Iterator[Record]:
    """Yield the records in a JSON value, alone or in the lists of a service's answer, that hold lines of a job."""
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and one.keys() == {"field", "value"} for one in value):
            fields = {one["field"]: one["value"] for one in value if isinstance(one["field"], str)}
            yield from records_in(fields, depth)  # CloudWatch Insights
            return
        for one in value if depth <= _DEEPEST else ():
            yield from records_in(one, depth + 1)
    elif isinstance(value, dict):
        if isinstance(value.get("stream"), dict) and isinstance(value.get("values"), list):
            yield from _of_stream(value["stream"], value["values"])
        elif error := _of_error_file(value):
            yield error
        elif (record := _flat(value)) and _key_of(record):
            yield record
        else:
            for key in _LISTS:
                if isinstance(value.get(key), (list, dict)) and depth <= _DEEPEST:
                    yield from records_in(value[key], depth + 1)


def _of_stream(labels: Record, values: Sequence[Any]) -> Iterator[Record]:
    """Yield the lines of one of Loki's streams, each with its nanoseconds since 1970."""
    for one in values:
        is_line = isinstance(one, list) and len(one) > 1 and all(isinstance(part, str) for part in one[:2])
        if is_line and (stamp := stamp_of_count(one[0])):
            yield {"line": one[1], "stream": labels, "timestamp": stamp, "at_ns": int(one[0])}


def _of_error_file(value: Record) -> Record | None:
    """Return the traceback in a file of torchelastic (`error.json`) in which a process that raised leaves its error."""
    error = value.get("message")
    told = error.get("extraInfo") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(told, dict):
        return None
    stack, message = (one if isinstance(one, str) else "" for one in (told.get("py_callstack"), error.get("message")))
    if message and message.splitlines()[0] not in stack:  # the stack ends in the error, where it is whole
        stack = f"{stack.rstrip()}\n{message}" if stack else message
    return {"line": stack, "fields": "", "timestamp": told.get("timestamp")} if stack else None


def _flat(value: Record) -> Record | None:
    """Return a record with the fields that it keeps in an inner one; None for what is no line of a job."""
    record = dict(value)
    for key in _INNER:
        if isinstance(inner := value.get(key), dict):
            record.update(inner)
    return None if record.keys() & _NO_LINE else record


def _key_of(record: Record) -> str | None:
    """Return the key of the line in a record, None where it has none."""
    return next((key for key, beside in _BESIDE.items() if isinstance(record.get(key), str) and record.keys() & beside),
                None)  # fmt: skip


def as_record(fields: Record, line: str) -> Record:
    """Return the fields of a table's row as a record of one line."""
    return {**fields, "line": line, "fields": ""}


def said_by(record: Record) -> str:
    """Return the text of a record."""
    key = "line" if "fields" in record and isinstance(record.get("line"), str) else _key_of(record)
    return str(record[key]) if key else ""


def lines_in(record: Record) -> list[str]:
    """Return the job's own lines in a record."""
    return said_by(record).rstrip("\r\n").split("\n")


def fronts_of(records: Sequence[Record]) -> list[str]:
    """Return what each record says of its pod, its time and its rank, as launchers write it before a line."""
    of_streams = _ranks_of_streams(records)
    return [_front(record, of_streams) for record in records]


def _front(record: Record, of_streams: dict[str, int]) -> str:
    if "log" in record and "kubernetes" not in record and _key_of(record) == "log":
        return ""  # of Docker's own file
    pods = _pods(record)
    stamps = (stamp for key in _TIMES if (stamp := _stamp(record.get(key))))
    rank = record.get("rank")
    if isinstance(rank, str) and rank.isdecimal() and len(rank) <= 6:
        rank = int(rank)
    front = f"[pod/{pods.pop()}/log] " if len(pods) == 1 else ""
    front += next(stamps, "")
    if type(rank) is not int or rank < 0:
        rank = of_streams.get(_stream(record))
    return front + (f"[rank{rank}]: " if rank is not None else "")


def _pods(record: Record) -> set[str]:
    resource, cluster = record.get("resource"), record.get("kubernetes")
    places = [record, record.get("labels"), record.get("fields"), record.get("stream"), cluster, resource]
    places.append(resource.get("labels") if isinstance(resource, dict) else None)
    found = {p[key] for p in places if isinstance(p, dict) for key in _OF_POD if isinstance(p.get(key), str)}
    pod = cluster.get("pod") if isinstance(cluster, dict) else None
    if isinstance(pod, dict) and isinstance(pod.get("name"), str):
        found.add(pod["name"])
    tags = record.get("tags")
    for tag in tags if isinstance(tags, list) else ():
        if isinstance(tag, str) and tag.startswith("pod_name:"):
            found.add(tag.removeprefix("pod_name:"))
    return {pod for pod in found if pod and "/" not in pod and "]" not in pod}


def _stamp(told: object) -> str:
    """Return a record's time as it stands before a line, "" for none: of UTC as kubectl writes it."""
    text = str(told) if type(told) in {str, int} else ""
    if count := stamp_of_count(text):
        return f"{count} "
    if utc := _IN_UTC.fullmatch(text):
        return f"{utc['clock'].replace(' ', 'T')}.{(utc['parts'] or '')[:9]:0<3}Z "
    return f"{text}\t" if _STAMP.fullmatch(text) else ""


def _stream(record: Record) -> str:
    return next((told for key in _STREAMS if isinstance(told := record.get(key), str)), "")


def _ranks_of_streams(records: Sequence[Record]) -> dict[str, int]:
    """Return the ranks after which the streams of a log are named, one for each and no two alike.

    Not where a stream bears another rank's label, too: it is a launcher's, or counts on its host.
    """
    found = {name: int(named[1]) for name in {_stream(one) for one in records} if (named := _RANK.search(name))}
    if len(found) < 2 or len(set(found.values())) < len(found):
        return {}
    for record in records:
        label = _LABEL.match(said_by(record)[:_HEAD])
        if label and int(label[1] or label[2]) != found.get(_stream(record), int(label[1] or label[2])):
            return {}
    return found
