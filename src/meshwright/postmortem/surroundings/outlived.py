"""Faults that a job outlived: its steps go on after them, so that they are no cause of a hang."""

import bisect
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, islice

from msgspec.structs import replace

from ..nouns.facts import (
    Absentees,
    DesyncReport,
    Exit,
    Fact,
    Failure,
    GroupProgress,
    Heartbeat,
    PeerLost,
    StoreWait,
    Timeout,
    TrainingEnded,
)
from ..nouns.paces import OutlivedWait
from ..text.lines import RESTART, LogMessage
from ..text.steps import MANY_STEPS, is_step

STEP = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|batch)\b[^\w\r\n]{0,12}(?P<number>\d{1,9})\b"
    r"|\| *(?P<done>\d{1,9})/\d+ \[",
    re.IGNORECASE,
)
_FOR_LONG = 12  # steps after a time-out: what waits in a buffer is printed late
_TRIES_LESS = re.compile(  # of a program that caught an error of memory and says so, as it looks for its batch size
    r"\b(?:fall(?:s|ing)?|fell) back\b|\b(?:reduc|halv|lower|decreas|shrink)ing\b|\bprob(?:e|ing)\b"
    r"|\b(?:re)?try(?:ing)? (?:again )?(?:(?:with|at) )?(?:an? )?(?:smaller|lower)\b|\b(?:tries|trying) again\b"
    r"|\b(?:re)?try(?:ing)? (?:again )?(?:with |at )?(?:(?:micro[ _-]?)?batch(?:[ _-]?size)?|m?bs)[ =:]+\d"
    r"|\bretry(?:ing)? (?:with|at) \d|\bbatch[ _-]?size (?:finder|search)\b",
    re.IGNORECASE,
)
_OF_MEMORY = re.compile(r"\bbatch|\bm?bs\b|memory|\bOOM\b", re.IGNORECASE)  # of what it tries less
_NEAR = 12  # messages behind an error, in which a program says that it caught it
_ABOVE = 2  # messages: what goes to another stream may come before the error
_ENDED_WELL = (
    re.compile(  # of launchers that wait for all ranks of a host, or for a job: torchrun's, Kubeflow's, SageMaker's
        # and of nccl-tests, below its table, that no value was wrong
        r"\] worker group successfully finished\.|\bworker group finished \((?:WorkerState\.)?SUCCEEDED\)"
        r"|Job \S+ is successfully completed\.|\bReporting training SUCCESS\b"
        r"|^# Out of bounds values : 0 OK\s*$"
    )
)
_NO_SOURCE = ("", None, "")
_BREAKS = (Timeout, GroupProgress, DesyncReport, Absentees, Heartbeat, StoreWait, PeerLost, Exit)
_WAITS = (Timeout, GroupProgress, DesyncReport, Absentees, Heartbeat)


