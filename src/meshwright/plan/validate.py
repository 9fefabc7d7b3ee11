"""The planner against a table of measured runs: a prediction a row, its error, and a summary by family."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ..hardware import Catalogue
from ..layout import Fits
from ..workload.architecture import Architecture
from ..workload.models import load_model, model_names
from .analytic.calibration import Calibration
from .analytic.coefficients import Book
from .analytic.fits import DOUBTFUL, OVER, word
from .analytic.quantities import RECOMPUTES
from .fitting.own_runs import OwnCalibration
from .layouts.filters import unlike_its_stack
from .model_facts import ModelFacts, facts_about
from .tables.batch import Batch, batch_of, memory_of, step_of
from .tables.other_readings import memory_reading, other_readings
from .tables.runs import Run, RunRow, beyond_peak, run_flops_per_token
from .tables.settled import MOST_SHARDED, settled_rows, verdicts_of

NO_ROOM = "it is held not to fit in the memory of a GPU (peak_memory_bytes_per_gpu in --json)"
NO_ROOM_BUT_RAN = f"{NO_ROOM}, but it ran: the run keeps less than its row says, or the model or its size is another"
FAR = 3.0  # bands: one in seventy published runs is further off


class RowOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction of one row, with the layout that was priced; `error` is predicted over measured, less one.

    `error_band` is what the error is held to be within, `assumed` what the row does not say, `doubts` what makes its
    prediction less certain and widens the band, `origin` where its constants come from, `model` what was priced,
    `breaks` the rules of its stack's engine that its layout breaks, as `plan --stack` says them, `not_counted` why what
    was measured cannot be: it has no error then.
    """

    id: str
    family: str
    step_time_s: float
    peak_memory_bytes_per_gpu: int
    fits: Fits
    measured_step_time_s: float | None = None
    error: float | None = None
    layout: str = ""
    stack: str = ""
    error_band: float | None = None
    assumed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    origin: str = ""
    model: ModelFacts | None = None
    breaks: tuple[str, ...] = ()
    not_counted: str = ""  # why what was measured cannot be
    memory_perhaps: str = ""  # what a measured memory that is far from what is predicted would be predicted with
    perhaps: str = ""  # as what else a figure that cannot be, or is far off, would be within the band
    memory_bytes_per_gpu: int = 0  # what the accelerator has
    measured_peak_memory_bytes_per_gpu: int | None = None
    ran_out: bool = False  # the table says that its memory was not enough

    @property
    def is_inside(self) -> bool:
        """Whether the error is within the band that was held of it."""
        return self.error is not None and self.error_band is not None and abs(self.error) <= self.error_band

    @property
    def is_far_outside(self) -> bool:
        """Whether measured and predicted are further apart than FAR bands, as factors."""
        if self.error is None or self.error_band is None:
            return False
        return abs(math.log1p(self.error)) > FAR * math.log1p(self.error_band)


