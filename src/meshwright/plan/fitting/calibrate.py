"""Fit a few factors to a user's own measured steps: priors, least squares, and each run predicted by the others."""

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from ...cluster.builders import catalogue_cluster
from ...cluster.catalogue_devices import described_device
from ...cluster.graph import Cluster, Device
from ...errors import InputError
from ...files import read_bytes
from ...hardware import Catalogue
from ...units import format_time
from ...workload.architecture import Architecture
from ..analytic.calibration import (
    OWN,
    OWN_EXPERTS,
    Calibration,
    MeasuredStep,
    constants_digest,
    factors_part,
    model_digest,
    narrowed_band,
    with_own_pace,
)
from ..analytic.coefficients import UNSEEN, Book
from ..analytic.factors import FACTORS, model_spread, prior_spreads, sensitivity
from ..analytic.quantities import Array, Number
from ..clusters.machines import with_rates
from ..layouts.stacks import find_stack
from ..tables.batch import Batch, batch_of, step_of
from ..tables.lines import MAX_TABLE_BYTES
from ..tables.runs import Run, RunRow, band_of, beyond_peak, read_rows
from ..tables.settled import settled_rows
from .estimate import Estimate, Prior, estimate

NOISE = 0.05  # of one measured step, as a logarithm: what layouts of one model on one stack differ by
MOST = 4.0  # and its inverse: a factor beyond is a slip of a unit in the table
SLIP = 10.0  # and its inverse: a step so far from its prediction is none of these machines, or in another unit
ITERATIONS = 20
PARTS = 10  # into which more runs than that are dealt, to be left out in turn
DOUBTS = 2.0  # runs that say that the errors are as they should be, before any is left out


@dataclass(frozen=True)
class Steps:
    """Measured steps of one stack on one kind of machine, as arrays.

    What is fitted, x, are the logarithms of the factors and then of each model's own pace.
    """

    ids: list[str]
    runs: list[Run]
    batch: Batch
    measured_s: Array
    values: Array  # of the constants
    prior: Prior

    @functools.cached_property
    def models(self) -> list[str]:
        """The digest of each model, once, in the order of x."""
        return models_of(self.runs)

    @functools.cached_property
    def places(self) -> list[int]:
        """Where in x the own pace of each run's model stands."""
        return [len(FACTORS) + self.models.index(model_digest(run.architecture)) for run in self.runs]

    def errors(self, x: Array, rows: Sequence[int]) -> Array:
        """Return the log error of some rows with these logarithms of factors and models."""
        return np.asarray(self.errors_at(x[None], rows)[0])

    def errors_at(self, xs: Array, rows: Sequence[int]) -> Array:
        """Return the log errors of some rows for each of several vectors x, priced at once."""
        count = len(xs)
        factors = {name: np.repeat(np.exp(xs[:, place]), len(rows)) for place, name in enumerate(FACTORS)}
        predicted_s = step_of(self.batch.take(np.tile(rows, count)), self.values, factors).total_s
        own = xs[:, [self.places[row] for row in rows]]
        return np.log(np.asarray(predicted_s).reshape(count, -1) / self.measured_s[rows]) + own

    @property
    def before(self) -> Estimate:
        """What is held of x before any run."""
        return Estimate(self.prior.mean, np.zeros(0), np.diag(self.prior.spread**-2))

    def own_variance(self, row: int) -> float:
        """Return the variance of the own pace of a run's model before any run."""
        return float(self.prior.spread[self.places[row]] ** 2)

    def of_run(self, found: Estimate, row: int) -> tuple[Array, Array]:
        """Return the factors' logarithms as they hold for a run, its model's own pace among them, with covariance."""
        joined = with_own_pace(list(FACTORS), len(self.models), self.places[row] - len(FACTORS))
        return joined @ found.x, joined @ np.linalg.inv(found.information) @ joined.T

    def fitted(self, rows: Sequence[int]) -> Estimate:
        """Return the likeliest factors of some rows."""
        return estimate(
            lambda xs: self.errors_at(xs, rows),
            np.ones(len(rows)),
            self.prior,
            noise=NOISE,
            start=self.prior.mean,
            iterations=ITERATIONS,
        )


def calibrate_from_runs(
    path: str | Path,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    *,
    made: str,
    stack: str | None = None,
) -> Calibration:
    """Return what the measured steps of a table say of their stack and machines.

    `stack` is that of rows that name none, `made` the day. InputError for rows that cannot be priced or were not
    measured, and for several stacks or accelerators in one table.
    """
    steps = _steps(path, catalogue, known, models, stack)
    everyone = list(range(len(steps.runs)))
    whole = steps.fitted(everyone)
    others = _others(steps)
    misfit, before = _misfit(steps, others), float(np.mean([band_of(run, known) for run in steps.runs]))
    return Calibration(
        stack=steps.runs[0].stack,
        family=steps.runs[0].family,
        accelerator=steps.runs[0].accelerator,
        factors=_named(whole.x[: len(FACTORS)]),
        models=_rounded(steps.models, whole.x[len(FACTORS) :]),
        covariance=tuple(map(tuple, np.linalg.inv(whole.information).tolist())),
        spreads=dict(zip(FACTORS, steps.prior.spread[: len(FACTORS)].tolist(), strict=True)),
        band=_band(steps, whole, before, misfit),
        band_before=before,
        misfit=misfit,
        runs=_measured(steps, whole, others),
        table=Path(path).name,
        sha256=hashlib.sha256(read_bytes(path, max_bytes=MAX_TABLE_BYTES)).hexdigest(),
        made=made,
        constants=constants_digest(),
        cluster=_machines(steps.runs, catalogue),
    )


