"""The rules that turn what was read into a verdict: each has a name and a reason, the first that applies decides."""

from collections.abc import Callable, Mapping

import msgspec

from .case import Case, verdict_in_call
from .first_fault import first_fault
from .heartbeats import host_call
from .libraries.inits import not_begun_yet
from .libraries.slowdowns import by_slowdown
from .lost_numbers import after_lost_numbers, lost_numbers
from .lost_workers import lost_worker
from .naming import named
from .nouns.evidence import in_time
from .nouns.facts import (
    Busy,
    CodeFrame,
    Exit,
    Fact,
    Failure,
    PeerLost,
    Shortened,
    StackTrace,
    Succeeded,
    Timeout,
    TrainingEnded,
    of,
)
from .nouns.identities import Began, NotStarted, Placed
from .nouns.next_steps import NEXT
from .nouns.paces import OutlivedWait, Stepped
from .nouns.verdict import Kind, Verdict
from .nouns.where import Where
from .nouns.world import ranks_of_job
from .past_the_end import past_the_end
from .positions.own_ways import by_own_way
from .positions.stack_positions import by_stacks, with_left
from .positions.stands import WAITS, stand_of
from .reasons.causes import all_least_evidence, least_evidence
from .reasons.network_alarms import MOST, network_alarms
from .reasons.slow_links import with_slow_link
from .reasons.slow_ranks import who_is_slow
from .scripts.data_waits import by_data
from .scripts.two_runs import by_two_runs
from .surroundings.batch import STORE_ENDED
from .surroundings.busy_with_data import DOWNLOAD


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: `apply` returns a verdict, or None where the rule has nothing to say."""

    name: str
    reason: str
    apply: Callable[[Case], Verdict | None]


_SHORTLY_S = 120.0
_FEW = 8  # pods that are told one by one
_STEPS = "; the last step that a log has is below"


def decide(case: Case) -> Verdict:
    """Return the verdict of the first rule that has one."""
    for rule in RULES:
        if found := rule.apply(case):
            missing = tuple(dict.fromkeys((*found.missing, *case.unread, *(case.untold if found.unknown else ()))))
            found = msgspec.structs.replace(found, rule=rule.name, missing=missing, read=case.files)
            found = past_the_end(after_lost_numbers(found, case), case)
            return named(found, facts=case.facts, position=case.position, cause=case.cause, members=_members(case))
    raise AssertionError("the last rule always applies")


def _members(case: Case) -> set[int]:
    """Return the ranks of the group that hangs, by flight records that say all of them; else those of all such."""
    whole = [group for group in case.groups if group.whole]
    own = [group for group in whole if case.position and group.name == case.position.group]
    return {rank for group in own or whole for rank in group.members}


def _went_on(case: Case) -> Verdict | None:
    if not case.went_on or case.unread:
        return None
    because = "the job went on after all that looks like a fault, or ended well"
    return Verdict(kind="none", rank=None, unknown=False, because=because, evidence=in_time(case.went_on), next=())


# ---- what the ranks call


def _other_call(case: Case) -> Verdict | None:
    position = case.position
    if position is None or position.kind != "absent" or not position.blamed:
        return None
    frames = [frame for frame in of(case.facts, CodeFrame) if frame.rank in position.blamed]
    if {frame.rank for frame in frames} != set(position.blamed):
        return None
    if all(frame.operation == position.operation for frame in frames):
        return None
    told = "; ".join(dict.fromkeys(f"rank {frame.rank} stands in {frame.operation}" for frame in frames))
    because = f"{told}, the others in {position.operation or 'another call'}"
    lines = tuple(frame.where for frame in frames)
    return verdict_in_call("desync", because, position=position, lines=lines, ranks=position.blamed)


def _busy_with_data(case: Case) -> Verdict | None:
    position = case.position
    if position is None or position.kind != "absent":
        return None
    bars = [fact for fact in of(case.facts, Busy) if fact.rank not in position.waiting]
    bars = [bar for bar in bars if bar.rank is None or not position.blamed or bar.rank in position.blamed]
    bars = [bar for bar in bars if not bar.what.startswith(DOWNLOAD) or _is_of_wait(bar, case)]
    if not bars:
        return None
    last = bars[-1]
    shown = {bar.rank for bar in bars}
    ranks = tuple(rank for rank in position.blamed if rank in shown) or position.blamed
    if not position.blamed and last.rank is not None:
        ranks = (last.rank,)
    because = f"{last.what}{'' if last.what.startswith(DOWNLOAD) else ' still runs'}; {position.why}"
    return verdict_in_call(last.kind, because, position=position, lines=(last.where,), ranks=ranks, unknown=not ranks)


def _is_of_wait(bar: Busy, case: Case) -> bool:
    """Whether a clock shows that work was told of shortly before the others began to wait, or while they did."""
    waits = [fact.where.time_s - (fact.waited_s or 0.0) for fact in of(case.facts, Timeout) if fact.where.time_s]
    return bar.where.time_s is not None and bool(waits) and bar.where.time_s > min(waits) - _SHORTLY_S


def _stands_elsewhere(case: Case) -> Verdict | None:
    """Look at the stack of the rank that is missing: it says what the rank does instead.

    Where the logs do not tell who is missing, it is the one rank whose stack does not wait, but stands in its data.
    """
    position = case.position
    if position is None or position.kind != "absent" or len(position.blamed) > 1:
        return None
    stands = [stand_of(stack) for stack in of(case.facts, StackTrace)]
    known = [stand for stand in stands if stand.rank is not None and stand.rank not in position.waiting]
    away = {stand.rank for stand in known if stand.kind not in WAITS and stand.rank is not None}
    missing = position.blamed or tuple(away)
    kinds = {"data", "host"} if position.blamed else {"data"}
    for stand in stands:
        if (stand.rank,) == missing and stand.kind in kinds:
            because = f"{stand.where.text}; {position.why}"
            kind: Kind = "data" if stand.kind == "data" else "host"
            return verdict_in_call(kind, because, position=position, lines=(stand.where,), ranks=missing, missing=())
    return None


def _calls(kinds: set[str]) -> Callable[[Case], Verdict | None]:
    def apply(case: Case) -> Verdict | None:
        position = case.position
        if position is None or position.kind not in kinds or not position.certain:
            return None
        kind: Kind = position.kind  # type: ignore[assignment]  # a position's kinds are among a verdict's
        # that calls are alike is known of what was read alone
        unknown = kind == "stuck" and bool(case.unread) and not case.groups
        return verdict_in_call(kind, position.why, position=position, lines=(), ranks=position.blamed, unknown=unknown)

    return apply


def _uncertain(case: Case) -> Verdict | None:
    position = case.position
    if position is None:
        return None
    kind: Kind = position.kind  # type: ignore[assignment]
    missing = position.missing or ("the logs or flight records of the ranks that are not here",)
    return verdict_in_call(kind, position.why, position=position, lines=(), unknown=True, missing=missing)


# ---- stacks and kernels by themselves


def _stacks(case: Case) -> Verdict | None:
    position = case.position
    found = None
    if position is None or not position.certain:
        stacks = of(case.facts, StackTrace)
        found = by_stacks(stacks, world=ranks_of_job(case.facts))
        if found is not None and found.kind == "stuck":
            found = by_own_way(stacks) or found
    if found is None or (not found.certain and position is not None):
        return None
    if position is not None and found.kind == "host" and not found.blamed:
        found = with_left(found, position.waiting, set(range(ranks_of_job(case.facts))))
    if position is not None and set(found.blamed) & set(position.waiting):
        return None  # its own time-out says that it came
    if position is not None and found.kind == "stuck" and position.kind in {"desync", "sizes"}:
        return None  # that all wait is no sign that they call the same
    if position is not None and (found.kind in {"data", "host"} or found.operation in {"", position.operation}):
        found = msgspec.structs.replace(
            found,
            operation=position.operation or found.operation,
            seq=position.seq,
            group=position.group,
            waiting=tuple(sorted({*found.waiting, *position.waiting})),
            evidence=(*found.evidence, *position.evidence),
        )
    kind: Kind = found.kind  # type: ignore[assignment]
    return verdict_in_call(kind, found.why, position=found, lines=(), ranks=found.blamed, unknown=not found.certain)


def _kernels(case: Case) -> Verdict | None:
    found = who_is_slow(case.facts, case.groups) if case.position is None else None
    if found is None:
        return None
    kind: Kind = "data" if found.kind == "data" else "slow"
    return verdict_in_call(kind, found.why, position=found, lines=(), ranks=found.blamed, unknown=not found.certain)


def _ended_from_outside(case: Case) -> Verdict | None:
    """Return the notice that ended a job whose connections broke only after it: one of several tells when."""
    position = case.position
    if position is None or position.certain:
        return None
    broken = [fact.where for fact in of(case.facts, PeerLost)]
    if not broken or position.waiting or of(case.facts, Timeout):
        return None
    for notice in all_least_evidence(case.facts):
        if notice.is_general and all(notice.where.before(line) for line in broken):
            return verdict_in_call("killed", notice.what, position=position, lines=(notice.where,), missing=())
    return None


def _time_limit(case: Case) -> Verdict | None:
    notice = least_evidence(case.facts) if case.position is None else None
    if notice is None or not notice.is_general:
        return None
    return verdict_in_call("killed", notice.what, position=None, lines=(notice.where,))


def _consequence(case: Case) -> Verdict | None:
    notice = least_evidence(case.facts) if case.position is None else None
    if notice is None or (of(case.facts, TrainingEnded) and not notice.is_general):
        return None  # the connections of a job that has finished break one after the other
    if all(fault.what == STORE_ENDED for fault in of(case.facts, Failure)) and not of(case.facts, Exit):
        return _store_ended(case)
    kind: Kind = notice.kind  # type: ignore[assignment]  # readers write a verdict's kinds
    missing = ("what came before it: this usually follows from a fault elsewhere, in the log of another rank",)
    return verdict_in_call(kind, notice.what, position=None, lines=(notice.where,), unknown=True, missing=missing)


def _store_ended(case: Case) -> Verdict:
    """Return that ranks outlived the process that holds their store, which it may leave at a good end as well."""
    return Verdict(
        kind="none",
        rank=None,
        unknown=True,
        because=f"{STORE_ENDED}; whether it had come to its end is not told, and nothing else shows a fault",
        evidence=in_time([fault.where for fault in of(case.facts, Failure)]),
        missing=("the end of the log of rank 0, or of torchrun's first agent",),
        next=NEXT["none"],
    )


def _waits_for_data(case: Case) -> Verdict | None:
    found = by_data(case.facts) if case.position is None and not _came_to_its_end(case) else None
    if found is None:
        return None
    return verdict_in_call("data", found.why, position=found, lines=(), ranks=found.blamed, unknown=not found.certain)


def _came_to_its_end(case: Case) -> bool:
    return any(fact.well for fact in of(case.facts, Succeeded)) or bool(of(case.facts, TrainingEnded))


def _slower_steps(case: Case) -> Verdict | None:
    if _came_to_its_end(case):
        return None  # whatever it took, it came to its end
    found = (by_two_runs(case.facts) or by_slowdown(case.facts)) if case.position is None else None
    if found is None:
        return None
    found = with_slow_link(found, case.facts)
    return verdict_in_call("slow", found.why, position=found, lines=(), ranks=found.blamed, unknown=not found.certain)


def _network_alarms(case: Case) -> Verdict | None:
    """Return the devices of the network that show trouble by themselves, where nothing else tells of a fault."""
    found = network_alarms(case.facts) if case.position is None and not _came_to_its_end(case) else []
    if not found:
        return None
    more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
    because = "; ".join(alarm.what for alarm in found[:MOST]) + more
    missing = ("whether a job suffers from it: its own log, and the same counters a minute later: do they still grow?",)
    lines = tuple(alarm.where for alarm in found)
    return verdict_in_call("network", because, position=None, lines=lines, unknown=True, missing=missing)


def _not_started(case: Case) -> Verdict | None:
    if any(isinstance(fact, Began | TrainingEnded) for fact in case.facts):
        return None
    kept = {one.host: one for one in of(case.facts, NotStarted)}
    run = {placed.pod.rpartition("-")[0] for placed in of(case.facts, Placed) if placed.pod not in kept}
    told = [one for one in kept.values() if one.host.rpartition("-")[0] in run]
    if not told:
        return None
    because = "; ".join(f"{one.what}, {one.by} says" for one in told[:_FEW])
    missing = ("which ranks the pod was to have: the log of the launcher in each of the others",)
    evidence = tuple(one.where for one in told)
    return verdict_in_call("absent", because, position=None, lines=evidence, unknown=True, missing=missing)


def _good_end(case: Case) -> Verdict | None:
    """Return that the job came to its end, or makes steps to the end of its log; None where nothing says so."""
    ends = of(case.facts, TrainingEnded)
    exited = [fact.where for fact in ends if fact.exited]
    if not ends:
        return None
    because = "the job came to its end, by its exit code of 0, its launcher or its scheduler"
    because = because if exited else "its log says that the training came to its end"
    outlived = _outlived(case.facts)
    lines = in_time([*outlived.values(), *(exited or [fact.where for fact in ends])])
    return Verdict(
        kind="none",
        rank=None,
        unknown=not exited,
        because=f"{because}; {_over(outlived)}",
        evidence=lines,
        next=() if exited else NEXT["none"][:1],
    )


def _outlived(facts: list[Fact]) -> dict[str, Where]:
    """Return the time-outs that the job outlived, each with its first line."""
    return {one.what: one.where for one in reversed(of(facts, OutlivedWait))}


def _over(outlived: Mapping[str, Where]) -> str:
    """Return in words that nothing else shows a fault, and which time-outs the job outlived."""
    if not outlived:
        return "nothing else shows a fault"
    told = sorted(outlived, key=lambda what: (outlived[what].order, outlived[what].line))
    more = f" and {len(told) - _FEW} more" if len(told) > _FEW else ""
    return f"it made steps again after each time-out ({', '.join(told[:_FEW])}{more}), and nothing else shows a fault"


def _nothing(case: Case) -> Verdict:
    missing = ["the log of every rank, flight records (TORCH_FR_BUFFER_SIZE), or stacks (py-spy) taken while it hangs"]
    if case.groups:
        missing = ["stacks of every rank: no recorded call is open, and gloo records no send and no receive"]
    if (ended := _good_end(case)) and not case.groups and not case.unread:
        return ended
    if of(case.facts, Shortened):
        missing.append("the lines of each rank by themselves: some are folded into one")
    steps = [fact.where for fact in of(case.facts, Stepped)]
    outlived = _outlived(case.facts)
    because = "no time-out, no error, no open call and no stack that stands apart"
    return Verdict(
        kind="none",
        rank=None,
        unknown=True,
        because=f"{_over(outlived) if outlived else because}{_STEPS if steps else ''}",
        evidence=in_time([*outlived.values(), *steps]),
        missing=(*not_begun_yet(case.facts), *missing),
        next=NEXT["none"],
    )


RULES = (
    Rule(
        name="lost-numbers",
        reason="A training whose loss is no number learns nothing more, however well its processes end.",
        apply=lost_numbers,
    ),
    Rule(
        name="went-on",
        reason="What a job outlived is no cause of a hang: its steps go on after it, or its launcher saw it end well.",
        apply=_went_on,
    ),
    Rule(
        name="first-fault",
        reason="A GPU, a host, a process or a program that failed before the others were left waiting is the cause;"
        " what failed after it is a consequence.",
        apply=first_fault,
    ),
    Rule(
        name="other-call",
        reason="Who is missing from a collective and shows a traceback in another one has taken another way.",
        apply=_other_call,
    ),
    Rule(
        name="unlike-calls",
        reason="Ranks of a group must make the same calls of the same sizes in the same order; the few"
        " differ from the many.",
        apply=_calls({"desync", "sizes"}),
    ),
    Rule(
        name="stands-elsewhere",
        reason="The stack of the rank that is missing says what it does instead.",
        apply=_stands_elsewhere,
    ),
    Rule(
        name="busy-with-data",
        reason="A progress bar over data that has not ended, while a rank is missing: it still prepares them.",
        apply=_busy_with_data,
    ),
    Rule(
        name="host-call",
        reason="c10d's heartbeat tells a watchdog that stands still, which a host call does, from one that waits.",
        apply=host_call,
    ),
    Rule(
        name="missing-rank",
        reason="Who is waited for and waits for nobody keeps the others; who printed nothing may be it,"
        " who printed a time-out is not.",
        apply=_calls({"absent"}),
    ),
    Rule(
        name="lost-peer",
        reason="A connection breaks for all but the rank that ended: who does not complain of it is the one.",
        apply=_calls({"killed", "network"}),
    ),
    Rule(
        name="circle",
        reason="Where everybody who is waited for waits as well, in another group or stream, no rank is late.",
        apply=_calls({"circle"}),
    ),
    Rule(
        name="outlier-stack",
        reason="Of many stacks the one that stands elsewhere is the suspect; all alike blame nobody.",
        apply=_stacks,
    ),
    Rule(
        name="all-are-in",
        reason="All have come to the call and none leaves it: a link or a device, not a rank's program.",
        apply=_calls({"stuck"}),
    ),
    Rule(
        name="late-kernels",
        reason="Collectives last shortest on who comes last; a framework's detector is believed where it names a GPU.",
        apply=_kernels,
    ),
    Rule(
        name="ended-from-outside",
        reason="Who cancels a job (a time limit, a person, another job's priority) ends all its processes: the"
        " connections that break after that notice are its consequence.",
        apply=_ended_from_outside,
    ),
    Rule(
        name="lost-worker",
        reason="A process that ended before any rank timed out may be who they wait for, whichever rank it was.",
        apply=lost_worker,
    ),
    Rule(
        name="cannot-be-told",
        reason="Ranks wait, and the files do not say for whom: nobody is named.",
        apply=_uncertain,
    ),
    Rule(
        name="time-limit",
        reason="A limit ends whatever hangs and whatever is only long: it is the answer where nothing else shows.",
        apply=_time_limit,
    ),
    Rule(
        name="consequence",
        reason="An error that a fault elsewhere leaves behind is all that there is: it is shown, and nobody is named.",
        apply=_consequence,
    ),
    Rule(
        name="waits-for-data",
        reason="Steps that are mostly a wait for data, on all ranks alike, are no rank's fault; on a few, theirs.",
        apply=_waits_for_data,
    ),
    Rule(
        name="slower-steps",
        reason="Steps that last longer to the end of the log, or since a change, are slow, whatever makes them so:"
        " nobody is named but whose port alone has a lower rate than those of its name on other hosts.",
        apply=_slower_steps,
    ),
    Rule(
        name="not-started",
        reason="Where no step was made, a pod that was kept from its start while others of its name run keeps them.",
        apply=_not_started,
    ),
    Rule(
        name="network-alarms",
        reason="Counters, queues and tables of a network device may show trouble without any job's log: the device is"
        " named, and no rank.",
        apply=_network_alarms,
    ),
    Rule(
        name="no-evidence",
        reason="Without a time-out, an error, an open call or a stack there is nothing to judge;"
        " silence is not health.",
        apply=_nothing,
    ),
)
