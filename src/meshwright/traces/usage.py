"""Where the steps of a rank went, from unions of intervals.

A step is computing + exposed communication + data + other + idle. Communication is exposed while nothing computes.
Data is a copy to the device under which nothing else runs, and the time in which the device idles while the host is in
the data loader; the launch that follows the loader at once is part of that wait.
"""

import statistics
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from .intervals import EMPTY, Array, clipped, intersection, length_s, union, union_of_sets, without
from .model import RankTrace, Window

UNTOLD_SHARE = 0.1  # of a step, by which the medians of its parts may miss the median of the whole
DISJOINT = ("compute_s", "exposed_comm_s", "idle_s", "data_s", "other_s")  # parts of a step that make it up
LAUNCH_SHARE = 0.1  # of the time in the loader: a shorter gap after it is the launch of what it loaded


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step."""

    step_s: float
    compute_s: float
    exposed_comm_s: float
    hidden_comm_s: float
    idle_s: float
    data_s: float  # copies to the device, and the device idle while the host is in the data loader
    copied_s: float  # inside `data_s`: copies to the device
    other_s: float  # copies to the host under which nothing else runs

    @property
    def loading_s(self) -> float:
        """Return how long the device waited for the data loader."""
        return max(0.0, self.data_s - self.copied_s)


class Parts(msgspec.Struct, frozen=True):
    """The disjoint parts of one step of a rank, as sets of intervals."""

    compute: Array
    exposed: Array
    data: Array
    other: Array
    idle: Array
    hidden: Array  # inside `compute`
    copied: Array  # inside `data`; none on a host, whose loader stands in `RankTrace.copies`


def parts_of(trace: RankTrace, window: Window) -> Parts:
    """Return what a rank did in one of its steps."""
    whole = union([window.start_s], [window.end_s])
    compute, comm, copies, other = (
        clipped(found, window.start_s, window.end_s) for found in (trace.compute, trace.comm, trace.copies, trace.other)
    )
    exposed = without(comm, compute)
    busy = union_of_sets([compute, comm])
    copies = without(copies, busy)
    other = without(other, union_of_sets([busy, copies]))
    gaps = without(whole, union_of_sets([busy, copies, other]))
    waits = _data_waits(gaps, clipped(trace.host.data, window.start_s, window.end_s))
    data = union_of_sets([copies, waits])
    copied = copies if trace.device == "device" else EMPTY
    return Parts(compute, exposed, data, other, without(gaps, waits), intersection(compute, comm), copied)


def _data_waits(gaps: Array, loading: Array) -> Array:
    """Return when the device waited for the data loader."""
    waits = intersection(gaps, loading)
    if not len(waits):
        return waits
    ends = gaps[np.searchsorted(gaps[:, 0], waits[:, 0], side="right") - 1, 1]  # of the gap that each wait lies in
    launching = ends - waits[:, 1] <= LAUNCH_SHARE * (waits[:, 1] - waits[:, 0])
    return union(waits[:, 0], np.where(launching, ends, waits[:, 1]))


def shares_of(trace: RankTrace, window: Window) -> Shares:
    """Return the seconds of one step of a rank."""
    parts = parts_of(trace, window)
    return Shares(
        step_s=window.length_s,
        compute_s=length_s(parts.compute),
        exposed_comm_s=length_s(parts.exposed),
        hidden_comm_s=length_s(parts.hidden),
        idle_s=length_s(parts.idle),
        data_s=length_s(parts.data),
        copied_s=length_s(parts.copied),
        other_s=length_s(parts.other),
    )


def median_of(found: Sequence[Shares]) -> Shares:
    """Return of each part the median."""
    return Shares(**{key: statistics.median(getattr(one, key) for one in found) for key in Shares.__struct_fields__})


def mean_of(found: Sequence[Shares]) -> Shares:
    """Return of each part the mean."""
    return Shares(**{key: statistics.fmean(getattr(one, key) for one in found) for key in Shares.__struct_fields__})


def make_up(medians: Shares) -> bool:
    """Return whether the medians of the parts make up that of the step.

    Where steps or ranks are of two kinds, the median of a part may be of one kind and that of the step of the other.
    """
    told_s: float = sum(getattr(medians, key) for key in DISJOINT)
    return abs(told_s - medians.step_s) <= UNTOLD_SHARE * medians.step_s


def per_step(ranks: Sequence[Sequence[RankTrace]]) -> str:
    """Return what follows the seconds of a step in a sentence; "" where a trace marks none and is taken as a whole."""
    return " a step" if all(trace.marked for cycles in ranks for trace in cycles) else ""


def common_steps(ranks: Sequence[Sequence[RankTrace]]) -> set[int]:
    """Return the numbers of the steps that every rank traced."""
    found = [{window.number for trace in cycles for window in trace.windows} for cycles in ranks]
    return set.intersection(*found) if found else set()


def steps_of(cycles: Iterable[RankTrace], wanted: set[int]) -> list[tuple[RankTrace, Window]]:
    """Return the steps of one rank that are wanted."""
    return [(trace, window) for trace in cycles for window in trace.windows if window.number in wanted]
