"""Every legal layout of a model on some ranks, as arrays; and how many ways of splitting the ranks break which rule.

The rules are those of `legality.illegal`, applied to whole arrays. Layouts that are the same run under two names are
enumerated once: a pipeline of one stage has no schedule, one rank has nothing to shard, and axes of degree 1 have no
place in the order.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ...layout import AXES, OFFLOADS, ORDERS, Layout
from ...workload.conventions import EMULATES
from ..analytic.quantities import RECOMPUTES, SCHEDULES, Grid
from .legality import SHARED, Splittable, divisors, expert_count, most_stages, most_tensor_parallel, stages_fit

Ints = npt.NDArray[np.int64]
Keeping = Callable[[Grid], npt.NDArray[np.bool_]]  # which layouts a stack can run, whatever their micro-batch
DEFAULT_ORDER = ORDERS.index(Layout().order)
ONE_STAGE = [(SCHEDULES.index("1f1b"), 1)]
MOST_VIRTUAL_STAGES = 16  # beyond that a stage's transfers outweigh what the bubble gives back

# rules that a factorisation of the ranks may break, in the order in which they are asked
TP = "tp does not divide the heads, the key-value heads or the width of the network"
PP = "more pipeline stages than layers"
CP = "2 cp does not divide the sequence"
DP = "dp does not divide the global batch"


@dataclass(frozen=True, slots=True)
class Space:
    """The legal layouts, and why other ways to factor the ranks are none."""

    grid: Grid
    factorisations: int  # ways to write the ranks as tp x cp x dp x pp
    refused: dict[str, int]  # of them, by the first rule that they break
    dropped: int = 0  # legal layouts that were not kept
    left: dict[str, int] = field(default_factory=dict)  # legal layouts that a search was not asked to look at


@dataclass(frozen=True, slots=True)
class RankSplit:
    """One way to write the ranks as tp x cp x dp x pp."""

    tp: int
    pp: int
    dp: int
    cp: int


def legal_layouts(
    model: Splittable, *, ranks: int, global_batch: int, seq_len: int, node: int | None = None, folded: bool = False,
    offloads: Sequence[int] = (0,), keep: Keeping | None = None,
) -> Space:  # fmt: skip
    """Return every legal layout of the model on exactly `ranks` ranks, in the default axis order.

    With `node`, the ranks that one node holds, ZeRO-3 also shards inside a node and replicates across nodes; with
    `folded`, experts are also folded over tensor parallelism (etp=1). `offloads` are places in `layout.OFFLOADS`.
    Layouts that `keep` does not keep are counted and not built: of a large batch they would fill the memory.
    """
    refused: Counter[str] = Counter()
    blocks: list[Ints] = []
    dropped = 0
    every = list(factorisations(ranks))
    for degrees in every:
        rule = _broken(model, degrees, global_batch, seq_len)
        if rule:
            refused[rule] += 1
        else:
            block, less = _block(model, degrees, global_batch, seq_len, node, folded, offloads, keep)
            blocks.append(block)
            dropped += less
    return Space(grid=_grid(blocks), factorisations=len(every), refused=dict(refused), dropped=dropped)


def runnable(grid: Grid, precision: str = "") -> npt.NDArray[np.bool_]:
    """Return which layouts our own engine can run in a precision: `legality.unrunnable` for arrays."""
    halves = (grid.schedule == SCHEDULES.index("zb")) & (grid.pp > 1)
    again = grid.recompute != RECOMPUTES.index("none")
    selective = grid.recompute == RECOMPUTES.index("selective")
    sharded = grid.zero >= 2
    found: npt.NDArray[np.bool_] = np.logical_not(halves & ((sharded & again) | selective | (sharded & (grid.vpp > 1))))
    if precision in EMULATES:
        cut = (grid.tp > 1) | (grid.ep > 1)
        found &= np.logical_not(cut | selective | halves | (grid.offload != OFFLOADS.index("none")))
    return found


def factorisations(ranks: int) -> Iterator[RankSplit]:
    """Yield every way to write `ranks` as tp x cp x dp x pp."""
    for tp in divisors(ranks):
        for pp in divisors(ranks // tp):
            for cp in divisors(ranks // tp // pp):
                yield RankSplit(tp=tp, pp=pp, cp=cp, dp=ranks // tp // pp // cp)


def in_every_order(grid: Grid) -> Grid:
    """Return each layout of a grid once for every order of its axes that differs from another in effect."""
    if not len(grid):
        return grid
    sizes = np.stack([getattr(grid, axis) for axis in AXES]) > 1
    pattern = (sizes * (1 << np.arange(len(AXES)))[:, None]).sum(axis=0)
    parts = []
    for active in np.flatnonzero(np.bincount(pattern)):
        rows = np.flatnonzero(pattern == active)
        orders = _distinct_orders(tuple(axis for place, axis in enumerate(AXES) if active >> place & 1))
        part = grid.take(np.repeat(rows, len(orders)))
        parts.append(_with_orders(part, np.tile(np.array(orders), len(rows))))
    return Grid(**{one.name: np.concatenate([getattr(p, one.name) for p in parts]) for one in fields(Grid)})


def _distinct_orders(active: tuple[str, ...]) -> list[int]:
    """Return one order for each permutation of the active axes; the default one where it is among them."""
    chosen: dict[tuple[str, ...], int] = {}
    for index in (DEFAULT_ORDER, *range(len(ORDERS))):
        chosen.setdefault(tuple(axis for axis in ORDERS[index].split("-") if axis in active), index)
    return sorted(chosen.values())


def replaced_order(grid: Grid, order: int) -> Grid:
    """Return the layouts in one order of the axes."""
    return _with_orders(grid, np.full(len(grid), order))


def _with_orders(grid: Grid, orders: Ints) -> Grid:
    return Grid(**{one.name: getattr(grid, one.name) for one in fields(Grid)} | {"order": orders})


def _broken(model: Splittable, degrees: RankSplit, global_batch: int, seq_len: int) -> str:
    """Return the first rule that a factorisation breaks, or ""."""
    if most_tensor_parallel(model) % degrees.tp:
        return TP
    if degrees.pp > most_stages(model):
        return PP if degrees.pp > model.num_hidden_layers else SHARED
    if degrees.cp > 1 and seq_len % (2 * degrees.cp):
        return CP
    return DP if global_batch % degrees.dp else ""


def _block(
    model: Splittable, degrees: RankSplit, global_batch: int, seq_len: int, node: int | None, folded: bool,
    offloads: Sequence[int], keep: Keeping | None,
) -> tuple[Ints, int]:  # fmt: skip
    """Return the layouts of one factorisation, a column each, with the rows in the order of Grid's fields.

    Beside them the number of layouts that were not kept.
    """
    share = global_batch // degrees.dp
    batches = np.array(divisors(share))
    schedules = np.array(_schedules(model.num_hidden_layers, degrees.pp))
    experts = _experts(model, degrees, folded)
    sequence = (0, 1) if degrees.tp > 1 and (seq_len // degrees.cp) % degrees.tp == 0 else (0,)
    shards = _sharding(degrees, node, offloads)
    combined = itertools.product(experts, range(len(shards)), sequence, range(len(RECOMPUTES)))
    switches = np.array([(ep, etp, *shards[shard], sp, mode) for (ep, etp), shard, sp, mode in combined])
    pairs = np.array([(b, s) for b in range(len(batches)) for s in range(len(schedules))])
    schedule, vpp = schedules[pairs[:, 1]].T
    pairs = pairs[_schedule_fits(schedule, vpp, degrees.pp, share // batches[pairs[:, 0]])]
    kept = np.ones((len(schedules), len(switches)), dtype=bool)
    if keep is not None:
        every, all_switches = np.repeat(schedules, len(switches), axis=0), np.tile(switches, (len(schedules), 1))
        kept = keep(_grid([_columns(degrees, every, np.ones(len(every)), all_switches)])).reshape(kept.shape)
    outer, inner = np.nonzero(kept[pairs[:, 1]])
    chosen = pairs[outer]
    columns = _columns(degrees, schedules[chosen[:, 1]], batches[chosen[:, 0]], switches[inner])
    return columns, len(pairs) * len(switches) - len(outer)


def _columns(degrees: RankSplit, schedules: Ints, batches: npt.NDArray[Any], switches: Ints) -> Ints:
    """Return layouts with these schedules and virtual stages, micro-batches and switches, all of one length."""
    same = {name: getattr(degrees, name) for name in ("tp", "pp", "dp", "cp")} | {"order": DEFAULT_ORDER}
    names = ("ep", "etp", "zero", "replicas", "offload", "sp", "recompute")
    named = {name: switches[:, place] for place, name in enumerate(names)}
    named |= {"schedule": schedules[:, 0], "vpp": schedules[:, 1], "mbs": batches}
    found = np.empty((len(fields(Grid)), len(switches)), dtype=np.int64)
    for row, one in enumerate(fields(Grid)):
        found[row] = same[one.name] if one.name in same else named[one.name]
    return found


def _experts(model: Splittable, degrees: RankSplit, folded: bool) -> list[tuple[int, int]]:
    """Return the pairs of ep and etp (0: as tp): experts cut as the rest of a layer, or whole and folded over tp."""
    data, known = degrees.dp * degrees.cp, divisors(max(1, expert_count(model)))
    found = [(ep, 0) for ep in known if data % ep == 0]
    if folded and degrees.tp > 1:
        found += [(ep, 1) for ep in known if ep > 1 and data * degrees.tp % ep == 0]
    return found


def _sharding(degrees: RankSplit, node: int | None, offloads: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return ZeRO level, copies of the sharded model (one, or one in each node), and what lives on the host."""
    weights, found = OFFLOADS.index("parameters"), []
    for each in offloads:
        levels = _levels(degrees, node)
        if degrees.dp * degrees.cp == 1 and each:
            levels = [*levels, (2, 1), (3, 1)]  # one rank has nothing to shard, but engines offload by stages of ZeRO
        found += [(zero, copies, each) for zero, copies in levels if each != weights or zero >= 2]
    return found


