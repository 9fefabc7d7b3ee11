"""Parts of a price that many layouts share, computed once for each distinct combination of what they depend on.

A layer's time knows nothing of ZeRO or of the schedule, the states of a rank nothing of the micro-batch: of the
338,415 layouts of a 405 B model on 16,384 GPUs a few thousand differ for each. What comes out is the same, bit by bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .coefficients import Coefficients
from .quantities import Array, Grid, ModelQuantities, Number

T = TypeVar("T")
Indices = npt.NDArray[np.int64]
FEW = 256  # layouts: of fewer, telling them apart takes longer than pricing them
SPARSE = 4  # keys for each layout: up to this many, a table finds the combinations faster than sorting does

# what each part depends on
RANKS = ("tp", "pp", "dp", "cp")  # how the axes lie
LAYER = (*RANKS, "ep", "etp", "mbs", "sp", "recompute", "order")
KEPT = ("tp", "cp", "mbs", "sp", "recompute")
KEPT_CAST = (*KEPT, "dp", "ep", "etp")  # with copies of the weights, experts' among them
IN_FLIGHT = ("pp", "dp", "vpp", "mbs", "schedule", "recompute")
STATES = (*RANKS, "ep", "etp", "vpp", "zero", "schedule", "replicas", "offload")
SENT = (*RANKS, "ep", "etp", "vpp", "zero", "schedule", "replicas", "order")
CUT = ("pp", "vpp", "schedule", "recompute")  # where stages are cut by cost: recomputing decides what an output weighs


def by_facts(names: Sequence[str], c: Coefficients) -> tuple[str, ...]:
    """Return what a part of a layer depends on, with what facts of a stack or a job add.

    Stages where only some layers of each are repeated, and ZeRO where it decides in which type adapters are.
    """
    stages = ("pp", "vpp") if np.any(c.layers_again) else ()
    sharded = ("zero",) if np.any(c.adapters_cast) else ()
    return tuple(dict.fromkeys((*names, *stages, *sharded)))


def once_each(
    model: ModelQuantities, grid: Grid, names: Sequence[str], part: Callable[..., T], *columns: Number | None,
    also: Sequence[Number] = (),
) -> T:  # fmt: skip
    """Return `part(grid, *columns)`, computed for each combination of the named fields of the grid once.

    `columns` are arrays that the named fields and the arrays of `also` determine. Rows of a table, whose models differ,
    are computed each.
    """
    few, place = _few(model, grid, names, part, columns, also)
    return few if place is None else _spread(few, place)


def once_each_in_turn(
    model: ModelQuantities, grid: Grid, names: Sequence[str], part: Callable[..., Sequence[T]], *columns: Number | None
) -> Iterator[T]:
    """Yield the items of what `once_each` returns, each when it is asked for: only one of them is in memory."""
    few, place = _few(model, grid, names, part, columns, ())
    for one in few:
        yield one if place is None else _spread(one, place)


def _few(
    model: ModelQuantities, grid: Grid, names: Sequence[str], part: Callable[..., T], columns: Sequence[Number | None],
    also: Sequence[Number],
) -> tuple[T, Indices | None]:  # fmt: skip
    """Return a part of each combination and the number of each row's combination; None where each row has its own."""
    if np.ndim(model.hidden) or len(grid) < FEW:
        return part(grid, *columns), None
    first, place = _numbered([*(getattr(grid, name) for name in names), *also], len(grid))
    some = (column[first] if isinstance(column, np.ndarray) else column for column in columns)
    return part(grid.take(first), *some), place


def _numbered(columns: Sequence[Number], count: int) -> tuple[Indices, Indices]:
    """Return the first row of each combination, and for each row the number of its combination."""
    key, size = np.zeros(count), 1  # whole numbers, below 2^53
    for column in columns:
        if not isinstance(column, np.ndarray):
            continue
        least, radix = float(column.min()), int(column.max()) - int(column.min()) + 1
        if radix == 1:
            continue
        if size * radix > SPARSE * count:  # numbers that do not occur leave no room
            key, size = _dense(key, size)
            column, radix = _dense(column - least, radix)
            least = 0.0
        key *= radix
        key += column
        key -= least
        size *= radix
    rows = key.astype(np.int64)
    if size > SPARSE * count:
        _, first, place = np.unique(rows, return_index=True, return_inverse=True)
        return first, place
    row = np.full(size, -1, dtype=np.int64)
    row[rows[::-1]] = np.arange(count - 1, -1, -1)  # of rows with one key the first is written last
    found = np.flatnonzero(row >= 0)
    number = np.empty(size, dtype=np.int64)
    number[found] = np.arange(len(found))
    return row[found], number.take(rows)


def _dense(values: Array, size: int) -> tuple[Array, int]:
    """Return whole numbers below `size` as numbers without gaps, in the same order, and how many there are."""
    whole = values.astype(np.int64)
    if size > SPARSE * len(values):
        found, place = np.unique(whole, return_inverse=True)
        return place.astype(float), len(found)
    number = np.zeros(size)
    number[whole] = 1.0
    np.cumsum(number, out=number)
    return number.take(whole) - 1.0, int(number[-1])


def _spread(value: Any, place: Indices) -> Any:
    """Return the arrays inside of tuples, lists and dataclasses with one element for each row."""
    done: dict[int, Any] = {}  # by the arrays' own identity: several parts may be one

    def spread(one: Any) -> Any:
        if isinstance(one, np.ndarray):
            if id(one) not in done:
                done[id(one)] = one.take(place) if one.ndim else one
            return done[id(one)]
        if is_dataclass(one):
            return replace(one, **{each.name: spread(getattr(one, each.name)) for each in fields(one)})  # type: ignore[type-var]
        if isinstance(one, tuple) and hasattr(one, "_fields"):
            return type(one)(*map(spread, one))
        return type(one)(map(spread, one)) if isinstance(one, tuple | list) else one

    return spread(value)
