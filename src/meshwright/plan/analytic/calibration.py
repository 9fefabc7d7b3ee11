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
from .coefficients import STRANGERS
from .factors import FACTORS
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
    covariance: tuple[tuple[float, ...], ...]  # of the factors' logarithms, in their order
    spreads: Factors  # of the logarithms before any run
    band: Ratio  # error band of runs like these, in the mean
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
        if {len(self.factors)} != {len(self.covariance), *map(len, self.covariance)}:
            raise ValueError("covariance: expected a row and a column for each factor")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factors that runs have moved, in order."""
        return tuple(self.factors)

    def only(self, names: Collection[str]) -> "Calibration":
        """Return the calibration with some of its factors alone."""
        kept = [place for place, name in enumerate(self.factors) if name in names]
        return msgspec.structs.replace(
            self,
            factors={self.names[place]: self.factors[self.names[place]] for place in kept},
            covariance=tuple(tuple(self.covariance[i][j] for j in kept) for i in kept),
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


def joined_calibrations(software: Calibration | None, machine: Calibration | None) -> tuple[Calibration, ...]:
    """Return what holds of a stack's file and of a cluster's: all of it where both are one."""
    if software is not None and software == machine:
        return (software,)
    parts = (software and software.part(machine=False), machine and machine.part(machine=True))
    return tuple(part for part in parts if part is not None)


def measured_here(calibration: Calibration, applied: Collection[str]) -> str:
    """Return where the factors of an answer come from, in words."""
    kinds = {FACTORS[name].machine for name in applied}
    part = "" if len(kinds) > 1 else f", its {'machines' if True in kinds else 'software'} alone"
    count = len(calibration.runs)
    return f"measured here: {counted(count, 'run')} of {calibration.table}{part}"


def covariance_of(measured: Iterable[tuple[Calibration, Collection[str]]], prior: Array) -> Array:
    """Return the covariance of all factors' logarithms: measured for applied factors, else as in `prior`."""
    names, found = list(FACTORS), prior.copy()
    for calibration, applied in measured:
        own = [calibration.names.index(name) for name in applied]
        places = [names.index(name) for name in applied]
        whole = np.array(calibration.covariance).reshape(len(calibration.factors), -1)
        found[np.ix_(places, places)] = whole[np.ix_(own, own)]
    return found


def prior_of(calibration: Calibration) -> Array:
    """Return the covariance of all factors' logarithms before any run."""
    return np.diag([calibration.spreads.get(name, FACTORS[name].spread) ** 2 for name in FACTORS])


def narrowed_band(band: Number, before: Array, after: Array, *, experts: Number, misfit: float) -> Array:
    """Return an error band as runs have narrowed it.

    `before` and `after` are the variances that the factors leave in the logarithm of a step time. Half-normal errors
    of a layout's own are added, and what the band holds beyond the factors, by as much of it as they have left. Without
    a run the band stays as it is.
    """
    own = np.where(experts > 0, OWN_EXPERTS, OWN) ** 2
    rest = np.maximum((np.asarray(band) / NINE_IN_TEN) ** 2 - own - before, 0.0)
    kept = np.where(before > 0, np.minimum(after / np.where(before > 0, before, 1.0), 1.0), 1.0)
    return np.asarray(np.minimum(band, NINE_IN_TEN * np.sqrt(misfit * (own + after + kept * rest))))


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
