"""The ranks that the files speak of, and how many there are."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from .facts import Absentees, Fact, Fingerprint, RankIdentity, Spoke, WorldSize, of

MOST_RANKS = 2**17  # a larger number in a line is no rank
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*")
A_HOST = 8  # ranks that usually share a host: as many silent ones in a row are a log that was not collected


def of_real_ranks(fact: Fact) -> Fact | None:
    """Return a fact without ranks that no job has, numbers of damaged lines; None where it tells of nobody else."""
    rank, ranks = getattr(fact, "rank", None), getattr(fact, "ranks", None)
    if isinstance(rank, int) and not 0 <= rank < MOST_RANKS:
        if isinstance(fact, Spoke | RankIdentity | Fingerprint):
            return None
        fact = replace(fact, rank=None)
    if isinstance(ranks, tuple) and any(not 0 <= one < MOST_RANKS for one in ranks):
        kept = tuple(one for one in ranks if 0 <= one < MOST_RANKS)
        return replace(fact, ranks=kept) if kept or not isinstance(fact, Absentees) else None
    return fact


def is_address(host: str) -> bool:
    """Return whether a host is called by its address."""
    return _ADDRESS.fullmatch(host) is not None


def short_host(host: str) -> str:
    """Return the name of a host without its domain; an address as it is."""
    return host if is_address(host) else host.split(".")[0]


def ranks_seen(facts: Iterable[Fact]) -> set[int]:
    """Return every rank that some line names."""
    return {rank for fact in facts if isinstance(rank := getattr(fact, "rank", None), int) and 0 <= rank < MOST_RANKS}


def world_of(facts: list[Fact]) -> int | None:
    """Return the number of ranks where a line says it and no larger rank was seen; None where it is not known."""
    sizes = [fact.ranks for fact in of(facts, WorldSize)]
    sizes += [fact.ranks for fact in of(facts, RankIdentity) if fact.ranks]
    largest = max((size for size in sizes if size <= MOST_RANKS), default=0)
    return largest if largest > max(ranks_seen(facts), default=0) else None


def with_own_files(facts: list[Fact]) -> set[int] | None:
    """Return the ranks that have a file each, empty or not; None where ranks share files.

    Of a rank whose file is not among them nothing is known: that it is not heard is no silence.
    """
    speakers: dict[str, set[int]] = {}
    for fact in of(facts, Spoke):
        if fact.where.rank in {None, fact.rank}:
            speakers.setdefault(fact.where.file, set()).add(fact.rank)
    if len(speakers) < 2 or any(len(ranks) > 1 for ranks in speakers.values()):
        return None
    return {rank for ranks in speakers.values() for rank in ranks}
