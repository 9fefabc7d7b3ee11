"""The search over every way of splitting a model: enumerate, price, set aside with the reason, rank, explain.

Every legal layout is priced in the default axis order. The order changes neither memory nor computation, so that only
layouts that fit, and whose computation alone is no longer than what is already found, are priced in every order.
Nothing is sampled: the rows are the fastest of all legal layouts under the cost model.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...errors import InputError
from ...layout import OFFLOADS, Layout
from ...mesh import NEAREST
from ...units import counted, format_bytes
from ...workload.conventions import OWN
from ..analytic import Grid, Setting, StepPrices, book, performance, price_layouts
from ..analytic.fits import DOUBTFUL, OVER, SURE, capacity_source, memory_basis, word
from ..analytic.host import ON_NVME, host_link_text
from ..analytic.memory import MemoryTerms
from ..analytic.price import (
    coefficients_of,
    machine_of,
    memory_of_layouts,
    node_group_of,
    states_too_large,
    step_times_s,
    verdicts_in,
)
from ..analytic.quantities import Array, take_rows
from ..layouts.filters import can_run, in_its_orders, limits_unknown, narrowed_search
from ..layouts.space import DEFAULT_ORDER, Space, legal_layouts, replaced_order
from ..layouts.stated import written_out
from .reasons import batch_warnings, micro_batch_trade, why_chosen
from .study import PricedLayout, Rejection, Study

T = TypeVar("T")
OFFERED = (
    "no layout is predicted to fit in the GPUs' memory alone: those shown keep optimiser states or weights in their "
    "hosts'"
)
FEWER_BYTES = "or fewer bytes a parameter: --optimizer, --weights, --lora-rank"
MAX_ROWS = 12
MAX_PARETO = 16
SLOWEST = 10.0  # times the fastest step: beyond that a saving of memory interests nobody
CHUNK = 65_536  # layouts priced at once: many share their parts, and their arrays stay in the cache


@dataclass(frozen=True, slots=True)
class Priced:
    """Layouts that fit, in every axis order, with their prices; and what did not fit."""

    setting: Setting
    space: Space
    grid: Grid
    prices: StepPrices
    oversized: int  # layouts that need more memory than a GPU has
    doubtful: int  # layouts that may not fit, and are left out since others do
    tight: tuple[Grid, StepPrices] | None  # the fastest of those, in the default order unless a condition names others
    offered: bool = False  # layouts that use the hosts' memory, since none fits in the GPUs' alone

    @property
    def memory_bytes(self) -> float:
        """Memory of one GPU."""
        return float(machine_of(self.setting).memory_bytes)


def price_all(setting: Setting, *, offers: bool = True) -> Priced:
    """Return every legal layout that fits with its price; InputError, with the reasons, if none is legal.

    Where none is predicted to fit, layouts that offload to the hosts' memory are priced if `offers`, unless a condition
    names offload; beside them stays the fastest layout without offload that may fit all the same.
    """
    found = _price_all(setting, space_of(setting))
    named = any(condition.name == "offload" for condition in setting.conditions)
    if not offers or named or _is_predicted_to_fit(found):
        return found
    space = space_of(setting, range(1, len(OFFLOADS)))
    other = _price_all(setting, space) if len(space.grid) else found
    if not len(other.grid) or (len(found.grid) and not _is_predicted_to_fit(other)):
        return found
    return dataclasses.replace(other, offered=True, tight=_fastest(found.grid, found.prices) or other.tight)


def _is_predicted_to_fit(priced: Priced) -> bool:
    """Whether any of the layouts fits if it needs no more than predicted."""
    verdicts = verdicts_in(priced.setting, priced.grid, priced.prices, as_predicted=True)
    return bool(np.any(verdicts == SURE))


def _price_all(setting: Setting, space: Space) -> Priced:
    """Return every layout of a space that fits with its price; InputError, with the reasons, if there is none."""
    if not len(space.grid) and space.left:
        told = "; ".join(f"{counted(count, 'layout')} {reason}" for reason, count in space.left.items())
        name = setting.architecture.name or "the model"
        raise InputError(f"no legal layout of {name} is left: {told}; --layout tells of one why")
    if not len(space.grid):
        broken = "; ".join(f"{count} because {rule}" for rule, count in sorted(space.refused.items()))
        raise InputError(
            f"no layout of {setting.architecture.name or 'the model'} on "
            f"{counted(setting.gpus, 'GPU')} is legal with a global "
            f"batch of {setting.global_batch}: of {counted(space.factorisations, 'way')} to factor the ranks, {broken}"
        )
    found = sorted_by_fit(setting, space.grid)
    grid, prices = found.priced(setting, SURE)
    parts = [(grid, prices)]
    if _names_order(setting):
        parts = [_ordered(setting, grid, prices)]
    elif len(grid):
        reordered = in_its_orders(setting, grid.take(_may_gain(setting, grid, prices)))
        reordered = reordered.take(np.flatnonzero(reordered.order != DEFAULT_ORDER))
        parts += [(reordered, price_in_chunks(setting, reordered))] if len(reordered) else []
    return Priced(
        setting=setting,
        space=space,
        grid=_joined(Grid, [part[0] for part in parts]),
        prices=_joined(StepPrices, [part[1] for part in parts]),
        oversized=len(space.grid) - len(found.grid),
        doubtful=int((found.verdicts == DOUBTFUL).sum()),
        tight=_fastest(*_ordered(setting, *found.priced(setting, DOUBTFUL))),
    )


@dataclass(frozen=True, slots=True)
class SortedByFit:
    """Layouts that fit or may fit, with their verdicts and memory.

    Where none fits, those are said to fit that do if they need no more than predicted; where none does, all of them.
    """

    grid: Grid
    verdicts: npt.NDArray[np.int64]
    memory: MemoryTerms

    def priced(self, setting: Setting, verdict: int) -> tuple[Grid, StepPrices]:
        """Return the layouts of one verdict with their prices."""
        rows = np.flatnonzero(self.verdicts == verdict)
        grid = self.grid.take(rows)
        return grid, price_in_chunks(setting, grid, take_rows(self.memory, rows))


def sorted_by_fit(setting: Setting, grid: Grid) -> SortedByFit:
    """Return the layouts of a grid that fit or may fit, in its order, told by their memory alone."""
    parts = []
    for piece in _pieces(grid):
        some = grid.take(piece)
        some = some.take(np.flatnonzero(~states_too_large(setting, some)))
        memory = memory_of_layouts(setting, some)
        verdicts = verdicts_in(setting, some, memory)
        rows = np.flatnonzero(verdicts != OVER)
        parts.append((some.take(rows), verdicts[rows], take_rows(memory, rows)))
    grids, verdicts, memories = zip(*parts, strict=True)
    words = np.concatenate(verdicts)
    left, memories_left = _joined(Grid, grids), _joined(MemoryTerms, memories)
    if not np.any(words == SURE):
        likely = verdicts_in(setting, left, memories_left, as_predicted=True) == SURE
        words = np.where(likely | (not np.any(likely)), SURE, words)
    return SortedByFit(left, words, memories_left)


def _names_order(setting: Setting) -> bool:
    """Return whether a condition is about the order of axes, which the default one need not meet."""
    return any(condition.name == "order" for condition in setting.conditions)


def _ordered(setting: Setting, grid: Grid, prices: StepPrices) -> tuple[Grid, StepPrices]:
    """Return layouts with their prices in the orders that a condition names; as they are where none does."""
    if not _names_order(setting) or not len(grid):
        return grid, prices
    ordered = in_its_orders(setting, grid)
    return ordered, price_in_chunks(setting, ordered)


def _fastest(grid: Grid, prices: StepPrices) -> tuple[Grid, StepPrices] | None:
    """Return the fastest of some layouts; None of none."""
    if not len(grid):
        return None
    one = np.array([int(np.argmin(prices.step_time_s))])
    return grid.take(one), take_rows(prices, one)


def space_of(setting: Setting, offloads: Sequence[int] = ()) -> Space:
    """Return the legal layouts that the setting's stack can run and its conditions allow.

    `offloads` are places in `layout.OFFLOADS`; left out, all of them where a condition is about offload, else none.
    """
    asked = any(condition.name == "offload" for condition in setting.conditions)
    space = legal_layouts(
        setting.architecture,
        ranks=setting.gpus,
        global_batch=setting.global_batch,
        seq_len=setting.seq_len,
        node=int(machine_of(setting).domain),
        folded=setting.stack != OWN,
        offloads=offloads or (range(len(OFFLOADS)) if asked else (0,)),
        keep=lambda grid: can_run(setting, grid),
    )
    grid, left = narrowed_search(setting, space.grid, space.dropped)
    return dataclasses.replace(space, grid=grid, left=left)


def explore(setting: Setting, *, model: str = "", offers: bool = True) -> Study:
    """Return what the search found; InputError if no layout is legal or none fits in memory."""
    return study_of(setting, price_all(setting, offers=offers), model=model)


def fastest_that_fits(priced: Priced) -> PricedLayout:
    """Return the fastest of priced layouts, which all fit or may fit; InputError if there is none."""
    if not len(priced.grid):
        raise InputError(_does_not_fit(priced))
    return row_of(priced.setting, priced.grid, priced.prices, int(np.argmin(priced.prices.step_time_s)))


def study_of(setting: Setting, priced: Priced, *, model: str = "") -> Study:
    """Return what priced layouts amount to; InputError if none fits in memory."""
    if not len(priced.grid):
        raise InputError(_does_not_fit(priced))
    order = np.argsort(priced.prices.step_time_s, kind="stable")
    best = best_of_each_split(priced.grid, order)
    rows = tuple(row_of(setting, priced.grid, priced.prices, index) for index in best[:MAX_ROWS])
    if priced.tight is not None and priced.tight[1].step_time_s[0] < rows[0].predicted.step_time_s:
        rows = (*rows, row_of(setting, *priced.tight, 0, note="faster, but may not fit"))
    trade, unknown = micro_batch_trade(setting, rows[0]), limits_unknown(setting.stack)
    return Study(
        model=model or setting.architecture.name,
        cluster=setting.cluster.name,
        gpus=setting.gpus,
        global_batch=setting.global_batch,
        seq_len=setting.seq_len,
        precision=setting.precision,
        stack=setting.stack,
        memory_bytes=int(priced.memory_bytes),
        rows=rows,
        plain=plain_data_parallel(setting),
        pareto=tuple(row_of(setting, priced.grid, priced.prices, index) for index in _pareto(priced.prices)),
        rejections=rejections(priced),
        legal=len(priced.space.grid),
        priced=priced.oversized + priced.doubtful + len(priced.grid),
        micro_batches=trade,
        reason=why_chosen(setting, priced.grid, priced.prices, int(best[0])),
        warnings=(
            *batch_warnings(setting, rows[0]),
            *((OFFERED,) if priced.offered else ()),
            *((unknown,) if unknown else ()),
        ),
    )


def advised_study(setting: Setting, priced: Priced, *, model: str = "") -> Study:
    """Return what priced layouts amount to; the InputError where none fits names the flags that say fewer bytes."""
    try:
        return study_of(setting, priced, model=model)
    except InputError as error:
        raise InputError(f"{error}; {FEWER_BYTES}") from None


def rejections(priced: Priced) -> tuple[Rejection, ...]:
    """Return each class of what was set aside, with its count."""
    factored = [
        Rejection(reason=rule, count=count, of="factorisations") for rule, count in priced.space.refused.items()
    ]
    factored += [Rejection(reason=told, count=count, of="layouts") for told, count in priced.space.left.items()]
    source = capacity_source(node_group_of(priced.setting.cluster).gpu.model, priced.memory_bytes)
    have = f"the {format_bytes(priced.memory_bytes)} of a GPU ({source})"
    host = ", or than its host has" if np.any(priced.space.grid.offload) else ""
    whole = [Rejection(reason=f"need more than {have}{host}", count=priced.oversized, of="layouts")]
    whole.append(Rejection(reason=f"may not fit in {have}", count=priced.doubtful, of="layouts"))
    return (*(one for one in whole if one.count), *factored)


def row_of(setting: Setting, grid: Grid, prices: StepPrices, index: int, *, note: str = "") -> PricedLayout:
    """Return one layout of a grid as a row."""
    machine, row, layout = machine_of(setting), np.array([index]), grid.layout(index)
    loss = setting.loss or not setting.architecture.embeds  # a model that puts out vectors has no logits
    unsaid = [flag for flag, said in (("--weights", setting.weights), ("--loss", loss)) if not said]
    band, lacks = memory_basis(book(), setting.stack, layout.pp, unsaid)
    capacity = float(machine.memory_bytes)
    return PricedLayout(
        layout=layout,
        text=written_out(layout, setting),
        predicted=performance(setting, prices, index, layout),
        terms=dict(prices.terms(index)),
        fits=word(verdicts_in(setting, grid.take(row), take_rows(prices, row))[0]),
        capacity_bytes=capacity,
        capacity_source=capacity_source(node_group_of(setting.cluster).gpu.model, capacity),
        host_capacity_bytes=float(machine.host_memory_bytes),
        nvme=ON_NVME in setting.traits,
        host_link=host_link_text(node_group_of(setting.cluster).gpu.model, float(machine.host_rate)),
        memory_band=band,
        memory_band_lacks=lacks,
        memory_otherwise=_with_all_logits(setting, layout, prices, index, band),
        note=note,
    )


def _with_all_logits(setting: Setting, layout: Layout, prices: StepPrices, index: int, band: float) -> str:
    """Return what a layout needs with all logits at once, of a stack that has parts of them today, if nothing says it.

    "" where that is within the band.
    """
    c = coefficients_of(setting)
    if setting.loss or not setting.architecture.embeds or not (c.loss_chunks > 1 or c.loss_rows):
        return ""
    whole = float(np.max(memory_of_layouts(replace(setting, loss="whole"), Grid.of([layout])).card_bytes))
    if whole <= float(prices.card_bytes[index]) * (1.0 + band):
        return ""
    return f"with all logits at once (--loss whole) {format_bytes(whole)} on the card"


def plain_data_parallel(setting: Setting) -> PricedLayout:
    """Return data parallelism alone: the fastest that fits, else the one that needs least memory.

    Where the global batch does not divide over the GPUs, the row is priced with a batch that does, and says so.
    """
    note = ""
    if setting.global_batch % setting.gpus:
        larger = -(-setting.global_batch // setting.gpus) * setting.gpus
        note = (
            f"not legal: {counted(setting.global_batch, 'sequence')} {'does' if setting.global_batch == 1 else 'do'} "
            f"not divide over {counted(setting.gpus, 'GPU')}; priced with {larger}"
        )
        setting = replace(setting, global_batch=larger)
    grid = _plain_grid(setting)
    prices = price_layouts(setting, grid)
    fits = verdicts_in(setting, grid, prices) == SURE
    key = np.where(fits, prices.step_time_s, np.inf) if fits.any() else prices.reserved_bytes
    return row_of(setting, grid, prices, int(np.argmin(key)), note=note)


def best_of_each_split(grid: Grid, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, in the given order, the first layout of each combination of degrees."""
    split = np.zeros(len(order), dtype=np.int64)
    for name in ("tp", "pp", "cp", "ep"):  # dp is what is left of the ranks
        values, places = np.unique(getattr(grid, name)[order], return_inverse=True)
        split = split * len(values) + places
    _, first = np.unique(split, return_index=True)
    return order[np.sort(first)]


