"""The primitives between two ranks, and the barrier with a centre."""

from ..schedules.schedule import Schedule, Transfer, make


def send(ranks: int, root: int, target: int) -> Schedule:
    """One rank sends, another receives."""
    return make("send", "direct", ranks, [[Transfer(root, target, (0,))]] if root != target else [],
                chunks=1, root=root, target=target)  # fmt: skip


def copy(ranks: int, root: int) -> Schedule:
    """One rank copies a chunk into another of its slots."""
    return make("copy", "local", ranks, [[Transfer(root, root, (0,), to=(1,))]], chunks=2, root=root)


def signal(ranks: int, root: int, target: int) -> Schedule:
    """One rank signals, another waits for it."""
    return make("signal", "direct", ranks, [[Transfer(root, target)]] if root != target else [],
                chunks=0, root=root, target=target)  # fmt: skip


def central_barrier(ranks: int, root: int = 0) -> Schedule:
    """Barrier in 2 rounds: everyone signals one rank, which then signals everyone."""
    others = [r for r in range(ranks) if r != root]
    rounds = ([Transfer(r, root) for r in others], [Transfer(root, r) for r in others])
    return make("barrier", "central", ranks, rounds, chunks=0)
