"""The summary of the traces of all ranks: where a step goes, rank by rank, and who the others wait for."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..units import format_time
from .cycles import cycles_apart
from .intervals import length_s
from .model import RankTrace
from .reading import file_of
from .stragglers.culprit import Culprit, CulpritFinding, find_culprit
from .stragglers.meetings import Meetings, meetings_of
from .stragglers.pace import paced
from .stragglers.straggler_reason import idle_by, innermost
from .uneven_steps import uneven_steps
from .usage import Shares, common_steps, make_up, mean_of, median_of, parts_of, shares_of, steps_of

SHORT_GAP_S = 200e-6  # a gap between kernels that a launch explains
IDLE_BY = {
    "garbage": "while the host collects garbage",
    "allocator": "while the host is in the memory allocator",
    "waiting": "while the host waits for the device and launches nothing",
    "operators": "while the host is in operators and launches",
    "outside": "while the host runs code outside any operator",
}


class RankShares(Shares, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds of a step of one rank, each the median over the steps that all ranks traced."""

    rank: int
    device: str = ""  # which of several devices that one process used


class TraceSummary(NamedTuple):
    """The summary of traces that a page and a terminal show."""

    median: Shares  # over steps and ranks
    ranks: tuple[RankShares, ...]
    finding: CulpritFinding
    meetings: Meetings
    steps: int  # that every rank traced
    marked: bool
    idle: str  # what the host did while the device idled, "" if not known
    notes: tuple[str, ...]
    uneven: str = ""  # which steps are much longer than the typical one, and by what
    mean: Shares | None = None  # over steps and ranks, where their medians do not make up a step

    @property
    def typical(self) -> Shares:
        """Return the typical step: the mean one where medians do not make up a step."""
        return self.mean or self.median

    @property
    def devices_alone(self) -> bool:
        """Return whether the ranks are the devices that processes used, each of them several."""
        return len(self.ranks) > 1 and all(own.device for own in self.ranks)

    @property
    def culprit(self) -> Culprit | None:
        """Return the rank that the others wait for."""
        return self.finding.culprit


def summarized(ranks: Sequence[Sequence[RankTrace]]) -> TraceSummary:
    """Return what the traces say."""
    wanted, notes = _wanted(ranks)
    by_rank: list[list[Shares]] = [[] for _ in ranks]
    by_step: dict[int, list[Shares]] = defaultdict(list)
    for cycles, found in zip(ranks, by_rank, strict=True):
        for trace, window in steps_of(cycles, wanted):
            found.append(shares_of(trace, window))
            by_step[window.number].append(found[-1])
    cells = [shares for found in by_rank for shares in found]
    median = median_of(cells)
    mean = None if make_up(median) else mean_of(cells)
    table = []
    for cycles, found in zip(ranks, by_rank, strict=True):
        assert cycles[0].rank is not None
        own = msgspec.structs.asdict(median_of(found))
        table.append(RankShares(rank=cycles[0].rank, device=cycles[0].label, **own))
    meetings, step_s = meetings_of(ranks), (mean or median).step_s
    finding = find_culprit(ranks, meetings, step_s)
    if finding.culprit is None:
        finding = paced(ranks, meetings, finding, step_s)
    every = [trace for cycles in ranks for trace in cycles]
    notes += [note for trace in every for note in trace.notes]
    marked = all(trace.marked for trace in every)
    idle = _idle(ranks, wanted)
    told = (*notes, *cycles_apart(ranks, wanted), *meetings.notes, *_files_of(ranks, finding.culprit))
    begins = {trace.windows[0].number for trace in every}
    uneven = uneven_steps(by_step, begins, lambda steps: _idle(ranks, steps))
    return TraceSummary(median, tuple(table), finding, meetings, len(wanted), marked, idle, told, uneven, mean)


def _files_of(ranks: Sequence[Sequence[RankTrace]], culprit: Culprit | None) -> list[str]:
    """Return which files the culprit is, where their names do not say so; nothing of ranks that share a file."""
    if culprit is None:
        return []
    shared = Counter(source for cycles in ranks for source in {trace.source for trace in cycles})
    found = [trace for cycles in ranks if cycles[0].rank == culprit.rank for trace in cycles]
    return [said for trace in found if (trace.label or shared[trace.source] == 1) and (said := file_of(trace))]


def _wanted(ranks: Sequence[Sequence[RankTrace]]) -> tuple[set[int], list[str]]:
    """Return the steps that are compared, and what to say where the ranks traced different ones."""
    wanted = common_steps(ranks)
    counts = [sum(len(trace.windows) for trace in cycles) for cycles in ranks]
    if wanted and len(set(counts)) == 1 and counts[0] == len(wanted):
        return wanted, []
    said = ", ".join(f"rank {cycles[0].rank} {count}" for cycles, count in zip(ranks, counts, strict=True))
    if wanted:
        steps = sorted(wanted)
        return wanted, [f"steps {steps[0]} to {steps[-1]} are compared, which all ranks traced (steps traced: {said})"]
    every = {window.number for cycles in ranks for trace in cycles for window in trace.windows}
    return every, [f"no step was traced by all ranks: each rank's own are taken (steps traced: {said})"]


def _idle(ranks: Sequence[Sequence[RankTrace]], wanted: set[int]) -> str:
    """Return what the host did while the device idled: the largest part of it."""
    found: dict[str, float] = {}
    short_s = total_s = 0.0
    steps = [step for cycles in ranks for step in steps_of(cycles, wanted)]
    for trace, window in steps:
        if trace.device == "host" or not len(trace.host.operators):
            return ""
        gaps = parts_of(trace, window).idle
        lengths = gaps[:, 1] - gaps[:, 0]
        short_s += float(lengths[lengths < SHORT_GAP_S].sum())
        total_s += float(lengths.sum())
        for key, times in idle_by(trace, window).items():
            found[key] = found.get(key, 0.0) + length_s(times)
    if total_s <= 0:
        return ""
    if 2 * short_s > total_s:
        return f"gaps of less than {format_time(SHORT_GAP_S)} between kernels: the host launches too slowly"
    found.pop("data", None)
    most = max(found, key=found.__getitem__)
    name = innermost(steps, [], most, found[most] / len(steps))
    if not name:
        return IDLE_BY[most]
    return f"while the host is in {name}" + (", outside any operator" if most == "outside" else "")
