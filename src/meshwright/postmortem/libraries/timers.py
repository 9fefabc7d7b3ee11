"""Megatron's table of timers across ranks: the rank whose own work is longer while the others wait for it in a sync."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from ...units import ranks_in_words
from ..nouns.facts import SlowRank
from ..nouns.paces import DataLate
from ..text.lines import LogMessage

TITLE = re.compile(r"^\s*(?:\S.*\| *)?times across ranks \(ms\):\s*$")
_NAME = re.compile(r"^\s*(?P<name>[a-z][a-z-]+):\s*$")
_ROW = re.compile(r"^\s*rank\s+(?P<rank>\d{1,6}): (?P<ms>\d+(?:\.\d+)?)\s*$")
_WORK = ("forward-compute", "backward-compute")
_DATA = "batch-generator"  # is timed inside the first
_PIPELINE = re.compile(r"^(?:forward|backward)-(?:recv|send)")  # stages differ by nature
_WAITS = re.compile(r"^(?:all-grads-sync|grads-(?:reduce-scatter|all-reduce)|params-all-gather|optimizer-clip\S*)$")
LONGER = 1.15  # own work of a slow rank against that of the others: Megatron's own spread is a few percent
MAINLY = 0.8  # of what the own work of a slow rank is longer by, in its data
SHARE = 0.5  # of the lag that the others must spend longer in a sync than it
_LAST = 2  # tables, where there are as many, in which it must be slow
_MUCH_LONGER = 1.5  # own work of a slow rank, where no timer shows that the others wait for it
_ELAPSED = re.compile(r"\belapsed time per iteration \(ms\): (?P<ms>\d+(?:\.\d+)?)")  # of a step, above its table


class _Table(msgspec.Struct):
    """One table: milliseconds of each rank, by timer, and the last line of each rank's own work."""

    message: LogMessage
    timers: dict[str, dict[int, float]]
    lines: dict[int, LogMessage]
    step_ms: float | None = None

    def work_ms(self) -> dict[int, float]:
        """Return the milliseconds of own work of each rank."""
        parts = [self.timers[name] for name in _WORK if name in self.timers]
        ranks = set.intersection(*map(set, parts)) if parts else set()
        return {rank: sum(part[rank] for part in parts) for rank in ranks}

    def for_data(self, slow: Sequence[int]) -> bool:
        """Return whether what some ranks work longer than the others they mainly spend on their data."""
        data_ms, work_ms = self.timers.get(_DATA, {}), self.work_ms()
        return data_ms.keys() >= work_ms.keys() and _lag_ms(data_ms, slow) >= MAINLY * _lag_ms(work_ms, slow)

    def wait_ms(self, rank: int) -> float:
        """Return the milliseconds that a rank spends in syncs with others."""
        return sum(times.get(rank, 0.0) for name, times in self.timers.items() if _WAITS.match(name))


def read(messages: Sequence[LogMessage]) -> Iterator[SlowRank | DataLate]:
    """Yield who is slow in the last tables of one file: one rank, or a group of which one is; whose data come late."""
    tables = [table for table in _tables(messages) if len(table.work_ms()) > 2]
    late = [_late(table) for table in tables[-_LAST:]]
    if tables and not any(_WAITS.match(name) for table in tables for name in table.timers):
        yield from _without_waits(tables)
        return
    if not late or not late[-1] or len(set(late)) != 1:
        return
    slow, last = late[-1], tables[-1]
    is_new = len(tables) > _LAST and not _late(tables[0])
    if any(_PIPELINE.match(name) for name in last.timers) and not is_new:
        return
    work_ms = last.work_ms()
    others = [rank for rank in work_ms if rank not in slow]
    what = (
        f"the own work of {ranks_in_words(slow)} takes {median(work_ms[r] for r in slow):.0f} ms"
        f" a step, that of the others {median(work_ms[r] for r in others):.0f} ms; they wait"
        f" {median(map(last.wait_ms, others)):.0f} ms in the syncs of gradients, it"
        f" {median(map(last.wait_ms, slow)):.0f} ms"
    )
    yield _told(last, slow, what)


