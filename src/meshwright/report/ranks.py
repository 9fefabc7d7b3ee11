"""What each rank did in the recorded steps: computing, communicating, waiting; and which rank is slow."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from ..timeline import Span, Timeline, intervals, length_s, overlap_s
from ..units import format_time
from .colours import in_order
from .document import Cell, Table, table

STRAGGLER_SHARE = 0.05  # a rank that computes so much longer than the median rank is named


class RankUse(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step on one rank, each the median over the recorded steps."""

    rank: int
    compute_s: float
    comm_s: float
    exposed_comm_s: float
    parts_s: dict[str, float]  # by name of what was computed


def rank_uses(timeline: Timeline) -> list[RankUse]:
    """Return what each rank of a timeline did."""
    by_step: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in timeline.spans:
        by_step[span.rank][span.step].append(span)
    return [_use(rank, list(by_step[rank].values())) for rank in sorted(by_step)]


def _use(rank: int, steps: Sequence[Sequence[Span]]) -> RankUse:
    compute = [intervals(spans, lane="compute") for spans in steps]
    comm = [intervals(spans, lane="comm") for spans in steps]
    names = sorted({span.name for spans in steps for span in spans if span.lane == "compute"})
    return RankUse(
        rank=rank,
        compute_s=statistics.median(map(length_s, compute)),
        comm_s=statistics.median(map(length_s, comm)),
        exposed_comm_s=statistics.median(length_s(b) - overlap_s(a, b) for a, b in zip(compute, comm, strict=True)),
        parts_s={name: statistics.median(length_s(intervals(s, name=name)) for s in steps) for name in names},
    )


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
    names = in_order(name for use in uses for name in use.parts_s)
    columns = ("rank", "computing", *names, "communicating", "of it exposed")
    rows = [
        [
            Cell(str(use.rank), use.rank),
            *map(_time, (use.compute_s, *(use.parts_s.get(name, 0.0) for name in names))),
            _time(use.comm_s),
            _time(use.exposed_comm_s),
        ]
        for use in uses
    ]
    note = "medians over the recorded steps; waiting for a slower rank counts as exposed communication"
    return table(columns, rows, title="Each rank", sortable=True, note=note)


def _time(time_s: float) -> Cell:
    return Cell(format_time(time_s), time_s)
