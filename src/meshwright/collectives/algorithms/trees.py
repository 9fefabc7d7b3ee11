"""Trees: binomial ones for the rooted collectives, two binary ones for all-reduce, and the chain."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from ..schedules.compose import transposed
from ..schedules.schedule import Round, Schedule, Transfer, make, parallel
from .ring import pass_around


def binomial_broadcast(ranks: int, root: int) -> Schedule:
    """Broadcast in ceil(log2 P) rounds: in each, every rank that has the data sends it to one that does not."""

    def rounds() -> Iterator[Round]:
        have = 1
        while have < ranks:
            fresh = range(have, min(2 * have, ranks))
            yield tuple(Transfer((root + v - have) % ranks, (root + v) % ranks, (0,)) for v in fresh)
            have *= 2

    return make("broadcast", "binomial", ranks, rounds(), chunks=1, root=root)


def binomial_reduce(ranks: int, root: int) -> Schedule:
    """Reduce in ceil(log2 P) rounds: the binomial broadcast, backwards."""
    return transposed(binomial_broadcast(ranks, root), "reduce", reduce=True)


def binomial_scatter(ranks: int, root: int) -> Schedule:
    """Scatter in ceil(log2 P) rounds: a rank that has the chunks of several ranks sends the farther half on."""

    def rounds() -> Iterator[Round]:
        half = 1 << max(ranks - 1, 1).bit_length() - 1
        while half and ranks > 1:
            starts = range(half, ranks, 2 * half)
            yield tuple(
                Transfer((root + v - half) % ranks, (root + v) % ranks, _chunks(root, v, half, ranks)) for v in starts
            )
            half //= 2

    return make("scatter", "binomial", ranks, rounds(), chunks=ranks, root=root)


def binomial_gather(ranks: int, root: int) -> Schedule:
    """Gather in ceil(log2 P) rounds: the binomial scatter, backwards."""
    return transposed(binomial_scatter(ranks, root), "gather", reduce=False)


def scatter_gather_broadcast(ranks: int, root: int) -> Schedule:
    """Broadcast of large payloads: a binomial scatter, then a ring all-gather, under two payloads on each link."""
    rounds = chain(binomial_scatter(ranks, root).rounds, pass_around(ranks))
    return make("broadcast", "scatter_gather", ranks, rounds, chunks=ranks, root=root)


def chain_broadcast(ranks: int, root: int, pieces: int = 4) -> Schedule:
    """Broadcast along a chain in `pieces` pieces, each passed on while the next arrives: P-2+pieces rounds."""

    def rounds() -> Iterator[Round]:
        for time in range(ranks - 2 + pieces if ranks > 1 else 0):
            links = range(max(0, time - pieces + 1), min(time, ranks - 2) + 1)
            yield tuple(Transfer((root + v) % ranks, (root + v + 1) % ranks, (time - v,)) for v in links)

    return make("broadcast", "chain", ranks, rounds(), chunks=pieces, root=root)


def chain_reduce(ranks: int, root: int, pieces: int = 4) -> Schedule:
    """Reduce along a chain, pipelined: the chain broadcast, backwards."""
    return transposed(chain_broadcast(ranks, root, pieces), "reduce", reduce=True)


def double_tree(ranks: int, pieces: int = 1) -> Schedule:
    """All-reduce up and down two binary trees, half of the data each; an inner rank of one is a leaf of the other.

    With several `pieces`, each follows the one before it a round later.
    """
    shift = [(r - 1) % ranks if ranks % 2 else ranks - 1 - r for r in range(ranks)]  # place of rank r in tree 2
    seat = sorted(range(ranks), key=shift.__getitem__)  # rank at each place of tree 2
    first = _up_and_down(list(range(ranks)), range(0, pieces))
    second = _up_and_down(seat, range(pieces, 2 * pieces))
    name = "tree" if pieces == 1 else "tree_pipelined"
    return make("all_reduce", name, ranks, parallel(first, second), chunks=2 * pieces)


def pipelined_double_tree(ranks: int) -> Schedule:
    """All-reduce over two binary trees in 8 pieces each, which keeps all levels of the trees busy."""
    return double_tree(ranks, pieces=8)


def _parent(place: int, places: int) -> int:
    """Return the parent of a place in a binary tree whose inner places are even and whose root is 0."""
    low = place & -place
    above = (place ^ low) | (low << 1)
    return above if above < places else place ^ low


def _up_and_down(seat: list[int], chunks: range) -> list[Round]:
    """Reduce each chunk to the root of a tree and broadcast it back, each chunk one round after the one before."""
    places = range(1, len(seat))
    parent = {place: _parent(place, len(seat)) for place in places}
    height: dict[int, int] = defaultdict(int)
    depth = {0: 0}
    for place in sorted(places, key=lambda p: p & -p):  # children have lower bits than their parents
        height[parent[place]] = max(height[parent[place]], height[place] + 1)
    for place in sorted(places, key=lambda p: -(p & -p)):
        depth[place] = depth[parent[place]] + 1
    rounds: dict[int, list[Transfer]] = defaultdict(list)
    for delay, chunk in enumerate(chunks):
        for place in places:
            low, high = seat[place], seat[parent[place]]
            rounds[delay + height[place]].append(Transfer(low, high, (chunk,), reduce=True))
            rounds[delay + height[0] + depth[place] - 1].append(Transfer(high, low, (chunk,)))
    return [tuple(rounds[time]) for time in sorted(rounds)]


def _chunks(root: int, start: int, count: int, ranks: int) -> tuple[int, ...]:
    return tuple(sorted((root + v) % ranks for v in range(start, min(start + count, ranks))))
