"""Predicted beside measured: the rows of the table, the part that explains most of the error, the verdict."""

import msgspec

from ..timeline import Performance
from ..units import format_bytes, format_time


class FigureRow(msgspec.Struct, frozen=True):
    """One figure, predicted and measured; `error` is relative (None where the measured figure is 0)."""

    name: str
    predicted: float
    measured: float
    error: float | None
    predicted_text: str
    measured_text: str


class PartComparison(msgspec.Struct, frozen=True):
    """All rows and what they say."""

    rows: tuple[FigureRow, ...]
    verdict: str
    culprit: str  # the part of the step that explains most of the error


ROUNDING = 1e-6  # of a step: a smaller rest is that of adding up

# the parts that add up to a step; hidden communication is inside backward
PARTS = {
    "data loading": "data_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "optimizer": "optimizer_s",
    "exposed communication": "exposed_comm_s",
    "pipeline bubble": "bubble_s",
}
BETWEEN = "between the parts"


def unattributed_s(of: Performance) -> float:
    """Return the seconds of a step that belong to no part: what the program does between them."""
    left_s = of.step_time_s - sum(getattr(of, field) for field in PARTS.values())
    return left_s if left_s > ROUNDING * of.step_time_s else 0.0


def culprit_of(predicted: Performance, measured: Performance) -> str:
    """Return the part of the step that explains most of the error, or that it lies between the parts."""
    differences = _differences(predicted, measured)
    return max(differences, key=lambda name: abs(differences[name]))


def _differences(predicted: Performance, measured: Performance) -> dict[str, float]:
    """Return by how many seconds each part is predicted longer than measured, and what lies between them."""
    found = {name: getattr(predicted, field) - getattr(measured, field) for name, field in PARTS.items()}
    return found | {BETWEEN: unattributed_s(predicted) - unattributed_s(measured)}


def compare_parts(
    predicted: Performance, measured: Performance, *, where: str = "", beside: str = ""
) -> PartComparison:
    """Return the table of a run; `where` says more of the culprit, such as "all_reduce over node0-node1".

    `beside` says what else kept the machine busy; it comes before any part is blamed.
    """
    rows = [_row("step time", predicted.step_time_s, measured.step_time_s, format_time)]
    rows += [_row(f"  {name}", getattr(predicted, f), getattr(measured, f), format_time) for name, f in PARTS.items()]
    rows.append(_row(f"  {BETWEEN}", unattributed_s(predicted), unattributed_s(measured), format_time))
    rows.append(_row("hidden communication", predicted.hidden_comm_s, measured.hidden_comm_s, format_time))
    rows.append(
        _row("tokens/s per rank", predicted.tokens_per_s_per_gpu, measured.tokens_per_s_per_gpu, lambda v: f"{v:,.0f}")
    )
    if predicted.mfu is not None and measured.mfu is not None:
        rows.append(_row("MFU", predicted.mfu, measured.mfu, lambda v: f"{v:.1%}"))
    memory = (predicted.peak_memory_bytes_per_gpu, measured.peak_memory_bytes_per_gpu)
    rows.append(_row("peak memory per rank", *memory, format_bytes))
    culprit = culprit_of(predicted, measured)
    error = predicted.step_time_s / measured.step_time_s - 1
    verdict = (
        f"step {format_time(measured.step_time_s)}, predicted {format_time(predicted.step_time_s)} ({error:+.1%}); "
        f"{f'{beside}; ' if beside else ''}{difference_words(predicted, measured, culprit, where)}"
    )
    if predicted.error_band is not None:
        verdict += (
            f"; {'within' if abs(error) <= predicted.error_band else 'outside'} the band of {predicted.error_band:.0%}"
        )
    elif predicted.not_modelled:
        verdict += f"; no band is known, not modelled: {', '.join(predicted.not_modelled)}"
    return PartComparison(tuple(rows), verdict, culprit)


def _row(name: str, predicted: float, measured: float, form: object) -> FigureRow:
    assert callable(form)
    error = predicted / measured - 1 if measured else None
    return FigureRow(name, float(predicted), float(measured), error, form(predicted), form(measured))


def difference_words(predicted: Performance, measured: Performance, culprit: str, where: str = "") -> str:
    """Return in which part the difference is: "most" only of what is more than half of all."""
    differences = _differences(predicted, measured)
    all_s, its_s = sum(map(abs, differences.values())), differences[culprit]
    how_much = "most of the difference is" if abs(its_s) > all_s / 2 else "the largest difference is"
    place = culprit if culprit == BETWEEN else f"in {culprit}"
    return f"{how_much} {place} ({_signed(its_s)}{f', {where}' if where else ''})"


def _signed(time_s: float) -> str:
    return ("+" if time_s >= 0 else "-") + format_time(abs(time_s))
