"""Reports of the times of each rank, and those of dashboards exported as CSV.

A row has one rank with a column for each timer, one timer of a rank (`metric`, `value`), or a column for each timer of
each rank (`rank0 fwd_ms`, `fwd_ms{rank="0"}`).
"""

import csv
import re
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from ..text.lines import LogMessage

_RANKS = {"rank", "global_rank", "world_rank", "rank_id"}
_STEPS = ("step", "iteration", "iter", "global_step")
_TIMES = ("time", "timestamp", "datetime", "date", "ts")
_METRICS = {"metric", "name", "timer", "phase", "series", "field", "region", "section"}
_VALUES = {"value", "mean", "avg", "ms", "seconds", "duration", "duration_ms", "time_ms"}
_TIMER = re.compile(  # the name of one, in words apart
    r"(?:^|_)(?:fwd|forward|bwd|backward|comput\w*|optim\w*|data|load\w*|wait\w*|sync|comm|reduce|gather|scatter|barrier"
    r"|nccl|rccl|exposed|idle|step|iter\w*|total|allreduce|all2all|a2a|h2d|update|attn|mlp)(?:_|$)",
    re.IGNORECASE,
)
NO_TIME = re.compile(
    r"norm|loss|util|mem|temp|token|bytes|power|clock|pct|percent|%|flop|count|size|(?:^|_)(?:lr|gb|mib|w|mhz|id|num)(?:_|$)",
    re.IGNORECASE,
)
_RANK = re.compile(r"(?:rank[ _:=-]?)?(?P<rank>\d{1,6})", re.IGNORECASE)
_OF_RANK = re.compile(r"(?:global_)?rank[ _:=\"'-]{0,3}(?P<rank>\d{1,6})\b[\"']?", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d{1,3})?")
_UNIT = re.compile(r"(?:^|[_ (])(?P<unit>us|ms|s|sec|seconds)\)?$", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "ms": 1e-3}
_HEAD = re.compile(  # of a table with one rank a row
    r"(?:^|,) ?\"?(?:global_|world_)?rank(?:_id)?\"? ?(?:,|$)", re.IGNORECASE
)
_LEAST = 4  # rows, or columns that name ranks
_LONGEST = 1000  # characters of a row


class Report(msgspec.Struct):
    """One report: seconds, or any one unit, of each rank by timer."""

    step: str = ""
    times: dict[int, dict[str, float]] = {}
    lines: dict[int, LogMessage] = {}

    def add(self, rank: int, name: str, value: float, message: LogMessage) -> None:
        """Set the time of one timer of a rank, as a message tells it."""
        self.times.setdefault(rank, {})[name] = value
        self.lines[rank] = message


def of_exports(messages: Sequence[LogMessage]) -> list[Report]:
    """Return the reports of tables in CSV, one a step, or one of all rows where each rank has steps of its own."""
    return [*(report for head, rows in _tables(messages) for report in _by_step(head, rows)), *_side_by_side(messages)]


def own_steps(messages: Sequence[LogMessage]) -> list[Report]:
    """Return the reports of a table in CSV that one rank writes of its own steps, without a column of ranks."""
    found: list[Report] = []
    head: list[str] = []
    for message in messages:
        text = message.where.text
        cells = _cells(text) if text.count(",") >= _LEAST - 1 and len(text) < _LONGEST else []
        names = [cell.lower().replace(" ", "_") for cell in cells]
        if set(_STEPS) & set(names) and not _RANKS & set(names):
            head = names if sum(map(_is_timer, names)) > 1 and len(set(names)) == len(names) else []
        elif head and len(cells) == len(head) and message.rank is not None:
            found.append(Report())
            for name, value in _timers(dict(zip(head, cells, strict=True))):
                found[-1].add(message.rank, name, value, message)
    return [report for report in found if report.times]


def _tables(messages: Sequence[LogMessage]) -> Iterator[tuple[list[str], list[tuple[list[str], LogMessage]]]]:
    """Yield the columns of each table whose head names a rank's and timers, with its rows."""
    head: list[str] = []
    rows: list[tuple[list[str], LogMessage]] = []
    for message in messages:
        text = message.where.text
        is_head = "ank" in text and len(text) < _LONGEST and _HEAD.search(text) is not None
        cells = _cells(text) if is_head or (head and len(text) < _LONGEST) else []
        if is_head and (columns := _columns(cells)):
            yield head, rows
            head, rows = columns, []
        elif head and len(cells) == len(head):
            rows.append((cells, message))
        elif head and text.strip():
            yield head, rows
            head, rows = [], []
    yield head, rows