def _without_waits(tables: Sequence[_Table]) -> Iterator[SlowRank | DataLate]:
    """Yield the one rank whose own work became far longer than that of all others while whole steps did, too.

    A timer of forward or backward work in which ranks wait for each other would be longer on all but one.
    """
    first, last = tables[0], tables[-1]
    alone = {_much_longer(table) for table in tables[-_LAST:]}
    rank = alone.pop() if len(alone) == 1 else None
    if rank is None or len(tables) <= _LAST or _much_longer(first) is not None:
        return
    if first.step_ms is None or last.step_ms is None or any(_PIPELINE.match(name) for name in last.timers):
        return
    work_ms = last.work_ms()
    usual_ms = median(ms for other, ms in work_ms.items() if other != rank)
    if last.step_ms - first.step_ms < SHARE * (work_ms[rank] - usual_ms):
        return
    what = (
        f"the own work of rank {rank} takes {work_ms[rank]:.0f} ms a step, that of the others {usual_ms:.0f} ms, and"
        f" whole steps {last.step_ms:.0f} ms instead of {first.step_ms:.0f}"
    )
    yield _told(last, (rank,), what)


def _told(table: _Table, slow: tuple[int, ...], what: str) -> SlowRank | DataLate:
    """Return that ranks are late: by their data, or by their work; of several none is named.

    Ranks of a tensor-parallel group wait for each other inside the timers.
    """
    rank = slow[0] if len(slow) == 1 else None
    where = table.lines[slow[0]].where.by(rank)
    if rank is not None and table.for_data(slow):
        return DataLate(ranks=slow, what=f"{what}: for its data ({_DATA})", where=where)
    return SlowRank(rank=rank, what=what, where=where)


def _lag_ms(times_ms: Mapping[int, float], slow: Sequence[int]) -> float:
    """Return by how much the times of some ranks are longer than the usual one of the others, in milliseconds."""
    return min(times_ms[rank] for rank in slow) - median(ms for rank, ms in times_ms.items() if rank not in slow)


def _much_longer(table: _Table) -> int | None:
    """Return the one rank whose own work is far longer than that of all others, which hardly differ; None for none."""
    longest = sorted((ms, rank) for rank, ms in table.work_ms().items())
    (most_ms, rank), (second_ms, _) = longest[-1], longest[-2]
    return rank if most_ms >= _MUCH_LONGER * second_ms and second_ms <= LONGER * longest[0][0] else None


def _late(table: _Table) -> tuple[int, ...]:
    work_ms = table.work_ms()
    return late_by_waits(work_ms, {rank: table.wait_ms(rank) for rank in work_ms})


def late_by_waits(work_ms: Mapping[int, float], wait_ms: Mapping[int, float]) -> tuple[int, ...]:
    """Return the few ranks whose own work is longer than that of the others, by about what these wait longer."""
    if not work_ms:
        return ()
    usual_ms = median(work_ms.values())
    slow = tuple(sorted(rank for rank, ms in work_ms.items() if ms >= LONGER * usual_ms))
    others = [rank for rank in work_ms if rank not in slow]
    if not slow or 2 * len(slow) >= len(work_ms):
        return ()
    lag_ms = min(work_ms[rank] for rank in slow) - usual_ms
    longer_ms = median(wait_ms[rank] for rank in others) - max(wait_ms[rank] for rank in slow)
    return slow if longer_ms >= SHARE * lag_ms else ()


def _tables(messages: Sequence[LogMessage]) -> list[_Table]:
    found: list[_Table] = []
    name, step_ms = "", None
    for message in messages:
        text = message.text
        if "elapsed time per" in text and (elapsed := _ELAPSED.search(text)):
            step_ms = float(elapsed["ms"])
        if "times across ranks" in text and TITLE.match(text):
            found.append(_Table(message, {}, {}, step_ms))
            name = ""
        elif not found:
            continue
        elif row := _ROW.match(text):
            if name:
                found[-1].timers.setdefault(name, {})[int(row["rank"])] = float(row["ms"])
                if name in {*_WORK, _DATA}:
                    found[-1].lines[int(row["rank"])] = message
        elif title := _NAME.match(text):
            name = title["name"]
        else:
            name = ""
    return found
