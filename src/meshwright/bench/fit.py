"""Fits of measured sweeps: alpha and beta with confidence bands, and the curve of five constants; outliers are named.

Both minimise relative errors, since a sweep spans nine orders of magnitude. The curve is found by differential
evolution from a fixed seed: the same sweep always gives the same constants.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..cluster.curve import ONE_MIB, SHARPNESS, Curve, LinksCurve, MemoryCurve
from ..cluster.graph import CollectiveFit
from ..errors import InputError
from ..units import format_bytes, format_time
from .collectives import fit_collective as fit_line
from .table import Row

Array = npt.NDArray[np.float64]
MIN_CURVE_SIZES = 8
TOLERANCE = 0.15
FOLLOWS = 0.08  # a curve that misses its own sweep by more does not follow it: between its sizes, these count
RESAMPLES = 200
SLACK = 2.0  # how far, as a logarithm, a search may leave where it began
POPULATION, GENERATIONS, STARTS = 48, 200, 2
CLOSE_ENOUGH, CLEARLY_CLOSER = 0.05, 0.7
ERROR_NORM = 4  # between the mean (2) and the largest error (infinity)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The sizes and times of a fit, and the outliers that no rising curve can follow."""

    sizes_bytes: tuple[int, ...]
    times_s: tuple[float, ...]
    outliers: tuple[Row, ...]


def clean_sweep(rows: Sequence[Row]) -> Sweep:
    """Return the sweep without its glitches: the fewest rows without which it can be followed within 15 %.

    No curve that never falls is within 15 % of two points if the smaller size took more than 1.15 / 0.85 times as
    long as the larger one. Of two such points the one that contradicts more others is left out, and named.
    """
    kept = sorted(rows, key=lambda row: row.bytes)
    limit = (1 + TOLERANCE) / (1 - TOLERANCE)
    left_out: list[int] = []
    times = np.array([row.time_s for row in kept])
    clash = np.triu(times[:, None] > limit * times[None, :], k=1)
    conflicts = clash.sum(0) + clash.sum(1)
    while conflicts.any():
        worst = int(conflicts.argmax())
        conflicts -= clash[:, worst]
        conflicts -= clash[worst]
        conflicts[worst] = 0
        clash[worst] = clash[:, worst] = False
        left_out.append(worst)
    outliers = tuple(kept[place] for place in left_out)
    kept = [kept[place] for place in sorted(set(range(len(kept))) - set(left_out))]
    return Sweep(tuple(row.bytes for row in kept), tuple(row.time_s for row in kept), outliers)


def describe_outliers(rows: Sequence[Row]) -> list[str]:
    """Return, for each row that `clean_sweep` leaves out, if it took longer than larger ones or less than smaller."""
    sized = [row for row in rows if row.bytes]
    limit = (1 + TOLERANCE) / (1 - TOLERANCE)
    words = []
    sweep = clean_sweep(sized)
    kept = list(zip(sweep.sizes_bytes, sweep.times_s, strict=True))
    for row in sweep.outliers:
        slower = sum(row.time_s > limit * time_s for size, time_s in kept if size > row.bytes)
        faster = sum(time_s > limit * row.time_s for size, time_s in kept if size < row.bytes)
        which = "longer than larger sizes" if slower >= faster else "less than smaller sizes"
        words.append(f"{format_bytes(row.bytes)} took {format_time(row.time_s)}, {which}")
    return words


