"""The page of a plan that has not run: what it costs, how it is laid out, what else there was."""

from ...cluster.drawing.svg import cluster_svg
from ...cluster.graph import Cluster
from ...layout import Fits, Machines, Plan
from ...timeline import Performance, Timeline
from ...units import counted, format_bytes, format_time
from ..compare import PARTS
from ..document import Cell, Drawing, Lines, Page, Section, Table, section, table
from ..figures import parts_figure
from ..lanes import lanes_figure
from ..layout_words import layout_in_words
from ..sections import FITS_TEXT, alternatives_section, caveats_section, layout_section

HIDDEN = {"hidden communication": "hidden_comm_s"}


def plan_page(plan: Plan, *, title: str, timeline: Timeline | str, node: Cluster, fits: Fits) -> Page:
    """Return the page of a plan: `timeline` is its simulated step or why there is none, `node` one of its machines."""
    predicted = plan.predicted
    sections = (
        _what_is_priced(plan, node),
        section("Predicted", _table(predicted), parts_figure({"predicted": predicted})),
        _timeline(timeline),
        layout_section(plan),
        alternatives_section(plan, fits),
        section("One node of the cluster", Drawing(title=node.name, svg=cluster_svg(node)) if node.devices else None),
        caveats_section(predicted),
    )
    band = "" if predicted.error_band is None else f" (within {predicted.error_band:.0%})"
    ranks = plan.layout.world_size
    each = "its rank" if ranks == 1 else f"each of {ranks:,} ranks"
    verdict = (
        f"{plan.layout}: {format_time(predicted.step_time_s)} a step{band}, "
        f"{format_bytes(predicted.peak_memory_bytes_per_gpu)} on {each}"
        f"{'' if fits == 'fits' else f', which {FITS_TEXT[fits]}'}"
    )
    return Page(title=title, verdict=verdict, sections=tuple(s for s in sections if s is not None), kind="plan")


def _what_is_priced(plan: Plan, node: Cluster) -> Section | None:
    """Return model, batch, layout and machines of the plan."""
    model, machines = plan.model, plan.cluster
    sizes = {
        "layers": model.get("layers", model.get("num_hidden_layers")),
        "hidden size": model.get("hidden_size"),
        "vocabulary" if model.get("embeds", True) else "outputs": model.get("vocab_size"),
    }
    tokens = plan.global_batch_sequences * plan.seq_len
    found = {
        "model": ", ".join(f"{name} {size:,}" for name, size in sizes.items() if isinstance(size, int)),
        "batch": (
            f"{counted(plan.global_batch_sequences, 'sequence')} of {counted(plan.seq_len, 'token')}: "
            f"{counted(tokens, 'token')} a step"
        ),
        "layout": f"{plan.layout} ({layout_in_words(plan.layout, plan.micro_batches)})",
        "machines": "" if machines is None else _machines(machines, node),
        "precision": plan.precision,
    }
    rows = [[name, text] for name, text in found.items() if text]
    return section("What is priced", table(("", ""), rows, prose=True))


def _machines(machines: Machines, node: Cluster) -> str:
    nodes = f"{counted(machines.nodes, 'node')} of {machines.name}"
    accelerator = f" {machines.accelerator}" if machines.accelerator else ""
    nics = node.of_kind("nic")
    network = f", {counted(len(nics), 'NIC')} a node" if nics else ""
    return f"{machines.ranks:,} x{accelerator or ' processors'} in {nodes}{network}"


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
    for name, field in ({f"  {part}": field for part, field in PARTS.items()} | HIDDEN).items():
        if getattr(p, field):
            rows.append([Cell(name), Cell(format_time(getattr(p, field)), getattr(p, field))])
    rows.append([Cell("tokens/s per rank"), Cell(f"{p.tokens_per_s_per_gpu:,.0f}", p.tokens_per_s_per_gpu)])
    if p.mfu is not None:
        rows.append([Cell("MFU"), Cell(f"{p.mfu:.1%}", p.mfu)])
    memory = p.peak_memory_bytes_per_gpu
    rows.append([Cell("peak memory per rank"), Cell(format_bytes(memory), memory)])
    return table(("", "predicted"), rows)
