"""Steps that are mostly a wait for data: on every rank alike, by a table of all ranks or by lines of steps; on a few.

Tables of the few that wait longest, one for each such step, name them where they are the same ones in most.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ...units import ranks_in_words
from ..nouns.facts import Fact, of
from ..nouns.paces import DataLate, DataShare
from ..nouns.position import HangPosition
from ..nouns.world import ranks_seen
from ..text.lines import LogMessage
from .rank_timers import last_tables, reports_of
from .timer_reports import Report

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
_FAR = 3.0  # times the wait of any other rank
_LAG = 0.3  # of the longest step, that a rank waits longer than the others
_LONGEST = 600  # characters of a line that are read


def read(messages: Sequence[LogMessage]) -> Iterator[DataShare | DataLate]:
    """Yield which part of a step is a wait for data, by the last tables and the later half of the steps of one file.

    And who waits for data far longer than the others, by all its tables.
    """
    scripts = (message for message in messages if not message.is_of_library)
    told = [message for message in scripts if _MAY_TELL.search(message.text[:_LONGEST])]
    for reports in reports_of(messages) if told else ():
        yield from _late(reports)
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


def _late(reports: Sequence[Report]) -> Iterator[DataLate]:
    """Yield the ranks that wait far longer for data than the others in most reports, or that they are not the same."""
    found = [(late, report) for report in reports if (late := _few_that_wait(report))]
    if not found or 2 * len(found) < len(reports):
        return
    (ranks, count), *_ = Counter(late for late, _ in found).most_common()
    last = next(report for late, report in reversed(found) if late == ranks)
    where = last.lines[ranks[0]].where
    steps = f"{len(found)} step{'s' * (len(found) > 1)} or table{'s' * (len(found) > 1)}"
    if count >= _MOSTLY * len(found):
        what = f"{ranks_in_words(ranks)} wait for data in {steps}, and the others for them"
        yield DataLate(ranks=ranks, what=what, where=where.by(ranks[0]))
    else:
        yield DataLate(ranks=(), what=f"in {steps} a few ranks wait for data, not the same ones each time", where=where)


def _few_that_wait(report: Report) -> tuple[int, ...]:
    """Return the few ranks of a table of data and of whole steps whose waits are far longer than all others'."""
    data, whole = dict[int, float](), list[float]()
    for rank, parts in report.times.items():
        steps = [value for name, value in parts.items() if _STEP.fullmatch(name)]
        waits = [value for name, value in parts.items() if _DATA.fullmatch(name)]
        if len(parts) != len(steps) + len(waits) or not steps or not waits:
            return ()
        data[rank] = sum(waits)
        whole += steps
    most = max(data.values(), default=0.0)
    slow = [rank for rank in data if data[rank] * _FAR >= most]
    others = [data[rank] for rank in data if rank not in slow]
    if not others or len(slow) > len(others):
        return ()
    least = min(data[rank] for rank in slow)
    return tuple(sorted(slow)) if least >= _FAR * max(others) and least - max(others) >= _LAG * max(whole) else ()


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
    """Return who waits for data while the others wait for it, or that every rank does so most of each step; or None."""
    if late := of(facts, DataLate):
        ranks = {one.ranks for one in late}
        certain = len(ranks) == 1 and () not in ranks
        return HangPosition(
            kind="data",
            blamed=late[0].ranks if certain else (),
            why="; ".join(dict.fromkeys(one.what for one in late)),
            certain=certain,
            evidence=tuple(one.where for one in late),
            missing=() if certain else ("the times that each rank waits for data, by step",),
        )
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
