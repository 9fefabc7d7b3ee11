"""NCCL's versions of ranks that cannot meet, and the few that have another than the many."""

from msgspec.structs import replace

from ...units import shortened
from ..nouns.facts import Fact, Failure, Versions, VersionSeen, of
from ..nouns.identities import Spoke
from ..nouns.position import minority
from ..nouns.world import world_of
from ..ranks.hosts import ranks_of_host


def with_the_few(facts: list[Fact]) -> list[Fact]:
    """Return the facts, the refusals of NCCL with the ranks of the fewer, where the version of every rank is told.

    Each rank compares itself with the first that differs, which is only the first of its host.
    """
    told = of(facts, Versions)
    versions = _by_rank(facts) if told else None
    if not versions or set(versions) != set(range(world_of(facts) or max(versions) + 1)):
        return facts
    few, certain = minority(versions)
    if not certain or len({versions[rank] for rank in few}) != 1:
        return facts
    many = next(version for rank, version in versions.items() if rank not in few)
    who = f"rank {few[0]} has" if len(few) == 1 else f"ranks {shortened(few)} have"
    what = f"{who} NCCL {versions[few[0]]}, the others {many}: the same version is needed everywhere"
    lines = {fact.where for fact in told}
    heard = [Spoke(rank=rank, where=fact.where) for fact in told for rank, _ in fact.versions]
    told_apart = [
        replace(fact, what=what, rank=None, pid=None, ranks=few, is_general=False)
        if isinstance(fact, Failure) and fact.where in lines and fact.is_general
        else fact
        for fact in facts
    ]
    return [*told_apart, *heard]


def _by_rank(facts: list[Fact]) -> dict[int, str] | None:
    """Return the version of each rank that the files tell, None where they tell two of one rank.

    By the refusals, by the errors of ranks, and by the lines of the processes of a host of which the ranks are known.
    """
    found = {(rank, version) for fact in of(facts, Versions) for rank, version in fact.versions}
    found |= {(seen.rank, seen.version) for seen in of(facts, VersionSeen) if seen.rank is not None}
    hosts = {(seen.host, seen.version) for seen in of(facts, VersionSeen) if seen.host and seen.rank is None}
    found |= {(rank, version) for host, version in hosts for rank in ranks_of_host(host, facts)}
    versions = dict(found)
    return versions if len(versions) == len(found) else None
