"""One ring for each rank of a node, side by side: each enters and leaves every node by other NICs, as NCCL's channels.

Ring j enters a node of even number at place j and leaves it at place j - 1, a node of odd number the other way round:
every NIC sends for one ring and receives for one, and messages between nodes stay on their rail (but one a ring where
the number of nodes is odd).
"""

from ..schedules.compose import placed_rounds
from ..schedules.schedule import Schedule, make, parallel
from .hierarchical import Builder, node_grid


def ring_orders(ranks: int, ranks_per_node: int) -> list[list[int]]:
    """Return the ranks of each ring in its order."""
    nodes, places = node_grid(ranks, ranks_per_node, "rings")
    orders = []
    for first in range(places):
        forward = [(first + step) % places for step in range(places)]
        walks = (forward, forward[::-1])
        orders.append([node * places + place for node in range(nodes) for place in walks[node % 2]])
    return orders


def rings(ring: Builder, ranks: int, ranks_per_node: int) -> Schedule:
    """Return `ring` on each order of the ranks, with an equal part of the payload each."""
    one, orders = ring(ranks), ring_orders(ranks, ranks_per_node)
    count = len(orders)
    parts = [
        placed_rounds(one, order, [(order[slot] * count + number,) for slot in range(ranks)])
        for number, order in enumerate(orders)
    ]
    return make(one.collective, f"rings:{ranks_per_node}", ranks, parallel(*parts), chunks=ranks * count)
