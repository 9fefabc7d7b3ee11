"""The page of a trace: a run that Meshwright did not start, or a simulated or predicted timeline."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import InputError
from ..files import read_text
from ..timeline import Span, Timeline, intervals, length_s, overlap_s, parse_chrome_trace
from ..units import format_bytes, format_rate, format_time
from .document import Cell, Lines, Page, Table, section, table
from .kineto import read_profiles
from .lanes import lanes_figure
from .links import bus_rate_bytes_per_s, group_ranks
from .ranks import exposed_by_name, rank_uses, ranks_table, stragglers


class StepShares(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step went, medians over steps and ranks, in seconds; `idle_s` is what no span covers."""

    step_time_s: float
    compute_s: float
    exposed_comm_s: float
    hidden_comm_s: float
    data_s: float
    idle_s: float


def read_timeline(paths: Sequence[Path]) -> Timeline:
    """Return the timeline of trace files: one of Meshwright, or one of torch.profiler for each rank."""
    if len(paths) == 1 and paths[0].suffix != ".gz":
        try:
            head = msgspec.json.decode(read_text(paths[0]))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(f"{paths[0]}: {error}") from None
        if isinstance(head, dict) and isinstance(head.get("otherData"), dict) and "source" in head["otherData"]:
            try:
                return parse_chrome_trace(head)
            except ValueError as error:
                raise InputError(f"{paths[0]}: {error}") from None
    return read_profiles(paths)


def shares(timeline: Timeline) -> StepShares:
    """Return where the steps of a timeline went."""
    cells: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        cells[span.rank, span.step].append(span)
    found = [_shares(spans) for spans in cells.values()]
    names = StepShares.__struct_fields__
    return StepShares(**{name: statistics.median(getattr(item, name) for item in found) for name in names})


def _shares(spans: Sequence[Span]) -> StepShares:
    whole = max(s.end_s for s in spans) - min(s.start_s for s in spans)
    compute, comm = intervals(spans, lane="compute"), intervals(spans, lane="comm")
    hidden = overlap_s(compute, comm)
    return StepShares(
        step_time_s=whole,
        compute_s=length_s(compute),
        exposed_comm_s=length_s(comm) - hidden,
        hidden_comm_s=hidden,
        data_s=length_s(intervals(spans, lane="data")),
        idle_s=whole - length_s(intervals(spans)),
    )


def trace_page(timeline: Timeline, title: str) -> tuple[StepShares, Page]:
    """Return where the steps went, and the page that shows it."""
    found = shares(timeline)
    uses = rank_uses(timeline)
    slow = stragglers(uses)
    sections = (
        section("Where a step goes", _shares_table(found)),
        section("Timeline", lanes_figure({timeline.source: timeline})),
        section("Communication", _collectives(timeline) or _unmarked(timeline)),
        section("Ranks", Lines(tuple(slow), title="Stragglers") if slow else None, ranks_table(uses)),
    )
    kept = tuple(part for part in sections if part is not None)
    return found, Page(title=title, verdict=_verdict(found, timeline, slow), sections=kept, kind="trace")


def _verdict(found: StepShares, timeline: Timeline, slow: Sequence[str]) -> str:
    steps = len({span.step for span in timeline.spans})
    ranks = len({span.rank for span in timeline.spans})
    causes = {
        "exposed communication": found.exposed_comm_s,
        "idle time": found.idle_s,
        "data loading": found.data_s,
    }
    worst = max(causes, key=causes.__getitem__)
    share = causes[worst] / found.step_time_s if found.step_time_s else 0.0
    detail = ""
    if worst == "exposed communication":
        exposed = exposed_by_name(timeline)
        if exposed:
            detail = f", most of it {max(exposed, key=exposed.__getitem__)}"
    text = (
        f"step {format_time(found.step_time_s)} on {ranks} rank{'s' if ranks > 1 else ''} ({steps} steps traced): "
        f"{found.compute_s / found.step_time_s:.0%} computing; the largest loss is {worst} ({share:.0%}{detail})"
    )
    return text + (f"; {slow[0]}" if slow else "")


def _shares_table(found: StepShares) -> Table:
    labels = {
        "step_time_s": "step time",
        "compute_s": "  computing",
        "exposed_comm_s": "  exposed communication",
        "data_s": "  data loading",
        "idle_s": "  idle",
        "hidden_comm_s": "hidden communication",
    }
    rows = []
    for field, label in labels.items():
        value = getattr(found, field)
        part = value / found.step_time_s if found.step_time_s else 0.0
        rows.append([Cell(label), Cell(format_time(value), value), Cell(f"{part:.1%}", part)])
    return table(("", "median", "of the step"), rows, note="medians over steps and ranks, which need not add up")


def _unmarked(timeline: Timeline) -> Lines | None:
    """Return what a reader must know of a trace of several ranks without communication."""
    if len({span.rank for span in timeline.spans}) < 2:
        return None
    text = "nothing in these traces is marked as communication: what there was counts as the phase in which it was"
    return Lines((f"{text} called, or as idle",))


def _collectives(timeline: Timeline) -> Table | None:
    """Return each kind of communication: how often, how long, how fast."""
    found: dict[tuple[str, int], list[Span]] = defaultdict(list)
    ranks = len({span.rank for span in timeline.spans})
    cells = {(span.rank, span.step) for span in timeline.spans}
    for span in timeline.spans:
        if span.lane == "comm":
            found[span.name, group_ranks(span, ranks)].append(span)
    exposed = exposed_by_name(timeline)
    rows = []
    for (name, group), spans in sorted(found.items()):
        busy = sum(span.end_s - span.start_s for span in spans) / len(cells)
        size = sum(span.bytes for span in spans) / len(cells)
        rate = bus_rate_bytes_per_s(spans, group)
        rows.append(
            [
                Cell(name),
                Cell(str(group), group),
                Cell(f"{len(spans) / len(cells):.3g}", len(spans) / len(cells)),
                Cell(format_bytes(size), size) if size else Cell("not in the trace"),
                Cell(format_time(busy), busy),
                Cell(format_time(exposed.get(name, 0.0)), exposed.get(name, 0.0)),
                Cell(format_rate(rate), rate) if rate else Cell(""),
            ]
        )
    columns = ("collective", "ranks", "calls a step", "payload a step", "busy", "exposed (all groups)", "bus bandwidth")
    note = "a collective that waits for a slower rank counts as busy, so its bus bandwidth is a lower bound"
    return table(columns, rows, sortable=True, note=note) if rows else None