def compute_bound_s(prices: StepPrices) -> Array:
    """Return the part of each step that neither a network nor an axis order can change: a lower bound of its time."""
    return prices.forward_s + prices.backward_s + prices.optimizer_s + prices.other_s


def price_in_chunks(setting: Setting, grid: Grid, memory: MemoryTerms | None = None) -> StepPrices:
    """Return the prices of a grid, in pieces that fit in the processor's cache; `memory` as in `price_layouts`."""
    pieces = [
        price_layouts(setting, grid.take(rows), memory=None if memory is None else take_rows(memory, rows))
        for rows in _pieces(grid)
    ]
    if not pieces:
        return StepPrices(**{field.name: np.zeros(0) for field in fields(StepPrices)})
    return _joined(StepPrices, pieces)


def times_in_chunks(setting: Setting, grid: Grid) -> Array:
    """Return the step times of a grid, in seconds, where nothing else of its prices is asked."""
    return np.concatenate([step_times_s(setting, grid.take(rows)) for rows in _pieces(grid)])


def _pieces(grid: Grid) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, len(grid), CHUNK)]


def _joined(kind: type[T], parts: Sequence[T]) -> T:
    """Return grids, prices or memory, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _may_gain(setting: Setting, grid: Grid, prices: StepPrices) -> npt.NDArray[np.int64]:
    """Return the layouts that another axis order could bring among the rows.

    An order changes communication and, through it, the bubble. A lower bound of a layout's time in any order is what is
    left without communication; where the links of a GPU are no slower than its share of the network, it is the time
    with every axis innermost. The time of the last row is an upper bound, whichever orders it has been looked for in:
    here those of the best layout of each split.
    """
    if not len(grid):
        return np.array([], dtype=np.int64)
    best = best_of_each_split(grid, np.argsort(prices.step_time_s, kind="stable"))
    ordered = in_its_orders(setting, grid.take(best))
    times = times_in_chunks(setting, ordered)
    last = times[best_of_each_split(ordered, np.argsort(times, kind="stable"))[:MAX_ROWS][-1]]
    found = np.flatnonzero(compute_bound_s(prices) <= last)
    machine = machine_of(setting)
    if machine.link_rate < machine.node_rate / machine.gpus_per_node or not len(found):
        return found
    nearest = replaced_order(grid.take(found), NEAREST)
    gaining: npt.NDArray[np.int64] = found[times_in_chunks(setting, nearest) <= last]
    return gaining


def _plain_grid(setting: Setting) -> Grid:
    """Return plain data parallelism in every micro-batch and recomputation."""
    every = legal_layouts(_Uncut(), ranks=1, global_batch=setting.global_batch // setting.gpus, seq_len=setting.seq_len)
    grid = every.grid
    return Grid(**{field.name: getattr(grid, field.name) for field in fields(Grid)} | {"dp": grid.dp * setting.gpus})


@dataclass(frozen=True, slots=True)
class _Uncut:
    """A model that is not cut: what one rank alone may do with it."""

    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    num_key_value_heads: int = 1
    intermediate_size: int = 1


def _pareto(prices: StepPrices) -> list[int]:
    """Return the layouts that no other beats in time and memory, the smallest first, thinned out evenly.

    What is over ten times as slow as the fastest is left out.
    """
    order = np.lexsort((prices.step_time_s, prices.reserved_bytes))
    times = prices.step_time_s[order]
    best = np.minimum.accumulate(times)
    front = order[np.concatenate([[True], times[1:] < best[:-1]])]
    front = front[prices.step_time_s[front] <= SLOWEST * best[-1]]
    if len(front) > MAX_PARETO:
        front = front[np.linspace(0, len(front) - 1, MAX_PARETO).round().astype(int)]
    return [int(index) for index in front]


def _does_not_fit(priced: Priced) -> str:
    """Return what the smallest layout needs, and whether a smaller batch could help."""
    setting, grid = priced.setting, priced.space.grid
    needs = _joined(MemoryTerms, [memory_of_layouts(setting, grid.take(rows)) for rows in _pieces(grid)])
    reserved = np.asarray(needs.reserved_bytes)
    least = int(np.argmin(reserved))
    states = float(np.min(needs.parameters_bytes + needs.gradients_bytes + needs.optimizer_bytes))
    means = "use more GPUs or a smaller batch"
    if states > priced.memory_bytes:
        kept = f"weights, gradients and optimiser states are {format_bytes(states)} of it at least, whatever the batch"
        every = states * setting.gpus
        held = f"{format_bytes(every)} of states in all fill {math.ceil(every / priced.memory_bytes):,} GPUs"
        means = f"{held}; {kept}: use more GPUs"
    return (
        f"none of {counted(len(grid), 'legal layout')} of {setting.architecture.parameters / 1e9:.4g} B parameters "
        f"fits in the {format_bytes(priced.memory_bytes)} of a GPU: "
        f"the smallest, {grid.layout(least)}, needs {format_bytes(float(reserved[least]))}; {means}"
    )
