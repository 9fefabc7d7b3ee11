"""The rule of host calls: c10d's heartbeat tells a watchdog that stands still from one that waits."""

from collections.abc import Sequence

from .case import Case, verdict_in_call
from .nouns.facts import Heartbeat, of
from .nouns.verdict import Verdict
from .nouns.world import ranks_seen

_SHORTLY_S = 120.0


def host_call(case: Case) -> Verdict | None:
    """Return the rank whose watchdog stood still while the others waited for it, None where no heartbeat tells that."""
    beats = of(case.facts, Heartbeat)
    ranks = {fact.rank for fact in beats if fact.rank is not None}
    position = case.position
    if not beats:
        return None
    lines = tuple(fact.where for fact in beats)
    because = "the watchdog of a rank stood still: a call into the driver or NCCL does not return on its host"
    if position is not None and position.blamed:
        both = tuple(sorted(ranks & set(position.blamed)))
        if not both or _stood_like_others(beats, set(position.waiting)):
            return None
        return verdict_in_call("host", because, position=position, lines=lines, ranks=both)
    if position is not None and position.certain and ranks <= set(position.waiting):
        return None
    alone = len(ranks) == 1 and len(ranks_seen(case.facts)) > 1
    return verdict_in_call(
        "host", because, position=position, lines=lines, ranks=tuple(ranks) if alone else (), unknown=not alone
    )


def _stood_like_others(beats: Sequence[Heartbeat], waiting: set[int]) -> bool:
    """Whether the watchdogs of ranks that wait stood still, too, and none of another rank's did so long before."""
    theirs = [beat.where for beat in beats if beat.rank in waiting]
    own = [beat.where for beat in beats if beat.rank not in waiting]
    times_s = [(one.time_s, other.time_s) for one in own for other in theirs]
    return bool(theirs) and not all(
        one is not None and other is not None and other - one > _SHORTLY_S for one, other in times_s
    )
