"""Solve backwards: which network, latency or GPU count a target needs.

For each rate the fastest layout may be another one. What does not fit, or computes for longer than the target on any
network, is set aside first; the rest is priced at an infinite rate and then bisected: a layout that misses the target
at one rate misses it at every lower rate, so that the arrays shrink as the answer comes nearer. The answer is exact
under the cost model, to the bisection's 0.1 %.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import InputError
from ...layout import Layout
from ..analytic import Grid, Setting, book
from ..analytic.coefficients import coefficients
from ..analytic.fits import SURE
from ..analytic.price import machine_of, node_group_of
from ..analytic.quantities import Array
from ..layouts.filters import in_its_orders
from ..search.explore import compute_bound_s, explore, sorted_by_fit, space_of, times_in_chunks
from .alternatives import FUTILE, Target, TargetAlternative, at_peak_s, beyond, fastest_layout, other_means
from .envelope import check_budget, no_share

Quantity = Literal["inter", "intra", "latency"]
FINER = 7  # numbers of GPUs that are tried between one that meets a target and the one before
LEAST = {"inter": 1e6, "intra": 1e6, "latency": 1e-9}  # bytes per second, seconds: where the search ends
MOST = {"inter": 1e14, "intra": 1e14, "latency": 10.0}
FIELDS = {"inter": "inter_bytes_per_s", "intra": "intra_bytes_per_s", "latency": "latency_s"}
TOLERANCE = 1e-3  # relative, of the answer
ANCHORS = 7  # values at which the layouts of a curve are chosen
KEPT = 1000  # the fastest layouts at each of them
POINTS = 41  # of a curve
SPREAD = 8.0  # a curve reaches from the target divided by this factor to the target times it


class Point(msgspec.Struct, frozen=True):
    """One point of a curve: the value of the quantity, and the fastest step with it."""

    value: float
    step_time_s: float


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of one quantity that a target needs, all else as it is.

    `value` is bytes per second or seconds; None where no value is enough (`reachable` false) or any is.
    """

    quantity: Quantity
    present: float  # of the cluster as it is
    value: float | None
    reachable: bool
    layout: Layout | None  # the one that meets the target there
    curve: tuple[Point, ...]  # ascending in value

    def at(self, value: float) -> float:
        """Return the step time at a value, between the points of the curve on logarithmic axes."""
        xs = [math.log(point.value) for point in self.curve]
        ys = [math.log(point.step_time_s) for point in self.curve]
        return math.exp(float(np.interp(math.log(max(value, LEAST["latency"])), xs, ys)))


class FewestGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest number of GPUs that meets a target, with the layout that does.

    Where no number does, `nearest_gpus` is the one whose step comes nearest to it, and `step_time_s` that step.
    """

    gpus: int | None
    layout: Layout | None
    step_time_s: float | None
    tried: int
    asked: int  # GPUs of the setting
    most: int  # of the numbers that were tried
    least: int = 1  # of them: fewer miss the target by more
    nearest_gpus: int | None = None


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """A target, how the cluster stands as it is, and what each quantity would have to be."""

    target_step_time_s: float
    target: str  # in the words of the question
    present_step_time_s: float
    present_layout: Layout
    error_band: float | None  # of the present step, relative; what is needed is no surer
    calibration: tuple[str, ...]  # where the constants come from, the most particular first
    needs: tuple[Need, ...]
    fewest: FewestGpus
    others: tuple[TargetAlternative, ...] = ()  # tried where the network alone does not meet the target
    target_days: float | None = None  # of a budget of tokens, where the target is one
    peak_step_time_s: float  # of the arithmetic alone, at the peak of all GPUs
    least_compute_s: float | None = None  # of the layouts that fit: no network makes a step shorter

    def mfu_of(self, step_time_s: float) -> float:
        """Return the share of the GPUs' peak that a step of the setting takes."""
        return self.peak_step_time_s / step_time_s

    def days_of(self, step_time_s: float) -> float | None:
        """Return in how many days the budget is trained at a step of the target's batch; None without a budget."""
        return None if self.target_days is None else self.target_days * step_time_s / self.target_step_time_s

    @property
    def met(self) -> bool:
        """Whether the cluster as it is meets the target."""
        return self.present_step_time_s <= self.target_step_time_s


@dataclass(frozen=True, slots=True)
class Fitting:
    """Layouts that fit in memory, with the seconds of a step that no network can change."""

    grid: Grid
    compute_s: Array


def step_time_for_mfu(setting: Setting, mfu: float) -> float:
    """Return the step time at which a setting reaches this MFU."""
    if not 0 < mfu <= 1:
        raise InputError(f"--target-mfu: {no_share(mfu)}")
    return at_peak_s(setting) / mfu


def step_time_for_days(setting: Setting, days: float, tokens: float) -> float:
    """Return the step time at which a token budget lasts `days` days."""
    if days <= 0 or tokens <= 0:
        raise InputError("--target-days and --tokens: expected more than 0")
    check_budget(tokens, setting.global_batch * setting.seq_len)
    return days * 86400.0 * setting.global_batch * setting.seq_len / tokens


