"""One ring for each rank of a node, side by side: each enters and leaves every node by other NICs, as NCCL's channels.

Ring j enters a node of even number at place j and walks to the next place up, the next down, the next but one up, and
so on; a node of odd number it walks the other way round. Every NIC sends for one ring and receives for one, and
messages between nodes stay on their rail (but one a ring where the number of nodes is odd). Of an even number of places
no two rings go from one to the same next (the rows of a row-complete Latin square: Williams 1949), so that links which
join pairs of GPUs all carry as much.
"""

from ..schedules.compose import placed_rounds
from ..schedules.schedule import Schedule, make, parallel
from .hierarchical import Builder, node_grid


def ring_orders(ranks: int, ranks_per_node: int) -> list[list[int]]:
    """Return the ranks of each ring in its order."""
    nodes, places = node_grid(ranks, ranks_per_node, "rings")
    apart = [(step + 1) // 2 if step % 2 else -step // 2 for step in range(places)]  # 0, 1, -1, 2, -2, ...
    orders = []
    for first in range(places):
        forward = [(first + steps) % places for steps in apart]
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
