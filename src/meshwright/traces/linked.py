"""Which kernels the host launched for a communication, and what it said of it: size, group, type."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .collector import Record, Spans
from .events import Args
from .names import MARKED

Longs = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class Launched(NamedTuple):
    """Of every device event: its external id, and when and on which thread the host launched it (-1: not known)."""

    externals: Longs
    times_us: Times
    threads: Longs


class Linked:
    """The communications that the host recorded."""

    def __init__(self, records: Sequence[Record], operators: Sequence[Spans]) -> None:
        self.by_external = {record.external: record for record in records if record.external >= 0}
        self._by_thread: dict[int, list[Record]] = {}
        for record in sorted(records, key=lambda found: found.start):
            self._by_thread.setdefault(record.thread, []).append(record)
        self._starts = {thread: [record.start for record in found] for thread, found in self._by_thread.items()}
        self._operators = operators if records else ()

    def about(self, launched: Launched, place: int) -> list[Record]:
        """Return what is recorded of one device event, the most telling first."""
        found = []
        direct = self.by_external.get(int(launched.externals[place]))
        if direct is not None:
            found.append(direct)
        thread, time = int(launched.threads[place]), float(launched.times_us[place])
        around = self._by_thread.get(thread, [])
        at = bisect.bisect_right(self._starts.get(thread, []), time)
        found += [record for record in reversed(around[max(0, at - 4) : at]) if record.end >= time]
        return sorted(found, key=lambda record: record.args is None or record.args.collective is None)

    def communicating(self, launched: Launched, candidates: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which of the candidates the host launched for a communication."""
        if not self._by_thread:
            return np.zeros_like(candidates)
        linked = candidates & np.isin(launched.externals, list(self.by_external) or [-2])
        unlinked = candidates & (launched.externals < 0)
        for thread, records in self._by_thread.items():
            mine = np.flatnonzero(unlinked & (launched.threads == thread))
            if len(mine):
                linked[mine] |= self._inside(records, thread, launched.times_us[mine])
        return linked

    def _inside(self, records: Sequence[Record], thread: int, times: Times) -> npt.NDArray[np.bool_]:
        """Return which times lie in a record, but in no operator that began inside that record."""
        order = np.argsort(times)
        ordered = times[order]
        found = np.zeros(len(times), dtype=bool)
        for record in records:
            low, high = np.searchsorted(ordered, (record.start, record.end), side="left")
            if low < high:
                found[order[low:high]] = ~self._in_operator(record, thread, ordered[low:high])
        return found

    def _in_operator(self, record: Record, thread: int, times: Times) -> npt.NDArray[np.bool_]:
        covered = np.zeros(len(times), dtype=bool)
        for spans in self._operators:
            starts, ends = (np.frombuffer(part, dtype=float) for part in (spans.starts, spans.ends))
            if not len(starts):
                continue
            inner = (np.frombuffer(spans.threads, dtype=np.int64) == thread) & (starts > record.start)
            inner &= ends < record.end
            for start, end in zip(starts[inner], ends[inner], strict=True):
                covered |= (times >= start) & (times < end)
        return covered


def told_by(record: Record) -> tuple[str, Args | None]:
    """Return the name of the collective and the arguments of a record."""
    if record.args is not None and record.args.collective:
        return str(record.args.collective), record.args
    return (record.name.partition(":")[2] if MARKED.match(record.name) else ""), record.args
