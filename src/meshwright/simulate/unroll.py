"""Unroll a problem into the program of the event engine: every transfer of every round, and what waits for what.

Each rank has one gate a round: it opens when all that the rank takes part in is done. A transfer waits for the last
gates of its two ends. An eager one waits for its sender's alone, and its sender goes on when it has handed it over.
"""

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints, Pairs, ints
from .problem import Disturbance, FlowProblem, Round
from .program import EventProgram


def unroll(folded: FlowProblem, disturbance: Disturbance | None = None) -> EventProgram:
    """Return the program of all rounds; the transfers come first, in the order of their rounds."""
    made = _Unrolling(folded)
    late = np.flatnonzero(folded.late_s > 0)
    made.signals.add(made.activities(folded.late_s[late]), late)
    for number, o in enumerate(folded.order):
        made.round(number, folded.rounds[o], made.plans[o])
    return made.program(disturbance or Disturbance())


class _Plan:
    """The parts of a round that are the same each time it occurs."""

    def __init__(self, folded: FlowProblem, r: Round) -> None:
        self.taking = np.unique(np.concatenate([r.src, r.dst]))
        self.reducing = np.flatnonzero(r.after_s > 0)
        self.eager: NDArray[np.bool_] = ~r.local & (r.size_bytes <= folded.eager_bytes)
        posts = ~r.local if folded.handling_s else self.eager
        self.posted = np.flatnonzero(posts)


class _Unrolling:
    def __init__(self, folded: FlowProblem) -> None:
        self._folded = folded
        self.plans = [_Plan(folded, r) for r in folded.rounds]
        sizes = ints([len(folded.rounds[o].src) for o in folded.order])
        self._first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._count = int(self._first[-1])  # activities: the transfers, and then what `activities` adds
        self._gates = len(folded.members)
        self._gate_of = np.arange(self._gates)  # the gate that lets each rank into its next round
        self._waits, self.signals = Pairs(), Pairs()  # gates and activities; activities and gates
        self._delays: list[Floats] = []
        self._works: list[Floats] = []
        self._on_cores: list[Ints] = []

    def activities(self, delay_s: Floats, work: float = 0.0) -> Ints:
        """Add activities; return their numbers."""
        ids = self._count + np.arange(len(delay_s))
        self._count += len(delay_s)
        self._delays.append(delay_s)
        self._works.append(np.full(len(delay_s), work))
        return ids

    def round(self, number: int, r: Round, plan: _Plan) -> None:
        """Add one round."""
        ids = np.arange(self._first[number], self._first[number + 1])
        enter, leave = ids.copy(), ids.copy()  # what waits for the ranks, and what the receiver waits for
        before = self._gate_of.copy()
        if len(plan.posted):
            enter[plan.posted] = self._posts(len(plan.posted))
            self._follow(enter[plan.posted], ids[plan.posted])
        self._waits.add(before[r.src], enter)
        meets = (r.src != r.dst) & ~plan.eager
        self._waits.add(before[r.dst[meets]], enter[meets])
        self._gate_of[plan.taking] = self._new_gates(len(plan.taking))
        if plan.eager.any():  # a rank is in its next round no sooner than in this one, whatever came early
            turn = self.activities(np.zeros(len(plan.taking)))
            self._waits.add(before[plan.taking], turn)
            self.signals.add(turn, self._gate_of[plan.taking])
        if len(plan.reducing):
            leave[plan.reducing] = self.activities(r.after_s[plan.reducing])
            self._follow(ids[plan.reducing], leave[plan.reducing])
        self.signals.add(np.where(plan.eager, enter, ids), self._gate_of[r.src])
        far = (r.src != r.dst) | (leave != ids)
        self.signals.add(leave[far], self._gate_of[r.dst[far]])

    def program(self, disturbance: Disturbance) -> EventProgram:
        """Return the program of the rounds added."""
        folded = self._folded
        rounds = [folded.rounds[o] for o in folded.order]
        cores = np.concatenate([*self._on_cores, np.zeros(0, dtype=np.int64)])
        users = {id(r): np.repeat(np.arange(len(r.src)), r.uses.counts()) for r in folded.rounds}
        uses = Pairs()
        for i, r in enumerate(rounds):
            uses.add(self._first[i] + users[id(r)], r.uses.items)
        uses.add(cores, np.full(len(cores), len(folded.capacity)))
        once = all((r.weight == 1).all() for r in folded.rounds)
        delay = np.concatenate([*(r.delay_s for r in rounds), *self._delays])
        if disturbance.jitter:
            spread = np.random.default_rng(disturbance.seed).standard_normal(len(delay))
            delay = delay * np.exp(disturbance.jitter * spread)
        finite = np.where(np.isfinite(folded.capacity), folded.capacity, 0.0)
        return EventProgram(
            work=np.concatenate([*(r.size_bytes for r in rounds), *self._works]),
            delay_s=delay,
            uses=uses.lists(self._count),
            weight=None if once else np.concatenate([*(r.weight for r in rounds), np.ones(len(cores))]),
            capacity=np.append(folded.capacity, 1.0),
            releases=self._waits.lists(self._gates),
            signals=self.signals.lists(self._count),
            burst=np.append(finite * folded.burst_s, 0.0) if folded.burst_s else None,
        )

    def _posts(self, count: int) -> Ints:
        """Add what hands messages over: on the cores that all share, where it costs them anything."""
        ids = self.activities(np.zeros(count), self._folded.handling_s)
        if self._folded.handling_s:
            self._on_cores.append(ids)
        return ids

    def _new_gates(self, count: int) -> Ints:
        gates = self._gates + np.arange(count)
        self._gates += count
        return gates

    def _follow(self, first: Ints, second: Ints) -> None:
        """Let each activity of `second` wait for that of `first`."""
        gates = self._new_gates(len(first))
        self.signals.add(first, gates)
        self._waits.add(gates, second)
