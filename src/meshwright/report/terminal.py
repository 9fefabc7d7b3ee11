"""The tables that a terminal shows."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..layout import Layout, Plan
from ..traces.summary import TraceSummary
from ..units import format_bytes, format_time
from .compare import PartComparison
from .grid import pipeline_lines
from .narrow_tables import show_table
from .pages.trace import LABELS, apart_by_rank, figure_of, figures_of

MAX_ALTERNATIVES = 8
MOST_NOTES = 4  # of traces that a terminal shows


def show_plan(console: Console, plan: Plan) -> None:
    """Print the chosen layout and its runners-up."""
    table = Table(title="plan", title_justify="left", box=box.SIMPLE)
    for name in ("layout", "step", "forward", "backward", "optimizer", "exposed", "memory"):
        table.add_column(name, justify="left" if name == "layout" else "right", no_wrap=True)
    rows = [(plan.layout, plan.predicted), *((c.layout, c.predicted) for c in plan.alternatives[:MAX_ALTERNATIVES])]
    for index, (layout, p) in enumerate(rows):
        times = (p.step_time_s, p.forward_s, p.backward_s, p.optimizer_s, p.exposed_comm_s)
        table.add_row(
            str(layout),
            *map(format_time, times),
            format_bytes(p.peak_memory_bytes_per_gpu),
            style="bold" if index == 0 else "",
        )
    show_table(console, table)
    console.print(plan.reason, highlight=False, markup=False, soft_wrap=True)
    show_pipeline(console, plan.layout, plan.micro_batches)


def show_pipeline(console: Console, layout: Layout, micro_batches: int) -> None:
    """Print the grid of a pipeline's schedule; nothing where there is no pipeline."""
    for line in pipeline_lines(layout, micro_batches, console.width):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def show_comparison(console: Console, comparison: PartComparison, runs: str = "") -> None:
    """Print predicted | measured | error, or the first of two `runs` | the second | difference."""
    title = runs or "predicted beside measured"
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE)
    table.add_column("")
    for name in ("first", "second", "difference") if runs else ("predicted", "measured", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(row.name, row.predicted_text, row.measured_text, "" if row.error is None else f"{row.error:+.1%}")
    show_table(console, table)
    console.print(comparison.verdict, highlight=False, markup=False, soft_wrap=True)


def show_shares(console: Console, summary: TraceSummary, verdict: str) -> None:
    """Print where a traced step went."""
    found = summary.typical
    table = Table(title="where a step goes", title_justify="left", box=box.SIMPLE)
    table.add_column("")
    table.add_column(figure_of(summary), justify="right", no_wrap=True)
    table.add_column("of the step", justify="right", no_wrap=True)
    for name, label in LABELS.items():
        value = getattr(found, name)
        table.add_row(label, format_time(value), f"{value / found.step_s:.1%}")
    show_table(console, table)
    console.print(figures_of(summary), highlight=False, soft_wrap=True)
    if apart := apart_by_rank(summary.ranks):
        console.print(apart, highlight=False, soft_wrap=True)
    console.print(verdict, highlight=False, markup=False, soft_wrap=True)
    notes = [note for note in dict.fromkeys(summary.notes) if note not in verdict]
    for note in notes[:MOST_NOTES]:
        console.print(f"to know: {note}", highlight=False, markup=False, soft_wrap=True)
    if len(notes) > MOST_NOTES:
        console.print(f"to know: {len(notes) - MOST_NOTES} more notes on the page", highlight=False)