def solve(setting: Setting, target_at: Target, *, target: str, days: float | None = None) -> Solution:
    """Return what a target needs; `target_at` gives its step time in a setting (with fewer GPUs it may be longer).

    `days` are those of a budget of tokens, where the target is one.

    InputError if nothing fits in memory.
    """
    best = explore(setting).best
    target_s = target_at(setting)
    met = best.predicted.step_time_s <= target_s
    quantities = tuple(_quantities(setting))
    fit = fitting(setting) if quantities else None
    needs = tuple(_need(setting, target_s, quantity, fit) for quantity in quantities if fit)
    return Solution(
        target_step_time_s=target_s,
        target=target,
        present_step_time_s=best.predicted.step_time_s,
        present_layout=best.layout,
        error_band=best.predicted.error_band,
        calibration=best.predicted.calibration,
        needs=needs,
        fewest=fewest_gpus(setting, target_at, (best.layout, best.predicted.step_time_s)),
        others=() if met or any(need.reachable for need in needs) else other_means(setting, target_at),
        target_days=days,
        peak_step_time_s=at_peak_s(setting),
        least_compute_s=float(fit.compute_s.min()) if fit is not None and len(fit.grid) else None,
    )


def fewest_gpus(setting: Setting, target_at: Target, known: tuple[Layout, float] | None = None) -> FewestGpus:
    """Return the fewest GPUs, in whole nodes, that meet a target: of the setting's, then of more (`reach.beyond`).

    Between the first number that meets it and the one before some more are tried. `known`: the fastest layout of the
    setting itself and its step, where it has been looked for.
    """
    every = _within(setting, target_at, known)
    if not any(one.meets for one in every):
        every += starmap(_Tried, beyond(setting, target_at))
    found = min((one for one in every if one.meets), key=lambda one: one.gpus, default=None)
    if found is not None:
        found = _finer(setting, target_at, found, every)
    fitting_ones = (one for one in every if one.layout is not None)
    nearest = found or min(fitting_ones, key=lambda one: one.times_target, default=None)
    return FewestGpus(
        gpus=found.gpus if found else None,
        layout=found.layout if found else None,
        step_time_s=nearest.step_s if nearest else None,
        tried=len(every),
        asked=setting.gpus,
        most=max(one.gpus for one in every),
        least=min(one.gpus for one in every),
        nearest_gpus=nearest.gpus if nearest and not found else None,
    )


class _Tried(NamedTuple):
    """A number of GPUs with its fastest layout, step and target; no layout where none is legal or fits."""

    gpus: int
    layout: Layout | None
    step_s: float
    target_s: float

    @property
    def meets(self) -> bool:
        return self.layout is not None and self.step_s <= self.target_s

    @property
    def times_target(self) -> float:
        return self.step_s / self.target_s


def _finer(setting: Setting, target_at: Target, found: _Tried, every: list[_Tried]) -> _Tried:
    """Return the least number between one that meets a target and the next smaller one; what is tried joins `every`."""
    before = max((one.gpus for one in every if one.gpus < found.gpus), default=0)
    for number in _numbers_between(setting, before, found.gpus):
        every.append(_at(setting, number, target_at))
        if every[-1].meets:
            return every[-1]
    return found


def _within(setting: Setting, target_at: Target, known: tuple[Layout, float] | None) -> list[_Tried]:
    """Return the numbers of GPUs up to the setting's that were tried, the largest first.

    It ends where two in a row miss the target by more than the number above: fewer of them miss it by more still.
    """
    found: list[_Tried] = []
    futile, last = 0, math.inf
    for gpus in reversed(gpu_counts(setting)):
        if gpus == setting.gpus and known is not None:
            one = _Tried(gpus, *known, target_at(setting))
        else:
            one = _at(setting, gpus, target_at)
        found.append(one)
        if one.layout is None:
            continue
        futile = futile + 1 if not one.meets and one.times_target > last else 0
        last = one.times_target
        if futile >= FUTILE:
            break
    return found


def _at(setting: Setting, gpus: int, target_at: Target) -> _Tried:
    """Return a number of GPUs with its fastest layout, step and target; no layout where none can meet it or fits."""
    changed = replace(setting, gpus=gpus)
    if at_peak_s(changed) > target_at(changed):  # not even at the peak
        return _Tried(gpus, None, 0.0, 0.0)
    try:
        layout, step_s = fastest_layout(changed)
    except InputError:
        return _Tried(gpus, None, 0.0, 0.0)
    return _Tried(gpus, layout, step_s, target_at(changed))