def without_outlived(facts: Sequence[Fact], messages: Sequence[LogMessage]) -> list[Fact]:
    """Return the facts of one file without links and stores that failed before its ranks made several steps more.

    A link that failed while nobody used it, or that a library tried again, does no harm. Where the rank that tells of
    it prints steps, its own count.
    """
    facts = _without_what_ended_well(facts, messages)
    steps: dict[int | None, list[int]] = defaultdict(list)
    for message in messages:
        if is_step(message.text):
            steps[message.rank].append(message.where.line)
    if not steps:
        return list(facts)
    everybody = [line for lines in steps.values() for line in lines]
    found: list[Fact] = []
    waits = [fact.where.line for fact in facts if isinstance(fact, _WAITS)]
    over = _last_outlived(waits, messages)
    ends = [f.where.line for f in facts if isinstance(f, Exit) or (isinstance(f, Failure) and not f.is_general)]
    ended = max(_last_outlived(ends, messages, by_clock=True), _last_restart_outlived(ends, messages))
    caught = _last_outlived([f.where.line for f in facts if _may_be_caught(f)], messages)
    last = max((f.where.line for f in facts if isinstance(f, Failure) and f.kind == "device_memory"), default=0)
    broken = max((fact.where.line for fact in facts if isinstance(fact, _BREAKS)), default=0)
    less = _where_less_is_tried(facts, messages)
    for fact in facts:
        own = steps.get(getattr(fact, "rank", None)) or everybody
        if isinstance(fact, Failure) and _was_tried(fact, own, less) and broken < fact.where.line:
            found.append(replace(fact, follows=True, is_over=True))
            continue
        if isinstance(fact, Failure) and fact.kind == "device_memory" and fact.where.line < last:
            later = [line for line in everybody if fact.where.line < line < last]
            if later and _TRIES_LESS.search(fact.where.text):
                found.append(replace(fact, follows=True, is_over=True))
                continue
        if isinstance(fact, Exit) and fact.where.line <= ended:
            continue
        is_caught = _may_be_caught(fact) and fact.where.line <= caught
        if isinstance(fact, Failure) and not fact.is_general and (is_caught or fact.where.line <= ended):
            found.append(replace(fact, follows=True, is_over=True))
            continue
        if isinstance(fact, _WAITS) and fact.where.line <= over:
            if isinstance(fact, Timeout):
                found.append(_outlived(fact))
            continue
        if isinstance(fact, StoreWait | PeerLost) or (isinstance(fact, Failure) and _may_be_over(fact)):
            own = steps.get(fact.rank, everybody) if fact.rank is not None else everybody
            if sum(line > fact.where.line for line in own) >= MANY_STEPS:
                if isinstance(fact, Failure):
                    found.append(replace(fact, follows=True, is_over=True))
                continue
        found.append(fact)
    return found


def _outlived(wait: Timeout) -> OutlivedWait:
    who = f"rank {wait.rank}" if wait.rank is not None else "a rank"
    call = f"{wait.operation or 'a call'}{f' #{wait.seq}' if wait.seq is not None else ''}"
    return OutlivedWait(what=f"{who} in {call}", where=wait.where)


def _without_what_ended_well(facts: Sequence[Fact], messages: Sequence[LogMessage]) -> Sequence[Fact]:
    """Return the facts of one file without what a launcher outlived that saw its ranks end well, and that end.

    Not where anything failed after it: then another run's log follows. Where lines bear a host, a task or a pod, the
    launcher of one of them tells of its own ranks alone.
    """
    scripts = (message for message in messages if not message.is_of_library)
    ends = {_source(message): message for message in scripts if _ENDED_WELL.search(message.text)}
    if not ends:
        return facts
    sources = {message.where.line: _source(message) for message in messages}
    if len({message.host for message in messages if message.host}) < 2 and set(ends) == {_NO_SOURCE}:
        sources = {}  # the host of NCCL's own lines
    kept: list[Fact] = []
    for fact in facts:
        end = ends.get(sources.get(fact.where.line, _NO_SOURCE))
        if not isinstance(fact, (*_BREAKS, Failure)) or (isinstance(fact, Failure) and fact.is_general):
            kept.append(fact)
        elif end is None or fact.where.line > end.where.line:
            return facts
        elif isinstance(fact, Failure):
            kept.append(replace(fact, follows=True, is_over=True))
    told = ((end.where, not end.text.startswith("#")) for end in ends.values())
    return [*kept, *(TrainingEnded(rank=None, exited=is_launchers, where=where) for where, is_launchers in told)]


def _source(message: LogMessage) -> tuple[str, int | None, str]:
    """Return whose launcher or rank a line is of: the host, the task and the pod before it."""
    return message.host, message.task, message.pod


