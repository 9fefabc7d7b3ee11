"""Where each rank stands on the axes of a layout, and which ranks stand together along them: arithmetic, no torch.

Ranks are numbered along the axes from the innermost out, as `Layout.order` says, after those of one host have been
put next to each other, and the hosts under one switch: the innermost axis (tensor parallelism unless forced otherwise)
so stays inside a host whatever order the launcher counts in, and crosses as few switches as can be. Besides the four
axes there are groups that combine or divide them:

    data     cp x dp: ranks that hold the same dense parameters; their gradients are summed
    shard    the ranks of `data` that share one ZeRO-sharded copy
    replica  those with the same part of each copy: as many as the layout's `replicas`
    ep       neighbours in `data` that share the experts; edp: those with the same experts
    world    all ranks
    host     a rank alone: what travels between its device and the memory of its host
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from .layout import AXES, ORDERS, Layout

Axis = Literal["tp", "cp", "dp", "pp", "data", "shard", "replica", "ep", "edp", "world", "host"]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_OF_DATA = ("data", "shard", "replica", "ep", "edp")
NEAREST = len(ORDERS)  # stands for an order that there is not: each axis innermost, dp around cp
# _INSIDE[order][axis][other]: whether `other` lies inside `axis`, so that it multiplies the axis' stride
_INSIDE = np.array(
    [[[o.split("-").index(b) < o.split("-").index(a) for b in AXES] for a in AXES] for o in ORDERS]
    + [[[(a, b) == ("dp", "cp") for b in AXES] for a in AXES]]
)


class Position(msgspec.Struct, frozen=True):
    """Where a rank stands; `data` counts the ranks of cp x dp, the inner one of the two first."""

    tp: int
    cp: int
    dp: int
    pp: int
    data: int


class Degrees(Protocol):
    """The degrees of one layout or of many; `order` is an index into `layout.ORDERS`."""

    @property
    def order(self) -> Any:
        """Index of the order of the axes."""


def size(layout: Layout, axis: Axis) -> int:
    """Return how many ranks each group of `axis` has."""
    data = layout.dp * layout.cp
    combined = {"data": data, "shard": data // layout.replicas, "replica": layout.replicas, "edp": data // layout.ep}
    if axis in {"world", "host"}:
        return layout.world_size if axis == "world" else 1
    return combined[axis] if axis in combined else int(getattr(layout, axis))


def coordinates(layout: Layout) -> dict[str, Ints]:
    """Return the place of every rank on each of the four axes."""
    rank, found = np.arange(layout.world_size), {}
    for axis in layout.order.split("-"):
        degree = getattr(layout, axis)
        found[axis] = rank % degree
        rank = rank // degree
    return found


def position(layout: Layout, rank: int) -> Position:
    """Return the position of one rank."""
    at, inside, rest = dict.fromkeys(AXES, 0), 1, rank
    data = 0
    for axis in layout.order.split("-"):
        degree = getattr(layout, axis)
        rest, at[axis] = divmod(rest, degree)
        if axis in {"cp", "dp"}:
            data, inside = data + inside * at[axis], inside * degree
    return Position(**at, data=data)


def groups(layout: Layout, axis: Axis) -> Ints:
    """Return (groups, ranks): the ranks of each group of `axis`, in the order of their positions along it.

    Groups come in the order of their first ranks.
    """
    if axis in {"world", "host"}:
        every = np.arange(layout.world_size)
        return every[None, :] if axis == "world" else every[:, None]
    place = coordinates(layout)
    meant = ("cp", "dp") if axis in _OF_DATA else (axis,)
    order = layout.order.split("-")
    inner = [name for name in order if name in meant]
    keys = [place[name] for name in (*inner, *(name for name in order if name not in inner))]
    whole = np.lexsort(keys).astype(np.int64).reshape(-1, size(layout, "data" if axis in _OF_DATA else axis))
    width = size(layout, axis)
    if axis in {"replica", "edp"}:  # ranks that stand at the same place of each run of neighbours
        return whole.reshape(len(whole), width, -1).transpose(0, 2, 1).reshape(-1, width)
    return whole.reshape(-1, width)


def stride(degrees: Degrees, axis: str) -> Floats:
    """Return how many ranks apart two neighbours along one of the four axes are, of one layout or of many."""
    inside = _INSIDE[degrees.order][..., AXES.index(axis), :]
    result = np.ones(np.shape(degrees.order))
    for place, other in enumerate(AXES):
        if other != axis:
            result = result * np.where(inside[..., place], getattr(degrees, other), 1.0)
    return result


def ranks_by_place(hosts: Iterable[Sequence[int]]) -> list[int]:
    """Return the rank at each place of the mesh: the ranks of each host one after the other."""
    return [rank for ranks in hosts for rank in ranks]


def crossings(layout: Layout, axis: Axis, hosts: Sequence[Sequence[int]]) -> int:
    """Return how many groups of `axis` have ranks on more than one host."""
    ranks = ranks_by_place(hosts)
    host_of = {rank: index for index, members in enumerate(hosts) for rank in members}
    return sum(len({host_of[ranks[place]] for place in places}) > 1 for places in groups(layout, axis).tolist())
