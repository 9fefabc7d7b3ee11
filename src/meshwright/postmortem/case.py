"""The case: everything that was read of one job, and a verdict on it with the lines that show it."""

import msgspec

from .nouns.calls import Group
from .nouns.evidence import in_time
from .nouns.facts import Fact
from .nouns.next_steps import next_steps
from .nouns.position import HangPosition
from .nouns.verdict import Kind, Verdict
from .nouns.where import Where
from .reasons.causes import Cause


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read of one job: facts of its last attempt, groups of its flight records, what both tell."""

    facts: list[Fact]
    position: HangPosition | None  # by flight records, else by the logs
    groups: list[Group] = []
    cause: Cause | None = None
    went_on: tuple[Where, ...] = ()  # lines that show that the job runs on, or ended well
    unread: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()  # what files do not tell of whose their lines are
    files: int = 0


def verdict_in_call(
    kind: Kind,
    because: str,
    *,
    position: HangPosition | None,
    lines: tuple[Where, ...],
    ranks: tuple[int, ...] = (),
    unknown: bool = False,
    missing: tuple[str, ...] | None = None,
) -> Verdict:
    """Return a verdict in the call of a position, whose lines come after the rule's; `missing` None: what it lacks."""
    told = position or HangPosition(kind="none")
    return Verdict(
        kind=kind,
        rank=ranks[0] if len(ranks) == 1 else None,
        ranks=ranks if len(ranks) > 1 else (),
        unknown=unknown,
        because=because,
        group=str(told.group) or None if told.group else None,
        collective=told.operation or None,
        seq=told.seq,
        waiting=tuple(rank for rank in told.waiting if rank not in ranks),
        evidence=in_time((*lines, *told.evidence), ranks),
        missing=told.missing if missing is None else missing,
        next=next_steps(kind, told.operation, because, blames=bool(ranks)),
        silent=told.silent and bool(ranks) and set(ranks) <= set(told.blamed),
    )


def waiting_in(case: Case) -> tuple[int, ...]:
    """Return the ranks that wait in the call of the position."""
    return case.position.waiting if case.position else ()
