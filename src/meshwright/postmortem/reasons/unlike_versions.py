"""NCCL's versions of ranks that cannot meet, and the few that have another than the many."""

from msgspec.structs import replace

from ...units import ranks_in_words, shortened
from ..nouns.facts import Fact, Failure, Versions, VersionSeen, of
from ..nouns.identities import Spoke
from ..nouns.names import UNLIKE_BOOTSTRAPS
from ..nouns.position import minority
from ..nouns.world import world_of
from ..ranks.hosts import ranks_of_host

_UNLIKE = "ranks have unlike versions of NCCL"
_NEEDED = "the same version is needed everywhere"


def with_the_few(facts: list[Fact]) -> list[Fact]:
    """Return the facts, the refusals of NCCL with the ranks of the fewer, where the version of every rank is told.

    Each rank compares itself with the first that differs, which is only the first of its host.
    """
    facts = _with_versions(facts)
    told = of(facts, Versions)
    versions = _by_rank(facts) if told else None
    if not versions or set(versions) != set(range(world_of(facts) or max(versions) + 1)):
        return facts
    few, certain = minority(versions)
    if not certain or len({versions[rank] for rank in few}) != 1:
        return facts
    many = next(version for rank, version in versions.items() if rank not in few)
    who = f"rank {few[0]} has" if len(few) == 1 else f"ranks {shortened(few)} have"
    what = f"{who} NCCL {_readable(versions[few[0]])}, the others {_readable(many)}: {_NEEDED}"
    lines = {fact.where for fact in told}
    heard = [Spoke(rank=rank, where=fact.where) for fact in told for rank, _ in fact.versions]
    told_apart = [
        replace(fact, what=what, rank=None, pid=None, ranks=few, is_general=False)
        if isinstance(fact, Failure) and fact.is_general and (fact.where in lines or fact.what.startswith(_UNLIKE))
        else fact
        for fact in facts
    ]
    return [*told_apart, *heard]


def _with_versions(facts: list[Fact]) -> list[Fact]:
    """Return the facts, and beside messages of unlike sizes the versions that differ, where the files tell them."""
    seen = of(facts, VersionSeen)
    versions = _by_rank(facts) or {}
    whose: dict[str, list[int]] = {}
    for rank, version in versions.items():
        whose.setdefault(version, []).append(rank)
    if len({one.version for one in seen}) < 2:
        return facts
    who = [f"{_readable(v)} on {ranks_in_words(r)}" for v, r in sorted(whose.items())]
    who = who if len(who) > 1 else [_readable(version) for version in sorted({one.version for one in seen})]
    what = f"{_UNLIKE} ({', '.join(who)}): {_NEEDED}"
    lines = {one.version: one.where for one in reversed(seen)}
    found: list[Fact] = []
    for fact in facts:
        if not (isinstance(fact, Failure) and fact.what.startswith(UNLIKE_BOOTSTRAPS)):
            found.append(fact)
            continue
        found.append(replace(fact, what=what))
        found += [replace(fact, what=what, where=where) for where in lines.values()]
        if versions:
            found.append(Versions(versions=tuple(versions.items()), where=fact.where))
    return found


def _readable(code: str) -> str:
    """Return a version as NCCL compares it, 22602, as people write it, 2.26.2."""
    return f"{code[0]}.{int(code[1:3])}.{int(code[3:])}" if len(code) == len("22602") and code.isdigit() else code


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
