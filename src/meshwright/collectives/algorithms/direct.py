"""Direct algorithms: data crosses one link from where it is to where it must be, all at once or in turns."""

from collections.abc import Iterator, Sequence
from itertools import chain

from ..schedules.compose import transposed
from ..schedules.schedule import Collective, Round, Schedule, Transfer, make


def direct_exchange(ranks: int, senders: Sequence[int] | None = None) -> Iterator[Round]:
    """Each rank sends chunk c to rank c, to its neighbour at distance 1 first, then 2, and so on; one round each.

    With `senders`, only what those ranks send.
    """
    senders = senders or range(ranks)
    for step in range(1, ranks):
        yield tuple(Transfer(r, (r + step) % ranks, ((r + step) % ranks,), reduce=True) for r in senders)


def spread(ranks: int, senders: Sequence[int] | None = None) -> Iterator[Round]:
    """Each rank sends its own chunk to its neighbour at distance 1, then 2, and so on; one round each.

    With `senders`, only what those ranks send.
    """
    senders = senders or range(ranks)
    for step in range(1, ranks):
        yield tuple(Transfer(r, (r + step) % ranks, (r,)) for r in senders)


def at_once(rounds: Iterator[Round]) -> Iterator[Round]:
    """Merge all rounds into one."""
    yield tuple(chain.from_iterable(rounds))


def parameter_server(ranks: int, root: int = 0) -> Schedule:
    """All-reduce in 2 rounds: everyone sends everything to one rank, which sends the result to everyone."""
    others = [r for r in range(ranks) if r != root]
    rounds = ([Transfer(r, root, (0,), reduce=True) for r in others], [Transfer(root, r, (0,)) for r in others])
    return make("all_reduce", "parameter_server", ranks, rounds, chunks=1)


def one_shot(ranks: int) -> Schedule:
    """All-reduce in 1 round: everyone sends everything to everyone; least latency, most bytes.

    Among three and more, what comes is kept apart and summed in the order of the ranks: all end with the same bits.
    """
    pairs = [(r, s) for r in range(ranks) for s in range(ranks) if r != s]
    if ranks <= 2:
        return make("all_reduce", "one_shot", ranks, [[Transfer(r, s, (0,), reduce=True) for r, s in pairs]], chunks=1)
    sent = [Transfer(r, s, (0,), to=(1 + r,)) for r, s in pairs]
    before = [Transfer(r, r, (1 + s,), reduce=True, to=(1,)) for r in range(ranks) for s in range(1, r)]
    after = [Transfer(r, r, (1 + s,), reduce=True, to=(0,)) for r, s in pairs if s == 0 or s > r]
    return make("all_reduce", "one_shot", ranks, [sent, before, after], chunks=1, scratch=ranks)


def partitioned(ranks: int) -> Schedule:
    """All-reduce in 2 rounds: each rank reduces one part of the data, then sends it to all others."""
    rounds = chain(at_once(direct_exchange(ranks)), at_once(spread(ranks)))
    return make("all_reduce", "partitioned", ranks, rounds, chunks=ranks)


def partitioned_staggered(ranks: int) -> Schedule:
    """All-reduce as partitioned, in 2(P-1) rounds with one message in and one out of each rank."""
    return make(
        "all_reduce", "partitioned_staggered", ranks, chain(direct_exchange(ranks), spread(ranks)), chunks=ranks
    )


def direct_reduce_scatter(ranks: int) -> Schedule:
    """Reduce-scatter in 1 round: each rank sends every other rank its part."""
    return make("reduce_scatter", "direct", ranks, at_once(direct_exchange(ranks)), chunks=ranks)


def direct_all_gather(ranks: int) -> Schedule:
    """All-gather in 1 round: each rank sends its chunk to every other rank."""
    return make("all_gather", "direct", ranks, at_once(spread(ranks)), chunks=ranks)


def pairwise_reduce_scatter(ranks: int) -> Schedule:
    """Reduce-scatter in P-1 rounds: in round k each rank sends its neighbour at distance k that one's part."""
    return make("reduce_scatter", "pairwise", ranks, direct_exchange(ranks), chunks=ranks)


def pairwise_all_gather(ranks: int) -> Schedule:
    """All-gather in P-1 rounds: in round k each rank sends its chunk to its neighbour at distance k."""
    return make("all_gather", "pairwise", ranks, spread(ranks), chunks=ranks)


def linear_broadcast(ranks: int, root: int) -> Schedule:
    """Broadcast in 1 round: the root sends to everyone."""
    return make("broadcast", "linear", ranks, _star(ranks, root, owned=False), chunks=1, root=root)


def linear_scatter(ranks: int, root: int) -> Schedule:
    """Scatter in 1 round: the root sends each rank its chunk."""
    return make("scatter", "linear", ranks, _star(ranks, root, owned=True), chunks=ranks, root=root)


def linear_reduce(ranks: int, root: int) -> Schedule:
    """Reduce in 1 round: everyone sends to the root."""
    return transposed(linear_broadcast(ranks, root), "reduce", reduce=True)


def linear_gather(ranks: int, root: int) -> Schedule:
    """Gather in 1 round: everyone sends its chunk to the root."""
    return transposed(linear_scatter(ranks, root), "gather", reduce=False)


def linear_all_to_all(ranks: int) -> Schedule:
    """All-to-all in 1 round: everyone sends to everyone at once."""
    return _all_to_all("linear", ranks, at_once(_pairwise(ranks)))


def pairwise_all_to_all(ranks: int) -> Schedule:
    """All-to-all in P-1 rounds: in round k everyone sends to its neighbour at distance k."""
    return _all_to_all("pairwise", ranks, _pairwise(ranks))


def _pairwise(ranks: int) -> Iterator[Round]:
    for step in range(1, ranks):
        ends = [(r, (r + step) % ranks) for r in range(ranks)]
        yield tuple(Transfer(src, dst, (src * ranks + dst,)) for src, dst in ends)


def _all_to_all(name: str, ranks: int, rounds: Iterator[Round]) -> Schedule:
    collective: Collective = "all_to_all"
    return make(collective, name, ranks, rounds, chunks=ranks * ranks)


def _star(ranks: int, root: int, *, owned: bool) -> Iterator[Round]:
    yield tuple(Transfer(root, r, (r if owned else 0,)) for r in range(ranks) if r != root)
