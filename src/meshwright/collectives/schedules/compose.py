"""Make schedules out of schedules: turned round, or placed on some ranks and chunks of a larger one."""

from collections.abc import Sequence

from .schedule import Collective, Round, Schedule, Transfer


def transposed(schedule: Schedule, collective: Collective, *, reduce: bool) -> Schedule:
    """Return `schedule` run backwards: where data spread from one rank, it is collected there (and reduced).

    An all-gather becomes a reduce-scatter, a broadcast a reduce, a scatter a gather (nothing reduced).
    """
    rounds = tuple(
        tuple(Transfer(t.dst, t.src, t.chunks, reduce) for t in transfers) for transfers in reversed(schedule.rounds)
    )
    return Schedule(
        collective=collective,
        name=schedule.name,
        ranks=schedule.ranks,
        chunks=schedule.chunks,
        rounds=rounds,
        root=schedule.root,
    )


def placed_rounds(schedule: Schedule, ranks: Sequence[int], slots: Sequence[Sequence[int]]) -> list[Round]:
    """Return the rounds of `schedule` with its rank r being ranks[r], and its slot s the run of slots slots[s]."""

    def wide(chunks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(slot for chunk in chunks for slot in slots[chunk])

    return [
        tuple(Transfer(ranks[t.src], ranks[t.dst], wide(t.chunks), t.reduce, wide(t.to)) for t in transfers)
        for transfers in schedule.rounds
    ]


def slot_runs(start: int, count: int, size: int) -> list[range]:
    """Return `count` runs of `size` slots that follow each other from `start` on."""
    return [range(start + i * size, start + (i + 1) * size) for i in range(count)]
