"""The one gate that every verdict passes before it names a rank: what is known of that rank, and of all the others."""

from itertools import pairwise

from msgspec.structs import replace

from ..units import shortened
from .nouns.facts import DesyncReport, Exit, Fact, Failure, StackTrace, Timeout, of
from .nouns.identities import OwnCallFailed
from .nouns.next_steps import next_steps
from .nouns.position import HangPosition
from .nouns.verdict import Verdict
from .nouns.world import A_HOST, ranks_seen, world_of
from .positions.stands import WAITS, stand_of
from .ranks.exits import CLOCKS_S
from .reasons.causes import Cause, is_ordered

LEAST_WAITING = 2  # ranks that show who is waited for, unless there are no others
MOST_BY_SILENCE = 2  # where every other rank is seen to wait; else 1, since either may be the innocent one
_ALIKE_S = 5.0  # between the lines of ranks that give up one call
_BY_SILENCE_ALONE = "missing-rank"


def named(
    verdict: Verdict, *, facts: list[Fact], position: HangPosition | None, cause: Cause | None, members: set[int]
) -> Verdict:
    """Return a verdict as it is where it may name its ranks, else the same kind with nobody named, as unknown.

    `members` are the ranks of the groups of flight records of which all are known. A rank may be named only where
    both hold:

    - Evidence is of that rank itself: its own fault before the others' time-outs, its own stack or call that differs
      from the others', its own count behind theirs, or a report that names it. Silence is none of these; it counts only
      for one rank, or for two where every other rank of the job waits in one call, and only where nothing shows that
      these came.
    - The others are accounted for: each is seen in the call that waits for it. A report that names who is missing
      (a monitored barrier, a desync report) says this itself, and so does a fault that ends a process.
    """
    if not verdict.blamed:
        return verdict
    if cause is not None and set(verdict.blamed) <= set(cause.ranks) and verdict.rule == "first-fault":
        doubt = _doubt_of_code(cause, facts) or _doubt_of_device(cause, position, facts)
    elif position is not None and position.silent and set(verdict.blamed) <= set(position.blamed):
        doubt = _doubt_of_silence(verdict, position, facts, members)
    elif verdict.rule == "host-call" and (position is None or not position.blamed):
        doubt = _doubt_of_unseen(verdict.blamed, facts)
    else:
        doubt = ""
    if not doubt:
        return verdict
    lacks = tuple(f"the log or flight record of rank {rank}" for rank in verdict.blamed)
    missing = tuple(dict.fromkeys((*verdict.missing, *lacks)))
    because = f"{verdict.because}; {doubt}, so that nobody can be named"
    steps = next_steps(verdict.kind, verdict.collective or "", because, blames=False)
    return replace(
        verdict, rank=None, ranks=(), unknown=True, silent=False, because=because, missing=missing, next=steps
    )


def _doubt_of_code(cause: Cause, facts: list[Fact]) -> str:
    """Return why the code with which a rank gave up says nothing, "" where its fault says what it was.

    A launcher sees first the rank that gives up first, which may have been left waiting; it then ends the others.
    Where its clock shows that this rank ended well before all others that it saw end, its code is no echo of theirs.
    """
    if cause.kind != "exception" or not all(line == cause.first.where for line in cause.lines):
        return ""
    others = (ranks_seen(facts) | set(range(world_of(facts) or 0))) - set(cause.ranks)
    if _ended_first(set(cause.ranks), facts):
        return ""
    doubted = cause.first.is_summary and (others or _is_lone_task(cause, facts))
    return "a code alone does not say whether this rank waited" if doubted else ""


def _is_lone_task(cause: Cause, facts: list[Fact]) -> bool:
    """Whether srun tells of one task's code and of no other task: it does not say that this was the first to end."""
    told = {rank for fault in of(facts, Failure) for rank in fault.ranks} | {end.task for end in of(facts, Exit)}
    return cause.first.where.text.startswith("srun: ") and not told - {None, *cause.ranks} and world_of(facts) != 1


def _doubt_of_device(cause: Cause, position: HangPosition | None, facts: list[Fact]) -> str:
    """Return that the GPU of a rank that waits like the others may have failed at another time, "" where it did not.

    A kernel's log goes back for weeks: without a clock in common with the time-outs its faults may be of former jobs.
    """
    if cause.kind != "device" or position is None or not position.certain or not position.blamed:
        return ""
    if not set(cause.ranks) <= set(position.waiting) or set(cause.ranks) & set(position.blamed):
        return ""
    if is_ordered(cause.first, [fact.where for fact in of(facts, Timeout)]):
        return ""
    ranks, missing = shortened(cause.ranks), shortened(position.blamed)
    return f"rank {ranks} waits like the others, for rank {missing}, and no clock says whether its GPU failed before"


