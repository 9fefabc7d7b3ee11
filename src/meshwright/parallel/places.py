"""Where each rank stands on the axes of a layout, and which ranks stand together along them: arithmetic, no torch.

Ranks are numbered along the axes from the innermost out, as `Layout.order` says, after those of one host have been
put next to each other, and the hosts under one switch: the innermost axis (tensor parallelism unless forced otherwise)
so stays inside a host whatever order the launcher counts in, and crosses as few switches as can be. Besides the four
axes there are groups that combine or divide them:

    data     cp x dp: ranks that hold the same dense parameters; their gradients are summed
    shard    the ranks of `data` that share one ZeRO-sharded copy; replica: those with the same part of other copies
    ep       neighbours in `data` that share the experts; edp: those with the same experts
    world    all ranks
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ..layout import AXES, Layout

Axis = Literal["tp", "cp", "dp", "pp", "data", "shard", "replica", "ep", "edp", "world"]


class Position(msgspec.Struct, frozen=True):
    """Where a rank stands; `data` counts the ranks of cp x dp, the inner one of the two first."""

    tp: int
    cp: int
    dp: int
    pp: int
    data: int


def positions(layout: Layout) -> list[Position]:
    """Return the position of each place of the mesh, places counted along the axes from the innermost out."""
    found = []
    inner, outer = [axis for axis in layout.order.split("-") if axis in {"cp", "dp"}]
    for place in range(layout.world_size):
        rest, at = place, {}
        for axis in layout.order.split("-"):
            rest, at[axis] = divmod(rest, getattr(layout, axis))
        found.append(Position(**at, data=at[outer] * getattr(layout, inner) + at[inner]))
    return found


def key_of(layout: Layout, axis: Axis) -> Callable[[Position], tuple[int, ...]]:
    """Return what two positions have in common if and only if they are in one group of `axis`."""
    copies = layout.dp * layout.cp // layout.replicas  # ranks of one sharded copy
    if axis in AXES:
        return lambda at: tuple(getattr(at, other) for other in AXES if other != axis)
    keys: dict[str, Callable[[Position], tuple[int, ...]]] = {
        "world": lambda _: (),
        "data": lambda at: (at.tp, at.pp),
        "shard": lambda at: (at.tp, at.pp, at.data // copies),
        "replica": lambda at: (at.tp, at.pp, at.data % copies),
        "ep": lambda at: (at.tp, at.pp, at.data // layout.ep),
        "edp": lambda at: (at.tp, at.pp, at.data % layout.ep),
    }
    return keys[axis]


def groups(layout: Layout, axis: Axis) -> list[list[int]]:
    """Return the places of each group of `axis`, in the order of their positions along it."""
    found: dict[tuple[int, ...], list[int]] = {}
    key, where = key_of(layout, axis), positions(layout)
    for place, at in enumerate(where):
        found.setdefault(key(at), []).append(place)
    return [sorted(places, key=lambda place: _along(where[place])) for places in found.values()]


def _along(at: Position) -> tuple[int, ...]:
    return (at.pp, at.data, at.tp)


def placed(hosts: Iterable[Sequence[int]]) -> list[int]:
    """Return the rank at each place of the mesh: the ranks of each host one after the other."""
    return [rank for ranks in hosts for rank in ranks]


def crossings(layout: Layout, axis: Axis, hosts: Sequence[Sequence[int]]) -> int:
    """Return how many groups of `axis` have ranks on more than one host."""
    ranks = placed(hosts)
    host_of = {rank: index for index, members in enumerate(hosts) for rank in members}
    return sum(len({host_of[ranks[place]] for place in places}) > 1 for places in groups(layout, axis))
