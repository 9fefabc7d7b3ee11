"""The start and the goal of each collective: the one table that schedules are proved against.

A chunk of a rank is described by which payload chunk it is and which ranks have contributed to it.

collective      payload chunk c, before                 after
all_reduce      each rank's own part c                  the reduction over all ranks, everywhere
reduce          each rank's own part c                  the reduction, at the root
reduce_scatter  each rank's own part c                  the reduction, at the rank that c belongs to
broadcast       at the root                             everywhere
scatter         at the root                             at the rank that c belongs to
gather          at the rank that it belongs to          at the root
all_gather      at the rank that it belongs to          everywhere
all_to_all      at its sender                           at its receiver
send            at the root                             at the target
copy            at the root, in slots 0 to chunks/2-1   there too, and in the upper half of the slots
barrier, signal carry no chunks: every rank (the target) must know that every rank (the root) has entered.

Where chunks belong to ranks, they do in equal runs: with k chunks a rank, chunk c belongs to rank c // k. In an
all-to-all, the k chunks from rank i to rank j start at (i * ranks + j) * k; with counts, those from rank i to rank j
follow those of all pairs before (i, j) in this order.
"""

import itertools
from collections.abc import Iterator

from .schedule import Schedule

Holding = tuple[int, int, int, int]  # rank, slot, payload chunk, bit set of contributing ranks


def check_chunk_count(schedule: Schedule) -> str | None:
    """Return why the number of chunks does not fit the collective, or None."""
    parts = {"scatter": 1, "gather": 1, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 2}
    unit = schedule.ranks ** parts.get(schedule.collective, 0)
    if schedule.collective in {"barrier", "signal"}:
        return None if schedule.chunks == 0 else "expected no chunks"
    if schedule.counts:
        return None  # checked by the schedule itself
    if schedule.collective == "copy":
        unit = 2
    if schedule.chunks < 1 or schedule.chunks % unit:
        return f"expected a positive multiple of {unit} chunks, got {schedule.chunks}"
    return None


def owner(schedule: Schedule, chunk: int) -> int:
    """Return the rank that a chunk belongs to: its final place in a scatter, its origin in a gather."""
    return chunk // (schedule.chunks // schedule.ranks)


def senders_and_receivers(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Yield the two ends of each chunk of an all-to-all."""
    each = schedule.chunks // schedule.ranks**2
    for i, row in enumerate(schedule.counts or ((each,) * schedule.ranks,) * schedule.ranks):
        for j, count in enumerate(row):
            yield from itertools.repeat((i, j), count)


def before(schedule: Schedule) -> Iterator[Holding]:
    """Yield what the ranks hold at the start."""
    ranks, chunks, root = schedule.ranks, schedule.chunks, schedule.root
    match schedule.collective:
        case "all_reduce" | "reduce" | "reduce_scatter":
            yield from ((rank, c, c, 1 << rank) for rank in range(ranks) for c in range(chunks))
        case "broadcast" | "scatter" | "send":
            yield from ((root, c, c, 1 << root) for c in range(chunks))
        case "copy":
            yield from ((root, c, c, 1 << root) for c in range(chunks // 2))
        case "gather" | "all_gather":
            yield from ((owner(schedule, c), c, c, 1 << owner(schedule, c)) for c in range(chunks))
        case "all_to_all":
            ends = senders_and_receivers(schedule)
            yield from ((sender, c, c, 1 << sender) for c, (sender, _) in enumerate(ends))


def after(schedule: Schedule) -> Iterator[Holding]:
    """Yield what the ranks must hold at the end."""
    ranks, chunks, root = schedule.ranks, schedule.chunks, schedule.root
    everyone, every = (1 << ranks) - 1, range(ranks)
    match schedule.collective:
        case "all_reduce":
            yield from ((rank, c, c, everyone) for rank in every for c in range(chunks))
        case "reduce":
            yield from ((root, c, c, everyone) for c in range(chunks))
        case "reduce_scatter":
            yield from ((owner(schedule, c), c, c, everyone) for c in range(chunks))
        case "broadcast":
            yield from ((rank, c, c, 1 << root) for rank in every for c in range(chunks))
        case "scatter":
            yield from ((owner(schedule, c), c, c, 1 << root) for c in range(chunks))
        case "gather":
            yield from ((root, c, c, 1 << owner(schedule, c)) for c in range(chunks))
        case "all_gather":
            yield from ((rank, c, c, 1 << owner(schedule, c)) for rank in every for c in range(chunks))
        case "all_to_all":
            ends = senders_and_receivers(schedule)
            yield from ((receiver, c, c, 1 << sender) for c, (sender, receiver) in enumerate(ends))
        case "send":
            yield from ((schedule.target, c, c, 1 << root) for c in range(chunks))
        case "copy":
            half = chunks // 2
            yield from ((root, c, c % half, 1 << root) for c in range(chunks))


def required_knowledge(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Yield (rank, bit set of ranks whose entry it must know of when it leaves)."""
    if schedule.collective == "barrier":
        yield from ((rank, (1 << schedule.ranks) - 1) for rank in range(schedule.ranks))
    elif schedule.collective == "signal":
        yield schedule.target, 1 << schedule.root
