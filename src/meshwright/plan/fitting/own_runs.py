"""A user's own runs applied to the rows of a table: factors, error bands and doubts of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ...hardware import load_catalogue
from ..analytic.calibration import Calibration, covariance_of, measured_here, narrowed_band, own_variance, prior_of
from ..analytic.cautions import cautions, widened
from ..analytic.coefficients import Book
from ..analytic.dispatch import WAITS, doubt_of, is_unsaid
from ..analytic.factors import FACTORS
from ..analytic.fitted_range import origin
from ..analytic.quantities import Array
from ..analytic.unnamed_stack import PLAIN, doubt_of_stack, may_be_plain
from ..tables.batch import Batch, batch_of, step_of
from ..tables.cells import is_empty
from ..tables.runs import Run, band_of, network_of_gpu, run_host_doubts
from ..tables.settled import unsaid_doubts
from .calibrate import NOISE, inputs_digest, sensitivity_of


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """Factors and bands of a calibration for each row of a table; without one, 1 and the bands of the stacks."""

    factors: dict[str, Array]
    bands: list[float]
    doubts: list[tuple[str, ...]]
    origins: list[str]  # where the constants of each row come from

    @classmethod
    def of(cls, runs: Sequence[Run], batch: Batch, known: Book, calibration: Calibration | None) -> "OwnCalibration":
        """Return what it makes of some runs: a run that it has measured itself is left to its other runs, if any."""
        mine = {} if calibration is None else {one.inputs: one for one in calibration.runs}
        owns = [mine.get(inputs_digest(run)) for run in runs] if mine else [None] * len(runs)
        applied = [
            () if own and len(mine) == 1 else _applied(run, calibration) for run, own in zip(runs, owns, strict=True)
        ]
        doubts = [_doubts(run, known, calibration, names) for run, names in zip(runs, applied, strict=True)]
        bands = np.array([band_of(run, known) for run in runs])
        factors: dict[str, Array] = {name: np.ones(len(runs)) for name in FACTORS}
        if calibration is not None:
            held = [calibration.of_model(run.architecture) for run in runs]
            for place, (own, names) in enumerate(zip(owns, applied, strict=True)):
                for name in names:
                    factors[name][place] = (own.without if own else held[place].factors)[name]
            bands = _bands(bands, runs, batch, known, held, applied, factors)
        else:
            factors = {}
        origins = [
            _origin(run, known, calibration, names, left_out=own is not None)
            for run, names, own in zip(runs, applied, owns, strict=True)
        ]
        waiting = _dispatch_doubts(runs, batch, known, applied)
        told = [(*some, *more) for some, (more, _) in zip(doubts, waiting, strict=True)]
        whole = [widened(float(b), d) + w for b, d, (_, w) in zip(bands, doubts, waiting, strict=True)]
        for place, (more, band) in _stack_doubts(runs, batch, known, applied, whole).items():
            told[place], whole[place] = (*told[place], *more), band
        return cls(factors, whole, told, origins)


def _origin(run: Run, known: Book, calibration: Calibration | None, applied: Sequence[str], *, left_out: bool) -> str:
    fitted = origin(known, run.stack, run.accelerator)
    if calibration is None or not applied:
        return (
            f"{fitted}; this run, the only one of {calibration.table}, is left out"
            if calibration and left_out
            else fitted
        )
    return f"{measured_here(calibration, applied, left_out=left_out)}; {fitted}"


def _applied(run: Run, calibration: Calibration | None) -> tuple[str, ...]:
    return () if calibration is None else calibration.concerns(run.stack, run.family, run.accelerator)


def _doubts(run: Run, known: Book, calibration: Calibration | None, applied: Sequence[str]) -> tuple[str, ...]:
    measured = (calibration.only(applied),) if calibration is not None and applied else ()
    found = cautions(
        run.architecture, run.layout, stack=run.stack, accelerator=run.accelerator, known=known, measured=measured,
        precision=run.precision, seq_len=run.seq_len, network=network_of_gpu(run),
        adapters="trained" in run.facts,
    )  # fmt: skip
    unsaid = () if measured else unsaid_doubts(run, known)  # runs of one's own leave as much open
    return (*found, *run_host_doubts(run, known), *unsaid)


def _dispatch_doubts(
    runs: Sequence[Run], batch: Batch, known: Book, applied: Sequence[Sequence[str]]
) -> list[tuple[tuple[str, ...], float]]:
    """Return for each run a doubt about the dispatcher of its experts, and what of its step that may cost.

    A row with a source is of a release, from which the traits of its stack tell what it had.
    """
    found: list[tuple[tuple[str, ...], float]] = [((), 0.0)] * len(runs)
    open_ones = [
        place
        for place, run in enumerate(runs)
        if not (run.sourced or applied[place]) and is_unsaid(known, run.stack, run.architecture, run.layout, run.traits)
    ]
    if not open_ones:
        return found
    waits = [msgspec.structs.replace(runs[place], traits=(*runs[place].traits, WAITS)) for place in open_ones]
    for place, own, waiting in _steps_beside(open_ones, waits, batch, known):
        found[place] = doubt_of(own, waiting)
    return found


def _stack_doubts(
    runs: Sequence[Run], batch: Batch, known: Book, applied: Sequence[Sequence[str]], bands: Sequence[float]
) -> dict[int, tuple[tuple[str, ...], float]]:
    """Return by place, for runs of a stack that nothing names, a doubt about it and a band that holds plain layers."""
    unnamed = [
        place
        for place, run in enumerate(runs)
        if is_empty(run.family) and not applied[place] and may_be_plain(run.stack, run.layout, run.precision)
    ]
    if not unnamed:
        return {}
    plain = [msgspec.structs.replace(runs[place], stack=PLAIN) for place in unnamed]
    theirs = [widened(band_of(run, known), _doubts(run, known, None, ())) for run in plain]
    return {
        place: doubt_of_stack(own, bands[place], other, band, said_by=f"family {PLAIN}")
        for (place, own, other), band in zip(_steps_beside(unnamed, plain, batch, known), theirs, strict=True)
    }


def _steps_beside(
    places: Sequence[int], others: Sequence[Run], batch: Batch, known: Book
) -> list[tuple[int, float, float]]:
    """Return some places of a batch, the seconds of a step there, and those of the run that might be there instead."""
    own_s = np.asarray(step_of(batch, known.values).total_s)[list(places)]
    other_s = np.asarray(step_of(batch_of(others, load_catalogue(), known), known.values).total_s)
    return list(zip(places, own_s.tolist(), other_s.tolist(), strict=True))


def _bands(
    bands: Array,
    runs: Sequence[Run],
    batch: Batch,
    known: Book,
    held: Sequence[Calibration],
    applied: Sequence[Sequence[str]],
    factors: dict[str, Array],
) -> Array:
    """Return the band of each row by what is left of the factors' variances; of its own runs, of the others alone."""
    follows = sensitivity_of(batch, known.values, factors)
    if not held:
        return bands
    measured = {one.inputs for one in held[0].runs}
    before, after = np.zeros(len(runs)), np.zeros(len(runs))
    for place, names in enumerate(applied):
        prior = prior_of(held[place], runs[place].architecture)
        before[place] = after[place] = follows[place] @ prior @ follows[place]
        if names:
            left = covariance_of([(held[place], names)], prior)
            after[place] = follows[place] @ left @ follows[place]
            if inputs_digest(runs[place]) in measured:
                after[place] = _without(after[place], before[place])
    experts = np.asarray(batch.model.experts)
    model = np.array([own_variance(one, run.architecture) for one, run in zip(held, runs, strict=True)])
    found = narrowed_band(bands, before, after, experts=experts, misfit=held[0].misfit, model=model)
    return np.where([len(names) > 0 for names in applied], found, bands)


def _without(variance: float, before: float) -> float:
    """Return the variance that a run's own step would have if it had not been among the measured ones."""
    share = variance / NOISE**2  # of what is known of it, that it says itself
    return min(before, variance / (1.0 - share)) if share < 1.0 else before