def _where_less_is_tried(facts: Sequence[Fact], messages: Sequence[LogMessage]) -> set[int]:
    """Return the lines of errors of memory beside which their rank, or another one with such an error, tries less."""
    out = {fact.where.line: fact for fact in facts if isinstance(fact, Failure) and fact.kind == "device_memory"}
    ranks = {None, *(fact.rank for fact in out.values())}
    found: set[int] = set()
    for at, message in enumerate(messages if out else ()):
        if message.where.line not in out:
            continue
        for beside in (*messages[max(0, at - _ABOVE) : at], *messages[at + 1 : at + 1 + _NEAR]):
            text = beside.text[:400]
            if beside.rank in ranks and _OF_MEMORY.search(text) and _TRIES_LESS.search(text):
                found.add(message.where.line)
    return found


def _was_tried(fault: Failure, steps: Sequence[int], less: set[int]) -> bool:
    """Whether a program says of an error of memory that it tries less, and then made several steps.

    It says so in the line of the error, or beside it: the error is then one of the lines `less`.
    """
    if fault.kind != "device_memory":
        return False
    if fault.where.line not in less and not _TRIES_LESS.search(fault.where.text):
        return False
    return sum(line > fault.where.line for line in steps) >= MANY_STEPS


def _may_be_over(fault: Failure) -> bool:
    """Whether a job may outlive a fault: of a link, or of a process that Ray starts again."""
    return fault.kind == "network" or fault.what.startswith("Ray killed a worker")


def _may_be_caught(fact: Fact) -> bool:
    """Whether a fact is a failure that a program may catch, and go on: of memory, or of its data."""
    return isinstance(fact, Failure) and fact.kind in {"device_memory", "data"}


def _last_outlived(waits: Sequence[int], messages: Sequence[LogMessage], *, by_clock: bool = False) -> int:
    """Return the line of the last wait or end after which many steps more came, 0 where there is none.

    They have larger numbers than all before it and, where both have a clock, come later: logs of several ranks in one
    file, one behind the other, show neither. `by_clock` asks for both clocks: a program that ends prints what was left
    in its buffer.
    """
    steps = [
        (message.where, int(found["number"] or found["done"]))
        for message in (messages if waits else ())
        if not message.is_of_library and (found := STEP.search(message.text[:400]))
    ]
    lines = [where.line for where, _ in steps]
    # one wait of those between two steps, the last, that has enough steps behind it
    last = {bisect.bisect_right(lines, line): line for line in sorted(waits)}
    candidates = [line for after, line in last.items() if 0 < after <= len(lines) - _FOR_LONG]
    times_s = _times_before(messages) if candidates else {}
    until = list(accumulate((number for _, number in steps), max))
    since = list(accumulate((number for _, number in reversed(steps)), max))[::-1]
    for line in reversed(candidates):
        first, after = bisect.bisect_left(lines, line), bisect.bisect_right(lines, line)
        at_s = times_s.get(line)
        if not first or since[after] <= until[first - 1] or (by_clock and at_s is None):
            continue
        numbers: set[int] = set()
        for where, number in islice(steps, after, None):
            later = not by_clock if at_s is None or where.time_s is None else where.time_s > at_s
            if later and number > until[first - 1]:
                numbers.add(number)
        if len(numbers) >= _FOR_LONG:
            return line
    return 0


def _last_restart_outlived(ends: Sequence[int], messages: Sequence[LogMessage]) -> int:
    """Return the line of the last word of a launcher that it starts the ranks anew, after which many steps more came.

    It waits until its processes are gone: no step behind it was left in a buffer. 0 where nothing ended or came.
    """
    again = [message.where.line for message in messages if ends and RESTART.search(message.text)]
    return _last_outlived(again, messages)


def _times_before(messages: Sequence[LogMessage]) -> dict[int, float]:
    """Return when each line was written, by its own clock or the latest of the lines above it."""
    found: dict[int, float] = {}
    latest_s: float | None = None
    for message in messages:
        if message.where.time_s is not None:
            latest_s = message.where.time_s if latest_s is None else max(latest_s, message.where.time_s)
        if latest_s is not None:
            own_s = message.where.time_s
            found[message.where.line] = latest_s if own_s is None else own_s
    return found
