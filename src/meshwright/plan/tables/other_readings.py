"""Figures that people put under a step's time or a GPU's rate: what a measured cell that cannot be may be instead.

No such reading is counted: a table says what it says, and its author can tell.
"""

from ...hardware import Catalogue
from ...units import counted, format_time
from .runs import Run, RunRow, beyond_peak


def other_readings(row: RunRow, predicted_s: float, band: float, catalogue: Catalogue) -> str:
    """Return as what a measured figure would be within its band, "" where as nothing that is often meant."""
    run, measured_s = row.run, row.measured_step_time_s
    if run is None or not measured_s:
        return ""
    found = [
        f"{said} it would be a step of {format_time(step_s)}"
        for said, step_s in _readings(run, measured_s, of_rate=row.is_of_rate)
        if abs(predicted_s / step_s - 1.0) <= band and not beyond_peak(run, step_s, catalogue)
    ]
    return ", or ".join(found)


def _readings(run: Run, measured_s: float, *, of_rate: bool) -> list[tuple[str, float]]:
    """Return what else a figure may be, each with the step that it then makes."""
    if of_rate:
        return [(f"of all {run.gpus} GPUs together", measured_s * run.gpus)] if run.gpus > 1 else []
    micro_batches = run.global_batch // (run.layout.dp * run.layout.mbs)
    found = [("in milliseconds", measured_s / 1000.0)]
    if micro_batches > 1:
        found.append(
            (f"of one of its {counted(micro_batches, 'micro-batch', 'micro-batches')}", measured_s * micro_batches)
        )
    return found
