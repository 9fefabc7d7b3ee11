"""Steps that are mostly a wait for data, on every rank alike: by a table of all ranks, or by lines of steps."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from .facts import Fact, of
from .lines import LogMessage
from .paces import DataShare
from .position import HangPosition
from .rank_timers import last_tables
from .world import ranks_seen

_TIME = r"(?:[_ -]?(?:time|sec|m?s))"
_DATA = re.compile(
    rf"data{_TIME}?|(?:data|input|batch)[_ -]?(?:load\w*|fetch\w*|wait\w*|read\w*){_TIME}?"
    rf"|loader(?:[_ -]?wait)?{_TIME}?|load(?:ing)?{_TIME}|batch[_-]generator|next[_-]batch{_TIME}?",
    re.IGNORECASE,
)
_STEP = re.compile(rf"(?:step|iter(?:ation)?|batch){_TIME}|time|total{_TIME}?|dt|step_total", re.IGNORECASE)
_NUMBERED = {"step", "iter", "iteration", "batch"}  # a time only where a unit follows
_WORK = re.compile(r"f(?:or)?wa?r?d|b(?:ack)?wa?r?d|compute|optim|all[_-]?reduce|gather", re.IGNORECASE)
_PART = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z][\w-]{0,30})(?:\(m?s\))?[\"']? ?[:=]? ?(?P<value>\d+(?:\.\d+)?)(?: ?(?P<unit>m?s)\b)?"
)
_MAY_TELL = re.compile(r"data|load|batch", re.IGNORECASE)
_UNITS = {"ms": 1e-3, "s": 1.0, None: 1.0}
_MOST = 0.5  # of a step, from which on the data are what it takes
_MOSTLY = 0.8  # of the steps that wait so long
_FEW = 4  # steps that show it
_ALIKE = 1.3  # by which the ranks' waits may differ
_OVERLAPS = 1.2  # more than a whole step in its parts: they run side by side
_LONGEST = 600  # characters of a line that are read


def read(messages: Sequence[LogMessage]) -> Iterator[DataShare]:
    """Yield which part of a step is a wait for data, by the last tables and the later half of the steps of one file."""
    scripts = (message for message in messages if not message.is_of_library)
    told = [message for message in scripts if _MAY_TELL.search(message.text[:_LONGEST])]
    for table, where in last_tables(messages) if told else ():
        waits = {rank: sum(v for name, v in parts.items() if _DATA.fullmatch(name)) for rank, parts in table.items()}
        shares = [share for rank, parts in table.items() if (share := _share(parts)) is not None]
        if len(shares) == len(table) > 1 and all(waits.values()):
            alike = max(waits.values()) <= _ALIKE * min(waits.values())
            steady = alike and min(shares) >= _MOST
            yield DataShare(ranks=len(table), share=min(shares), steady=steady, where=where)
    series: dict[int | None, list[tuple[float, LogMessage]]] = defaultdict(list)
    for message in told:
        share = _share(_timers(message.text[:_LONGEST]))
        if share is not None:
            series[message.rank].append((share, message))
    for rank, steps in series.items():
        last = steps[len(steps) // 2 :]
        if len(last) >= _FEW:
            steady = sum(share >= _MOST for share, _ in last) >= _MOSTLY * len(last)
            share = median(share for share, _ in last)
            yield DataShare(rank=rank, share=share, steady=steady, where=last[-1][1].where.by(rank))


def _timers(text: str) -> dict[str, float]:
    """Return the timers of a line of a step by name; the first number of a name counts, the mean often follows it."""
    found: dict[str, float] = {}
    for one in _PART.finditer(text):
        if one["name"].lower() not in _NUMBERED or one["unit"]:
            name = "time" if one["name"].lower() in _NUMBERED else one["name"]
            found.setdefault(name, float(one["value"]) * _UNITS[one["unit"]])
    return found if any(map(_STEP.fullmatch, found)) else {}


def _share(parts: Mapping[str, float]) -> float | None:
    """Return the part of a step that is a wait for data, None where it is not told or the parts run side by side."""
    waits = next((value for name, value in parts.items() if _DATA.fullmatch(name)), 0.0)
    whole = next((value for name, value in parts.items() if _STEP.fullmatch(name)), 0.0)
    own = {name: value for name, value in parts.items() if not _DATA.fullmatch(name) and not _STEP.fullmatch(name)}
    work = sum(value for name, value in own.items() if _WORK.search(name))
    step = whole or waits + sum(own.values())
    return waits / step if 0 < waits <= step and waits + work <= _OVERLAPS * step else None


def by_data(facts: list[Fact]) -> HangPosition | None:
    """Return that every rank waits for its data most of each step; None where any of them does not."""
    found = of(facts, DataShare)
    if not found or not all(one.steady for one in found):
        return None
    everyone = any(one.ranks > 1 for one in found) or {one.rank for one in found} == ranks_seen(facts)
    share = median(one.share for one in found)
    who = "every rank waits" if everyone else "the steps of a log wait"
    return HangPosition(
        kind="data",
        why=f"{who} for data {share:.0%} of a step: the loader, or the file system below it, is slower than the ranks",
        certain=everyone,
        evidence=tuple(one.where for one in found),
        missing=() if everyone else ("whether all ranks wait so, or for one of them: its times on each rank",),
    )