def _ended_first(ranks: set[int], facts: list[Fact]) -> bool:
    """Whether a launcher's clock shows that ranks ended before all others of which it says when they ended."""
    ends = of(facts, Exit)
    own_s = [end.time_s for end in ends if end.rank in ranks]
    later_s = [end.time_s for end in ends if end.rank not in ranks]
    if not own_s or not later_s or None in own_s or None in later_s:
        return False
    waited_s = [fact.where.time_s for fact in of(facts, Timeout) if fact.where.time_s is not None]
    first_s, last_s = min(filter(None, (*later_s, *waited_s))), max(filter(None, own_s))
    return first_s - last_s > CLOCKS_S


def _doubt_of_silence(verdict: Verdict, position: HangPosition, facts: list[Fact], members: set[int]) -> str:
    """Return why ranks that say nothing may be innocent, "" where one of them alone is not accounted for."""
    blamed = verdict.blamed
    world = world_of(facts)
    others = (set(range(world)) if world else members) - set(blamed)
    if len(blamed) > 1 and not _are_all_but(blamed, others, facts, position):
        return f"ranks {shortened(blamed)} say nothing, and one of them may wait like the others"
    waits = {fact.rank for fact in of(facts, StackTrace) if stand_of(fact).kind in WAITS}
    reported = {rank for report in of(facts, DesyncReport) for rank in came_to(report)}
    if came := set(blamed) & (reported | waits | _gave_up_alike(facts)):
        return f"rank {shortened(tuple(came))} says nothing itself, and another line shows it waiting"
    if (
        position.kind != "killed"
        and len(position.waiting) < LEAST_WAITING
        and not (others and others <= set(position.waiting))
    ):
        return "too few of the others are seen to wait for it"
    if verdict.rule == _BY_SILENCE_ALONE and world is None and _are_places(facts):
        return "these numbers count inside a group, and nothing says that it is the group of all ranks"
    if position.operation in {"send", "recv"} and len(position.waiting) > 1:
        return f"every rank that is heard stands in {position.operation}, and so may this one"
    return ""


def _gave_up_alike(facts: list[Fact]) -> set[int]:
    """Return the ranks whose watchdog gave up a call of their own in the seconds in which others timed out.

    A rank that never came has no such call; it meets the broken links of the others when it comes, some time later.
    """
    times_s = [(fact.where.time_s, fact.where.is_utc) for fact in of(facts, Timeout) if fact.where.time_s is not None]
    return {
        fact.rank
        for fact in of(facts, OwnCallFailed)
        if fact.where.time_s is not None
        and any(abs(fact.where.time_s - s) < _ALIKE_S and is_utc == fact.where.is_utc for s, is_utc in times_s)
    }


def _are_all_but(blamed: tuple[int, ...], others: set[int], facts: list[Fact], position: HangPosition) -> bool:
    """Whether ranks are few enough and all others of the job are seen to wait in one call.

    Where no line says how many ranks there are, whole hosts are all: the numbers then end where a host's do.
    """
    ranks = {*ranks_seen(facts), *blamed}
    if not others and (max(ranks) + 1) % A_HOST == 0:
        others = set(range(max(ranks) + 1)) - set(blamed)
    return len(blamed) <= MOST_BY_SILENCE and bool(others) and others <= set(position.waiting)


def _are_places(facts: list[Fact]) -> bool:
    """Whether all time-outs say only a place inside a group, and nothing shows that it is the group of all ranks.

    A torch that prints both sizes is about to print the rank in front, too: a log without it is not whole, unless it is
    spread over the files of several hosts whose places go on from one to the next. Of an older one the place is all.
    """
    timeouts = of(facts, Timeout)
    if not timeouts or not all(fact.counted_in_group and fact.group is None for fact in timeouts):
        return False
    if all(fact.numel_out is None for fact in timeouts):
        return False
    found: dict[str, set[int | None]] = {}
    for fact in timeouts:
        found.setdefault(fact.where.file, set()).add(fact.rank)
    files = sorted(found.values(), key=lambda ranks: min(rank or 0 for rank in ranks))
    continued = all(max(r or 0 for r in one) < min(r or 0 for r in two) for one, two in pairwise(files))
    return not (len(files) > 1 and continued)


def came_to(report: DesyncReport) -> set[int]:
    """Return the ranks that a desync report shows in a call: they joined one and did not finish it."""
    return {rank for _, ranks in report.unfinished for rank in ranks}


def _doubt_of_unseen(blamed: tuple[int, ...], facts: list[Fact]) -> str:
    """Return that some ranks of the job are not in the files at all, "" where each is."""
    seen = ranks_seen(facts)
    unseen = set(range(world_of(facts) or max(seen) + 1)) - seen - set(blamed)
    return f"of ranks {shortened(tuple(unseen))} there is no line here" if unseen else ""
