"""Each rank in the measured steps: computing, communicating, waiting; and which rank is slow."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ..timeline import Span, Timeline, intervals, length_s, overlap_s, step_parts, typical_step
from ..units import format_time
from .document import Cell, Table, table

COMPUTED = ("forward", "backward", "optimizer")
COLUMNS = {  # of the table of ranks: what each is the sum of
    "step": ("step_time",),
    "computing": COMPUTED,
    **{name: (name,) for name in COMPUTED},
    "communicating": ("exposed_comm", "hidden_comm"),
    "of it exposed": ("exposed_comm",),
    "waiting for stages": ("bubble",),
    "loading data": ("data",),
}
STRAGGLER_SHARE = 0.05  # a rank that computes so much longer than the median rank is named


class RankUse(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a step on one rank, which add up to its median step."""

    rank: int
    parts_s: dict[str, float]  # as `step_parts` names them, without "_s"

    @property
    def compute_s(self) -> float:
        """Return the seconds in which the rank computes."""
        return sum(self.parts_s[name] for name in COMPUTED)


def uses_of_run(parts: Mapping[int, Mapping[str, float]], timeline: Timeline) -> list[RankUse]:
    """Return what each rank of a run did in all measured steps, in those of its timeline where a run kept no more."""
    return [_use(rank, parts[rank]) for rank in sorted(parts)] or rank_uses(timeline)


def rank_uses(timeline: Timeline) -> list[RankUse]:
    """Return what each rank of a timeline did."""
    by_step: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in timeline.spans:
        by_step[span.rank][span.step].append(span)
    return [_use(rank, typical_step(list(map(step_parts, by_step[rank].values())))) for rank in sorted(by_step)]


def _use(rank: int, parts: Mapping[str, float]) -> RankUse:
    return RankUse(rank=rank, parts_s={name.removesuffix("_s"): seconds for name, seconds in parts.items()})


def exposed_by_name(timeline: Timeline) -> dict[str, float]:
    """Return the exposed seconds of each kind of communication in a step: of each the median over steps and ranks."""
    cells: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        cells[span.rank, span.step].append(span)
    found: dict[str, list[float]] = defaultdict(list)
    names = {span.name for span in timeline.spans if span.lane == "comm"}
    for spans in cells.values():
        compute = intervals(spans, lane="compute")
        for name in names:
            comm = intervals([span for span in spans if span.lane == "comm"], name=name)
            found[name].append(length_s(comm) - overlap_s(compute, comm))
    return {name: statistics.median(times) for name, times in found.items()}


def stragglers(uses: Sequence[RankUse]) -> list[str]:
    """Return a sentence for each rank that computes longer than the others."""
    if len(uses) < 2:
        return []
    middle = statistics.median(use.compute_s for use in uses)
    slow = [use for use in uses if middle and use.compute_s > middle * (1 + STRAGGLER_SHARE)]
    slow.sort(key=lambda use: -use.compute_s)
    return [
        f"rank {use.rank} computes {use.compute_s / middle - 1:.0%} longer than the median rank "
        f"({format_time(use.compute_s)} a step against {format_time(middle)})"
        for use in slow
    ]


def ranks_table(uses: Sequence[RankUse]) -> Table | None:
    """Return the seconds of each rank, sortable."""
    if not uses:
        return None
    times = {name: [sum(use.parts_s[part] for part in parts) for use in uses] for name, parts in COLUMNS.items()}
    shown = {name: column for name, column in times.items() if any(column)}  # what took no time on any rank is left out
    rows = [
        [Cell(str(use.rank), use.rank), *(_time(column[place]) for column in shown.values())]
        for place, use in enumerate(uses)
    ]
    note = "of the median step; waiting for a slower rank counts as exposed communication"
    return table(("rank", *shown), rows, title="Each rank", sortable=True, note=note)


def _time(time_s: float) -> Cell:
    return Cell(format_time(time_s), time_s)