def _numbers_between(setting: Setting, below: int, above: int) -> list[int]:
    """Return at most `FINER` numbers of GPUs in whole nodes between two, evenly spaced, in order."""
    node = node_group_of(setting.cluster).gpus
    low, high = -(-below // node), -(-above // node)
    found = {round(low + (high - low) * part / (FINER + 1)) * node for part in range(1, FINER + 1)}
    return sorted(number for number in found if below < number < above)


def gpu_counts(setting: Setting) -> list[int]:
    """Return the GPU counts to try: one node's parts, then nodes 1, 2, 3, 4, 6, 8, 12, ..., and all."""
    node = min(node_group_of(setting.cluster).gpus, setting.gpus)
    counts = {count for count in (1, 2, 4) if count < node} | {setting.gpus}
    nodes = 1
    while nodes * node <= setting.gpus:
        counts |= {nodes * node, nodes * node * 3 // 2 if nodes > 1 else node}
        nodes *= 2
    return sorted(count for count in counts if count <= setting.gpus)


def _quantities(setting: Setting) -> Iterator[Quantity]:
    machine = machine_of(setting)
    if setting.gpus > machine.domain:
        yield "inter"
    if min(setting.gpus, machine.domain) > 1:
        yield "intra"
    if setting.gpus > machine.domain:
        yield "latency"


def _need(setting: Setting, target_s: float, quantity: Quantity, fit: Fitting) -> Need:
    low, high = LEAST[quantity], MOST[quantity]
    good, bad = (low, high) if quantity == "latency" else (high, low)  # the ends where a target is easiest and hardest
    present = _present(setting, quantity)
    pool = _Pool.of(setting, quantity, good, target_s, fit)
    value: float | None = None
    layout = pool.layout
    if len(pool.grid) and pool.narrowed(bad, target_s) is None:
        while abs(math.log(good / bad)) > TOLERANCE:
            middle = math.sqrt(good * bad)
            smaller = pool.narrowed(middle, target_s)
            if smaller is None:
                bad = middle
            else:
                pool, good = smaller, middle
        value, layout = good, pool.layout
    return Need(
        quantity=quantity,
        present=present,
        value=value,
        reachable=layout is not None,
        layout=layout,
        curve=_curve(setting, quantity, (present, value or present), fit),
    )


def _present(setting: Setting, quantity: Quantity) -> float:
    machine = machine_of(setting)
    if quantity == "latency":
        if setting.latency_s is not None:
            return setting.latency_s
        accelerator = node_group_of(setting.cluster).gpu.model
        return float(coefficients(book(), setting.stack, accelerator, setting.precision).network_latency_s)
    return float(machine.node_rate if quantity == "inter" else machine.link_rate)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Layouts that meet a target at some value of a quantity, and the fastest of them there."""

    setting: Setting
    quantity: Quantity
    grid: Grid
    layout: Layout | None

    @classmethod
    def of(cls, setting: Setting, quantity: Quantity, value: float, target_s: float, fit: Fitting) -> "_Pool":
        """Return the layouts that meet the target at the easiest value."""
        possible = in_its_orders(setting, fit.grid.take(np.flatnonzero(fit.compute_s <= target_s)))
        pool = cls(setting, quantity, possible, None)
        return (pool.narrowed(value, target_s) if len(possible) else None) or cls(
            setting, quantity, fit.grid.take(np.array([], dtype=np.int64)), None
        )

    def narrowed(self, value: float, target_s: float) -> "_Pool | None":
        """Return the layouts that meet the target at this value; None if none does."""
        times = times_in_chunks(replace(self.setting, **{FIELDS[self.quantity]: value}), self.grid)
        meeting = np.flatnonzero(times <= target_s)
        if not len(meeting):
            return None
        fastest = self.grid.layout(int(np.argmin(times)))
        return _Pool(self.setting, self.quantity, self.grid.take(meeting), fastest)


def fitting(setting: Setting) -> Fitting:
    """Return the legal layouts that fit in memory, in the default axis order."""
    grid, prices = sorted_by_fit(setting, space_of(setting).grid).priced(setting, SURE)
    return Fitting(grid, compute_bound_s(prices))


def _curve(setting: Setting, quantity: Quantity, shown: tuple[float, float], fit: Fitting) -> tuple[Point, ...]:
    """Return the fastest step at values below, between and above `shown`.

    Over the layouts that are among the fastest at one of several values, in every axis order. From the hardest value
    on, layouts that compute for longer than the fastest step there are left out: at easier ones they are no faster.
    """
    low = max(min(shown) / SPREAD, LEAST[quantity])
    high = min(max(shown) * SPREAD, MOST[quantity])
    values = np.geomspace(low, high, POINTS)
    anchors = np.geomspace(values[0], values[-1], ANCHORS)
    kept: set[int] = set()
    places = np.arange(len(fit.grid))
    for value in anchors[::-1] if quantity == "latency" else anchors:
        times = times_in_chunks(replace(setting, **{FIELDS[quantity]: float(value)}), fit.grid.take(places))
        kept |= set(places[np.argsort(times)[:KEPT]].tolist())
        places = places[fit.compute_s[places] <= times.min()]
    pool = in_its_orders(setting, fit.grid.take(np.array(sorted(kept))))
    points = []
    for value in values:
        times = times_in_chunks(replace(setting, **{FIELDS[quantity]: float(value)}), pool)
        points.append(Point(float(value), float(times.min())))
    return tuple(points)
