"""A calibration by the user's own runs, for the terminal."""

from rich.console import Console
from rich.table import Table

from ..plan.analytic.calibration import Calibration
from ..plan.analytic.factors import FACTORS
from ..units import counted, format_time
from .narrow_tables import show_table

MOVED = 0.01  # of a factor: what is worth a word


def show_calibration(console: Console, found: Calibration) -> None:
    """Print the runs with their errors, the factors that moved, and how far the band narrows."""
    count = len(found.runs)
    table = Table(
        title=f"calibrated on {counted(count, 'run')} of {found.family or found.stack} on "
        f"{found.accelerator} ({found.table}); errors in %",
        title_justify="left",
    )
    for name in ("run", "layout", "GPUs", "measured", "before", "fitted", "left out"):
        table.add_column(name, justify="left" if name in {"run", "layout"} else "right", overflow="fold")
    for run in found.runs:
        errors = [_percent(run.before), _percent(run.fitted), "-" if run.left_out is None else _percent(run.left_out)]
        table.add_row(run.id, run.layout, str(run.gpus), format_time(run.measured_step_time_s), *errors)
    show_table(console, table)
    moved = [f"{name} x{value:.3g}" for name, value in found.factors.items() if abs(value - 1.0) > MOVED]
    console.print(f"factors: {', '.join(moved) or 'all within 1 % of 1'}", highlight=False)
    if any(abs(value - 1.0) > MOVED for value in found.models.values()):
        console.print(
            f"pace of each measured model beside that of all: {', '.join(f'x{v:.3g}' for v in found.models.values())}",
            highlight=False,
        )
    for name in FACTORS:
        if f"{name} x" in " ".join(moved):
            console.print(f"  {name}: {FACTORS[name].meaning}", highlight=False)
    left = [abs(run.left_out) for run in found.runs if run.left_out is not None]
    before = sum(abs(run.before) for run in found.runs) / count
    told = f"left out, each predicted by the others: {sum(left) / len(left):.1%} on average; " if left else ""
    band, band_before = f"{found.band:.0%}", f"{found.band_before:.0%}"
    moves = "narrows" if found.band < found.band_before else "widens"
    narrows = f"stays at {band}" if band == band_before else f"{moves} from {band_before} to {band}"
    outside = [run.id for run in found.runs if run.left_out is not None and abs(run.left_out) > found.band]
    beyond = f"; outside it: {', '.join(outside)}" if outside else ""
    console.print(f"{told}before: {before:.1%}; the band of such runs {narrows}{beyond}", highlight=False)
    if len(found.runs) == 1:
        console.print("one run says nothing of its own error: a second, of another layout, would", highlight=False)


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}"
