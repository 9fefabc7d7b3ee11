"""Rank programs: what each rank does, stage by stage; this is what the executor runs.

A stage is one round as one rank sees it. The rank posts all sends and receives of the stage at once and goes on when
all of them, and its local steps, are done. Messages between two ranks arrive in the order in which they were sent.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from .schedule import Schedule, Transfer


class RoundTransfers(msgspec.Struct, frozen=True):
    """The transfers of one round that one rank takes part in."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    locals: tuple[Transfer, ...]


Program = tuple[RoundTransfers, ...]


def programs(schedule: Schedule) -> tuple[Program, ...]:
    """Return the program of every rank; rounds in which a rank has no part leave no stage in its program."""
    result: list[list[RoundTransfers]] = [[] for _ in range(schedule.ranks)]
    for transfers in schedule.rounds:
        sends: dict[int, list[Transfer]] = {}
        receives: dict[int, list[Transfer]] = {}
        local: dict[int, list[Transfer]] = {}
        for t in transfers:
            if t.src == t.dst:
                local.setdefault(t.src, []).append(t)
            else:
                sends.setdefault(t.src, []).append(t)
                receives.setdefault(t.dst, []).append(t)
        for rank in sends.keys() | receives.keys() | local.keys():
            stage = RoundTransfers(
                tuple(sends.get(rank, ())), tuple(receives.get(rank, ())), tuple(local.get(rank, ()))
            )
            result[rank].append(stage)
    return tuple(map(tuple, result))


def check_rendezvous(ranks: Sequence[Program]) -> str | None:
    """Return why the programs do not all end when a send ends only with its receive, or None.

    Programs that can proceed in several orders end in all of them or in none, since a match is never undone: one
    greedy run decides.
    """
    waiting = _Posted()
    position = [0] * len(ranks)
    pending = [0] * len(ranks)  # messages of the current stage that have not met their other end
    ready = deque(range(len(ranks)))
    while ready:
        rank = ready.popleft()
        while pending[rank] == 0 and position[rank] < len(ranks[rank]):
            stage = ranks[rank][position[rank]]
            position[rank] += 1
            pending[rank] = len(stage.sends) + len(stage.receives)
            for sent, transfers in ((True, stage.sends), (False, stage.receives)):
                for t in transfers:
                    other = waiting.match(t, sent=sent)
                    if other is None:
                        continue
                    if other != t:
                        return f"stage {position[rank] - 1} of rank {rank}: sent and received differ: {t}, {other}"
                    for end in (t.src, t.dst):
                        pending[end] -= 1
                        if pending[end] == 0 and end != rank:
                            ready.append(end)
    stuck = [rank for rank, count in enumerate(pending) if count]
    if not stuck:
        return None
    rank = stuck[0]
    return f"deadlock: rank {rank} waits in its stage {position[rank] - 1} for {waiting.first_of(rank)}"


class _Posted:
    """Sends and receives that wait for their other end, first in, first out between each two ranks."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, int], tuple[deque[Transfer], deque[Transfer]]] = {}

    def match(self, t: Transfer, *, sent: bool) -> Transfer | None:
        """Return the other end of a message, taking it off its queue; None if it has to wait for it."""
        queues = self._queues.get((t.src, t.dst))
        if queues is None:
            queues = self._queues[t.src, t.dst] = (deque(), deque())
        mine, theirs = queues if sent else queues[::-1]
        if theirs:
            return theirs.popleft()
        mine.append(t)
        return None

    def first_of(self, rank: int) -> str:
        """Return the first thing that a rank waits for, in words."""
        for (src, dst), (sends, receives) in self._queues.items():
            if sends and src == rank:
                return f"rank {dst} to receive {sends[0]}"
            if receives and dst == rank:
                return f"rank {src} to send {receives[0]}"
        return "nothing"
