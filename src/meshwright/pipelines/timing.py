"""When each action of a grid starts and ends, what idles meanwhile, and what each rank holds."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from .grid import Action, PipelineGrid


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch, by stage; `weight_s` is the part of `backward_s` that gives the weights' gradients.

    `transfer_s` has an entry for each cut between stages s and s + 1, the same in both directions; a cut inside one
    rank costs nothing. Transfers occupy nobody: the receiver waits for what has not arrived.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    transfer_s: tuple[float, ...]

    @classmethod
    def even(
        cls,
        stages: int,
        *,
        forward_s: float = 1.0,
        backward_s: float = 2.0,
        weight_s: float = 1.0,
        transfer_s: float = 0,
    ) -> "StageTimes":
        """Return equal stages and cuts."""
        return cls((forward_s,) * stages, (backward_s,) * stages, (weight_s,) * stages, (transfer_s,) * (stages - 1))

    def of(self, action: Action) -> float:
        """Return the seconds of an action."""
        stage = action.stage
        if action.kind == "F":
            return self.forward_s[stage]
        if action.kind == "B":
            return self.backward_s[stage]
        return self.weight_s[stage] if action.kind == "W" else self.backward_s[stage] - self.weight_s[stage]


@dataclass(frozen=True)
class Timing:
    """The intervals of all actions; the step lasts from 0 to the end of the last."""

    grid: PipelineGrid
    intervals: dict[Action, tuple[float, float]]

    @cached_property
    def step_s(self) -> float:
        """Seconds from the first start to the last end."""
        return max(end for _, end in self.intervals.values())

    @cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each rank computes."""
        return tuple(sum(end - start for start, end in map(self.intervals.get, row)) for row in self.grid.rows)  # type: ignore[misc]

    @property
    def bubble_s(self) -> float:
        """Seconds that a rank idles in the step, the mean over the ranks."""
        return self.step_s - sum(self.busy_s) / self.grid.ranks

    @property
    def bubble_share(self) -> float:
        """Idle share of the step, the mean over the ranks."""
        return self.bubble_s / self.step_s


def timed(grid: PipelineGrid, times: StageTimes) -> Timing:
    """Return when each action runs if each rank goes through its row in order and waits only for what it needs."""
    intervals: dict[Action, tuple[float, float]] = {}
    free_s = [0.0] * grid.ranks
    for rank, action in grid.in_order():
        start_s = free_s[rank]
        for need in grid.needs(action):
            crosses = grid.rank_of_stage[need.stage] != rank
            transfer_s = times.transfer_s[min(need.stage, action.stage)] if crosses else 0.0
            start_s = max(start_s, intervals[need][1] + transfer_s)
        free_s[rank] = start_s + times.of(action)
        intervals[action] = (start_s, free_s[rank])
    return Timing(grid, intervals)


def timed_sharing(grid: PipelineGrid, times: StageTimes, slowdown: float, at_once: Sequence[int] = ()) -> Timing:
    """Time the grid when ranks share cores and messages share links; a waiting rank yields its core.

    `times` are of actions while all ranks compute, `slowdown` their ratio to an action on a core of its own. While
    k ranks compute, each is min(slowdown, ranks / k) times as fast. Of the messages over a cut in one direction, each
    waits for the one before. By cut between two stages, `at_once` pipelines may share a link, all of them running the
    grid on these processors: `transfer_s` is until a message of each is there. The intervals are those of the last to
    end.
    """
    of_cut = at_once or [1] * len(times.transfer_s)
    pipelines = range(max(of_cut, default=1))
    intervals: list[dict[Action, tuple[float, float]]] = [{} for _ in pipelines]
    started_s: dict[tuple[int, Action], float] = {}
    left_s: dict[tuple[int, Action], float] = {}  # of running actions, while all ranks compute
    there_s: dict[tuple[int, Action], float] = {}  # what an action gives, where it is needed
    free_s: dict[tuple[int, int, bool], float] = {}  # a link of a cut in one direction
    position = [[0] * grid.ranks for _ in pipelines]
    now, count = 0.0, sum(map(len, grid.rows)) * len(pipelines)
    while sum(map(len, intervals)) < count:
        coming_s = []
        for pipeline, (rank, row) in itertools.product(pipelines, enumerate(grid.rows)):
            at = position[pipeline][rank]
            action = row[at] if at < len(row) else None
            if action is None or (pipeline, action) in left_s:
                continue
            needs = [(pipeline, need) for need in grid.needs(action)]
            if any(need not in there_s for need in needs):
                continue
            ready_s = max((there_s[need] for need in needs), default=0.0)
            if ready_s > now:
                coming_s.append(ready_s)
            else:
                started_s[pipeline, action], left_s[pipeline, action] = now, times.of(action)
        pace = min(slowdown, grid.ranks * len(pipelines) / len(left_s)) if left_s else 1.0
        ends_s = {one: now + rest_s / pace for one, rest_s in left_s.items()}
        before, now = now, min((*ends_s.values(), *coming_s))
        for one, end_s in ends_s.items():
            if end_s > now:
                left_s[one] -= (now - before) * pace
                continue
            del left_s[one]
            pipeline, action = one
            intervals[pipeline][action] = (started_s[one], now)
            there_s[one] = now
            rank, consumer = grid.rank_of_stage[action.stage], grid.consumer(action)
            position[pipeline][rank] += 1
            if consumer is not None and grid.rank_of_stage[consumer.stage] != rank:
                cut = min(action.stage, consumer.stage)
                link = cut, pipeline // of_cut[cut], action.kind == "F"
                there_s[one] = free_s[link] = max(now, free_s.get(link, 0.0)) + times.transfer_s[cut] / of_cut[cut]
    return max((Timing(grid, each) for each in intervals), key=lambda timing: timing.step_s)


def peak_in_flight(
    grid: PipelineGrid,
    held: Sequence[float] | Callable[[int], float] = lambda _: 1,
    waiting: Callable[[int], float] = lambda _: 0,
) -> tuple[float, ...]:
    """Return for each rank the most that it holds at once of what forward keeps for backward.

    `held` is what one micro-batch holds in each stage (1 counts micro-batches, bytes give bytes): from its forward
    until its weight gradients are done; `waiting` what comes on top from the first to the second half of a split
    backward. What follows depends on the order of a row alone, not on times.
    """
    of = held if callable(held) else held.__getitem__
    peaks = []
    for row in grid.rows:
        now = peak = 0.0
        for stage, kind, _ in row:
            if kind == "F":
                now += of(stage)
            elif kind == "I":
                now += waiting(stage)
            peak = max(peak, now)
            if kind == "B":
                now -= of(stage)
            elif kind == "W":
                now -= of(stage) + waiting(stage)
        peaks.append(peak)
    return tuple(peaks)