class Unpriced(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be priced, and why."""

    id: str
    family: str
    reason: str


@dataclass(frozen=True, slots=True)
class FamilyErrors:
    """Errors of the rows of one family that were measured; shares, None where none was."""

    family: str
    rows: int
    priced: int
    measured: int
    inside: int  # of the measured ones, each within its own band
    mean: float | None
    median: float | None
    worst: float | None
    band: float  # of its rows: nine in ten of such runs are held to be within it


def known_models() -> dict[str, Architecture]:
    """Return the transformers of the catalogue by name, for rows that give a model's name alone."""
    found = {name: load_model(name).description for name in model_names()}
    return {name: model for name, model in found.items() if isinstance(model, Architecture)}


def predict(
    rows: Sequence[RunRow], catalogue: Catalogue, known: Book, calibration: Calibration | None = None
) -> list[RowOutcome | Unpriced]:
    """Return a prediction or a reason for each row, in order; nothing that was measured of a row enters its own.

    A run that the calibration has too is predicted by the calibration's other runs.
    """
    rows = settled_rows(rows, catalogue, known)
    runs = [row.run for row in rows if row.run is not None]
    if not runs:
        return [Unpriced(id=row.id, family=row.family, reason=row.reason or "") for row in rows]
    batch = batch_of(runs, catalogue, known)
    own = OwnCalibration.of(runs, batch, known, calibration)
    times_s = np.asarray(step_of(batch, known.values, own.factors).total_s, dtype=float)
    sizes = np.asarray(memory_of(batch, known.values).reserved_bytes, dtype=float)
    predicted = iter(
        zip(times_s, sizes, _verdicts(runs, batch, known), own.bands, own.doubts, own.origins, strict=True)
    )
    return [_outcome(row, catalogue, known, *next(predicted)) if row.run else _unpriced(row) for row in rows]


def _verdicts(runs: Sequence[Run], batch: Batch, known: Book) -> list[Fits]:
    """Return whether each run fits; "may not" where only recomputation or sharding that it does not state decides."""
    found = verdicts_of(runs, batch, known)
    again, unsharded = (_unstated(runs, name) for name in ("recompute", "ZeRO"))
    grid = dataclasses.replace(
        batch.grid,
        recompute=np.where(again, RECOMPUTES.index("full"), batch.grid.recompute),
        zero=np.where(unsharded, MOST_SHARDED, batch.grid.zero),
    )
    mildest = verdicts_of(runs, dataclasses.replace(batch, grid=grid), known)
    found = np.where((again | unsharded) & (found == OVER) & (mildest < OVER), DOUBTFUL, found)
    away = memory_of(batch, known.values).host_bytes > batch.machine.host_memory_bytes
    return [word(one) for one in np.where(away, OVER, found)]


def _unstated(runs: Sequence[Run], name: str) -> Any:
    """Return for which runs a part of the layout is assumed, since their rows do not state it."""
    return np.array([any(text.startswith(name) for text in run.assumed) for run in runs])


def summarise(outcomes: Iterable[RowOutcome | Unpriced], known: Book) -> list[FamilyErrors]:
    """Return the errors by family, in the order of the table, and of all rows together at the end.

    A family's band is the median of its rows', doubts included; of one that has none that of a stack nobody knows.
    """
    by_family: dict[str, list[RowOutcome | Unpriced]] = {}
    for outcome in outcomes:
        by_family.setdefault(outcome.family, []).append(outcome)
    found = []
    for name, group in by_family.items():
        bands = [o.error_band for o in group if isinstance(o, RowOutcome) and o.error_band is not None]
        found.append(_summary(name, group, float(np.median(bands or [known.band("")]))))
    everything = [outcome for group in by_family.values() for outcome in group]
    widest = max((summary.band for summary in found), default=0.0)
    return [*found, _summary("all", everything, widest)] if len(found) > 1 else found


def warnings(outcomes: Iterable[RowOutcome | Unpriced]) -> dict[str, int]:
    """Return what makes predictions of these rows less certain, with the number of rows that it concerns."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        if isinstance(outcome, RowOutcome):
            for text in (
                f"constants of {outcome.stack}: {outcome.origin}",
                *outcome.doubts,
                *(f"assumed: {item}" for item in outcome.assumed),
                *(f"assumed: {item}" for item in (outcome.model.assumed if outcome.model else ())),
                *(f"stack {outcome.stack} cannot run the layout: {rule}" for rule in outcome.breaks),
                *((NO_ROOM_BUT_RAN if outcome.measured_step_time_s else NO_ROOM,) * (outcome.fits == word(OVER))),
            ):
                counts[text] = counts.get(text, 0) + 1
    return counts


def as_json(outcome: RowOutcome | Unpriced) -> dict[str, Any]:
    """Return the object that `validate --json` prints for one row."""
    built: dict[str, Any] = msgspec.to_builtins(outcome)
    return built


def _unpriced(row: RunRow) -> Unpriced:
    return Unpriced(id=row.id, family=row.family, reason=row.reason or "")


def _outcome(
    row: RunRow, catalogue: Catalogue, known: Book, step_time_s: float, memory_bytes: float, fits: Fits, band: float,
    doubts: tuple[str, ...], origin: str,
) -> RowOutcome:  # fmt: skip
    measured, held = row.measured_step_time_s, row.measured_peak_memory_bytes
    assert row.run is not None
    card_bytes = catalogue.accelerators[row.run.accelerator].memory_bytes / row.run.cores
    impossible = (beyond_peak(row.run, measured, catalogue) if measured else "") or row.contradiction
    found = RowOutcome(
        id=row.id,
        family=row.family,
        layout=str(row.run.layout),
        step_time_s=float(step_time_s),
        peak_memory_bytes_per_gpu=round(memory_bytes),
        fits=fits,
        memory_bytes_per_gpu=round(card_bytes),
        measured_peak_memory_bytes_per_gpu=None if held is None else round(held),
        ran_out=row.ran_out,
        measured_step_time_s=measured,
        error=float(step_time_s) / measured - 1.0 if measured and not impossible else None,
        stack=row.run.stack,
        error_band=band,
        assumed=row.run.assumed,
        doubts=doubts,
        origin=origin,
        model=facts_about(
            row.run.architecture,
            row.run.seq_len,
            flops_per_token=run_flops_per_token(row.run),
            option="mtp_layers",
        ),
        breaks=tuple(unlike_its_stack(row.run.stack, row.run.layout, row.run.architecture, row.run.traits)),
        not_counted=impossible,
    )
    if held is not None:
        kept = memory_reading(row.run, held, memory_bytes, catalogue, known)
        found = msgspec.structs.replace(found, memory_perhaps=kept)
    if not (impossible or found.is_far_outside):
        return found
    return msgspec.structs.replace(found, perhaps=other_readings(row, found.step_time_s, band, catalogue, known))


def _summary(family: str, group: Sequence[RowOutcome | Unpriced], band: float) -> FamilyErrors:
    priced = [outcome for outcome in group if isinstance(outcome, RowOutcome)]
    errors = np.abs([outcome.error for outcome in priced if outcome.error is not None])
    some = len(errors) > 0
    return FamilyErrors(
        family=family,
        rows=len(group),
        priced=len(priced),
        measured=len(errors),
        inside=sum(outcome.is_inside for outcome in priced),
        mean=float(errors.mean()) if some else None,
        median=float(np.median(errors)) if some else None,
        worst=float(errors.max()) if some else None,
        band=band,
    )
