"""The pace of a pipeline or a ring: the rank that works longest sets it, and the others wait for what it passes on.

A stage may have more work than the others, as its cut wants it; then no rank is to blame. A rank is, where the same
kernels last longer on it, or where its host keeps its device idle: by what the trace names, or while all others wait.
Part of what it works longer may fill pauses in which it would wait for others: what it costs is no more than that.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...units import format_time
from ..intervals import Array, length_s, union_of_sets, without
from ..model import RankTrace, Window
from ..usage import common_steps, parts_of, per_step, steps_of
from .bubble import bubble_said
from .collective_costs import collective_costs
from .culprit import Culprit, CulpritFinding
from .meetings import Meetings, joined
from .straggler_reason import Step, idle_by, reason

LEAST_SHARE = 0.05  # of a step: how much more than the next a stage must work
STEADY_SHARE = 0.75  # of the steps, in which it must be the one that works longest
EXPLAINED_SHARE = 0.5  # of what it works longer, by kernels that last longer or by its host
_OWN_IDLE = ("garbage", "allocator", "data", "operators")  # what a host does that is no wait for another stage
Times = npt.NDArray[np.float64]


class _Stage(msgspec.Struct, frozen=True):
    """One rank of a pipeline in the steps that all ranks traced."""

    rank: int
    steps: list[Step]
    own_s: list[float]  # of each step: in which it computes, or its host keeps the device idle
    waits_s: float  # in the typical step, for others and for data to move

    @property
    def typical_s(self) -> float:
        return statistics.median(self.own_s)


def paced(
    ranks: Sequence[Sequence[RankTrace]], meetings: Meetings, finding: CulpritFinding, step_s: float
) -> CulpritFinding:
    """Return `finding`, and in it the rank that holds up its pipeline or ring, or that its stage has the most work."""
    if any(trace.device == "host" for cycles in ranks for trace in cycles):
        return finding
    wanted = common_steps(ranks)
    by_rank = {cycles[0].rank: cycles for cycles in ranks}
    found = []
    for members in joined(one.ranks for one in meetings.neighbours):
        stages = [_stage(rank, steps_of(by_rank[rank], wanted)) for rank in sorted(members) if rank in by_rank]
        if len(stages) > 1 and wanted:
            found.append((_excess_s(stages, step_s), stages))
    longest_s, stages = max(found, key=lambda one: one[0], default=(0.0, []))
    if longest_s <= 0:
        pipelines = [stages for _, stages in found]
        idled = _idled(ranks, meetings, finding, pipelines, step_s)
        return _by_schedule(ranks, meetings, idled, pipelines) if idled == finding else idled
    slow = max(stages, key=lambda stage: stage.typical_s)
    whole = _whole(stages, meetings)
    alike = _replicas(slow.rank, stages, meetings)
    if any(_stage(rank, steps_of(by_rank[rank], wanted)).typical_s > slow.typical_s - longest_s / 2 for rank in alike):
        why = "its replicas work as long, the stage has more work"
    else:
        slower_s, comparable_s = _slower_s(slow, stages)
        if max(slower_s, _idler_s(slow, stages)) > EXPLAINED_SHARE * longest_s:
            because = reason([by_rank[stage.rank] for stage in stages], slow.rank, longest_s)
            return _blamed(finding, slow.rank, longest_s, because, whole)
        why = "its kernels last no longer than theirs, it has more work"
        if comparable_s < EXPLAINED_SHARE * slow.typical_s:
            why = "whether it has more work or is slower is not told, as its kernels are others than theirs"
    who = f"rank {slow.rank}" if whole == "ring" else f"the stage of rank {slow.rank}"
    more = f"{who} works {format_time(longest_s)}{per_step(ranks)} longer"
    return msgspec.structs.replace(finding, said=f"{more} than any other of its {whole}, which wait for it: {why}")


def _blamed(finding: CulpritFinding, rank: int, costs_s: float, because: str, whole: str) -> CulpritFinding:
    culprit = Culprit(rank=rank, costs_s_per_step=costs_s, because=because, at_most=True)
    return msgspec.structs.replace(finding, culprit=culprit, does=f"sets the pace of its {whole}", said="")


def _whole(stages: Sequence[_Stage], meetings: Meetings) -> str:
    """Return what some ranks are together."""
    mine = {stage.rank for stage in stages}
    return "ring" if all(one.ring for one in meetings.neighbours if one.ranks & mine) else "pipeline"


def _idled(
    ranks: Sequence[Sequence[RankTrace]],
    meetings: Meetings,
    finding: CulpritFinding,
    found: Sequence[Sequence[_Stage]],
    step_s: float,
) -> CulpritFinding:
    """Return `finding`, and in it whose device idles longer than any other while its host is outside operators.

    It is to blame if all others wait meanwhile. Otherwise it may hold them up, or wait for them in a way that its trace
    does not show.
    """
    for stages in found:
        idle_s = {stage.rank: statistics.median(length_s(_outside(*step)) for step in stage.steps) for stage in stages}
        *_, second, most = sorted(idle_s, key=idle_s.__getitem__)
        longer_s, whole = idle_s[most] - idle_s[second], _whole(stages, meetings)
        traced = all(trace.host.is_traced for stage in stages for trace, _ in stage.steps)
        if longer_s <= LEAST_SHARE * step_s or not traced:
            continue
        if _alone_s(most, stages, meetings.moved_s) > LEAST_SHARE * step_s:
            because = reason([cycles for cycles in ranks if cycles[0].rank in idle_s], most, longer_s)
            return _blamed(finding, most, longer_s, because, whole)
        said = _bubble(stages, meetings, per_step(ranks)) or (
            f"the device of rank {most} idles {format_time(longer_s)}{per_step(ranks)} longer than any other of its "
            f"{whole}, while its host runs code outside any operator: it holds up the others or waits for them, which "
            "is not told"
        )
        return msgspec.structs.replace(finding, said="; ".join(filter(None, (finding.said, said))))
    return finding


def _by_schedule(
    ranks: Sequence[Sequence[RankTrace]],
    meetings: Meetings,
    finding: CulpritFinding,
    pipelines: Sequence[Sequence[_Stage]],
) -> CulpritFinding:
    """Return `finding`, and in it what a pipeline of which no stage stands out loses by its schedule."""
    job = max(trace.world_size for cycles in ranks for trace in cycles)
    if job > len(ranks):
        pipelines = [stages for stages in pipelines if len(stages) > 2]  # two may be the middle of a longer one
    wholes = [stages for stages in pipelines if _whole(stages, meetings) == "pipeline"]
    said = [_bubble(stages, meetings, per_step(ranks)) for stages in wholes]
    if not said or not all(said):
        return finding
    return msgspec.structs.replace(finding, said="; ".join(filter(None, (finding.said, said[0]))))


def _bubble(stages: Sequence[_Stage], meetings: Meetings, per: str) -> str:
    mine = {stage.rank for stage in stages}
    sends = [send for send in meetings.sends if {arrival.rank for arrival in send.arrivals} <= mine]
    waits = {id(trace): without(trace.comm, trace.compute) for stage in stages for trace, _ in stage.steps}
    moved_s = collective_costs(sends, waits).moved_s if sends else 0.0
    return bubble_said([stage.steps for stage in stages], [stage.typical_s for stage in stages], moved_s, per)


def _outside(trace: RankTrace, window: Window) -> Array:
    return idle_by(trace, window)["outside"]


def _alone_s(rank: int, stages: Sequence[_Stage], moved_s: Mapping[int, float]) -> float:
    """Return how long a step all others wait for a rank whose device idles; 0 where clocks are not known.

    They do from when the last of them begins a wait that is not over when the rank goes on: whatever ends before, be it
    a slow transfer, did not wait for it.
    """
    waits: list[Array] = []
    for stage in stages:
        traces = {id(trace): trace for trace, _ in stage.steps}
        if not traces.keys() <= moved_s.keys():
            return 0.0
        if stage.rank != rank:
            every = [without(one.comm, one.compute) + moved_s[key] for key, one in traces.items()]
            waits.append(union_of_sets(every))
    own = next(stage for stage in stages if stage.rank == rank)
    alone = []
    for trace, window in own.steps:
        idle = _outside(trace, window) + moved_s[id(trace)]
        begins, ends = idle[:, 0], idle[:, 1]
        for others in waits:
            at = others[:, 0].searchsorted(ends) - 1
            lasts = (at >= 0) & (np.append(others[:, 1], -np.inf)[at] > ends)
            begins = np.maximum(begins, np.where(lasts, np.append(others[:, 0], np.inf)[at], ends))
        alone.append(float((ends - begins).sum()))
    return statistics.median(alone)


def _replicas(rank: int, stages: Sequence[_Stage], meetings: Meetings) -> set[int]:
    """Return the ranks that hold the same stage in other pipelines, with which a rank reduces."""
    met = [{arrival.rank for arrival in meeting.arrivals} for meeting in meetings.found]
    return set().union(*(ranks for ranks in met if rank in ranks)) - {stage.rank for stage in stages}


def _stage(rank: int, steps: list[Step]) -> _Stage:
    own_s, waits_s = [], []
    for trace, window in steps:
        parts = parts_of(trace, window)
        idle = idle_by(trace, window)
        kept = union_of_sets([parts.compute, *(idle[key] for key in _OWN_IDLE)])
        own_s.append(length_s(kept))
        waits_s.append(length_s(parts.exposed))
    return _Stage(rank, steps, own_s, statistics.median(waits_s) if waits_s else 0.0)


def _excess_s(stages: Sequence[_Stage], step_s: float) -> float:
    """Return by how much one stage works longer than any other, while all others wait longer; 0 if none does."""
    *_, second, slow = sorted(stages, key=lambda stage: stage.typical_s)
    excess_s = slow.typical_s - second.typical_s
    others = [stage for stage in stages if stage is not slow]
    by_step = list(zip(slow.own_s, *(stage.own_s for stage in others), strict=True))
    steady = sum(own[0] > max(own[1:]) for own in by_step) >= STEADY_SHARE * len(by_step)
    waits = slow.waits_s < min(stage.waits_s for stage in others)
    return excess_s if excess_s > LEAST_SHARE * step_s and steady and waits else 0.0


def _slower_s(slow: _Stage, stages: Sequence[_Stage]) -> tuple[float, float]:
    """Return how much longer a stage's kernels last than kernels of the same names on the others, and how long those.

    Both are seconds of a step. The typical kernel of a name counts: the projection to the vocabulary, which one stage
    alone has, may share the name of others.
    """
    mine = _kernels_s(slow)
    theirs = [_kernels_s(stage) for stage in stages if stage is not slow]
    longer_s = comparable_s = 0.0
    for name, times_s in mine.items():
        others = [float(np.median(one[name])) for one in theirs if name in one]
        if others:
            longer_s += len(times_s) * (float(np.median(times_s)) - statistics.median(others))
            comparable_s += float(times_s.sum())
    return longer_s / len(slow.steps), comparable_s / len(slow.steps)


def _kernels_s(stage: _Stage) -> dict[str, Times]:
    """Return how long the kernels of each name last in all steps of a stage."""
    found: dict[str, list[Times]] = defaultdict(list)
    for trace, window in stage.steps:
        computed = trace.computed
        inside = (computed.starts_s >= window.start_s) & (computed.starts_s < window.end_s)
        names, times_s = computed.names[inside], (computed.ends_s - computed.starts_s)[inside]
        order = np.argsort(names, kind="stable")
        numbers, begins = np.unique(names[order], return_index=True)
        for number, some_s in zip(numbers, np.split(times_s[order], begins[1:]), strict=True):
            found[computed.table[number]].append(some_s)
    return {name: np.concatenate(some) for name, some in found.items()}


def _idler_s(slow: _Stage, stages: Sequence[_Stage]) -> float:
    """Return how many seconds a step the host of a stage keeps its device idle longer than those of the others do."""
    idle_s = {stage.rank: _idle_s(stage) for stage in stages}
    return idle_s[slow.rank] - statistics.median(idle_s[stage.rank] for stage in stages if stage is not slow)


def _idle_s(stage: _Stage) -> float:
    times = [sum(length_s(idle_by(*step)[key]) for key in _OWN_IDLE) for step in stage.steps]
    return statistics.median(times)
