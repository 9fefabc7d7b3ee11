"""Bounds on the time of a problem, for traffic that is too much for the event engine and cannot be folded.

Under max-min sharing a transfer never gets more than the tightest link of its way offers (`lower`), and never less than
the smallest equal share on it: capacity over the most transfers that can be on that link at once (`upper`). A rank is
in one round at a time, so those are at most, summed over senders (or over receivers), the most that one of them has
there in a round. With such fixed rates the rounds follow from each other by max and plus alone. All that crosses one
link takes at least its bytes over its rate, which bounds from below too. Where both bounds meet, they are the time.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .arrays import Floats
from .problem import FlowProblem, Round


class Bounds(NamedTuple):
    """The time lies between the two."""

    lower_s: float
    upper_s: float

    @property
    def error(self) -> float:
        """By which share the time can at most lie below the upper bound."""
        return 1 - self.lower_s / self.upper_s if self.upper_s else 0.0


def bounds(folded: FlowProblem) -> Bounds:
    """Return bounds on the time of a problem."""
    most = _most_at_once(folded)
    alone = [_durations(r, folded.capacity) for r in folded.rounds]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(most > 0, folded.capacity / np.maximum(most, 1), folded.capacity)
    shared = [_durations(r, share) for r in folded.rounds]
    upper_s = _walked(folded, shared)
    same = all(np.allclose(a, b, rtol=1e-12, atol=0) for a, b in zip(alone, shared, strict=True))
    lower_s = upper_s if same else max(_walked(folded, alone), _busiest_link_s(folded))
    return Bounds(min(lower_s, upper_s), upper_s)


def _durations(r: Round, rate: Floats) -> Floats:
    """Return the seconds of each transfer at the rates of its links."""
    slowest = np.full(len(r.src), np.inf)
    row = np.repeat(np.arange(len(r.src)), r.uses.counts())
    np.minimum.at(slowest, row, rate[r.uses.items])
    return r.delay_s + np.where(r.size_bytes > 0, r.size_bytes / slowest, 0.0)


def _most_at_once(folded: FlowProblem) -> Floats:
    """Return the most transfers that can be on each link at once."""
    links = len(folded.capacity)
    by_end = []
    for side in ("src", "dst"):
        keys, counts = [], []
        for r in folded.rounds:
            row = np.repeat(np.arange(len(r.src)), r.uses.counts())
            key = getattr(r, side)[row] * links + r.uses.items
            found, where = np.unique(key, return_inverse=True)
            keys.append(found)
            counts.append(np.bincount(where, r.weight, minlength=len(found)))
        found, where = np.unique(np.concatenate(keys), return_inverse=True)
        most = np.zeros(len(found))
        np.maximum.at(most, where, np.concatenate(counts))
        by_end.append(np.bincount(found % links, most, minlength=links))
    return np.minimum(*by_end)


def _busiest_link_s(folded: FlowProblem) -> float:
    """Return the longest time that a link needs for all that crosses it."""
    times = np.bincount(folded.order, minlength=len(folded.rounds))
    load = np.zeros(len(folded.capacity))
    for r, count in zip(folded.rounds, times, strict=True):
        row = np.repeat(np.arange(len(r.src)), r.uses.counts())
        load += count * np.bincount(r.uses.items, r.size_bytes[row] * r.weight, minlength=len(load))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(load > 0, load / folded.capacity, 0.0).max(initial=0.0))


def _walked(folded: FlowProblem, durations: list[Floats]) -> float:
    """Return when the last rank is through all rounds, each transfer taking a fixed time."""
    clock = folded.late_s.copy()
    steps = [_step(r, seconds, len(clock)) for r, seconds in zip(folded.rounds, durations, strict=True)]
    for number in folded.order:
        steps[number](clock)
    return float(clock.max(initial=0.0))


def _step(r: Round, seconds: Floats, ranks: int) -> Callable[[Floats], None]:
    """Return a function that moves the clocks of the ranks on by one round, in place."""
    shift = int(r.dst[0] - r.src[0]) % ranks if len(r.src) else 0
    if shift and np.array_equal(r.src, np.arange(ranks)) and np.array_equal(r.dst, (r.src + shift) % ranks):
        return _shifted(seconds, r.after_s, shift, ranks)
    distinct = all(len(np.unique(side)) == len(side) for side in (r.src, r.dst))

    def step(clock: Floats) -> None:
        end = np.maximum(clock[r.src], clock[r.dst]) + seconds
        arrived = end + r.after_s
        if distinct:
            clock[r.src] = np.maximum(clock[r.src], end)
            clock[r.dst] = np.maximum(clock[r.dst], arrived)
        else:
            np.maximum.at(clock, r.src, end)
            np.maximum.at(clock, r.dst, arrived)

    return step


def _shifted(seconds: Floats, after_s: Floats, shift: int, ranks: int) -> Callable[[Floats], None]:
    """Return the step of a round in which rank r sends to rank r + shift: slices in place of gathers."""
    end, rest = np.empty(ranks), ranks - shift
    late: Floats | None = after_s if after_s.any() else None

    def step(clock: Floats) -> None:
        np.maximum(clock[:rest], clock[shift:], out=end[:rest])
        np.maximum(clock[rest:], clock[:shift], out=end[rest:])
        np.add(end, seconds, out=end)
        arrived = end if late is None else end + late
        np.maximum(end[shift:], arrived[:rest], out=clock[shift:])
        np.maximum(end[:shift], arrived[rest:], out=clock[:shift])

    return step
