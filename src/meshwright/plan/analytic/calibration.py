"""Calibration: what a user's own measured steps say of their machines and of their stack, as a file.

`--save` writes it; `--stack FILE` takes the software's factors from it, `--cluster FILE` its machines and their
factors. The factors multiply the constants of this package: of others they would be of another product, which is said.
"""

import functools
import hashlib
from collections.abc import Collection, Iterable
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta

from ...cluster.graph import Cluster
from ...errors import InputError
from ...files import convert, read_data
from ...quantities import Count, Seconds
from ...quantities import Factor as Ratio
from ...units import counted
from ...workload.architecture import Architecture
from .coefficients import STRANGERS
from .factors import FACTORS, PACE, model_spread
from .quantities import Array, Number

SCHEMA: Final = "calibration/1"
OWN, OWN_EXPERTS = 0.06, 0.12  # error of a layout of its own, as a logarithm, where its stack and machines are known
NINE_IN_TEN = 1.645  # standard deviations
Positive = Annotated[float, Meta(gt=0, le=100)]
Factors = dict[str, Positive]


class MeasuredStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One measured step of a calibration, and what was predicted for it; errors are predicted over measured, less 1."""

    id: str
    inputs: str  # digest of what was run: model, machines, layout, batch
    layout: str
    gpus: Count
    measured_step_time_s: Seconds
    before: float  # error without calibration
    fitted: float  # error with it
    left_out: float | None  # error with a calibration by the other runs alone; None where there is no other
    without: Factors  # that calibration


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Factors of a stack and of a kind of machine, with what they come from."""

    schema: Literal["calibration/1"] = "calibration/1"
    stack: str  # whose constants the factors multiply
    family: str  # as the table of runs names the stack
    accelerator: str
    factors: Factors
    models: Factors = {}  # pace of each measured model beside that of all, by its `model_digest`
    covariance: tuple[tuple[float, ...], ...]  # of the logarithms of factors and models, in their order
    spreads: Factors  # of the logarithms before any run
    band: Ratio  # mean error band of runs like these
    band_before: Ratio  # without calibration
    misfit: Ratio  # of the variance of left-out runs, beside what it should be; 1 or more
    runs: tuple[MeasuredStep, ...]
    table: str  # the file that the runs are from
    sha256: str  # of that file
    made: str  # the day
    constants: str  # digest of the constants that the factors multiply
    cluster: Cluster | None = None  # the machines of the runs

    def __post_init__(self) -> None:
        unknown = sorted({*self.factors, *self.spreads} - set(FACTORS))
        if unknown:
            raise ValueError(f"factors: no such factor: {unknown[0]} (known: {', '.join(FACTORS)})")
        if {len(self.factors) + len(self.models)} != {len(self.covariance), *map(len, self.covariance)}:
            raise ValueError("covariance: expected a row and a column for each factor and each model")
        if self.models and PACE not in self.factors:
            raise ValueError(f"models: expected the factor {PACE} beside them")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factors that runs have moved, in order."""
        return tuple(self.factors)

    def only(self, names: Collection[str]) -> "Calibration":
        """Return the calibration with some of its factors alone."""
        factors = {name: value for name, value in self.factors.items() if name in names}
        models = self.models if PACE in factors else {}
        kept = [self.names.index(name) for name in factors]
        kept += [len(self.factors) + place for place in range(len(models))]
        covariance = tuple(tuple(self.covariance[i][j] for j in kept) for i in kept)
        return msgspec.structs.replace(self, factors=factors, models=models, covariance=covariance)

    def of_model(self, architecture: Architecture) -> "Calibration":
        """Return the factors as they hold for a model: its own pace, measured or unknown, is part of that of all."""
        if PACE not in self.factors:
            return self
        digest = model_digest(architecture)
        mine = list(self.models).index(digest) if digest in self.models else None
        joined = with_own_pace(self.names, len(self.models), mine)
        covariance = joined @ np.array(self.covariance) @ joined.T
        if mine is None:
            covariance[self.names.index(PACE), self.names.index(PACE)] += own_variance(self, architecture)
        factors = dict(self.factors)
        factors[PACE] *= self.models.get(digest, 1.0)
        return msgspec.structs.replace(
            self, factors=factors, models={}, covariance=tuple(map(tuple, covariance.tolist()))
        )

    def part(self, *, machine: bool) -> "Calibration":
        """Return the factors of the machine alone, or of the software alone."""
        return self.only([name for name in self.factors if FACTORS[name].machine == machine])

    def concerns(self, stack: str, family: str, accelerator: str) -> tuple[str, ...]:
        """Return the factors that hold for a run: the software's on its stack, the machine's on its accelerator.

        Of stacks that nobody measured many share constants; only that of the same name is the same.
        """
        same = stack == self.stack and (stack not in STRANGERS or family == self.family)
        return tuple(n for n in self.factors if (accelerator == self.accelerator if FACTORS[n].machine else same))


def with_own_pace(names: Collection[str], models: int, model: int | None) -> Array:
    """Return the matrix that makes a model's factors, as logarithms, of those of all and of the models' own paces.

    Factors by factors and models; `model` is the place of the model, None for one that was not measured.
    """
    joined = np.eye(len(names), len(names) + models)
    if model is not None:
        joined[list(names).index(PACE), len(names) + model] = 1.0
    return joined


def model_digest(architecture: Architecture) -> str:
    """Return a digest of a model's sizes: equal for models that differ in their name or longest sequence alone."""
    same = msgspec.structs.replace(architecture, name="", max_position_embeddings=0)
    return hashlib.sha256(msgspec.json.encode(same.told())).hexdigest()[:16]


