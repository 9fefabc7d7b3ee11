"""Hierarchical algorithms: one algorithm inside each node and one between the nodes, any pair of them.

Rank r sits in node r // ranks_per_node at place r % ranks_per_node. The ranks at one place of all nodes form a rail.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from math import lcm

from ...errors import InputError
from ..schedules.compose import placed_rounds, slot_runs
from ..schedules.schedule import Round, Schedule, make, parallel

Builder = Callable[[int], Schedule]
RootedBuilder = Callable[[int, int], Schedule]


def hierarchical_all_reduce(
    ranks: int, ranks_per_node: int, *, scatter: Builder, outer: Builder, gather: Builder, name: str
) -> Schedule:
    """All-reduce: reduce-scatter inside each node, all-reduce each part along its rail, all-gather inside.

    `scatter` may also be an all-reduce: then each rank goes on with its part of the node's result.
    """
    nodes, places = node_grid(ranks, ranks_per_node)
    first, middle, last = scatter(places), outer(nodes), gather(places)
    chunks = lcm(first.chunks, places * middle.chunks, last.chunks)
    part = chunks // places
    scratch = max(_scratch(first, chunks), _scratch(middle, part))
    rails = range(places)
    rounds = chain(
        _in_each_node(first, nodes, places, _slots(first, 0, chunks, chunks)),
        parallel(
            *(
                placed_rounds(middle, range(place, ranks, places), _slots(middle, place * part, part, chunks))
                for place in rails
            )
        ),
        _in_each_node(last, nodes, places, _slots(last, 0, chunks, chunks)),
    )
    return make("all_reduce", name, ranks, rounds, chunks=chunks, scratch=scratch)


def led_all_reduce(
    ranks: int, ranks_per_node: int, *, reduce: RootedBuilder, outer: Builder, broadcast: RootedBuilder, name: str
) -> Schedule:
    """All-reduce: reduce to each node's first rank, all-reduce among those, broadcast inside."""
    nodes, places = node_grid(ranks, ranks_per_node)
    first, middle, last = reduce(places, 0), outer(nodes), broadcast(places, 0)
    chunks = lcm(first.chunks, middle.chunks, last.chunks)
    rounds = chain(
        _in_each_node(first, nodes, places, _slots(first, 0, chunks, chunks)),
        placed_rounds(middle, range(0, ranks, places), _slots(middle, 0, chunks, chunks)),
        _in_each_node(last, nodes, places, _slots(last, 0, chunks, chunks)),
    )
    return make("all_reduce", name, ranks, rounds, chunks=chunks, scratch=_scratch(middle, chunks))


def hierarchical_all_gather(ranks: int, ranks_per_node: int, *, inner: Builder, outer: Builder, name: str) -> Schedule:
    """All-gather: along each rail first, so that a chunk enters a node once, then inside each node."""
    nodes, places = node_grid(ranks, ranks_per_node)
    rounds = chain(_rails_gather(outer, nodes, places), _nodes_gather(inner, nodes, places))
    return make("all_gather", name, ranks, rounds, chunks=ranks)


def hierarchical_reduce_scatter(
    ranks: int, ranks_per_node: int, *, inner: Builder, outer: Builder, name: str
) -> Schedule:
    """Reduce-scatter: inside each node first, then along each rail what is left for its ranks."""
    nodes, places = node_grid(ranks, ranks_per_node)
    rounds = chain(_nodes_gather(inner, nodes, places), _rails_gather(outer, nodes, places))
    return make("reduce_scatter", name, ranks, rounds, chunks=ranks)


def hierarchical_all_to_all(ranks: int, ranks_per_node: int, *, inner: Builder, outer: Builder, name: str) -> Schedule:
    """All-to-all: inside each node to the place of the receiver, then along the rail to the receiver's node."""
    nodes, places = node_grid(ranks, ranks_per_node)
    inside, across = inner(places), outer(nodes)
    grid = [[node * places + place for place in range(places)] for node in range(nodes)]
    to_places = [
        placed_rounds(
            inside, row, [[src * ranks + other[place] for other in grid] for src in row for place in range(places)]
        )
        for row in grid
    ]
    to_nodes = [
        placed_rounds(
            across,
            [row[place] for row in grid],
            [[src * ranks + row[place] for src in sources] for sources in grid for row in grid],
        )
        for place in range(places)
    ]
    return make("all_to_all", name, ranks, chain(parallel(*to_places), parallel(*to_nodes)), chunks=ranks * ranks)


def node_grid(ranks: int, ranks_per_node: int, what: str = "hierarchical") -> tuple[int, int]:
    """Return nodes and ranks of a node; InputError where the ranks do not fill them."""
    if ranks_per_node < 1 or ranks % ranks_per_node:
        raise InputError(f"{what}: {ranks} ranks do not fill nodes of {ranks_per_node}; expected a divisor")
    return ranks // ranks_per_node, ranks_per_node


def _in_each_node(schedule: Schedule, nodes: int, places: int, slots: Sequence[Sequence[int]]) -> Sequence[Round]:
    rows = (range(node * places, (node + 1) * places) for node in range(nodes))
    return list(parallel(*(placed_rounds(schedule, row, slots) for row in rows)))


def _slots(schedule: Schedule, start: int, length: int, scratch_start: int) -> list[range]:
    """Cut the slots from `start` on into the chunks of a part, and give its scratch slots as much room each."""
    size = length // schedule.chunks
    return slot_runs(start, schedule.chunks, size) + slot_runs(scratch_start, schedule.scratch, size)


def _scratch(schedule: Schedule, length: int) -> int:
    return schedule.scratch * (length // schedule.chunks)


def _rails_gather(outer: Builder, nodes: int, places: int) -> list[Round]:
    schedule = outer(nodes)
    rails = (range(place, nodes * places, places) for place in range(places))
    return list(parallel(*(placed_rounds(schedule, rail, [(rank,) for rank in rail]) for rail in rails)))


def _nodes_gather(inner: Builder, nodes: int, places: int) -> Sequence[Round]:
    rails = [range(place, nodes * places, places) for place in range(places)]
    return _in_each_node(inner(places), nodes, places, rails)
