"""The rule of the first fault: what failed before the others were left waiting, and on which rank."""

import re

from .case import Case, verdict_in_call, waiting_in
from .nouns.facts import Failure, StackTrace, of
from .nouns.identities import GpuPlace
from .nouns.verdict import Verdict
from .nouns.world import A_HOST, is_one_host, ranks_seen, short_host, world_of
from .positions.stack_positions import by_stacks

_LACKS_END = "which end of the link it is: counters of the ports at both ends (`ibstat`, `perfquery`) and of the switch"
_OWN_PORT = re.compile(
    r"InfiniBand event: port error|link (?:is )?down|health compromised|state change.*DOWN", re.IGNORECASE
)
_OF_MACHINES = {"device", "host_memory", "network"}  # befall a machine, whatever its ranks have called


def first_fault(case: Case) -> Verdict | None:
    """Return the verdict by the fault that came first, None where it explains nothing."""
    cause, position = case.cause, case.position
    if cause is None:
        return None
    ranks = cause.ranks
    blamed = position.blamed if position and position.certain else ()
    if cause.kind == "network" and blamed and not (position and position.silent and _saw_its_port(case)):
        return None  # a rank that is not there looks like a broken link to its peer
    if cause.kind == "exception" and cause.first.is_summary and position and position.kind in {"desync", "sizes"}:
        return None  # a launcher counts who ended first, not why: calls that differ raise on all
    if not ranks and not cause.is_general and cause.kind != "network" and position and position.certain:
        if position.kind != "absent" and cause.kind not in _OF_MACHINES:
            return None  # every rank is in its call: what failed without a name is none of them
        if len(blamed) == 1:
            if not cause.can_be_of(blamed[0], case.facts):
                return None
            ranks = blamed
    if not ranks and cause.kind in {"host", "data"} and not cause.is_general and not blamed:
        ranks = _stuck_alone(case)
    numbered = cause.first.is_summary or _numbers_gpus(case)  # a launcher counts its processes itself
    device = cause.first.device if numbered and not cause.is_general else None
    is_rank = device is not None and device < (world_of(case.facts) or A_HOST) and device not in waiting_in(case)
    if not ranks and device is not None and is_rank and len(ranks_seen(case.facts)) > 1 and is_one_host(case.facts):
        ranks = (device,)  # on one host torchrun gives rank n GPU n
    is_link = cause.kind == "network" and not cause.port
    told = bool(ranks) or (cause.is_general and not cause.port) or (is_link and not _both_ends(case))
    lacks = _LACKS_END if is_link else cause.lacks
    return verdict_in_call(
        cause.kind,
        cause.what,
        position=position,
        lines=cause.lines,
        ranks=ranks,
        unknown=not told,
        missing=() if told else (_with_place(lacks, cause.first.where.host, case),),
    )


def _with_place(lacks: str, place: str, case: Case) -> str:
    """Return what would tell whose fault it was, with the host or pod before its line, where other lines are here."""
    places = {fact.where.host for fact in case.facts} - {""}
    return f"{lacks} (the line of the fault is from {place})" if place and len(places) > 1 else lacks


def _stuck_alone(case: Case) -> tuple[int, ...]:
    """Return the one rank whose stack stands in its host or its data while all other stacks wait."""
    found = by_stacks(of(case.facts, StackTrace))
    if found is None or not found.certain or found.kind not in {"host", "data"} or len(found.blamed) != 1:
        return ()
    return () if set(found.blamed) & set(waiting_in(case)) else found.blamed


def _saw_its_port(case: Case) -> bool:
    """Whether a port told of its own fault, which the silence of a rank does not outweigh."""
    return any(_OWN_PORT.search(fact.what) for fact in _broken_links(case))


def _broken_links(case: Case) -> list[Failure]:
    """Return the complaints of broken links that follow from no other fault."""
    return [fact for fact in of(case.facts, Failure) if fact.kind == "network" and not fact.follows]


def _both_ends(case: Case) -> bool:
    """Whether hosts at both ends of a link complain of each other: which of them is the broken one is not told."""
    broken = _broken_links(case)
    own = {short_host(fact.host) for fact in broken if fact.host and _OWN_PORT.search(fact.what)}
    if len(own) == 1:
        return False  # a port that itself reports its fault
    return len({short_host(fact.host) for fact in broken if fact.host}) > 1


def _numbers_gpus(case: Case) -> bool:
    """Whether the processes see more GPUs than their own, which they would all call number 0."""
    if case.cause is not None and case.cause.kind == "device":
        return True  # a table of its host has the number
    return any(getattr(fact, "device", None) for fact in case.facts if not isinstance(fact, GpuPlace))