def fit_sweep(rows: Sequence[Row], *, busy_share: float = 0.0) -> CollectiveFit:
    """Return the fit of rows of one collective, backend, rank count and type; InputError for too few sizes."""
    kinds = {(row.collective, row.backend, row.ranks, row.dtype) for row in rows}
    if len(kinds) != 1:
        raise InputError(f"a fit needs rows of one collective, backend, rank count and type, got {len(kinds)} kinds")
    sweep = clean_sweep([row for row in rows if row.bytes > 0])
    if len(set(sweep.sizes_bytes)) < 2:
        raise InputError("a fit needs two sizes or more")
    first = rows[0]
    if first.collective is None or first.ranks is None:
        raise InputError("a fit needs a collective and a rank count, and the table names none")
    line = fit_line(first.collective, first.backend, first.ranks, sweep.sizes_bytes, sweep.times_s, busy_share)
    alphas, betas = _bands(sweep)
    curve = fit_curve(sweep.sizes_bytes, sweep.times_s) if len(set(sweep.sizes_bytes)) >= MIN_CURVE_SIZES else None
    residual = largest_error(curve, sweep) if curve else 0.0
    return CollectiveFit(
        collective=line.collective,
        backend=line.backend,
        ranks=line.ranks,
        alpha_s=line.alpha_s,
        beta_s_per_byte=line.beta_s_per_byte,
        min_bytes=line.min_bytes,
        max_bytes=line.max_bytes,
        busy_share=busy_share,
        residual=line.residual,
        dtype=first.dtype,
        alpha_band_s=alphas,
        beta_band_s_per_byte=betas,
        crossover_bytes=round(line.alpha_s / line.beta_s_per_byte) if line.beta_s_per_byte else None,
        curve=curve,
        curve_residual=residual,
        points=_points(sweep) if residual > FOLLOWS else (),
    )


def _points(sweep: Sweep) -> tuple[tuple[int, float], ...]:
    """Return each size once, with the median of its times."""
    times: dict[int, list[float]] = {}
    for size, time_s in zip(sweep.sizes_bytes, sweep.times_s, strict=True):
        times.setdefault(size, []).append(time_s)
    return tuple((size, statistics.median(found)) for size, found in times.items())


def largest_error(curve: Curve, sweep: Sweep) -> float:
    """Return the largest relative error of a curve over a sweep."""
    return max(abs(curve.time_s(n) / t - 1) for n, t in zip(sweep.sizes_bytes, sweep.times_s, strict=True))


def left_out_errors(rows: Sequence[Row]) -> dict[int, float]:
    """Return, for each size, the relative error of the curve that was fitted without it."""
    sweep = clean_sweep(rows)
    points = list(zip(sweep.sizes_bytes, sweep.times_s, strict=True))
    errors = {}
    for i, (size, time_s) in enumerate(points):
        others = points[:i] + points[i + 1 :]
        curve = fit_curve([n for n, _ in others], [t for _, t in others])
        errors[size] = curve.time_s(size) / time_s - 1
    return errors


