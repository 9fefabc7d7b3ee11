"""The sections that pages share: figures of a step, the layout, the alternatives, what is not modelled."""

import re
from collections.abc import Sequence

from ..layout import Candidate, Fits, Layout, Plan
from ..timeline import Performance
from ..units import format_bytes, format_time
from .compare import FigureRow, PartComparison
from .document import Cell, Lines, Section, Table, section, table
from .figures import mesh_figure
from .grid import pipeline_figure
from .layout_words import layout_text

FITS_WORDS: dict[Fits | None, str] = {"fits": "yes", "may not": "may not", "does not fit": "no", None: ""}
FITS_TEXT: dict[Fits, str] = {"fits": "fits", "may not": "may not fit", "does not fit": "does not fit"}
TIMES = {  # what decides comes first
    "exposed": "exposed_comm_s",
    "bubble": "bubble_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "optimizer": "optimizer_s",
}


def comparison_table(comparison: PartComparison, columns: Sequence[str] = ("predicted", "measured", "error")) -> Table:
    """Return the rows of a comparison with their errors; parts that took no time on either side are left out."""
    return table(("", *columns), [_row(row) for row in comparison.rows if row.predicted or row.measured])


def _row(row: FigureRow) -> list[Cell]:
    error = Cell("") if row.error is None else Cell(f"{row.error:+.1%}", row.error)
    return [Cell(row.name), Cell(row.predicted_text, row.predicted), Cell(row.measured_text, row.measured), error]


def candidates_table(candidates: Sequence[Candidate], title: str = "") -> Table:
    """Return layouts with their memory and times, sortable; the first row is the chosen one.

    Columns that are the same in every row (ranks, times of 0 s, all of them fitting) are left out.
    """
    performances = [item.predicted for item in candidates]
    times = {name: field for name, field in TIMES.items() if any(getattr(p, field) for p in performances)}
    ranks = len({item.layout.world_size for item in candidates}) > 1
    mfu = any(p.mfu is not None for p in performances)
    fits = any(item.fits not in (None, "fits") for item in candidates)
    columns = (
        "layout", *(["ranks"] if ranks else []), "step", "MFU" if mfu else "tokens/s per rank", "memory per rank",
        *(["fits"] if fits else []), *times,
    )  # fmt: skip
    rows = []
    for item in candidates:
        p = item.predicted
        memory = p.peak_memory_bytes_per_gpu
        speed = Cell(f"{p.tokens_per_s_per_gpu:,.0f}", p.tokens_per_s_per_gpu)
        if mfu:
            speed = Cell("") if p.mfu is None else Cell(f"{p.mfu:.1%}", p.mfu)
        rows.append(
            [
                Cell(layout_text(item.layout)),
                *([Cell(f"{item.layout.world_size:,}", item.layout.world_size)] if ranks else []),
                Cell(format_time(p.step_time_s), p.step_time_s),
                speed,
                Cell(format_bytes(memory), memory),
                *([Cell(FITS_WORDS[item.fits])] if fits else []),
                *(Cell(format_time(getattr(p, field)), getattr(p, field)) for field in times.values()),
            ]
        )
    return table(columns, rows, title=title, sortable=True)


def layout_section(plan: Plan) -> Section:
    """Return the chosen layout: its degrees, the mesh of ranks, the grid of the pipeline, and why it was chosen."""
    pipeline = pipeline_figure(plan.layout, plan.micro_batches, plan.predicted)
    why = Lines(tuple(re.split(r"(?<=\.) ", plan.reason))) if plan.reason else None  # a sentence a line
    made = section("Layout", _degrees(plan.layout), mesh_figure(plan.layout), pipeline, why)
    assert made is not None
    return made


def _degrees(layout: Layout) -> Table:
    """Return the keys of a layout that differ from their defaults, and dp and mbs."""
    given = layout.given()
    return table(tuple(given), [[Cell(str(value), value) for value in given.values()]], title=str(layout))


def alternatives_section(plan: Plan, fits: Fits | None = None) -> Section | None:
    """Return the chosen layout, which `fits` in memory where that was asked, and its runners-up."""
    chosen = Candidate(plan.layout, plan.predicted, fits)
    return section("Alternatives", candidates_table((chosen, *plan.alternatives), "the chosen layout first"))


def caveats_section(predicted: Performance) -> Section | None:
    """Return what the prediction leaves out and what it was calibrated with."""
    return section(
        "Not modelled",
        Lines(predicted.not_modelled) if predicted.not_modelled else None,
        Lines(predicted.calibration, title="Calibrated with") if predicted.calibration else None,
    )
