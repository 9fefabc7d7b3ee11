"""Traffic: the bytes between each pair of ranks in each round of a schedule, which is all that its time needs.

Rounds that look alike are kept once, so a ring of any number of ranks has two: reduce, and pass on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..collectives.algorithms.rings import ring_orders
from ..collectives.algorithms.rotation import sent_by_rank_0
from ..collectives.catalogue import (
    FLAT,
    HIERARCHICAL,
    RINGS,
    SCATTERING,
    build_schedule,
    rings_node_size,
    usual_ranks_per_node,
)
from ..collectives.pricing.figures import chunk_share
from ..collectives.schedules.schedule import Round, Schedule, Transfer
from ..errors import InputError
from ..units import counted
from .arrays import Floats, Ints, ints

MAX_WRITTEN_OUT = 4096  # ranks of a schedule with as many chunks as ranks
SPARSE = frozenset({"tree", "parameter_server"})  # all-reduces with few chunks


@dataclass(frozen=True, eq=False)
class Pattern:
    """The transfers of one round as arrays; local ones have src == dst."""

    src: Ints
    dst: Ints
    share: Floats  # of the payload
    reduces: NDArray[np.bool_]

    def key(self) -> tuple[bytes, ...]:
        """Return what two patterns that are the same have in common."""
        return (self.src.tobytes(), self.dst.tobytes(), self.share.tobytes(), self.reduces.tobytes())


@dataclass(frozen=True, eq=False)
class Traffic:
    """The rounds of a schedule: `order` names the pattern of each."""

    collective: str
    algorithm: str
    ranks: int
    patterns: tuple[Pattern, ...]
    order: Ints

    @property
    def transfers(self) -> int:
        """Transfers of all rounds."""
        sizes = ints([len(p.src) for p in self.patterns])
        return int(sizes[self.order].sum()) if len(self.order) else 0


def traffic_of(schedule: Schedule) -> Traffic:
    """Return the traffic of a schedule."""
    share = float(chunk_share(schedule))
    patterns = (_pattern(transfers, share) for transfers in schedule.rounds if transfers)
    return _collected(schedule.collective, schedule.name, schedule.ranks, patterns)


def named_traffic(
    collective: str, name: str, ranks: int, *, ranks_per_node: int | None = None, root: int = 0,
    target: int | None = None,
) -> Traffic:  # fmt: skip
    """Return the traffic of an algorithm, without its schedule where that would not fit into memory.

    Raises InputError where the algorithm is unknown, or has too many transfers and does not look alike from each rank.
    """
    if name.partition(":")[0] == "hierarchical" and collective in {"all_reduce", "all_gather", "reduce_scatter"}:
        return _hierarchical(collective, name, ranks, ranks_per_node)
    if name.partition(":")[0] == "rings" and collective in RINGS:
        places = rings_node_size(name, ranks, ranks_per_node)
        orders = [ints(order) for order in ring_orders(ranks, places)]
        one = placed_traffic(named_traffic(collective, "ring", ranks), orders, 1.0 / places)
        return Traffic(collective, f"rings:{places}", ranks, one.patterns, one.order)
    rotating = sent_by_rank_0(collective, name, ranks)
    if rotating is not None and ranks > 1:
        return _rotated(collective, name, ranks, *rotating)
    if collective in FLAT and collective != "barrier" and name not in SPARSE:
        _refuse_large(name, ranks)
    return traffic_of(build_schedule(collective, name, ranks, root=root, target=target, ranks_per_node=ranks_per_node))


def placed_traffic(traffic: Traffic, groups: Sequence[Ints], share: float = 1.0) -> Traffic:
    """Return the traffic with a copy of it on each group of ranks; each copy has `share` of the payload."""
    table = np.stack(groups)  # (groups, ranks)
    patterns = tuple(
        Pattern(
            src=table[:, p.src].ravel(),
            dst=table[:, p.dst].ravel(),
            share=np.tile(p.share * share, len(table)),
            reduces=np.tile(p.reduces, len(table)),
        )
        for p in traffic.patterns
    )
    return Traffic(traffic.collective, traffic.algorithm, int(table.max()) + 1, patterns, traffic.order)


def followed(collective: str, name: str, ranks: int, parts: Sequence[Traffic]) -> Traffic:
    """Return one traffic after the other, as the rounds of one schedule."""
    offsets = np.cumsum([0, *(len(part.patterns) for part in parts)])
    order = np.concatenate([part.order + offset for part, offset in zip(parts, offsets, strict=False)])
    return Traffic(collective, name, ranks, tuple(p for part in parts for p in part.patterns), ints(order))


def _hierarchical(collective: str, name: str, ranks: int, ranks_per_node: int | None) -> Traffic:
    """Compose the phases as collectives.hierarchical does: in each node, along each rail, and back."""
    _, _, pair = name.partition(":")
    pair, _, size = pair.partition(":")
    inner, _, outer = pair.partition("/")
    inner, outer = inner or HIERARCHICAL[collective][0], outer or HIERARCHICAL[collective][1]
    places = int(size) if size.isdecimal() else ranks_per_node or usual_ranks_per_node(ranks)
    rotating = sent_by_rank_0(collective, outer, ranks) is not None
    if not rotating or ranks % places or ranks == 1 or (collective == "all_reduce" and inner not in SCATTERING):
        if outer not in SPARSE:
            _refuse_large(name, ranks // places)
        return traffic_of(build_schedule(collective, name, ranks, ranks_per_node=ranks_per_node))
    grid = np.arange(ranks, dtype=np.int64).reshape(-1, places)
    nodes = list(grid)
    rails = placed_traffic(named_traffic(collective, outer, len(grid)), list(grid.T), 1.0 / places)
    if collective == "all_reduce":
        scatter, gather = SCATTERING[inner]
        parts = [
            placed_traffic(traffic_of(scatter(places)), nodes),
            rails,
            placed_traffic(traffic_of(gather(places)), nodes),
        ]
    else:
        inside = placed_traffic(named_traffic(collective, inner, places), nodes)
        parts = [rails, inside] if collective == "all_gather" else [inside, rails]
    return followed(collective, f"hierarchical:{inner}/{outer}:{places}", ranks, [p for p in parts if len(p.order)])


def _rotated(collective: str, name: str, ranks: int, rounds: Iterable[Round], chunks: int) -> Traffic:
    """Turn what rank 0 sends round all ranks."""
    everyone = np.arange(ranks, dtype=np.int64)
    patterns: dict[tuple[tuple[int, int, bool], ...], Pattern] = {}
    order = []
    numbers: dict[tuple[tuple[int, int, bool], ...], int] = {}
    for transfers in rounds:
        key = tuple((t.dst, len(t.chunks), t.reduce) for t in transfers)
        if key not in numbers:
            numbers[key] = len(numbers)
            patterns[key] = Pattern(
                src=np.concatenate([everyone for _ in key]),
                dst=np.concatenate([(everyone + dst) % ranks for dst, _, _ in key]),
                share=np.repeat([count / chunks for _, count, _ in key], ranks),
                reduces=np.repeat([reduce for _, _, reduce in key], ranks),
            )
        order.append(numbers[key])
    return Traffic(collective, name, ranks, tuple(patterns.values()), ints(order))


def _collected(collective: str, name: str, ranks: int, found: Iterable[Pattern]) -> Traffic:
    patterns: dict[tuple[bytes, ...], int] = {}
    kept: list[Pattern] = []
    order: list[int] = []
    for pattern in found:
        key = pattern.key()
        if key not in patterns:
            patterns[key] = len(kept)
            kept.append(pattern)
        order.append(patterns[key])
    return Traffic(collective, name, ranks, tuple(kept), ints(order))


def _pattern(transfers: Sequence[Transfer], share: float) -> Pattern:
    count = len(transfers)
    return Pattern(
        src=np.fromiter((t.src for t in transfers), np.int64, count),
        dst=np.fromiter((t.dst for t in transfers), np.int64, count),
        share=np.fromiter((len(t.chunks) for t in transfers), np.float64, count) * share,
        reduces=np.fromiter((t.reduce for t in transfers), np.bool_, count),
    )


def _refuse_large(name: str, ranks: int) -> None:
    if ranks > MAX_WRITTEN_OUT:
        raise InputError(
            f"{name} on {counted(ranks, 'rank')}: too many transfers to write out; expected one that "
            "looks alike from each"
            " rank (ring, pairwise, partitioned), perhaps as hierarchical:INNER/OUTER"
        )