def inputs_digest(run: Run) -> str:
    """Return a digest of what was run: equal for rows that differ in nothing but their name and their measurement."""
    same = replace(run, id="", assumed=())
    built = msgspec.to_builtins(same) | {"architecture": same.architecture.told()}
    del built["sourced"]
    return hashlib.sha256(msgspec.json.encode(built)).hexdigest()[:16]


def sensitivity_of(batch: Batch, values: Array, factors: Mapping[str, Number]) -> Array:
    """Return how the logarithm of each row's step time follows that of each factor, rows by factors."""
    return sensitivity(lambda at: step_of(batch, values, at).total_s, factors)


def _steps(
    path: str | Path, catalogue: Catalogue, known: Book, models: Mapping[str, Architecture], stack: str | None
) -> Steps:
    """Return the measured steps of a table, repeats of one run as one."""
    repeats: dict[str, list[tuple[RunRow, Run]]] = {}
    for row in settled_rows(read_rows(path, catalogue, known, models, default=stack), catalogue, known):
        run = _usable(row, path)
        repeats.setdefault(inputs_digest(run), []).append((row, run))
    if not repeats:
        raise InputError(f"{path}: no rows; expected one to ten measured steps")
    ids = [_named_once([row.id for row, _ in group]) for group in repeats.values()]
    runs = [group[0][1] for group in repeats.values()]
    _check_one_kind(path, [(row, run) for group in repeats.values() for row, run in group], known)
    times = [[float(row.measured_step_time_s or 0.0) for row, _ in group] for group in repeats.values()]
    prior = priors_of(runs, known)
    measured_s = np.exp([np.mean(np.log(group)) for group in times])
    steps = Steps(ids, runs, batch_of(runs, catalogue, known), measured_s, known.values, prior)
    _check_times(steps, path, catalogue)
    return steps


def _named_once(ids: Sequence[str]) -> str:
    """Return the names of repeats of one run, each once with how often it stands there."""
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in Counter(ids).items())


def _check_one_kind(path: str | Path, measured: Sequence[tuple[RunRow, Run]], known: Book) -> None:
    """Raise InputError, with the rows of each, where runs are of several stacks or accelerators."""
    stacks: dict[str, list[str]] = {}
    accelerators: dict[str, list[str]] = {}
    for row, run in measured:
        family = find_stack(run.family, known) or run.family.strip().lower() or run.stack
        stacks.setdefault(family, []).append(row.id)
        accelerators.setdefault(run.accelerator, []).append(row.id)
    faults = []
    for what, groups in (("stack", stacks), ("gpu", accelerators)):
        if len(groups) > 1:
            whose = "; ".join(f"{name}: {', '.join(dict.fromkeys(ids))}" for name, ids in sorted(groups.items()))
            faults.append(f"{what} {' and '.join(sorted(groups))}: expected runs of one, in a table each ({whose})")
    if faults:
        raise InputError(f"{path}: {'; '.join(faults)}")


def _check_times(steps: Steps, path: str | Path, catalogue: Catalogue) -> None:
    """Raise InputError for a step that its accelerators cannot take, or that is out of all proportion."""
    off = np.exp(steps.errors(steps.prior.mean, range(len(steps.runs))))
    for place, run in enumerate(steps.runs):
        measured_s = float(steps.measured_s[place])
        where = f"{path}: {steps.ids[place]}: step_time_s {measured_s:.4g}"
        impossible = beyond_peak(run, measured_s, catalogue)
        if impossible:
            raise InputError(f"{where}: {impossible}")
        if not 1.0 / SLIP < off[place] < SLIP:
            unit = "; in milliseconds?" if 300.0 < 1.0 / off[place] < 3000.0 else ""
            expected = format_time(measured_s * float(off[place]))
            raise InputError(f"{where}: expected the seconds of a step, of which {expected} are predicted{unit}")


def models_of(runs: Sequence[Run]) -> list[str]:
    """Return the digest of each model of some runs, once."""
    return list(dict.fromkeys(model_digest(run.architecture) for run in runs))


def priors_of(runs: Sequence[Run], known: Book) -> Prior:
    """Return what is held of the factors of some runs' stack and machine, and of their models, before them."""
    run = runs[0]
    share = band_of(run, known) / known.band(UNSEEN, experts=run.architecture.experts)
    spreads = prior_spreads(share, new_accelerator=not known.trained_on(run.accelerator))
    experts = {model_digest(one.architecture): one.architecture.experts > 0 for one in runs}
    models = [model_spread(share, experts=experts[model]) for model in models_of(runs)]
    most = np.full(len(spreads) + len(models), np.log(MOST))
    return Prior(np.zeros(len(most)), np.array([*spreads.values(), *models]), -most, most)


