"""Jobs that run on: records taken at different times, steps after them, a good end that the launcher tells of."""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate, islice, pairwise
from pathlib import PurePath

from msgspec.structs import replace

from ..groups.launches import stand_still, step_on
from ..nouns.calls import Group
from ..nouns.facts import (
    Absentees,
    DesyncReport,
    DumpOutlived,
    Exit,
    Fact,
    Failure,
    Heartbeat,
    PeerLost,
    StackTrace,
    Stalled,
    StoreWait,
    Succeeded,
    Timeout,
    TrainingEnded,
    of,
)
from ..nouns.launch_counts import LaunchCounts
from ..nouns.paces import Stepped
from ..nouns.position import HangPosition
from ..nouns.where import Where
from ..positions.stands import own_frames
from ..positions.waits import judged
from ..surroundings.outlived import STEP
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS

OF_ALL = {"all_reduce", "all_gather", "reduce_scatter", "barrier"}  # end nowhere before every member has come
_ZONES_S = 1800.0  # by which clocks of zones differ, and its multiples
_MOST_ZONE_S = 15 * 3600.0
_HANGS = (Timeout, Absentees, DesyncReport, Heartbeat, StoreWait, Stalled)
_OF_MACHINES = {"network", "host", "device", "host_memory", "killed"}
_DATE = re.compile(r"^\s*[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d (?:[AP]M )?[A-Z]{2,5} \d{4}\s*$")
_DAY_S = 86400.0
_CLOCK_IN_NAME = re.compile(r"(?:^|[._-])(?P<hour>[01]\d|2[0-3])[-_:h]?(?P<minute>[0-5]\d)$")  # `pyspy-1350`
_LATE = 1.5  # of the longest time between two steps, after which the next one is late
_PASSING = {"network", "host"}  # faults that a job waits out
_RECORD_WRITTEN = re.compile(
    r"dumping nccl trace to |finished writing (?:NCCLPG|Flight Recorder) debug info to ", re.IGNORECASE
)


def clocked_steps(messages: Sequence[LogMessage]) -> list[Fact]:
    """Return the times of the steps of one log, each of a larger number than all before; nothing of a log of none."""
    last, times_s, where = -1, [], None
    for message in messages:
        if message.where.time_s is None or not (found := STEP.search(message.text[:400])):
            continue
        number = int(found["number"] or found["done"])
        if number > last:
            last, where = number, message.where
            times_s.append(message.where.time_s)
    if where is None or len(times_s) < MANY_STEPS:
        return []
    return [Stepped(times_s=tuple(times_s), where=where, looked=_looked(messages, times_s))]


def _looked(messages: Sequence[LogMessage], times_s: Sequence[float]) -> Where | None:
    """Return the output of `date` in a paste by which the next step is not late yet, None for none."""
    late_s = _LATE * max(second - first for first, second in pairwise(times_s))
    for message in messages:
        at_s = message.where.time_s
        if at_s is not None and 0 <= at_s - times_s[-1] <= late_s and _DATE.match(message.text):
            return message.where
    return None


def without_outlived_dumps(facts: Sequence[Fact], messages: Sequence[LogMessage]) -> list[Fact]:
    """Return the facts of one log without stacks that were dumped on demand between its steps."""
    if not any(isinstance(fact, StackTrace) for fact in facts):
        return list(facts)
    steps = [
        (message.where, int(found["number"] or found["done"]))
        for message in messages
        if (found := STEP.search(message.text[:400]))
    ]
    lines = [where.line for where, _ in steps]
    largest = list(accumulate((number for _, number in steps), max))
    kept: list[Fact] = []
    for fact in facts:
        at = bisect.bisect(lines, fact.where.line) if isinstance(fact, StackTrace) else 0
        later = (where for where, number in islice(steps, at, None) if number > largest[at - 1])
        several = list(islice(later, MANY_STEPS)) if at else []
        kept.append(DumpOutlived(where=several[-1]) if len(several) == MANY_STEPS else fact)
    return kept


def outlived_records(facts: list[Fact], messages: Sequence[LogMessage]) -> list[Fact]:
    """Return the end of a training that one log tells of after its flight record was written; nothing without both."""
    written = [message.where.line for message in messages if _RECORD_WRITTEN.search(message.text)]
    ended = [end.where for end in of(facts, TrainingEnded) if written and end.where.line > written[-1]]
    return [DumpOutlived(where=where, of_record=True) for where in ended[:1]]


