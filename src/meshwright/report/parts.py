"""The sections that pages share: figures of a step, the layout, the alternatives, what is not modelled."""

from collections.abc import Sequence

from ..layout import Candidate, Layout, Plan
from ..timeline import Performance
from ..units import format_bytes, format_time
from .compare import Comparison, Row
from .document import Cell, Lines, Section, Table, section, table
from .figures import mesh_figure
from .grid import pipeline_figure

TIMES = {
    "step": "step_time_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "optimizer": "optimizer_s",
    "exposed": "exposed_comm_s",
    "hidden": "hidden_comm_s",
    "bubble": "bubble_s",
}


def comparison_table(comparison: Comparison, columns: Sequence[str] = ("predicted", "measured", "error")) -> Table:
    """Return the rows of a comparison with their errors."""
    return table(("", *columns), [_row(row) for row in comparison.rows])


def _row(row: Row) -> list[Cell]:
    error = Cell("") if row.error is None else Cell(f"{row.error:+.1%}", row.error)
    return [Cell(row.name), Cell(row.predicted_text, row.predicted), Cell(row.measured_text, row.measured), error]


def candidates_table(candidates: Sequence[Candidate], title: str = "") -> Table:
    """Return layouts with their times and memory, sortable; the first row is the chosen one."""
    columns = ("layout", "ranks", *TIMES, "tokens/s per rank", "MFU", "memory per rank")
    return table(columns, [_candidate(item) for item in candidates], title=title, sortable=True)


def _candidate(candidate: Candidate) -> list[Cell]:
    p = candidate.predicted
    return [
        Cell(str(candidate.layout)),
        Cell(f"{candidate.layout.world_size:,}", candidate.layout.world_size),
        *(Cell(format_time(getattr(p, field)), getattr(p, field)) for field in TIMES.values()),
        Cell(f"{p.tokens_per_s_per_gpu:,.0f}", p.tokens_per_s_per_gpu),
        Cell("") if p.mfu is None else Cell(f"{p.mfu:.1%}", p.mfu),
        Cell(format_bytes(p.peak_memory_bytes_per_gpu), p.peak_memory_bytes_per_gpu),
    ]


def layout_section(plan: Plan) -> Section:
    """Return the chosen layout: its degrees, the mesh of ranks, the pipeline's grid, and why it was chosen."""
    pipeline = pipeline_figure(plan.layout, plan.micro_batches, plan.predicted)
    made = section("Layout", _degrees(plan.layout), mesh_figure(plan.layout), pipeline, Lines((plan.reason,)))
    assert made is not None
    return made


def _degrees(layout: Layout) -> Table:
    names = [name for name in layout.__struct_fields__ if name != "order"]
    cells = [Cell(str(getattr(layout, name)), getattr(layout, name)) for name in names]
    return table((*names, "order"), [[*cells, Cell(layout.order)]], title=str(layout))


def alternatives_section(plan: Plan) -> Section | None:
    """Return the chosen layout and its runners-up."""
    chosen = Candidate(plan.layout, plan.predicted)
    return section("Alternatives", candidates_table((chosen, *plan.alternatives), "the chosen layout first"))


def caveats_section(predicted: Performance) -> Section | None:
    """Return what the prediction leaves out and what it was calibrated with."""
    return section(
        "Not modelled",
        Lines(predicted.not_modelled) if predicted.not_modelled else None,
        Lines(predicted.calibration, title="Calibrated with") if predicted.calibration else None,
    )
