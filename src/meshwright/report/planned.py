"""The page of a plan that has not run: what it costs, how it is laid out, what else there was."""

from ..cluster.graph import Cluster
from ..cluster.svg import svg
from ..layout import Plan
from ..timeline import Performance, Timeline
from ..units import format_bytes, format_time
from .compare import PARTS
from .document import Cell, Drawing, Lines, Page, Section, Table, section, table
from .figures import parts_figure
from .lanes import lanes_figure
from .parts import alternatives_section, caveats_section, layout_section


def plan_page(plan: Plan, *, title: str, timeline: Timeline | str, node: Cluster) -> Page:
    """Return the page of a plan: `timeline` is its simulated step or why there is none, `node` one of its machines."""
    predicted = plan.predicted
    sections = (
        section("Predicted", _table(predicted), parts_figure({"predicted": predicted})),
        _timeline(timeline),
        layout_section(plan),
        alternatives_section(plan),
        section("One node of the cluster", Drawing(title=node.name, svg=svg(node)) if node.devices else None),
        caveats_section(predicted),
    )
    band = "" if predicted.error_band is None else f" (within {predicted.error_band:.0%})"
    verdict = (
        f"{plan.layout}: {format_time(predicted.step_time_s)} a step{band}, "
        f"{format_bytes(predicted.peak_memory_bytes_per_gpu)} on each of {plan.layout.world_size:,} ranks"
    )
    return Page(title=title, verdict=verdict, sections=tuple(s for s in sections if s is not None), kind="plan")


def _timeline(timeline: Timeline | str) -> Section | None:
    if isinstance(timeline, str):
        return section("Timeline", Lines((f"not simulated: {timeline}",)))
    end_s = max(span.end_s for span in timeline.spans)
    said = (
        f"the event simulator, where every message has its links, takes {format_time(end_s)} for this step; ranks that "
        "behave alike have one row"
    )
    return section("Timeline", lanes_figure({"simulated": timeline}), Lines((said,)))


def _table(p: Performance) -> Table:
    rows = [[Cell("step time"), Cell(format_time(p.step_time_s), p.step_time_s)]]
    for name, field in PARTS.items():
        rows.append([Cell(f"  {name}"), Cell(format_time(getattr(p, field)), getattr(p, field))])
    rows.append([Cell("hidden communication"), Cell(format_time(p.hidden_comm_s), p.hidden_comm_s)])
    rows.append([Cell("tokens/s per rank"), Cell(f"{p.tokens_per_s_per_gpu:,.0f}", p.tokens_per_s_per_gpu)])
    if p.mfu is not None:
        rows.append([Cell("MFU"), Cell(f"{p.mfu:.1%}", p.mfu)])
    memory = p.peak_memory_bytes_per_gpu
    rows.append([Cell("peak memory per rank"), Cell(format_bytes(memory), memory)])
    return table(("", "predicted"), rows)
