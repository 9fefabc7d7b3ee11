"""Figures that people put under a step's time or a GPU's rate: what a measured cell that cannot be may be instead.

A run that is far off may have split its experts where its row says that each rank gathers all of them: tables print a
dash for degrees that only a configuration has. No such reading is counted: a table says what it says, and its author
can tell.
"""

from typing import get_args

import msgspec
import numpy as np

from ...hardware import Catalogue
from ...layout import Layout, Recompute
from ...units import counted, format_bytes, format_time
from ..analytic.coefficients import STRANGERS, Book
from ..analytic.held_roles import loss_roles
from .batch import batch_of, memory_of, step_of
from .runs import Run, RunRow, beyond_peak

SHARDED = 3  # ZeRO stage
FAR_MEMORY = 1.5  # times: nine in ten published peaks are nearer to what is predicted (`analytic.fits.UNSEEN_BAND`)
NEAR_MEMORY = 0.2  # of a measured peak


def other_readings(row: RunRow, predicted_s: float, band: float, catalogue: Catalogue, known: Book) -> str:
    """Return as what a measured figure would be within its band, "" where as nothing that is often meant."""
    run, measured_s = row.run, row.measured_step_time_s
    if run is None or not measured_s:
        return ""
    found = [_of_split_experts(run, measured_s, band, catalogue, known)]
    found += [
        f"{said} it would be a step of {format_time(step_s)}"
        for said, step_s in _readings(run, measured_s, of_rate=row.is_of_rate)
        if abs(predicted_s / step_s - 1.0) <= band and not beyond_peak(run, step_s, catalogue)
    ]
    return ", or ".join(filter(None, [*found, *_batch_of_tokens(run, measured_s, catalogue)]))


def memory_reading(run: Run, measured: float, predicted: float, catalogue: Catalogue, known: Book) -> str:
    """Return what else a row may have kept whose measured memory is far from what is predicted; "" where it is not.

    Of what a row does not say: how its logits exist, and what is computed again.
    """
    if 1.0 / FAR_MEMORY <= measured / predicted <= FAR_MEMORY:
        return ""
    ways = []
    if "loss_rows" not in run.facts:
        ways = [
            (f"with the logits {loss} (loss)", msgspec.structs.replace(run, facts=run.facts | _loss(run, loss)))
            for loss in ("whole", "half", "chunked")
        ]
    if any(text.startswith("recompute") for text in run.assumed):
        ways += [
            (
                f"with recompute {word}",
                msgspec.structs.replace(run, layout=msgspec.structs.replace(run.layout, recompute=word)),
            )
            for word in get_args(Recompute)
            if word != run.layout.recompute
        ]
    runs = [way for _, way in ways] or [run]
    sizes = np.ravel(memory_of(batch_of(runs, catalogue, known), known.values).reserved_bytes).tolist()
    near = min(
        zip((said for said, _ in ways), sizes, strict=False),
        key=lambda one: abs(np.log(one[1] / measured)),
        default=None,
    )
    if near is None or abs(near[1] / measured - 1.0) > NEAR_MEMORY:
        return f"{measured / predicted:.1f} times what is predicted: the run kept what its row does not say"
    return f"{near[0]}, which its row does not state, {format_bytes(near[1])}"


def _loss(run: Run, loss: str) -> dict[str, float]:
    return loss_roles(loss, where="loss", stranger=run.stack in STRANGERS)


def _batch_of_tokens(run: Run, measured_s: float, catalogue: Catalogue) -> list[str]:
    """Return that a batch which the measured step has no time for may be in tokens, where these are whole sequences."""
    sequences, rest = divmod(run.global_batch, run.seq_len)
    fewer = msgspec.structs.replace(run, global_batch=sequences)
    if rest or not sequences or not beyond_peak(run, measured_s, catalogue):
        return []
    if beyond_peak(fewer, measured_s, catalogue):
        return []
    return [f"its batch in tokens would be of {counted(sequences, 'sequence')} (column global_batch_tokens)"]


def _of_split_experts(run: Run, measured_s: float, band: float, catalogue: Catalogue, known: Book) -> str:
    """Return what a step takes with the experts over all ranks that gather them, "" where that is as far off."""
    layout = run.layout
    split = int(np.gcd(layout.dp * layout.cp // layout.replicas, run.architecture.experts or 1))
    if layout.zero != SHARDED or layout.ep > 1 or split == 1:
        return ""
    mine = msgspec.structs.replace(run, layout=msgspec.structs.replace(layout, ep=split))
    step_s = float(np.ravel(step_of(batch_of([mine], catalogue, known), known.values).total_s)[0])
    if abs(step_s / measured_s - 1.0) > band:
        return ""
    return f"with experts over {split} ranks (ep={split}), in place of ep=1, {format_time(step_s)} is predicted"


def _readings(run: Run, measured_s: float, *, of_rate: bool) -> list[tuple[str, float]]:
    """Return what else a figure may be, each with the step that it then makes."""
    if of_rate:
        return [(f"of all {run.gpus} GPUs together", measured_s * run.gpus)] if run.gpus > 1 else []
    return readings_of_time(measured_s, run.layout, run.global_batch, run.seq_len, run.gpus)


def readings_of_time(measured_s: float, layout: Layout, batch: int, seq_len: int, gpus: int) -> list[tuple[str, float]]:
    """Return what else a time of a step may be, each with the step that it then makes."""
    micro_batches = batch // (layout.dp * layout.mbs)
    found = [
        ("in milliseconds", measured_s / 1000.0),
        ("as tokens a second of one GPU", batch * seq_len / (measured_s * gpus)),
    ]
    if micro_batches > 1:
        found.append(
            (f"of one of its {counted(micro_batches, 'micro-batch', 'micro-batches')}", measured_s * micro_batches)
        )
    return found


def meant_by_time(
    measured_s: float, predicted_s: float, band: float, layout: Layout, batch: int, seq_len: int, gpus: int
) -> str:
    """Return as what else a measured time would be within the band, "" where as nothing that is often meant."""
    found = readings_of_time(measured_s, layout, batch, seq_len, gpus)
    within = [(said, step_s) for said, step_s in found if abs(predicted_s / step_s - 1.0) <= band]
    return "".join(f"; {said} it would be a step of {format_time(step_s)}" for said, step_s in within)