def joined_calibrations(software: Calibration | None, machine: Calibration | None) -> tuple[Calibration, ...]:
    """Return what holds of a stack's file and of a cluster's: all of it where both are one."""
    if software is not None and software == machine:
        return (software,)
    parts = (software and software.part(machine=False), machine and machine.part(machine=True))
    return tuple(part for part in parts if part is not None)


def measured_here(calibration: Calibration, applied: Collection[str], *, left_out: bool = False) -> str:
    """Return where the factors of an answer come from, in words; `left_out`: of all runs but the one it predicts."""
    kinds = {FACTORS[name].machine for name in applied}
    part = "" if len(kinds) > 1 else f", its {'machines' if True in kinds else 'software'} alone"
    runs = counted(len(calibration.runs) - left_out, "other run" if left_out else "run")
    return f"measured here: {runs} of {calibration.table}{part}"


def covariance_of(measured: Iterable[tuple[Calibration, Collection[str]]], prior: Array) -> Array:
    """Return the covariance of all factors' logarithms: measured for applied factors, else as in `prior`.

    The calibrations are those `of_model`.
    """
    names, found = list(FACTORS), prior.copy()
    for calibration, applied in measured:
        own = [calibration.names.index(name) for name in applied]
        places = [names.index(name) for name in applied]
        whole = np.array(calibration.covariance).reshape(len(calibration.factors), -1)
        found[np.ix_(places, places)] = whole[np.ix_(own, own)]
    return found


def prior_of(calibration: Calibration, architecture: Architecture) -> Array:
    """Return the covariance of all factors' logarithms before any run, the model's own pace in that of all."""
    found = np.diag([calibration.spreads.get(name, FACTORS[name].spread) ** 2 for name in FACTORS])
    found[list(FACTORS).index(PACE), list(FACTORS).index(PACE)] += own_variance(calibration, architecture)
    return found


def own_variance(calibration: Calibration, architecture: Architecture) -> float:
    """Return the variance of a model's own pace before any run of it."""
    scale = calibration.spreads.get(PACE, FACTORS[PACE].spread) / FACTORS[PACE].spread
    return model_spread(scale, experts=architecture.experts > 0) ** 2


def factors_part(before: Number, model: Number) -> Array:
    """Return the share of a variance that is not the model's own: what a layout errs by holds that already.

    `before` is the variance of the logarithm of a step time before any run, `model` that of the model's own pace in it.
    """
    return np.asarray(1.0 - np.where(np.greater(before, 0), model / np.where(np.greater(before, 0), before, 1.0), 0.0))


def narrowed_band(
    band: Number, before: Array, after: Array, *, experts: Number, misfit: float, model: Number = 0.0
) -> Array:
    """Return an error band as runs have narrowed it.

    `before` and `after` are the variances that the factors leave in the logarithm of a step time, `model` of them the
    prior one of its model's own pace. Half-normal errors of a layout's own are added, and what the band holds beyond
    the factors, by as much of it as they have left. Without a run the band stays as it is. Runs that are further off
    than they should be, each predicted by the others, widen it: what was held of such runs before is then too little.
    """
    part = factors_part(before, model)
    before, after = before * part, after * part
    own = np.where(experts > 0, OWN_EXPERTS, OWN) ** 2
    rest = np.maximum((np.asarray(band) / NINE_IN_TEN) ** 2 - own - before, 0.0)
    kept = np.where(before > 0, np.minimum(after / np.where(before > 0, before, 1.0), 1.0), 1.0)
    return np.asarray(np.sqrt(misfit) * np.minimum(band, NINE_IN_TEN * np.sqrt(own + after + kept * rest)))


@functools.lru_cache(maxsize=1)
def constants_digest() -> str:
    """Return a digest of the constants of this package and of who uses which."""
    folder = resources.files(__package__).joinpath("data")
    texts = [folder.joinpath(f"{name}.toml").read_bytes() for name in ("constants", "stacks")]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def is_file(name: str) -> bool:
    """Return whether a name is one of a file and not of the catalogue."""
    return Path(name).suffix in {".json", ".toml"}


def read_calibration(path: str) -> Calibration:
    """Read a file that `--save` wrote; InputError for any other."""
    data = read_data(path)
    if not (isinstance(data, dict) and data.get("schema") == SCHEMA):
        raise InputError(f"{path}: expected a calibration, as `validate --calibrate RUNS.csv --save FILE` writes it")
    return convert(data, Calibration, where=path)


def calibrations(stack: str | None, cluster: str | None) -> tuple[Calibration | None, Calibration | None]:
    """Return the calibrations of the files that `--stack` and `--cluster` name; None for a name or a cluster alone."""
    software = read_calibration(stack) if stack is not None and is_file(stack) else None
    if cluster is None or not is_file(cluster):
        return software, None
    data = read_data(cluster)
    own = isinstance(data, dict) and data.get("schema") == SCHEMA
    return software, convert(data, Calibration, where=cluster) if own else None
