"""The kernels that the host launched for a communication, and what it said of it: size, group, type."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..names import MARKED
from .collector import HostRecord, Spans
from .events import Args
from .parts import Longs, Times, floats, longs

_APART_US = 1.0  # a launch may stand outside the record that holds it by rounding: old traces count whole microseconds


class Launched(NamedTuple):
    """Of every device event: its external id, and when and on which thread the host launched it."""

    externals: Longs
    times_us: Times
    threads: Longs  # -1: its launch is not in the trace, and its own start stands for it


class Linked:
    """The communications that the host recorded."""

    def __init__(self, records: Sequence[HostRecord], operators: Sequence[Spans]) -> None:
        self.by_external = {record.external: record for record in records if record.external >= 0}
        self._externals = np.array(sorted(self.by_external), dtype=np.int64)
        ordered = [self.by_external[external] for external in self._externals.tolist()]
        self._begins_us = np.array([record.start for record in ordered]) - _APART_US
        self._ends_us = np.array([record.end for record in ordered]) + _APART_US
        self._by_thread: dict[int, list[HostRecord]] = {}
        for record in sorted(records, key=lambda found: found.start):
            self._by_thread.setdefault(record.thread, []).append(record)
        self._starts = {thread: [record.start for record in found] for thread, found in self._by_thread.items()}
        self._operators = operators
        self._on_thread: dict[int, tuple[Times, Times]] = {}

    def about(self, launched: Launched, place: int) -> list[HostRecord]:
        """Return what is recorded of one device event, the most telling first."""
        found = []
        direct = self.by_external.get(int(launched.externals[place]))
        thread, time = int(launched.threads[place]), float(launched.times_us[place])
        if direct is not None and (thread < 0 or direct.start - _APART_US <= time <= direct.end + _APART_US):
            found.append(direct)
        around = self._by_thread.get(thread, [])
        at = bisect.bisect_right(self._starts.get(thread, []), time)
        found += [record for record in reversed(around[max(0, at - 4) : at]) if record.end >= time]
        return sorted(found, key=lambda record: record.args is None or record.args.collective is None)

    def communicating(self, launched: Launched, candidates: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which of the candidates the host launched for a communication."""
        if not self._by_thread:
            return np.zeros_like(candidates)
        linked = candidates & np.isin(launched.externals, self._externals)
        places = np.flatnonzero(linked)
        linked[places] = self._of_external(launched, places)
        unlinked = candidates & (launched.externals < 0)
        for thread, records in self._by_thread.items():
            mine = np.flatnonzero(unlinked & (launched.threads == thread))
            if len(mine):
                linked[mine] |= self._inside(records, thread, launched.times_us[mine])
        return linked

    def _of_external(self, launched: Launched, places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return which events, whose external ids are those of records, were launched in them, as far as is known.

        An operator's id is that of what was launched in it; one that is given twice is that of another one.
        """
        at, times = self._externals.searchsorted(launched.externals[places]), launched.times_us[places]
        is_inside = (times >= self._begins_us[at]) & (times <= self._ends_us[at])
        found: npt.NDArray[np.bool_] = (launched.threads[places] < 0) | is_inside
        return found

    def _inside(self, records: Sequence[HostRecord], thread: int, times: Times) -> npt.NDArray[np.bool_]:
        """Return which times lie in a record, but in no operator that began inside that record."""
        order = np.argsort(times)
        ordered = times[order]
        found = np.zeros(len(times), dtype=bool)
        for record in records:
            low, high = np.searchsorted(ordered, (record.start, record.end), side="left")
            if low < high:
                found[order[low:high]] = ~self._in_operator(record, thread, ordered[low:high])
        return found

    def _in_operator(self, record: HostRecord, thread: int, times: Times) -> npt.NDArray[np.bool_]:
        covered = np.zeros(len(times), dtype=bool)
        starts, ends = self._operators_of(thread)
        low, high = np.searchsorted(starts, (record.start, record.end), side="right")
        for start, end in zip(starts[low:high].tolist(), ends[low:high].tolist(), strict=True):
            if end < record.end:
                covered |= (times >= start) & (times < end)
        return covered

    def _operators_of(self, thread: int) -> tuple[Times, Times]:
        """Return the beginnings, in order, and the ends of the operators of a thread."""
        if thread not in self._on_thread:
            starts, ends = [np.zeros(0)], [np.zeros(0)]
            for spans in self._operators:
                mine = longs(spans.threads) == thread
                starts.append(floats(spans.starts)[mine])
                ends.append(floats(spans.ends)[mine])
            begins = np.concatenate(starts)
            order = np.argsort(begins)
            self._on_thread[thread] = begins[order], np.concatenate(ends)[order]
        return self._on_thread[thread]


def collective_of_record(record: HostRecord) -> tuple[str, Args | None]:
    """Return the name of the collective and the arguments of a record."""
    if record.args is not None and record.args.collective:
        return str(record.args.collective), record.args
    return (record.name.partition(":")[2] if MARKED.match(record.name) else ""), record.args
