"""The page of traces: runs that Meshwright did not start, and simulated or predicted timelines."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from msgspec import UNSET

from ...timeline import Span
from ...traces.drawn_step import typical
from ...traces.intervals import clipped, length_s, union, without
from ...traces.model import PHASES, RankTrace
from ...traces.summary import RankShares, TraceSummary
from ...traces.usage import common_steps, per_step, steps_of
from ...units import counted, format_bytes, format_rate, format_time
from ..document import Cell, Lines, Page, Section, Table, section, table
from ..lanes import lanes_figure
from ..links import bus_rate_bytes_per_s

SMALL_LOSS = 0.02  # of a step: what is less is no loss to speak of
LABELS = {
    "step_s": "step time",
    "compute_s": "  computing",
    "exposed_comm_s": "  exposed communication",
    "loading_s": "  data loading",
    "copied_s": "  copies to the device",
    "idle_s": "  idle",
    "other_s": "  copies to the host",
    "hidden_comm_s": "hidden communication",
}
_MOSTLY = 0.5  # of the exposed communication
_UNTOLD = "communication"  # kernels of which nothing says what they do: RCCL has one for all collectives
_APART = 0.1  # of a step, by which ranks differ so much that their median is nobody's
_MEDIANS = "medians over steps and ranks, which need not add up"
_MEANS = "means over steps and ranks: some are so unlike that the medians of the parts do not make up a step"


def trace_page(ranks: Sequence[Sequence[RankTrace]], summary: TraceSummary, title: str) -> Page:
    """Return the page that shows where the steps of traces went."""
    sections: tuple[Section | None, ...] = (
        section("Where a step goes", _shares_table(summary), _notes(summary)),
        section("Timeline", lanes_figure({ranks[0][0].origin: typical(ranks)})),
        section("Communication", _collectives(ranks) or _unmarked(ranks)),
        section("Ranks", _lateness(summary), _ranks_table(ranks, summary)),
    )
    kept = tuple(part for part in sections if part is not None)
    return Page(
        title=title,
        verdict=verdict_of(ranks, summary),
        sections=kept,
        kind="trace",
        median=summary.median,
        mean=UNSET if summary.mean is None else summary.mean,
        ranks=summary.ranks,
        culprit=summary.culprit,
    )


def verdict_of(ranks: Sequence[Sequence[RankTrace]], summary: TraceSummary) -> str:
    """Return the verdict in one sentence."""
    step, count = summary.typical, len(summary.ranks)
    processes = len({cycles[0].source for cycles in ranks})
    of = "one process" if processes == 1 else f"{processes} processes"
    on = f"on {count} devices of {of}" if summary.devices_alone else f"on {counted(count, 'rank')}"
    if summary.marked:
        steps = f"{counted(summary.steps, 'step')} traced"
        text = f"step {format_time(step.step_s)} {on} ({steps})"
    else:
        text = f"no ProfilerStep in the trace: the whole trace, {format_time(step.step_s)}, {on}"
    text += f": {step.compute_s / step.step_s:.0%} computing; {_largest_loss(ranks, summary)}"
    text += f"; {summary.uneven}" if summary.uneven else ""
    culprit = summary.culprit
    if culprit is not None:
        last, meetings = summary.finding.lateness.get(culprit.rank, (0, 0.0))[0], len(summary.meetings.found)
        does = summary.finding.does or f"is last in {last} of {counted(meetings, 'collective')}"
        most = "up to " if culprit.at_most else ""
        costs = f"costs {most}{format_time(culprit.costs_s_per_step)}{per_step(ranks)}"
        text += f"; rank {culprit.rank} {does} and {costs}, because {culprit.because}"
    if summary.finding.said:
        text += f"; {summary.finding.said}"
    return text


def _largest_loss(ranks: Sequence[Sequence[RankTrace]], summary: TraceSummary) -> str:
    step = summary.typical
    causes = {
        "exposed communication": step.exposed_comm_s,
        "idle time": step.idle_s,
        "waiting for data": step.loading_s,
        "copies to the device": step.copied_s,
        "copies to the host": step.other_s,
    }
    worst = max(causes, key=causes.__getitem__)
    share = causes[worst] / step.step_s
    if share < SMALL_LOSS:
        where = " in the typical step" if summary.uneven else ""
        return f"no loss to speak of{where} (the largest is {worst}, {share:.1%})"
    detail = ""
    if worst == "exposed communication":
        detail = _most_exposed(ranks, summary)
    elif worst == "idle time" and summary.idle:
        detail = f", {summary.idle}"
    return f"the largest loss is {worst} ({share:.0%}{detail})"


def _most_exposed(ranks: Sequence[Sequence[RankTrace]], summary: TraceSummary) -> str:
    """Return what most of the exposed communication is: a wait for one rank, or a kind of calls."""
    culprit = summary.culprit
    half_s = _MOSTLY * summary.typical.exposed_comm_s
    if culprit is not None and not culprit.at_most and culprit.costs_s_per_step > half_s:
        return f", most of it a wait for rank {culprit.rank}"
    exposed = exposed_s(ranks)
    if not exposed:
        return ""
    most = max(exposed, key=exposed.__getitem__)
    return ", of which kind its kernels do not say" if most == _UNTOLD else f", most of it {most}"


def _shares_table(summary: TraceSummary) -> Table:
    rows, found = [], summary.typical
    for field, label in LABELS.items():
        value = getattr(found, field)
        part = value / found.step_s
        rows.append([Cell(label), Cell(format_time(value), value), Cell(f"{part:.1%}", part)])
    apart = apart_by_rank(summary.ranks)
    note = f"{figures_of(summary)}; {f'{apart}; ' if apart else ''}a step lasts from its start to the start of the next"
    return table(("", figure_of(summary), "of the step"), rows, note=note)


def figures_of(summary: TraceSummary) -> str:
    """Return what the figures of a typical step are, for a reader."""
    by = " devices" if summary.devices_alone else " ranks"
    return (_MEANS if summary.mean else _MEDIANS).replace(" ranks", by)


def figure_of(summary: TraceSummary) -> str:
    """Return what the figures of a typical step are, for the head of a column."""
    return "mean" if summary.mean else "median"


def apart_by_rank(ranks: Sequence[RankShares]) -> str:
    """Return which parts of a step differ much between ranks, with the ranks at both ends; "" for none."""
    found = []
    for field, label in LABELS.items():
        shares = [(getattr(one, field) / one.step_s, one.rank) for one in ranks if one.step_s]
        least, most = min(shares, default=(0.0, 0)), max(shares, default=(0.0, 0))
        if most[0] - least[0] > _APART:
            found.append(f"{label.strip()} {least[0]:.1%} (rank {least[1]}) to {most[0]:.1%} (rank {most[1]})")
    return f"by rank: {', '.join(found)}" if found else ""


def _notes(summary: TraceSummary) -> Lines | None:
    return Lines(tuple(dict.fromkeys(summary.notes)), title="To know") if summary.notes else None


def _unmarked(ranks: Sequence[Sequence[RankTrace]]) -> Lines | None:
    """Return what a reader must know of traces of several ranks without communication."""
    if len(ranks) < 2:
        return None
    text = "nothing in these traces is marked as communication: what there was counts as the phase in which it was"
    return Lines((f"{text} called, or as idle",))


def _lateness(summary: TraceSummary) -> Lines | None:
    """Return how often each rank came last, the worst first."""
    found = sorted(summary.finding.lateness.items(), key=lambda item: -item[1][1])
    lines = [
        f"rank {rank} is last in {last} of {counted(len(summary.meetings.found), 'collective')}; the others lose "
        f"{format_time(cost_s)} a step by it"
        for rank, (last, cost_s) in found
        if last
    ]
    return Lines(tuple(lines[:8]), title="Who comes last") if lines else None


def _ranks_table(ranks: Sequence[Sequence[RankTrace]], summary: TraceSummary) -> Table:
    phases = [_phases_s(cycles, common_steps(ranks)) for cycles in ranks]
    names = sorted({name for found in phases for name in found}, key=_phase_order)
    columns = ("rank", "step", "computing", *names, "exposed communication", "hidden", "data", "idle", "last in")
    rows = [_rank_row(own, found, names, summary) for own, found in zip(summary.ranks, phases, strict=True)]
    note = "medians over the steps; a rank that waits for the slow one has more exposed communication"
    return table(columns, rows, title="Each rank", sortable=True, note=note)


def _rank_row(own: RankShares, phases: dict[str, float], names: Sequence[str], summary: TraceSummary) -> list[Cell]:
    times = (own.step_s, own.compute_s, *(phases.get(name, 0.0) for name in names), own.exposed_comm_s)
    times += (own.hidden_comm_s, own.data_s, own.idle_s)
    last = summary.finding.lateness.get(own.rank, (0, 0.0))[0]
    label = f"{own.rank} ({own.device})" if own.device else str(own.rank)
    return [Cell(label, own.rank), *(Cell(format_time(time_s), time_s) for time_s in times), Cell(str(last), last)]


def _phase_order(name: str) -> tuple[int, str]:
    return (PHASES.index(name) if name in PHASES else len(PHASES)), name


def _phases_s(cycles: Sequence[RankTrace], wanted: set[int]) -> dict[str, float]:
    """Return the seconds of each phase in the typical step of a rank."""
    found: dict[str, list[float]] = defaultdict(list)
    for trace, window in steps_of(cycles, wanted):
        for name, times in trace.phases.items():
            found[name].append(length_s(clipped(times, window.start_s, window.end_s)))
    return {name: statistics.median(times) for name, times in found.items() if any(times)}


def exposed_s(ranks: Sequence[Sequence[RankTrace]]) -> dict[str, float]:
    """Return the exposed seconds of each kind of communication in the typical step."""
    found: dict[str, list[float]] = defaultdict(list)
    wanted = common_steps(ranks)
    names = {call.name for cycles in ranks for trace in cycles for call in trace.calls}
    for cycles in ranks:
        for trace in cycles:
            for name in names:
                calls = [call for call in trace.calls if call.name == name]
                exposed = without(union([c.start_s for c in calls], [c.end_s for c in calls]), trace.compute)
                for _, window in steps_of([trace], wanted):
                    found[name].append(length_s(clipped(exposed, window.start_s, window.end_s)))
    return {name: statistics.median(times) for name, times in found.items()}


def _collectives(ranks: Sequence[Sequence[RankTrace]]) -> Table | None:
    """Return each kind of communication: how often, how long, how fast."""
    found: dict[tuple[str, int], list[Span]] = defaultdict(list)
    cells = 0
    for cycles in ranks:
        for trace in cycles:
            cells += len(trace.windows)
            for call in trace.calls:
                span = Span(0, "comm", call.name, call.start_s, call.end_s, bytes=call.bytes)
                found[call.name, call.group_size or len(ranks)].append(span)
    exposed = exposed_s(ranks) if found else {}
    rows = []
    for (name, group), spans in sorted(found.items()):
        busy = sum(span.end_s - span.start_s for span in spans) / cells
        size = sum(span.bytes for span in spans) / cells
        rate = bus_rate_bytes_per_s(spans, group)
        rows.append(
            [
                Cell(name),
                Cell(str(group), group) if group > 1 else Cell("not in the trace"),
                Cell(f"{len(spans) / cells:.3g}", len(spans) / cells),
                Cell(format_bytes(size), size) if size else Cell("not in the trace"),
                Cell(format_time(busy), busy),
                Cell(format_time(exposed.get(name, 0.0)), exposed.get(name, 0.0)),
                Cell(format_rate(rate), rate) if rate else Cell("not known"),
            ]
        )
    columns = ("collective", "ranks", "calls a step", "payload a step", "busy", "exposed (all groups)", "bus bandwidth")
    note = "a collective that waits for a slower rank counts as busy, so its bus bandwidth is a lower bound"
    return table(columns, rows, sortable=True, note=note) if rows else None
