"""Where to cut a chain of layers into pipeline stages: the cut whose slowest stage is fastest, exactly.

A model is a chain of units (an embedding, layers, an output; or the nodes of a captured graph in order). A stage is a
run of neighbouring units. What a stage takes per micro-batch is the longer of its compute on its device and of what its
incoming link carries, both ways at once; the slowest stage sets the pace of the pipeline (PipeDream, Narayanan et al.
2019, arXiv 1806.03377, section 3.1, solves the same recurrence).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..units import counted, format_bytes
from .grid import PipelineGrid
from .timing import StageTimes, peak_in_flight

Floats = NDArray[np.float64]
Number = float | NDArray[Any]  # of one layout, or of many
SLACK = 0.02  # share by which plans let the slowest stage be slower if less crosses the cuts
ROUNDING = 1e-9  # of sums whose order differs


@dataclass(frozen=True)
class ChainUnit:
    """The cost of one link of the chain for one micro-batch, on a device of speed 1.

    `state_bytes` are weights, gradients and optimiser state; `held_bytes` what forward keeps for backward;
    `output_bytes` what must travel to the next stage if the model is cut behind this unit.
    """

    name: str
    forward_s: float
    backward_s: float
    weight_s: float = 0.0  # the part of backward that gives the weights' gradients
    state_bytes: float = 0.0
    held_bytes: float = 0.0
    output_bytes: float = 0.0


@dataclass(frozen=True)
class StageTarget:
    """The devices and links that the stages are put on, one entry a stage (a rank's once for each stage it holds).

    `links` has an entry for each cut: seconds of latency and seconds a byte; None between stages of one rank.
    `memory_bytes` is what a stage may take: a rank's memory over its number of stages; `in_flight` the micro-batches
    that it holds at once; `several`: that ranks hold more than one stage each.
    """

    speeds: tuple[float, ...]
    links: tuple[tuple[float, float] | None, ...]
    memory_bytes: tuple[float, ...]
    in_flight: tuple[float, ...]
    several: bool = False

    @classmethod
    def of(
        cls,
        grid: PipelineGrid,
        *,
        speeds: Sequence[float] | None = None,
        links: Sequence[tuple[float, float]] | None = None,
        memory_bytes: Sequence[float] | None = None,
    ) -> "StageTarget":
        """Return the target of a grid's ranks; `links[r]` joins rank r to the next (the last one to the first).

        Without them devices are equal, links are free and memory has no end.
        """
        ranks = grid.rank_of_stage
        held = [len(grid.stages_of(rank)) for rank in range(grid.ranks)]
        return cls(
            speeds=tuple(1.0 if speeds is None else speeds[r] for r in ranks),
            links=tuple(
                None if link is None else (0.0, 0.0) if links is None else links[link] for link in links_of_cuts(grid)
            ),
            memory_bytes=tuple(math.inf if memory_bytes is None else memory_bytes[r] / held[r] for r in ranks),
            in_flight=stage_in_flight(grid),
            several=max(held) > 1,
        )


def links_of_cuts(grid: PipelineGrid) -> tuple[int | None, ...]:
    """Return the link of each cut between two stages, numbered as in `Target.of`; None inside one rank."""
    last = grid.ranks - 1
    return tuple(
        None if a == b else last if {a, b} == {0, last} and last > 1 else min(a, b)
        for a, b in itertools.pairwise(grid.rank_of_stage)
    )


def stage_in_flight(grid: PipelineGrid) -> tuple[float, ...]:
    """Return the most micro-batches that each stage holds at once."""
    found = []
    for stage in range(grid.stages):
        only = [1.0 if s == stage else 0.0 for s in range(grid.stages)]
        found.append(max(peak_in_flight(grid, only)))
    return tuple(found)


@dataclass(frozen=True)
class Cut:
    """Stage s is units bounds[s] to bounds[s + 1]; `slowest_s` is what the slowest stage takes for a micro-batch."""

    bounds: tuple[int, ...]
    slowest_s: float

    @property
    def stages(self) -> tuple[range, ...]:
        """The units of each stage."""
        return tuple(range(a, b) for a, b in itertools.pairwise(self.bounds))


def best_cut(units: Sequence[ChainUnit], target: StageTarget, *, slack: float = 0.0) -> Cut:
    """Return the cut with the fastest slowest stage, and of those the one that sends the fewest bytes.

    With `slack`, cuts whose slowest stage is slower by up to that share count as equally fast. Of several such the last
    stages hold most, as fewer micro-batches wait there; but where ranks hold several stages it is the most even one,
    with the least sum of squares of what stages take, since the sum of a rank's stages sets the pace.
    Raises InputError where there are more stages than units or no cut fits into memory.
    """
    stages, count = len(target.speeds), len(units)
    if stages > count:
        raise InputError(
            f"{counted(stages, 'stage')} are more than the {count} units that the model can be cut between"
        )
    costs = [_stage_costs(units, target, stage) for stage in range(stages)]
    slowest = _dynamic(costs, np.maximum)[-1][count]
    if not np.isfinite(slowest):
        raise InputError(_why_nothing_fits(units, target))
    limit = slowest * (1 + slack)
    within = [np.where(cost <= limit, sent, np.inf) for cost, sent in zip(costs, _bytes(units, target), strict=True)]
    if target.several:
        within = _squares(costs, within, limit)
    bounds = _trace(_dynamic(within, np.add), within, np.add)
    return Cut(bounds, cost_of(units, target, bounds))


def _squares(costs: list[Floats], sent: list[Floats], limit: float) -> list[Floats]:
    """Return for each stage [i, j]: the square of its cost, inf where it is part of no cut that sends the fewest bytes.

    `sent` has the bytes of stages whose cost is within `limit`, inf of all others.
    """
    count, stages = len(costs[0]) - 1, len(costs)
    fewest = _dynamic(sent, np.add)
    onwards = _dynamic([each.T[::-1, ::-1] for each in reversed(sent)], np.add)[::-1]  # the stages from the last one on
    found = []
    for stage, (cost, each) in enumerate(zip(costs, sent, strict=True)):
        before = fewest[stage - 1] if stage else np.where(np.arange(count + 1) == 0, 0.0, np.inf)
        behind = onwards[stage + 1] if stage + 1 < stages else np.where(np.arange(count + 1) == 0, 0.0, np.inf)
        whole = before[:, None] + each + behind[None, ::-1]
        square = (cost / (limit or 1.0)) ** 2
        found.append(np.where(whole <= fewest[-1][count] * (1 + ROUNDING), square, np.inf))
    return found


def layers_before(layers: Number, stages: Number, stage: Number, output: Number, *, vpp: Number = 1.0) -> Number:
    """Return how many layers come before a stage of `best_cut` where all layers cost the same and links are free.

    The closed form for one model or for arrays of many: `output` is what the output costs, in layers; the embedding
    costs nothing. `vpp`: the stages of a rank. Of cuts that are equally fast within `SLACK` it is the one whose last
    stages hold most: each takes what it may, from the last one on, and leaves a unit to each stage before it. Where
    ranks have several stages it is the most even one.
    """
    whole = np.floor(output)
    part = output - whole
    fewest = np.ceil((layers + whole) / stages)  # layers of a stage where the last has the output and that many fit
    longer = np.ceil((layers + whole + (part > 0)) / stages) > fewest
    slowest = np.where((stages - 1.0) * whole >= layers, output, fewest + longer * part)
    limit = slowest * (1.0 + SLACK)
    behind = np.floor(limit - output) + np.floor(limit) * (stages - 1.0 - stage)
    full = np.minimum(np.maximum(layers - behind, np.maximum(stage - 1.0, 0.0)), layers)
    found = full
    if np.any(np.asarray(vpp) > 1):
        found = np.where(np.asarray(vpp) > 1, _evenly_before(layers, stages, stage, output, limit), full)
    return np.where(stage <= 0, 0.0, np.where(stage >= stages, layers, found))


def _evenly_before(layers: Number, stages: Number, stage: Number, output: Number, limit: Number) -> Number:
    """Return how many layers come before a stage of the most even cut whose stages cost up to `limit` layers.

    All stages but the last are as even as can be, the longer ones behind; the last has what makes the squares least.
    """
    others = np.maximum(stages - 1.0, 1.0)
    least = np.maximum(layers - np.floor(limit) * others, 0.0)  # layers of the last stage: at least, and at most
    most = np.clip(np.minimum(np.floor(limit - output), layers - np.maximum(stages - 2.0, 0.0)), least, layers)
    level = np.floor((layers + output) / stages - output)
    best: Number = np.inf
    last: Number = least
    for more in (2.0, 1.0, 0.0, -1.0):
        tried = np.clip(level + more, least, most)
        each, rest = np.divmod(layers - tried, others)
        squares = (tried + output) ** 2 + others * each**2 + rest * (2.0 * each + 1.0)
        better = squares < best * (1.0 - ROUNDING)
        best, last = np.where(better, squares, best), np.where(better, tried, last)
    each, rest = np.divmod(layers - last, others)
    found: Number = each * stage + np.maximum(stage - (others - rest), 0.0)
    return found


def equal_cut(count: int, stages: int) -> Cut:
    """Return the cut into stages of equally many units, the first ones larger by one: what is done without costs."""
    return Cut(tuple(int(b) for b in np.cumsum([0, *even_stages(count, stages)])), math.nan)


def even_stages(layers: int, stages: int, ends: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    """Return the layers of each stage, as even as can be, the first ones longer by one.

    `ends` is how many layers the embedding and the output weigh where they are counted along (Megatron-LM's accounting
    for both, torchtitan's `generate_llm_fqn_per_model_part`): a stage may then hold one of them and no layer.
    """
    size, larger = divmod(layers + sum(ends), stages)
    counts = [size + (stage < larger) for stage in range(stages)]
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    return tuple(max(0, count) for count in counts)


def cost_of(units: Sequence[ChainUnit], target: StageTarget, bounds: Sequence[int]) -> float:
    """Return what the slowest stage of a cut takes, inf where a stage does not fit into memory."""
    pairs = itertools.pairwise(bounds)
    return max(float(_stage_costs(units, target, s)[a, b]) for s, (a, b) in enumerate(pairs))


def stage_times(units: Sequence[ChainUnit], target: StageTarget, bounds: Sequence[int]) -> StageTimes:
    """Return the times of the stages of a cut: what `timed` makes a step of."""
    stages = [units[a:b] for a, b in itertools.pairwise(bounds)]

    def total(name: str) -> tuple[float, ...]:
        return tuple(
            sum(getattr(u, name) for u in stage) / speed for stage, speed in zip(stages, target.speeds, strict=True)
        )

    transfer_s = (
        link[0] + link[1] * stage[-1].output_bytes if link else 0.0
        for stage, link in zip(stages, target.links, strict=False)
    )
    return StageTimes(total("forward_s"), total("backward_s"), total("weight_s"), tuple(transfer_s))


def _stage_costs(units: Sequence[ChainUnit], target: StageTarget, stage: int) -> Floats:
    """Return [i, j]: seconds of `stage` if it is units i to j; inf where it is empty or does not fit."""

    def prefix(values: list[float]) -> Floats:
        return np.concatenate([[0.0], np.cumsum(values)])

    compute_s = prefix([u.forward_s + u.backward_s for u in units])
    held = prefix([u.state_bytes + target.in_flight[stage] * u.held_bytes for u in units])
    cost = (compute_s[None, :] - compute_s[:, None]) / target.speeds[stage]
    cost = np.maximum(cost, _transfers(units, target)[stage])
    index = np.arange(len(units) + 1)
    cost[index[:, None] >= index[None, :]] = np.inf
    cost[held[None, :] - held[:, None] > target.memory_bytes[stage]] = np.inf
    return cost


def _bytes(units: Sequence[ChainUnit], target: StageTarget) -> list[Floats]:
    """Return for each stage [i, any]: bytes that come from another rank for a micro-batch if it begins at unit i."""
    crossing = np.array([0.0] + [u.output_bytes for u in units])[:, None]
    return [np.zeros_like(crossing), *(crossing if link else np.zeros_like(crossing) for link in target.links)]


def _transfers(units: Sequence[ChainUnit], target: StageTarget) -> list[Floats]:
    """Return for each stage [i, any]: seconds that its incoming link needs for a micro-batch if it begins at unit i."""
    links = [None, *target.links]
    found = zip(links, _bytes(units, target), strict=True)
    return [link[0] + link[1] * sent if link else sent for link, sent in found]


def _dynamic(costs: list[Floats], join: np.ufunc) -> list[Floats]:
    """Return for each stage [j]: the least cost of stages 0 to s over the first j units, joined by max or sum."""
    before = np.full(len(costs[0]), np.inf)
    before[0] = 0.0
    best = []
    for cost in costs:
        before = np.min(join(before[:, None], cost), axis=0)
        best.append(before)
    return best


def _trace(best: list[Floats], costs: list[Floats], join: np.ufunc) -> tuple[int, ...]:
    """Return the bounds that lead to the last entry of the last stage."""
    bounds = [len(best[-1]) - 1]
    for stage in range(len(costs) - 1, 0, -1):
        found = join(best[stage - 1], costs[stage][:, bounds[-1]])
        bounds.append(int(np.argmax(found <= found.min() * (1 + ROUNDING))))  # of equal ones the longest last stage
    return (0, *reversed(bounds))


def _why_nothing_fits(units: Sequence[ChainUnit], target: StageTarget) -> str:
    least = sum(u.state_bytes for u in units)
    have = sum(target.memory_bytes)
    return (
        f"no cut into {counted(len(target.speeds), 'stage')} fits into memory: the model's weights "
        "and optimiser state take "
        f"{format_bytes(int(least))} and its stages may take {format_bytes(int(have))}, activations included"
    )
