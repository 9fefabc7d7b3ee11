"""The event engine in NumPy: the reference for the one in C, and what runs where there is no compiler.

Each step of the loop goes to the next moment at which something ends or begins, handles all that happens at that
moment at once, and divides the resources again. Times closer than 1e-12 of themselves are one moment.
"""

import heapq

import numpy as np

from .arrays import Floats, Ints
from .maxmin import fair_rates
from .program import ActivityTimes, EventProgram, check_reached

SAME = 1e-12


def run_numpy(program: EventProgram) -> ActivityTimes:
    """Return when each activity starts and ends; InputError if some never do."""
    n = program.activities
    uses, capacity = program.uses, program.capacity
    missing = np.bincount(program.signals.items, minlength=program.gates)  # signals that a gate still waits for
    waiting = np.bincount(program.releases.items, minlength=n)  # gates that an activity still waits for
    start_s, end_s = np.full(n, np.inf), np.full(n, np.inf)
    wakes: list[tuple[float, int, Ints]] = []  # moments at which activities begin to take their share
    count = 0
    active = np.zeros(0, dtype=np.int64)
    left = np.zeros(0)
    rate = np.zeros(0)
    now = 0.0
    buckets = None if program.burst is None else _Buckets(program, program.burst)

    def release(ids: Ints) -> None:
        nonlocal count
        begin = np.full(len(ids), now) if program.ready_s is None else np.maximum(now, program.ready_s[ids])
        start_s[ids] = begin
        wake = begin + program.delay_s[ids]
        moments, which = np.unique(wake, return_inverse=True)
        for i, moment in enumerate(moments):
            heapq.heappush(wakes, (float(moment), count, ids[which == i]))
            count += 1

    def finish(ids: Ints) -> None:
        end_s[ids] = now
        items, _ = program.signals.of(ids)
        gates = program.signals.items[items]
        np.subtract.at(missing, gates, 1)
        open_gates = np.unique(gates[missing[gates] == 0])
        items, _ = program.releases.of(open_gates)
        released = program.releases.items[items]
        np.subtract.at(waiting, released, 1)
        ready = np.unique(released[waiting[released] == 0])
        if len(ready):
            release(ready)

    closed = np.flatnonzero(missing == 0)
    if len(closed):  # gates that nothing signals are open from the start
        items, _ = program.releases.of(closed)
        np.subtract.at(waiting, program.releases.items[items], 1)
    release(np.flatnonzero(waiting == 0))
    while len(active) or wakes:
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = now + np.where(left > 0, left / rate, 0.0)
        next_end = ends.min(initial=np.inf)
        next_wake = wakes[0][0] if wakes else np.inf
        moment = min(next_end, next_wake)
        if not np.isfinite(moment):
            break
        with np.errstate(invalid="ignore"):
            left = np.where(ends <= moment, 0.0, left - rate * (moment - now))
        done = ends <= moment * (1 + SAME)
        now = max(now, float(moment))
        finished, active, left = active[done], active[~done], left[~done]
        if len(finished):
            finish(finished)
        began = np.zeros(0, dtype=np.int64)
        while wakes and wakes[0][0] <= now * (1 + SAME):
            ids = heapq.heappop(wakes)[2]
            at_once = program.work[ids] <= 0
            active = np.concatenate([active, ids[~at_once]])
            left = np.concatenate([left, program.work[ids[~at_once]]])
            if at_once.any():
                finish(ids[at_once])
            began = np.concatenate([began, ids[~at_once]])
        if buckets is not None:
            left = buckets.spent(now, active, left, began)
            at_once = left <= 0
            if at_once.any():
                ended, active, left = active[at_once], active[~at_once], left[~at_once]
                finish(ended)
        items, place = uses.of(active)
        weight = program.weights(items)
        rate = fair_rates(len(active), place, uses.items[items], weight, capacity)
        if buckets is not None:
            used = np.bincount(uses.items[items], weight * rate[place], minlength=len(capacity))
            buckets.used = used.astype(np.float64)
    check_reached(program, end_s)
    return ActivityTimes(start_s, end_s)


class _Buckets:
    """How much of its burst each resource has given that did not come back yet."""

    def __init__(self, program: EventProgram, burst: Floats) -> None:
        self._program, self._burst = program, burst
        self._debt = np.zeros(len(burst))
        self._at = 0.0
        self.used = np.zeros(len(burst))  # work per second since then

    def spent(self, now: float, active: Ints, left: Floats, began: Ints) -> Floats:
        """Return what is left of the active work after the tokens for what began now; the first come first."""
        own = self._burst > 0
        back = (self._program.capacity[own] - self.used[own]) * (now - self._at)
        self._debt[own] = np.maximum(0.0, self._debt[own] - back)
        self._at = now
        left = left.copy()
        place = {int(activity): i for i, activity in enumerate(active)}
        for activity in np.sort(began):
            items, _ = self._program.uses.of(np.array([activity]))
            resources, weight = self._program.uses.items[items], self._program.weights(items)
            limits = np.isfinite(self._program.capacity[resources])
            resources, weight = resources[limits], weight[limits]
            tokens = np.maximum(0.0, self._burst[resources] - self._debt[resources]) / weight
            free = min(tokens.min(initial=np.inf), left[place[int(activity)]]) if len(resources) else 0.0
            left[place[int(activity)]] -= free
            np.add.at(self._debt, resources, free * weight)
        return left