def _side_by_side(messages: Sequence[LogMessage]) -> Iterator[Report]:
    """Yield a report for each row of tables that have the timers of all ranks in columns of their own."""
    columns: list[tuple[int, int, str]] = []
    width = 0
    for message in messages:
        text = message.where.text
        is_head = text.count("ank") >= _LEAST and text.count(",") >= _LEAST and len(text) < _LONGEST
        cells = _cells(text) if is_head or (columns and len(text) < _LONGEST) else []
        if is_head and (told := [(at, *own) for at, cell in enumerate(cells) if (own := _own(cell))]):
            ranks, names = {rank for _, rank, _ in told}, {name for _, _, name in told}
            columns = told if len(names) > 1 and len(told) == len(ranks) * len(names) else []
            width = len(cells)
        elif columns and len(cells) == width:
            report = Report()
            for at, rank, name in columns:
                if _NUMBER.fullmatch(cells[at]):
                    report.add(rank, name, _seconds(name, cells[at]), message)
            yield report


def _own(cell: str) -> tuple[int, str] | None:
    """Return the rank and the timer that a column names, None where it names no one rank's."""
    told = _OF_RANK.search(cell)
    name = re.sub(r"\W+", "_", _OF_RANK.sub("", cell).lower()).strip("_")
    return (int(told["rank"]), name) if told and _is_timer(name) else None


def _seconds(name: str, value: str) -> float:
    """Return a time in seconds where the name of its timer says a unit, else as it is."""
    unit = _UNIT.search(name)
    return float(value) * (_SECONDS.get(unit["unit"].lower(), 1.0) if unit else 1.0)


def has_units(report: Report) -> bool:
    """Return whether the names of all timers of a report say their unit, so that its times are seconds."""
    return all(_UNIT.search(name) for parts in report.times.values() for name in parts)


def _cells(text: str) -> list[str]:
    row = next(csv.reader([text]), [])
    return [cell.strip() for cell in row]


def _columns(cells: Sequence[str]) -> list[str]:
    """Return the names of the columns of a head, [] where a line is none of such a table."""
    names = [cell.lower().replace(" ", "_") for cell in cells]
    is_long = bool(_METRICS & set(names)) and bool(_VALUES & set(names))
    is_wide = sum(_is_timer(name) for name in names) > 1
    return names if len(_RANKS & set(names)) == 1 and len(set(names)) == len(names) and (is_long or is_wide) else []


def _is_timer(name: str) -> bool:
    return name not in _STEPS and _TIMER.search(name) is not None and NO_TIME.search(name) is None


def _by_step(head: Sequence[str], rows: Sequence[tuple[list[str], LogMessage]]) -> list[Report]:
    """Return the reports of one table, in the order of its rows."""
    key = next((name for name in (*_STEPS, *_TIMES) if name in head), "")
    whole: dict[tuple[int, str], list[float]] = {}
    last: dict[int, LogMessage] = {}
    reports: dict[str, Report] = {}
    for cells, message in rows if len(rows) >= _LEAST else ():
        row = dict(zip(head, cells, strict=True))
        own = _RANK.fullmatch(next(row[name] for name in head if name in _RANKS))
        if own is None:
            continue
        rank, step = int(own["rank"]), row.get(key, "")
        for name, value in _timers(row):
            reports.setdefault(step, Report(step=step)).add(rank, name, value, message)
            whole.setdefault((rank, name), []).append(value)
            last[rank] = message
    found = [report for report in reports.values() if len(report.times) == len(last)]
    if found or not last:
        return found
    every = Report()
    for (rank, name), values in whole.items():
        every.add(rank, name, median(values), last[rank])
    return [every]


def _timers(row: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield the timers of one row, in seconds where a name says their unit."""
    metric = next((row[name] for name in row if name in _METRICS), "") if _VALUES & row.keys() else ""
    if metric:
        column = next(name for name in row if name in _VALUES)
        pairs = [(metric.lower().replace(" ", "_"), row[column])]
    else:
        pairs = list(row.items())
    for name, cell in pairs:
        if _is_timer(name) and name not in _TIMES and _NUMBER.fullmatch(cell):
            yield name, _seconds(name, cell)
