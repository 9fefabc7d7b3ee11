"""Where the chunks of a schedule lie in the caller's tensors, in elements.

A layout says for each chunk how many elements it has and in which of the caller's flat buffers it starts; chunks that
a rank only passes on, and scratch slots, lie in a buffer of the executor's own. Layouts are interned: the same
arguments give the same object, so that compiled programs can be found by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from ...errors import InputError

Place = tuple[int, int]  # buffer and first element


@dataclass(frozen=True, eq=False, slots=True)
class ChunkLayout:
    """Sizes and places of the chunks on one rank; a place of None is a chunk that is not in the caller's buffers."""

    buffer_sizes: tuple[int, ...]
    chunk_sizes: tuple[int, ...]
    places: tuple[Place | None, ...]
    read_only: int | None = None  # buffer that belongs to the caller and is only sent from

    def part(self, rank: int, ranks: int) -> slice:
        """Return the elements of the first buffer that belong to a rank, where chunks belong to ranks."""
        per_rank = len(self.chunk_sizes) // ranks
        first = self.places[rank * per_rank]
        assert first is not None
        size = sum(self.chunk_sizes[rank * per_rank : (rank + 1) * per_rank])
        return slice(first[1], first[1] + size)


@lru_cache(maxsize=256)
def shared_layout(chunks: int, elements: int) -> ChunkLayout:
    """Return the layout where every rank has all chunks: equal parts of one buffer."""
    return _one_buffer(tuple(equal_parts(elements, chunks)))


@lru_cache(maxsize=256)
def owned_layout(chunks: int, counts: tuple[int, ...]) -> ChunkLayout:
    """Return the layout where equal runs of chunks belong to the ranks, which have `counts` elements each."""
    return _one_buffer(tuple(size for count in counts for size in equal_parts(count, chunks // len(counts))))


@lru_cache(maxsize=256)
def all_to_all_layout(chunks: int, rank: int, counts: tuple[tuple[int, ...], ...]) -> ChunkLayout:
    """Return the layout of one rank where counts[i][j] elements go from rank i to rank j: source, then output."""
    ranks = len(counts)
    per_pair = chunks // ranks**2
    sizes = tuple(size for row in counts for count in row for size in equal_parts(count, per_pair))
    places: list[Place | None] = [None] * chunks
    run = ranks * per_pair
    sent = range(rank * run, (rank + 1) * run)
    received = [(src * ranks + rank) * per_pair + k for src in range(ranks) for k in range(per_pair)]
    for buffer, mine in ((0, sent), (1, received)):  # what a rank sends to itself ends up as received
        start = 0
        for chunk in mine:
            places[chunk] = (buffer, start)
            start += sizes[chunk]
    totals = (sum(counts[rank]), sum(row[rank] for row in counts))
    return ChunkLayout(totals, sizes, tuple(places), read_only=0)


def kept_parts(rank: int, counts: Sequence[Sequence[int]]) -> tuple[slice, slice]:
    """Return what a rank sends to itself in an all-to-all: the elements of the source and those of the output."""
    size = counts[rank][rank]
    taken, given = sum(counts[rank][:rank]), sum(row[rank] for row in counts[:rank])
    return slice(taken, taken + size), slice(given, given + size)


def equal_parts(elements: int, parts: int) -> list[int]:
    """Return the sizes of `parts` parts of a buffer, as equal as they can be."""
    bounds = [elements * i // parts for i in range(parts + 1)] if parts else []
    return [b - a for a, b in pairwise(bounds)]


def checked_counts(counts: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return element counts, one for each rank, as a tuple; InputError if they are not that."""
    if len(counts) != ranks or any(count < 0 for count in counts):
        raise InputError(f"counts: expected {ranks} sizes of 0 or more elements, got {list(counts)}")
    return tuple(counts)


def _one_buffer(sizes: tuple[int, ...]) -> ChunkLayout:
    starts = [0, *accumulate(sizes)]
    return ChunkLayout((starts[-1],), sizes, tuple((0, start) for start in starts[:-1]))
