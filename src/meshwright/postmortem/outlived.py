"""Faults that a job outlived: its steps go on after them, so that they are no cause of a hang."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from .endings import MANY_STEPS, WENT_ON
from .facts import Fact, Failure, PeerLost, StoreWait
from .lines import LogMessage


def without_outlived(facts: Sequence[Fact], messages: Sequence[LogMessage]) -> list[Fact]:
    """Return the facts of one file without links and stores that failed before its ranks made several steps more.

    A link that failed while nobody used it, or that a library tried again, does no harm. Where the rank that tells of
    it prints steps, its own count.
    """
    steps: dict[int | None, list[int]] = defaultdict(list)
    for message in messages:
        if WENT_ON.search(message.text):
            steps[message.rank].append(message.where.line)
    if not steps:
        return list(facts)
    everybody = [line for lines in steps.values() for line in lines]
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact, StoreWait | PeerLost) or (isinstance(fact, Failure) and _may_be_over(fact)):
            own = steps.get(fact.rank, everybody) if fact.rank is not None else everybody
            if sum(line > fact.where.line for line in own) >= MANY_STEPS:
                if isinstance(fact, Failure):
                    found.append(replace(fact, follows=True, is_over=True))
                continue
        found.append(fact)
    return found


def _may_be_over(fault: Failure) -> bool:
    """Whether a job may outlive a fault: of a link, or of a process that Ray starts again."""
    return fault.kind == "network" or fault.what.startswith("Ray killed a worker")
