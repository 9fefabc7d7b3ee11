"""Parts of a price that many layouts share, computed once for each distinct combination of what they depend on.

A layer's time knows nothing of ZeRO or of the schedule, the states of a rank nothing of the micro-batch: of the
338,415 layouts of a 405 B model on 16,384 GPUs a few thousand differ for each. What comes out is the same, bit by bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .quantities import Grid, ModelQuantities, Number

T = TypeVar("T")
FEW = 256  # layouts: of fewer, telling them apart takes longer than pricing them
MOST_KEYS = 2**62
SPARSE = 4  # keys for each layout: up to this many, a table finds the combinations faster than sorting does

# what each part depends on
RANKS = ("tp", "pp", "dp", "cp")  # how the axes lie
LAYER = (*RANKS, "ep", "etp", "mbs", "sp", "recompute", "order")
KEPT = ("tp", "cp", "mbs", "sp", "recompute")
KEPT_CAST = (*KEPT, "dp", "ep", "etp")  # with copies of the weights, experts' among them
STATES = (*RANKS, "ep", "etp", "vpp", "zero", "schedule", "replicas", "offload")
SENT = (*RANKS, "ep", "etp", "vpp", "zero", "replicas", "order")
CUT = ("pp", "vpp", "schedule", "recompute")  # where stages are cut by cost: recomputing decides what an output weighs


def once_each(
    model: ModelQuantities, grid: Grid, names: Sequence[str], part: Callable[..., T], *columns: Number | None,
    also: Sequence[Number] = (),
) -> T:  # fmt: skip
    """Return `part(grid, *columns)`, computed for each combination of the named fields of the grid once.

    `columns` are arrays that the named fields and the arrays of `also` determine. Rows of a table, whose models differ,
    are computed each.
    """
    if np.ndim(model.hidden) or len(grid) < FEW:
        return part(grid, *columns)
    first, place = _numbered([*(getattr(grid, name) for name in names), *also], len(grid))
    few = part(grid.take(first), *(column[first] if isinstance(column, np.ndarray) else column for column in columns))
    return _spread(few, place)  # type: ignore[no-any-return]


def _numbered(columns: Sequence[Number], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first row of each combination, and for each row the number of its combination."""
    key, size = np.zeros(count, dtype=np.int64), 1
    for column in columns:
        if not isinstance(column, np.ndarray):
            continue
        whole = column.astype(np.int64)
        least, radix = int(whole.min()), int(whole.max()) - int(whole.min()) + 1
        if radix == 1:
            continue
        if size * radix >= MOST_KEYS:
            key = np.unique(key, return_inverse=True)[1]
            size = int(key.max()) + 1
        key, size = key * radix + (whole - least), size * radix
    if size > SPARSE * count:
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return first, place
    row = np.full(size, -1, dtype=np.int64)
    row[key[::-1]] = np.arange(count - 1, -1, -1)  # of rows with one key the first is written last
    found = np.flatnonzero(row >= 0)
    number = np.empty(size, dtype=np.int64)
    number[found] = np.arange(len(found))
    return row[found], number[key]


def _spread(value: Any, place: npt.NDArray[np.int64]) -> Any:
    """Return the arrays inside of tuples, lists and dataclasses with one element for each row."""
    if is_dataclass(value):
        return replace(value, **{one.name: _spread(getattr(value, one.name), place) for one in fields(value)})  # type: ignore[type-var]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_spread(one, place) for one in value))
    if isinstance(value, tuple | list):
        return type(value)(_spread(one, place) for one in value)
    return value[place] if np.ndim(value) else value
