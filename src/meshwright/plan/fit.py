"""Fit of the cost model's constants: robust least squares on log time, priors and bounds from physics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .batch import Batch, step_of
from .cost.coefficients import Book
from .cost.quantities import Array
from .runs import Row

NOISE = 0.03  # of one row, as a logarithm: the spread between teams and releases
TAIL = 2.0  # noises beyond which a row counts linearly
ITERATIONS = 150
NUDGE = 1e-4


@dataclass(frozen=True)
class Fitted:
    """Values of the constants, and the log error of each row that they leave."""

    values: Array
    errors: Array


def predicted_s(batch: Batch, values: Array) -> Array:
    """Return the step time of each row with these values of the constants."""
    return np.asarray(step_of(batch, values).total_s, dtype=float)


def fit(
    known: Book,
    batch: Batch,
    measured_s: Array,
    weights: Array,
    *,
    start: Array | None = None,
    fixed: Sequence[str] = (),
    iterations: int = ITERATIONS,
) -> Fitted:
    """Return the constants that make the rows likeliest; `fixed` ones stay at their prior.

    Levenberg-Marquardt on the logarithms; a row's cost is Huber's, (log error / noise)^2 up to TAIL noises and linear
    beyond; a constant's is ((log value - log prior) / spread)^2.
    """
    constants = list(known.constants.values())
    prior = np.log([constant.prior for constant in constants])
    spread = np.array([constant.spread for constant in constants])
    low = np.log([constant.low for constant in constants])
    high = np.log([constant.high for constant in constants])
    free = np.array([name not in fixed for name in known.names])
    theta = prior.copy() if start is None else np.where(free, np.log(start), prior)
    target = np.log(measured_s)

    def cost_of(x: Array) -> tuple[float, Array]:
        errors = np.log(predicted_s(batch, np.exp(x))) - target
        u = np.abs(errors) / NOISE
        huber = np.where(u <= TAIL, u * u, 2 * TAIL * u - TAIL * TAIL)
        return float((weights * huber).sum() + (((x - prior) / spread) ** 2).sum()), errors

    cost, errors = cost_of(theta)
    damping = 1e-2
    for _ in range(iterations):
        jacobian = np.zeros((len(target), len(theta)))
        for j in np.flatnonzero(free):
            nudged = theta.copy()
            nudged[j] += NUDGE
            jacobian[:, j] = (np.log(predicted_s(batch, np.exp(nudged))) - target - errors) / NUDGE
        u = np.abs(errors) / NOISE
        w = weights / NOISE**2 * np.where(u <= TAIL, 1.0, TAIL / np.maximum(u, 1e-12))
        normal = jacobian.T @ (w[:, None] * jacobian) + np.diag(1.0 / spread**2)
        gradient = jacobian.T @ (w * errors) + (theta - prior) / spread**2
        held = ((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0)) | ~free
        normal[held, :], normal[:, held], gradient[held] = 0.0, 0.0, 0.0
        normal[held, held] = 1.0  # a constant at its bound stays there
        improved = False
        for _ in range(12):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            candidate = np.clip(theta + np.clip(step, -1.0, 1.0), low, high)
            new_cost, new_errors = cost_of(candidate)
            if new_cost < cost:
                improved = cost - new_cost > 1e-6 * cost
                theta, cost, errors, damping = candidate, new_cost, new_errors, damping / 4
                break
            damping *= 4
        if not improved:
            break
    return Fitted(np.exp(theta), errors)


def cluster(row: Row) -> str:
    """Return the layout cluster of a row: family, model, machines and degrees, as a stranger would group runs."""
    assert row.run is not None
    run, layout = row.run, row.run.layout
    model = run.architecture
    shape = f"{model.num_hidden_layers}x{model.hidden_size}x{model.num_attention_heads}"
    degrees = f"tp{layout.tp}pp{layout.pp}cp{layout.cp}vpp{layout.vpp}ep{layout.ep}"
    return f"{row.family} {shape} {run.accelerator} {run.gpus} {degrees} s{run.seq_len}"


def folds(rows: Sequence[Row], count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return the fold of each row: whole clusters, dealt in an order drawn from the seed."""
    names = sorted({cluster(row) for row in rows})
    order = np.random.default_rng(seed).permutation(len(names))
    place = {names[int(index)]: position % count for position, index in enumerate(order)}
    return np.array([place[cluster(row)] for row in rows])