def _levels(degrees: RankSplit, node: int | None) -> list[tuple[int, int]]:
    sharded = degrees.dp * degrees.cp
    if sharded == 1:
        return [(0, 1)]
    found = [(zero, 1) for zero in range(4)]
    inside, rest = divmod(node or 0, degrees.tp)
    if not rest and 1 < inside < sharded and sharded % inside == 0:
        found.append((3, sharded // inside))
    return found


def _schedules(layers: int, pp: int) -> list[tuple[int, int]]:
    """Return the pairs of schedule and virtual stages that the number of layers allows."""
    if pp == 1:
        return ONE_STAGE
    found = [(SCHEDULES.index(name), 1) for name in ("gpipe", "1f1b", "zb")]
    if stages_fit(layers, pp, 2):
        found.append((SCHEDULES.index("zb"), 2))
    virtual = [v for v in range(2, MOST_VIRTUAL_STAGES + 1) if stages_fit(layers, pp, v)]
    return found + [(SCHEDULES.index("interleaved"), v) for v in virtual]


def _schedule_fits(schedule: Ints, vpp: Ints, pp: int, micro_batches: Ints) -> npt.NDArray[np.bool_]:
    """Return where the schedule runs with that number of micro-batches: `pipelines.broken_rule` for arrays."""
    if pp == 1:
        return np.ones(len(schedule), dtype=bool)
    rounds = (schedule != SCHEDULES.index("interleaved")) | (micro_batches % pp == 0)
    least = np.where(vpp == 2, 2 * pp - 1, pp)
    enough = (schedule != SCHEDULES.index("zb")) | (micro_batches >= least)
    both: npt.NDArray[np.bool_] = rounds & enough
    return both


def _grid(blocks: Sequence[Ints]) -> Grid:
    """Return the layouts of some blocks, one behind the other."""
    whole, found = ("schedule", "recompute", "order", "offload"), {}
    for place, one in enumerate(fields(Grid)):
        parts = [block[place] for block in blocks] or [np.empty(0, dtype=np.int64)]
        found[one.name] = np.concatenate(parts, dtype=np.int64 if one.name in whole else float)
    return Grid(**found)