def _after_dumps(facts: list[Fact]) -> tuple[Where, ...]:
    """Return the lines that show that a job trained on after stacks were dumped: later steps, an end, other stacks.

    Where every process was dumped twice and stands elsewhere in its own code the second time, none stands still.
    """
    stacks = of(facts, StackTrace)
    outlived = [fact.where for fact in of(facts, DumpOutlived) if not fact.of_record]
    if not stacks:
        return tuple(outlived)
    if exited := [fact.where for fact in of(facts, TrainingEnded) if fact.exited]:
        return tuple(exited)
    ways: dict[object, list[object]] = defaultdict(list)
    for stack in stacks:
        ways[stack.rank if stack.rank is not None else (stack.pid, stack.host)].append(own_frames(stack))
    if len(ways) > 1 and all(len(dumps) > 1 and len(set(dumps)) > 1 for dumps in ways.values()):
        return tuple(stack.where for stack in stacks)
    taken_s = [stack.where.above_s for stack in stacks if stack.where.above_s is not None]
    if len(taken_s) < len(stacks):
        return _after_clocks_in_names([stack for stack in stacks if stack.where.above_s is None], facts)
    return tuple(log.where for log in of(facts, Stepped) if _is_between(max(taken_s), log.times_s))


def _after_clocks_in_names(stacks: Sequence[StackTrace], facts: list[Fact]) -> tuple[Where, ...]:
    """Return the last steps of the logs of less than a day in the midst of which dumps were taken, by their names."""
    files = {stack.where.file for stack in stacks}
    clocks = [clock for file in files if (clock := _CLOCK_IN_NAME.search(PurePath(file).stem))]
    logs = [log for log in of(facts, Stepped) if log.times_s[-1] - log.times_s[0] < _DAY_S]
    numbers = {int(clock["hour"] + clock["minute"]) for clock in clocks}
    if not clocks or len(clocks) < len(files) or numbers & {stack.pid for stack in stacks}:
        return ()
    of_day_s = max(int(clock["hour"]) * 3600.0 + int(clock["minute"]) * 60.0 for clock in clocks)
    return tuple(
        log.where
        for log in logs
        if any(
            _is_between(end_s // _DAY_S * _DAY_S + of_day_s, log.times_s) for end_s in (log.times_s[0], log.times_s[-1])
        )
    )


def _is_between(at_s: float, times_s: Sequence[float]) -> bool:
    """Whether several steps of a log come before a time, and several after it."""
    before = sum(time_s < at_s for time_s in times_s)
    after = sum(time_s > at_s + max(_usual_gap_s(times_s), 1.0) for time_s in times_s)
    return min(before, after) >= MANY_STEPS


def taken_earlier(groups: Iterable[Group]) -> frozenset[int]:
    """Return the ranks whose flight record was written before those of others.

    Another member has ended a call that ends nowhere before all have come, and the record does not have it: the rank
    came to it after its record was written, which therefore says nothing of where the rank is.
    """
    found: set[int] = set()
    for group in groups:
        ended = [
            call.seq
            for part in group.ranks.values()
            for call in part.calls.values()
            if call.ended and call.started and call.operation in OF_ALL
        ]
        last = max(ended, default=None)
        if last is not None:
            found |= {rank for rank in group.members if (p := group.ranks.get(rank)) and p.came_to(last) is False}
    return frozenset(found)


def judged_at_one_time(groups: Sequence[Group], excused: frozenset[int]) -> HangPosition | None:
    """Return what the groups hang in, without blame for ranks whose records are older than the others'."""
    earlier = taken_earlier(groups)
    if not earlier:
        return judged(groups, excused)
    now = [replace(g, ranks={rank: part for rank, part in g.ranks.items() if rank not in earlier}) for g in groups]
    found = judged(now, excused | earlier)
    if found is None:
        return None
    told = ", ".join(map(str, sorted(earlier)))
    missing = tuple(what for what in found.missing if not any(f"of rank {rank} (" in what for rank in earlier))
    missing += tuple(f"the flight record of rank {rank}, written when the others' were" for rank in sorted(earlier))
    why = f"{found.why}; the record of rank {told} was written before the others', which have ended later calls with it"
    return replace(found, why=why, missing=missing)


def goes_on(facts: list[Fact], groups: Sequence[Group]) -> tuple[Where, ...]:
    """Return the lines that show that the job runs on, or ended well, after all that looks like a fault; or none."""
    waits = [fact for fact in facts if isinstance(fact, _HANGS)]
    if waits or any(end.code for end in of(facts, Exit)) or not all(fact.well for fact in of(facts, Succeeded)):
        return ()
    kinds = {fault.kind for fault in of(facts, Failure) if not fault.is_over}
    if (well := [fact.where for fact in of(facts, Succeeded)]) and kinds <= _OF_MACHINES:
        return tuple(well)
    stacks = [fact for fact in facts if isinstance(fact, StackTrace | DumpOutlived) and not _of_record(fact)]
    if stacks and not groups:
        return () if kinds or of(facts, PeerLost) else _after_dumps(facts)
    if any(isinstance(fact, StackTrace | PeerLost) for fact in facts):
        return ()
    if not kinds and (later := _after_reports(facts) or step_on(facts)):
        return later
    if not kinds and (seen := [log for log in of(facts, Stepped) if log.looked is not None]):
        return tuple(where for log in seen for where in (log.where, log.looked) if where is not None)
    if groups:
        return () if kinds else _after_records(facts, groups)
    ended = of(facts, TrainingEnded)
    exited = [fact.where for fact in ended if fact.exited]
    if exited and kinds and kinds <= (_OF_MACHINES - {"killed"}) | {"device_memory", "exception"}:
        return tuple(exited)
    if not kinds or not {fault.kind for fault in of(facts, Failure) if _may_be_ours(fault)} <= _PASSING | {"device"}:
        return ()
    own = any(fault.rank is not None and not fault.is_over for fault in of(facts, Failure) if fault.kind == "device")
    # a kernel's log and a cluster's events are those of all jobs
    return () if own else tuple(fact.where for fact in ended)


def _may_be_ours(fault: Failure) -> bool:
    """Whether a fault is not over, and no event of a cluster that names none of the job's ranks."""
    is_event = fault.kind == "killed" and fault.what.startswith("Kubernetes: ")
    return not fault.is_over and not (is_event and fault.rank is None and not fault.ranks)


def _after_reports(facts: list[Fact]) -> tuple[Where, ...]:
    """Return the last steps of logs in the midst of which `ncclras` found ranks that had launched fewer calls.

    Not where two reports, one after the other, found the same: then the clocks are of two zones.
    """
    taken_s = [counts.where.above_s for counts in of(facts, LaunchCounts)]
    if not taken_s or None in taken_s or stand_still(facts):
        return ()
    return tuple(log.where for log in of(facts, Stepped) if _is_between(max(filter(None, taken_s)), log.times_s))


def _of_record(fact: Fact) -> bool:
    return isinstance(fact, DumpOutlived) and fact.of_record


_LAST_NS = 253_402_300_799 * 10**9  # the end of the year 9999, the last that a date can have


def _after_records(facts: list[Fact], groups: Sequence[Group]) -> tuple[Where, ...]:
    """Return the end that came after the records, or the last steps after their newest call, where no fault is told.

    The records' clock is UTC and a log's is that of a place: they are compared within half an hour.
    """
    if outlived := [fact.where for fact in of(facts, DumpOutlived) if fact.of_record]:
        return tuple(outlived)
    newest_ns = max((c.created_ns for g in groups for p in g.ranks.values() for c in p.calls.values()), default=0)
    if not 0 < newest_ns < _LAST_NS:
        return ()
    newest_s = _of_year(newest_ns * 1e-9)
    return tuple(fact.where for fact in of(facts, Stepped) if _steps_after(fact.times_s, newest_s) >= MANY_STEPS)


def _steps_after(times_s: Sequence[float], newest_s: float) -> int:
    """Return how many steps come surely after a time whose zone is not that of the steps."""
    apart_s = times_s[-1] - newest_s
    usual_s = _usual_gap_s(times_s)
    if abs(apart_s) > _MOST_ZONE_S or usual_s <= 0:
        return 0
    zone_s = round(apart_s / _ZONES_S) * _ZONES_S
    begun = any(time_s - zone_s < newest_s for time_s in times_s)
    after_s = [time_s for time_s in times_s if time_s - zone_s > newest_s + usual_s]
    return len(after_s) if begun and apart_s - zone_s > MANY_STEPS * usual_s else 0


def _usual_gap_s(times_s: Sequence[float]) -> float:
    """Return the median time between two steps of a log."""
    gaps_s = sorted(second - first for first, second in pairwise(times_s))
    return gaps_s[len(gaps_s) // 2]


def _of_year(epoch_s: float) -> float:
    """Return a time as the readers of logs count it (`clocks.time_of`)."""
    at = datetime.fromtimestamp(epoch_s, UTC)
    days = at.month * 31 + at.day
    return ((days * 24 + at.hour) * 60 + at.minute) * 60 + at.second + at.microsecond * 1e-6


def without_waited_out(facts: list[Fact]) -> list[Fact]:
    """Return the facts, links and servers that failed between the steps of a log by its clock marked as over.

    As many steps must come before as after: of a log that begins after the fault, or of another zone, nothing is known.
    A process that the kernel saw end is none of a job that makes several steps more than any two zones are apart later.
    """
    logs = [fact for fact in of(facts, Stepped) if not fact.where.is_utc]
    # a process of Ray's whose end one log shows to be over is told of by others, too
    over = {fault.what for fault in of(facts, Failure) if fault.is_over and fault.what.startswith("Ray ")}
    return [
        replace(fact, follows=True, is_over=True)
        if isinstance(fact, Failure) and (fact.what in over or _is_waited_out(fact, logs))
        else fact
        for fact in facts
    ]


def _is_waited_out(fact: Failure, logs: Sequence[Stepped]) -> bool:
    if fact.is_general or fact.where.time_s is None or fact.where.is_utc:
        return False
    if fact.kind == "killed" and fact.pid is not None and fact.rank is None and not fact.ranks:
        return any(fact.where.time_s < log.times_s[-MANY_STEPS] - _MOST_ZONE_S for log in logs)
    if fact.kind not in _PASSING and not (fact.kind == "host_memory" and fact.rank is None and not fact.ranks):
        return False
    at_s = fact.where.time_s
    return any(_is_between(at_s, log.times_s) for log in logs)
