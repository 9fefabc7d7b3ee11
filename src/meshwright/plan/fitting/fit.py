"""Fit of the cost model's constants: robust least squares on log time, priors and bounds from physics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..analytic.coefficients import Book
from ..analytic.quantities import Array
from ..tables.batch import Batch, step_of
from ..tables.runs import RunRow
from .estimate import Prior, estimate

NOISE = 0.03  # of one row, as a logarithm: the spread between teams and releases
ITERATIONS = 150


@dataclass(frozen=True)
class Fitted:
    """Values of the constants, and the log error of each row that they leave."""

    values: Array
    errors: Array


def predicted_s(batch: Batch, values: Array) -> Array:
    """Return the step time of each row with these values of the constants."""
    return np.asarray(step_of(batch, values).total_s, dtype=float)


def fit_constants(
    known: Book,
    batch: Batch,
    measured_s: Array,
    weights: Array,
    *,
    start: Array | None = None,
    fixed: Sequence[str] = (),
    iterations: int = ITERATIONS,
) -> Fitted:
    """Return the constants that make the rows likeliest; `fixed` ones stay at their prior (`plan.estimate`)."""
    constants = list(known.constants.values())
    prior = Prior(
        mean=np.log([constant.prior for constant in constants]),
        spread=np.array([constant.spread for constant in constants]),
        low=np.log([constant.low for constant in constants]),
        high=np.log([constant.high for constant in constants]),
    )
    free = np.array([name not in fixed for name in known.names])
    target = np.log(measured_s)
    found = estimate(
        lambda xs: np.stack([np.log(predicted_s(batch, np.exp(x))) - target for x in xs]),
        weights,
        prior,
        noise=NOISE,
        start=prior.mean if start is None else np.where(free, np.log(start), prior.mean),
        free=free,
        iterations=iterations,
    )
    return Fitted(np.exp(found.x), found.errors)


def cluster(row: RunRow) -> str:
    """Return the layout cluster of a row: family, model, machines and degrees, as a stranger would group runs."""
    assert row.run is not None
    run, layout = row.run, row.run.layout
    model = run.architecture
    shape = f"{model.num_hidden_layers}x{model.hidden_size}x{model.num_attention_heads}"
    degrees = f"tp{layout.tp}pp{layout.pp}cp{layout.cp}vpp{layout.vpp}ep{layout.ep}"
    return f"{row.family} {shape} {run.accelerator} {run.gpus} {degrees} s{run.seq_len}"


def folds(rows: Sequence[RunRow], count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return the fold of each row: whole clusters, dealt in an order drawn from the seed."""
    names = sorted({cluster(row) for row in rows})
    order = np.random.default_rng(seed).permutation(len(names))
    place = {names[int(index)]: position % count for position, index in enumerate(order)}
    return np.array([place[cluster(row)] for row in rows])