def fit_curve(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> Curve:
    """Return the curve with the smallest relative errors (their fourth-power mean).

    The form for links is taken unless the one for shared memory is closer by far.
    """
    sizes, logs = np.asarray(sizes_bytes, dtype=float), np.log(np.asarray(times_s, dtype=float))
    cost, found = _best(LINKS, sizes, logs)
    if cost > CLOSE_ENOUGH**ERROR_NORM:
        other_cost, other = _best(MEMORY, sizes, logs)
        if other_cost < cost * CLEARLY_CLOSER**ERROR_NORM:
            return _memory_curve(other)
    return _links_curve(found)


def _links_curve(found: Array) -> LinksCurve:
    small, small_power, middle, middle_power, slowness = found.tolist()
    return LinksCurve(
        small_s=math.exp(small),
        small_power=small_power,
        middle_s=math.exp(middle),
        middle_power=middle_power,
        bandwidth_bytes_per_s=math.exp(-slowness),
    )


def _memory_curve(found: Array) -> MemoryCurve:
    small, power, start, slowness, knee = found.tolist()
    return MemoryCurve(
        start_s=math.exp(start),
        small_s=math.exp(small),
        small_power=power,
        bandwidth_bytes_per_s=math.exp(-slowness),
        knee_bytes=math.exp(knee),
    )


def _links_times(people: Array, sizes: Array) -> Array:
    small, small_power, middle, middle_power, slowness = (people[:, i : i + 1] for i in range(5))
    share = np.log(sizes / ONE_MIB)
    parts = np.stack([small + small_power * share, middle + middle_power * share, slowness + np.log(sizes)])
    longest = parts.max(axis=0)
    times: Array = np.exp(longest) * np.exp(SHARPNESS * (parts - longest)).sum(axis=0) ** (1 / SHARPNESS)
    return times


def _memory_times(people: Array, sizes: Array) -> Array:
    small, power, start, slowness, knee = (people[:, i : i + 1] for i in range(5))
    beyond = np.maximum(0.0, sizes - np.exp(knee))
    times: Array = np.exp(start) + np.exp(small) * (sizes / ONE_MIB) ** power + np.exp(slowness) * beyond
    return times


def _links_bounds(sizes: Array, logs: Array) -> tuple[list[float], list[float]]:
    """Return where the search begins: between what the ends of the sweep suggest."""
    least, most, largest = logs.min(), logs.max(), np.log(sizes.max())
    low = [least - 0.5, 0.0, least - 1.5, 0.4, most - largest - 0.5]
    return low, [least + 2.0, 0.5, least + 1.0, 0.95, most - largest + 0.1]


def _memory_bounds(sizes: Array, logs: Array) -> tuple[list[float], list[float]]:
    least, most, smallest, largest = logs.min(), logs.max(), np.log(sizes.min()), np.log(sizes.max())
    at_one_mib = most - (largest - np.log(ONE_MIB))
    low = [at_one_mib - 3.0, 0.5, least - 0.7, most - largest - 3.0, (smallest + largest) / 2]
    return low, [at_one_mib + 1.0, 1.0, least + 0.1, most - largest + 0.5, largest]


class Form(NamedTuple):
    """A curve to search for."""

    times: Callable[[Array, Array], Array]  # of many sets of constants, at all sizes
    bounds: Callable[[Array, Array], tuple[list[float], list[float]]]
    largest_powers: dict[int, float]  # by place among the constants; all others are logarithms


LINKS = Form(_links_times, _links_bounds, {1: 0.7, 3: 1.0})
MEMORY = Form(_memory_times, _memory_bounds, {1: 1.1})


def _best(form: Form, sizes: Array, logs: Array) -> tuple[float, Array]:
    """Return the cost and the constants of the best of several searches."""
    found = [_evolve(form, sizes, logs, np.random.default_rng(seed)) for seed in range(STARTS)]
    return min(found, key=lambda result: result[0])


def _evolve(form: Form, sizes: Array, logs: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """Return the cost and the constants (all but powers as logarithms) of the best of a population."""
    low, high = (np.array(end) for end in form.bounds(sizes, logs))
    people = low + (np.maximum(high, low + 0.1) - low) * rng.random((POPULATION, len(low)))

    def cost(candidates: Array) -> Array:
        errors = np.abs(np.log(form.times(candidates, sizes)) - logs)
        mean: Array = (errors**ERROR_NORM).mean(axis=1)
        return mean

    costs = cost(people)
    for _ in range(GENERATIONS):
        elite = np.argsort(costs)[rng.integers(0, POPULATION // 8, POPULATION)]
        one, two = rng.integers(0, POPULATION, (2, POPULATION))
        step = rng.uniform(0.4, 0.9, (POPULATION, 1))
        children = people + step * (people[elite] - people) + step * (people[one] - people[two])
        children = np.where(rng.random(people.shape) < 0.9, children, people).clip(low - SLACK, high + SLACK)
        for place, largest in form.largest_powers.items():
            children[:, place] = children[:, place].clip(0.0, largest)
        new_costs = cost(children)
        better = new_costs < costs
        people[better], costs[better] = children[better], new_costs[better]
    winner = int(costs.argmin())
    return float(costs[winner]), people[winner]


def _bands(sweep: Sweep) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the 90 % bands of alpha and beta: fits of sweeps resampled with replacement."""
    rng = np.random.default_rng(0)
    sizes, times = np.array(sweep.sizes_bytes), np.array(sweep.times_s)
    alphas, betas = [], []
    for _ in range(RESAMPLES):
        chosen = rng.integers(0, len(sizes), len(sizes))
        if len(set(sizes[chosen])) > 1:
            fit = fit_line("", "", 1, sizes[chosen].tolist(), times[chosen].tolist(), 0.0)
            alphas.append(fit.alpha_s)
            betas.append(fit.beta_s_per_byte)
    low_alpha, high_alpha = np.percentile(alphas, [5, 95])
    low_beta, high_beta = np.percentile(betas, [5, 95])
    return (float(low_alpha), float(high_alpha)), (float(low_beta), float(high_beta))