def _usable(row: RunRow, path: str | Path) -> Run:
    """Return what a row ran; InputError where it cannot be priced or was not measured."""
    if row.run is None:
        raise InputError(f"{path}: {row.id}: {row.reason}")
    if row.unreadable or not row.measured_step_time_s:
        why = row.unreadable[0] if row.unreadable else "no step_time_s"
        raise InputError(f"{path}: {row.id}: {why}; expected the measured seconds of a step")
    if row.contradiction:
        raise InputError(f"{path}: {row.id}: step_time_s {row.measured_step_time_s:.4g}, but {row.contradiction}")
    return row.run


def _others(steps: Steps) -> list[Estimate]:
    """Return, for each run, the factors that the others give; empty where there are none."""
    count = len(steps.runs)
    parts = min(count, PARTS)
    if count < 2:
        return []
    found = [steps.fitted([i for i in range(count) if i % parts != part]) for part in range(parts)]
    return [found[i % parts] for i in range(count)]


def _misfit(steps: Steps, others: Sequence[Estimate]) -> float:
    """Return how much larger the variance of left-out errors is than it should be; 1 where it is not, or unknown."""
    ratios = []
    for i, other in enumerate(others):
        x, covariance = steps.of_run(other, i)
        factors = {name: np.array([value]) for name, value in _named(x).items()}
        follows = sensitivity_of(steps.batch.take([i]), steps.values, factors)[0]
        own = OWN_EXPERTS if steps.runs[i].architecture.experts else OWN
        had = follows @ steps.of_run(steps.before, i)[1] @ follows
        variance = own**2 + follows @ covariance @ follows * factors_part(had, steps.own_variance(i))
        ratios.append(float(steps.errors(other.x, [i])[0] ** 2 / variance))
    return max(1.0, (DOUBTS + sum(ratios)) / (DOUBTS + len(ratios)))


def _band(steps: Steps, whole: Estimate, before: float, misfit: float) -> float:
    """Return the mean error band of runs like these."""
    rows = range(len(steps.runs))
    found = [steps.of_run(whole, row) for row in rows]
    factors = dict(zip(FACTORS, np.exp([x for x, _ in found]).T, strict=True))
    follows = sensitivity_of(steps.batch, steps.values, factors)
    had = np.einsum("ni,nij,nj->n", follows, np.stack([steps.of_run(steps.before, row)[1] for row in rows]), follows)
    model = np.array([steps.own_variance(row) for row in rows])
    left = np.einsum("ni,nij,nj->n", follows, np.stack([covariance for _, covariance in found]), follows)
    experts = np.array([run.architecture.experts for run in steps.runs])
    return round(float(narrowed_band(before, had, left, experts=experts, misfit=misfit, model=model).mean()), 4)


def _measured(steps: Steps, whole: Estimate, others: Sequence[Estimate]) -> tuple[MeasuredStep, ...]:
    def share(x: Array, place: int) -> float:
        return round(float(np.expm1(steps.errors(x, [place])[0])), 5)

    return tuple(
        MeasuredStep(
            id=steps.ids[i],
            inputs=inputs_digest(run),
            layout=str(run.layout),
            gpus=run.gpus,
            measured_step_time_s=float(steps.measured_s[i]),
            before=share(steps.prior.mean, i),
            fitted=share(whole.x, i),
            left_out=share(others[i].x, i) if others else None,
            without=_named(steps.of_run(others[i], i)[0]) if others else dict.fromkeys(FACTORS, 1.0),
        )
        for i, run in enumerate(steps.runs)
    )


def _named(x: Array) -> dict[str, float]:
    return _rounded(list(FACTORS), x)


def _rounded(names: Sequence[str], x: Array) -> dict[str, float]:
    return {name: round(float(value), 5) for name, value in zip(names, np.exp(x), strict=True)}


def _machines(runs: Sequence[Run], catalogue: Catalogue) -> Cluster | None:
    """Return the machines of the run on most GPUs, as its row describes them; None where no node type has them."""
    run = max(runs, key=lambda one: one.gpus)
    if not run.node or run.cores > 1:  # a cluster has whole accelerators
        return None
    cluster = catalogue_cluster(catalogue, run.node)
    group = cluster.groups[0]
    several = run.gpus > run.gpus_per_node
    per_node = run.gpus_per_node if several else max(run.gpus_per_node, group.gpus)
    own = described_device(
        Device(id="GPU", kind="gpu"), run.accelerator, catalogue.accelerators[run.accelerator], catalogue
    )
    group = replace(group, gpus=per_node, gpu=own, count=max(1, run.gpus // per_node))
    rate = run.node_bytes_per_s / min(1.0, run.gpus / per_node)
    return with_rates(replace(cluster, groups=(group,)), inter_bytes_per_s=rate or None)
