"""Robust least squares with priors and bounds, by Levenberg-Marquardt: how constants and factors are fitted.

The parameters x are logarithms. A row's cost is Huber's, (error / noise)^2 up to TAIL noises and linear beyond; a
parameter's is ((x - prior) / spread)^2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..analytic.quantities import Array

TAIL = 2.0  # noises beyond which a row counts linearly
NUDGE = 1e-4
TRIES = 12  # dampings of one iteration
ENOUGH = 1e-6  # of the cost: an iteration that gains less is the last


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of each parameter, before any row is seen."""

    mean: Array
    spread: Array  # as a standard deviation
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parameters that make the rows likeliest, the errors that they leave, and how sure they are."""

    x: Array
    errors: Array  # of each row, as a logarithm
    information: Array  # the inverse of the parameters' covariance: that of the rows and that of the prior


def estimate(
    errors_of: Callable[[Array], Array],
    weights: Array,
    prior: Prior,
    *,
    noise: float,
    start: Array,
    free: npt.NDArray[np.bool_] | None = None,
    iterations: int,
) -> Estimate:
    """Return the likeliest parameters; all but the `free` ones stay where they start.

    `errors_of` returns, for each of some vectors of parameters, the log error of each row.
    """
    free = np.ones(len(start), dtype=bool) if free is None else free

    def cost_of(x: Array) -> tuple[float, Array]:
        errors = errors_of(x[None])[0]
        u = np.abs(errors) / noise
        huber = np.where(u <= TAIL, u * u, 2 * TAIL * u - TAIL * TAIL)
        return float((weights * huber).sum() + (((x - prior.mean) / prior.spread) ** 2).sum()), errors

    x = start.copy()
    cost, errors = cost_of(x)
    damping = 1e-2
    for _ in range(iterations):
        gradient, normal = _normal(errors_of, x, errors, weights, prior, noise, free)
        held = ((x <= prior.low) & (gradient > 0)) | ((x >= prior.high) & (gradient < 0)) | ~free
        normal[held, :], normal[:, held], gradient[held] = 0.0, 0.0, 0.0
        normal[held, held] = 1.0  # a constant at its bound stays there
        improved = False
        for _ in range(TRIES):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            candidate = np.clip(x + np.clip(step, -1.0, 1.0), prior.low, prior.high)
            new_cost, new_errors = cost_of(candidate)
            if new_cost < cost:
                improved = cost - new_cost > ENOUGH * cost
                x, cost, errors, damping = candidate, new_cost, new_errors, damping / 4
                break
            damping *= 4
        if not improved:
            break
    return Estimate(x, errors, _normal(errors_of, x, errors, weights, prior, noise, free)[1])


def _normal(
    errors_of: Callable[[Array], Array],
    x: Array,
    errors: Array,
    weights: Array,
    prior: Prior,
    noise: float,
    free: npt.NDArray[np.bool_],
) -> tuple[Array, Array]:
    """Return half of the cost's gradient, and of its curvature without second derivatives of the errors."""
    jacobian = np.zeros((len(errors), len(x)))
    jacobian[:, free] = (errors_of(x + NUDGE * np.eye(len(x))[free]) - errors).T / NUDGE
    u = np.abs(errors) / noise
    w = weights / noise**2 * np.where(u <= TAIL, 1.0, TAIL / np.maximum(u, 1e-12))
    gradient = jacobian.T @ (w * errors) + (x - prior.mean) / prior.spread**2
    return gradient, jacobian.T @ (w[:, None] * jacobian) + np.diag(1.0 / prior.spread**2)
