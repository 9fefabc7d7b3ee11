"""Plain notices of who did not come: barriers, desync reports, the store, connections that broke."""

import re
from collections.abc import Mapping, Sequence

from ...units import counted, ranks_in_words, shortened
from ..nouns.facts import (
    Absentees,
    Arrived,
    Busy,
    CodeFrame,
    DesyncReport,
    Fact,
    Fingerprint,
    GroupJoin,
    GroupProgress,
    PeerLost,
    Shortened,
    SizesDiffer,
    StoreWait,
    Timeout,
    of,
)
from ..nouns.identities import NotStarted, Spoke
from ..nouns.position import HangPosition, minority
from ..nouns.world import ranks_of_job, ranks_seen, with_own_files, world_of
from ..ranks.hosts import ranks_of_host

_FAR_MORE = 2  # times as many
_FEW_CALLS = 8  # that are told one by one
_TO_ITSELF = re.compile(r"\bremote=\[?(?:127\.|::1\b|localhost)")
_LOOPS = (
    "; they go to 127.0.0.1, which each host is to itself: in a job of several hosts their names lead there, by"
    " /etc/hosts (GLOO_SOCKET_IFNAME names another way)"
)


def by_barrier(facts: list[Fact]) -> HangPosition | None:
    """Return whom a monitored barrier names; ranks that only wait for another are healthy."""
    named = of(facts, Absentees)
    if not named:
        return None
    arrived = of(facts, Arrived)
    ranks = {rank for fact in named for rank in (*fact.ranks, *_on(fact.hosts, facts))}
    ranks -= {fact.rank for fact in arrived if fact.rank is not None}
    came = {fact.rank for fact in arrived if fact.rank is not None} | {r for f in named for r in _on(f.came, facts)}
    told = ", ".join(map(str, sorted(ranks))) or ", ".join(host for fact in named for host in fact.hosts)
    return HangPosition(
        kind=named[0].kind,
        blamed=tuple(sorted(ranks)),
        waiting=tuple(sorted(came - ranks)),
        operation=named[0].operation,
        seq=named[0].seq,
        why=f"{named[0].by} names who did not come: {told or 'by a number that is none of the job'}"
        if named[0].kind == "absent"
        else named[0].by,
        certain=bool(ranks),
        evidence=(*(fact.where for fact in named), *(fact.where for fact in arrived)),
    )


def _on(hosts: Sequence[str], facts: list[Fact]) -> set[int]:
    """Return the ranks of hosts, where the files tell them."""
    return {rank for host in hosts for rank in ranks_of_host(host, facts)}


def by_arrivals(facts: list[Fact]) -> HangPosition | None:
    """Return that a monitored barrier failed: rank 0, which asks each rank, knows who was missing."""
    arrived = of(facts, Arrived)
    if not arrived:
        return None
    ranks = sorted({fact.rank for fact in arrived if fact.rank is not None})
    if _waited_for_first(ranks, facts):
        return HangPosition(
            kind="absent",
            blamed=(0,),
            waiting=tuple(ranks),
            operation="monitored_barrier",
            why="all ranks but 0 came to a monitored barrier and waited for it until their time-out",
            silent=True,
            evidence=tuple(fact.where for fact in facts if isinstance(fact, Arrived | Timeout)),
        )
    told = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "ranks"
    return HangPosition(
        kind="absent",
        waiting=tuple(ranks),
        operation="monitored_barrier",
        why=f"{told} came to a monitored barrier, and rank 0 did not answer",
        certain=False,
        evidence=tuple(fact.where for fact in arrived),
        missing=("the log of rank 0, which says who did not come, or that it did not come itself",),
    )


def _waited_for_first(came: Sequence[int], facts: list[Fact]) -> bool:
    """Whether all ranks but 0 came to a monitored barrier and each ran out of time: rank 0 never asked them.

    It closes their connections when it fails itself, as it does where one of them comes too late, and says which.
    Where no line says how many ranks there are, work that goes on meanwhile shows that one of them has not come.
    """
    waits = [fact for fact in of(facts, Timeout) if fact.seq is None]
    is_heard = 0 in (with_own_files(facts) or {0}) and not of(facts, Shortened)
    failed = [*of(facts, PeerLost), *of(facts, Absentees)]
    others = range(1, world_of(facts) or 1)
    if not others and len(came) > 1 and any(fact.rank is None for fact in of(facts, Busy)):
        others = range(1, max(came) + 1)  # more would say so, too; somebody who is in no barrier is at work
    return list(came) == list(others) and len(waits) >= len(came) > 0 and is_heard and not failed


def _is_cut(report: DesyncReport, facts: list[Fact]) -> bool:
    """Whether a report that names who did not join lacks its beginning, which says who waited and prints it."""
    return bool(report.not_joined) and report.rank is None and not ranks_seen(facts)


def by_report(facts: list[Fact]) -> HangPosition | None:
    """Return whom torch's desync report shows behind; a report that names everybody names nobody."""
    for report in of(facts, DesyncReport):
        if found := _unlike(report):
            return found
        blamed, seq, why = report.never, None, "never joined any collective"
        if not blamed and report.not_joined:
            seq, blamed = min(report.not_joined)
            why = f"finished #{seq - 1} and did not join #{seq}"
        said = {rank for _, _, ranks in report.started for rank in ranks} | {report.rank}
        waiting = {rank for rank in said if rank is not None} - set(blamed)
        if not blamed and report.unfinished:
            seq, blamed = min(report.unfinished)
            waiting -= set(blamed)
            why = f"joined #{seq} and did not finish it, the others are past it"
        others = (ranks_seen(facts) | waiting) - set(blamed)
        if not blamed or (not waiting and report.unfinished) or not (others or _is_cut(report, facts)):
            continue
        if waiting and len(blamed) > len(waiting):
            continue
        operation, told = _waited_in(report, blamed, seq)
        ranks = ", ".join(map(str, blamed))
        return HangPosition(
            kind="absent",
            blamed=tuple(blamed),
            waiting=tuple(sorted(waiting)),
            group=next((fact.group for fact in of(facts, GroupProgress) if fact.group), None),
            operation=operation,
            seq=seq if seq is not None else report.at_seq,
            why=f"torch's desync report: rank{'s' * (len(blamed) > 1)} {ranks} {why}{told}",
            evidence=(report.where,),
        )
    return None


def _waited_in(report: DesyncReport, blamed: Sequence[int], seq: int | None) -> tuple[str, str]:
    """Return the operation in which the others wait for who is behind, "" where the report does not say, and in words.

    The report tells it of the call that ran out of time. The latest calls that it shows as started may come after it:
    torch enqueues what a program calls meanwhile.
    """
    is_others = report.at_operation and report.at_seq is not None and report.rank not in blamed
    if is_others and seq in {None, report.at_seq}:
        return report.at_operation, f"; the others wait in {report.at_operation} #{report.at_seq}"
    last = min(report.started, default=None)
    if last is None:
        return "", ""
    if seq in {None, last[0]}:
        return last[1], f"; the others wait in {last[1]} #{last[0]}"
    return "", f"; the others started {last[1]} #{last[0]}"


def _unlike(report: DesyncReport) -> HangPosition | None:
    """Return who started another operation than the others under one number, in the snapshot of a report."""
    numbers = sorted({seq for seq, _, _ in report.started})
    for seq in numbers:
        operations = {rank: name for at, name, ranks in report.started if at == seq for rank in ranks}
        if len(set(operations.values())) < 2 or report.not_joined or report.never:
            continue
        blamed, certain = minority(operations)
        usual = next(name for rank, name in operations.items() if rank not in blamed)
        told = "; ".join(f"rank {rank} started {operations[rank]}" for rank in list(blamed or operations)[:8])
        return HangPosition(
            kind="desync",
            blamed=blamed,
            waiting=tuple(sorted(set(operations) - set(blamed))),
            operation=usual,
            seq=seq,
            why=f"torch's desync report: at #{seq} {told}, the others {usual}",
            certain=certain,
            evidence=(report.where,),
        )
    return None


def by_sizes(facts: list[Fact]) -> HangPosition | None:
    """Return that gloo received another size than it expected: by whom is not in the line."""
    found = of(facts, SizesDiffer)
    if not found:
        return None
    first = found[0]
    where = f" to rank {first.rank}" if first.rank is not None else ""
    came = f"{first.came_bytes} bytes came{where} where {first.expected_bytes} were expected"
    return HangPosition(
        kind="sizes",
        why=first.what or f"{came}: the ranks disagree about a size",
        certain=False,
        evidence=tuple(fact.where for fact in found),
        missing=("which rank brought the other size: flight records or the shapes that each rank printed",),
    )


def by_fingerprints(facts: list[Fact]) -> HangPosition | None:
    """Return who called something else where torch or NCCL compared the calls; of two ranks neither is named."""
    found = of(facts, Fingerprint)
    if not found:
        return None
    calls = _compared(found)
    compared, kind = _aspect(calls)
    kind = kind if len(calls) > 1 else _aspect({fact.rank: fact for fact in found})[1]
    blamed, certain = minority(compared) if len(set(compared.values())) > 1 else ((), False)
    heard = {fact.speaker for fact in found} - {None}
    if heard and set(blamed) - heard and 2 * len(calls) <= ranks_of_job(facts):
        blamed, certain = (), False  # who speaks may be the few
    told = _told(calls)
    usual = next((fact for rank, fact in calls.items() if rank not in blamed), found[0])
    return HangPosition(
        kind=kind,
        blamed=blamed,
        waiting=tuple(rank for rank in calls if rank not in blamed),
        operation=usual.operation,
        seq=usual.seq,
        why=told or f"NCCL found calls that do not match, at or near rank {found[0].rank}",
        certain=certain,
        evidence=tuple(dict.fromkeys(fact.where for fact in found)),
        missing=() if certain else ("which of them is wrong: the calls of a third rank, or the code of both",),
    )


def _told(calls: Mapping[int, Fingerprint]) -> str:
    """Return what each rank calls; of many ranks which of them call the same."""
    texts = {rank: f"{fact.operation} {fact.shape} {fact.types}".rstrip() for rank, fact in calls.items()}
    if len(texts) <= _FEW_CALLS:
        return "; ".join(f"rank {rank} calls {text}" for rank, text in texts.items())
    alike: dict[str, list[int]] = {}
    for rank, text in texts.items():
        alike.setdefault(text, []).append(rank)
    few_first = sorted(alike.items(), key=lambda one: len(one[1]))
    return "; ".join(
        f"rank {ranks[0]} calls {text}" if len(ranks) == 1 else f"{len(ranks)} ranks call {text}"
        for text, ranks in few_first[:_FEW_CALLS]
    )


def _compared(found: Sequence[Fingerprint]) -> dict[int, Fingerprint]:
    """Return the calls that were compared, by rank; of speakers alone where places in a group are not the ranks."""
    spoken = [fact for fact in found if fact.speaker is not None]
    if any(fact.speaker != fact.rank for fact in spoken):
        return {fact.speaker: fact for fact in spoken if fact.speaker is not None}
    return {fact.rank: fact for fact in found if fact.operation}


def _aspect(calls: Mapping[int, Fingerprint]) -> tuple[dict[int, object], str]:
    """Return what to compare of calls, and the kind of the fault: the operation, sizes, types, at last the number."""
    operations: dict[int, object] = {rank: call.operation for rank, call in calls.items()}
    if len(set(operations.values())) != 1 or len(calls) < 2:
        return operations, "desync"
    typed = all(call.types for call in calls.values())
    made: dict[int, object] = {rank: (call.shape, call.types if typed else "") for rank, call in calls.items()}
    if len(set(made.values())) > 1 or any(call.seq is None for call in calls.values()):
        return made, "sizes"
    numbers: dict[int, object] = {rank: call.seq for rank, call in calls.items()}
    return (numbers, "desync") if len(set(numbers.values())) > 1 else (made, "sizes")


def _other_lines(facts: list[Fact], waiting: set[int]) -> HangPosition | None:
    """Return who waited in another line of code than most, by the tracebacks of all who waited."""
    frames = {frame.rank: frame for frame in of(facts, CodeFrame) if frame.rank in waiting}
    calls = {rank: frame.operation for rank, frame in frames.items() if rank is not None}
    if set(calls) != waiting or len(set(calls.values())) < 2:
        return None
    blamed, certain = minority(calls)
    usual = next(call for rank, call in calls.items() if rank not in blamed)
    told = "; ".join(f"rank {rank} waited in {calls[rank]}" for rank in sorted(blamed or calls)[:8])
    return HangPosition(
        kind="desync",
        blamed=blamed,
        waiting=tuple(sorted(waiting - set(blamed))),
        operation=usual,
        why=f"{told}, the others in {usual}" if blamed else told,
        certain=certain,
        evidence=tuple(frame.where for frame in frames.values()),
    )


def _cut_off(waits: list[StoreWait]) -> HangPosition | None:
    """Return that a store was up and waited for clients that did not reach its address: packets are lost between."""
    hosts, clients = [fact for fact in waits if fact.is_host], [fact for fact in waits if fact.to]
    if not hosts or not clients:
        return None
    told = ", ".join(sorted({fact.to for fact in clients}))
    alone = tuple(sorted(_not_joined(hosts, clients)))
    of_them = f", ranks {shortened(alone)} alone of them," if len(alone) > 1 else ", one of them," if alone else ""
    return HangPosition(
        kind="network",
        blamed=alone,
        waiting=tuple(sorted({fact.rank for fact in (*hosts, *clients) if fact.rank is not None} - set(alone))),
        why=f"the store was up and waited for its clients, which{of_them} could not connect to {told}: a firewall, a"
        " network policy, another interface or a wrong address lies between",
        certain=bool(alone),
        evidence=tuple(fact.where for fact in (*hosts, *clients)),
        missing=()
        if alone
        else ("on which side it is: a connection to that port by hand (`nc -vz`) from a client and on the host",),
    )


def _not_joined(hosts: list[StoreWait], clients: list[StoreWait]) -> set[int]:
    """Return the ranks that could not connect, where they are all that the store's host lacks and far more joined.

    Where most did, on several hosts, what keeps these few off is on their side.
    """
    ranks = {fact.rank for fact in clients if fact.rank is not None}
    told = {(fact.lacking, fact.joined) for fact in hosts}
    if len(told) != 1 or ranks & {fact.rank for fact in hosts}:
        return set()
    lacking, joined = told.pop()
    return ranks if lacking == len(ranks) and joined is not None and joined >= _FAR_MORE * len(ranks) else set()


def _joined(facts: list[Fact], waits: list[StoreWait]) -> set[int]:
    """Return the ranks that say that they came to what all waits are for: the store's start, or one of its barriers."""
    keys = {fact.key for fact in waits if not fact.is_host}
    if not waits or len(keys) > 1 or (keys == {""}):
        return set()
    key = keys.pop() if keys else ""
    is_first = not key or key.endswith(":1")
    return {
        fact.rank
        for fact in of(facts, GroupJoin)
        if fact.key == key or (is_first and (not fact.key or fact.key.endswith(":1")))
    }


def _began_alike(facts: list[Fact], waits: list[StoreWait]) -> set[int]:
    """Return all ranks but one, where these alone begin, all with a line of one form, and the store's host lacks one.

    A program that all run prints its first line on each rank: the one without has not begun.
    """
    world = world_of(facts)
    if world is None or not any(fact.lacking == 1 for fact in waits):
        return set()
    first: dict[int, str] = {}
    for fact in of(facts, Spoke):
        first.setdefault(fact.rank, re.sub(r"\d+", "#", fact.where.text))
    alike = len(set(first.values())) == 1 and len(first) > 2
    return set(first) if alike and len(first) == world - 1 and ranks_seen(facts) == set(first) else set()


def by_store(facts: list[Fact]) -> HangPosition | None:
    """Return the rank that did not write the key, or send the data, that others waited for until their time-out."""
    waits = of(facts, StoreWait)
    gloo = [fact for fact in of(facts, Timeout) if fact.seq is None]
    waiting = {rank for rank in (*(fact.rank for fact in waits), *(fact.rank for fact in gloo)) if rank is not None}
    if not waits and not gloo:
        return None
    if found := _other_lines(facts, waiting) or _cut_off(waits):
        return found
    writers = {fact.of for fact in waits if fact.of is not None} - waiting
    seen, world = ranks_seen(facts), world_of(facts)
    everyone = world is not None and set(range(world)) <= waiting
    joined = _joined(facts, waits) or _began_alike(facts, waits)
    silent = set(range(world or max(seen, default=-1) + 1)) - waiting - joined
    own = with_own_files(facts)
    lacking = {fact.lacking for fact in waits if fact.joined is None} | {count[1] for count in _last_counts(waits)}
    lacking -= {None, len(silent)}
    blamed: set[int] = set()
    if len(writers) == 1 and len(waiting) >= 1:
        blamed = writers
    elif (
        len(silent) == 1
        and (len(waiting | joined) >= 2 or world)
        and not (joined and lacking)
        and not of(facts, Shortened)
        and silent <= (own or silent)
    ):
        blamed = silent
    is_counted = len(silent) > 1 and _are_all_that_came(waiting, len(silent), waits)
    blamed = silent if is_counted else blamed
    said = sorted(waits, key=lambda fact: -1 if fact.joined is None else fact.joined, reverse=True)  # the last count
    what = said[0].what if said else "for others' data"
    told = ", ".join(map(str, sorted(waiting)))
    why = f"rank{'s' * (len(waiting) > 1)} {told} kept waiting {what}" if told else f"ranks kept waiting {what}"
    if is_counted and not any(fact.is_host for fact in waits):
        why += f"; ranks {shortened(sorted(silent))} are the ones that did not come"
    elif blamed and joined:
        why += f"; of {world or 'all'} ranks {min(blamed)} alone does not say that it joins or begins"
        waiting |= joined
    elif blamed == silent and gloo and not waits:
        why += f"; {ranks_in_words(sorted(silent))} alone printed no time-out"
    kept = {one.host: one for one in of(facts, NotStarted)}
    why += "".join(f"; {one.what}, {one.by} says" for one in list(kept.values())[:_FEW_CALLS])
    addresses = sorted({fact.to for fact in waits})
    if addresses and all(addresses):
        why = f"the store at {addresses[0]} did not answer: its host is not up, not reachable, or another was meant"
    return HangPosition(
        kind="stuck" if everyone else "absent",
        blamed=tuple(sorted(blamed)),
        waiting=tuple(sorted(waiting)),
        operation=next((fact.operation for fact in gloo if fact.operation), ""),
        why=why,
        certain=bool(blamed) or everyone,
        silent=not is_counted,
        evidence=tuple(fact.where for told in (waits, gloo, kept.values()) for fact in told),
        missing=() if blamed or everyone else ("the logs of the other ranks: one of them may not have come",),
    )


def _are_all_that_came(ranks: set[int], silent: int, waits: list[StoreWait]) -> bool:
    """Whether the ranks that are heard to wait are as many as the store counted, and the silent as many as it lacks.

    Who only says that it begins to join may not have come, nor has who could not reach the store.
    """
    return _last_counts(waits) == {(len(ranks), silent)} and not any(fact.to for fact in waits)


def _last_counts(waits: list[StoreWait]) -> set[tuple[int, int]]:
    """Return how many had come in the end, and how many had not, to each barrier of the store or to its start."""
    last: dict[str, tuple[int, int]] = {}
    for fact in waits:
        if fact.joined is not None and fact.lacking is not None:
            last[fact.key] = max(last.get(fact.key, (-1, 0)), (fact.joined, fact.lacking))
    return set(last.values())


def by_lost_peers(facts: list[Fact]) -> HangPosition | None:
    """Return whose process ended, where all others but one say that a connection broke."""
    lost = of(facts, PeerLost)
    losers = {fact.rank for fact in lost if fact.rank is not None}
    silent = set(range(ranks_of_job(facts))) - losers
    if not lost:
        return None
    ended = any(fact.kind == "killed" for fact in lost)
    calls = {(fact.operation, fact.seq) for fact in lost if fact.seq is not None}
    operation, seq = calls.pop() if len(calls) == 1 else ("", None)
    heard = silent <= (with_own_files(facts) or silent)
    certain = ended and len(silent) == 1 and len(losers) >= 2 and heard and not of(facts, Shortened)
    told = {fact.of for fact in lost}
    if None not in told and not (certain and silent == told):
        return None  # who lost the store says by its error that it waited, and may be the only one to say so
    loops = all(_TO_ITSELF.search(fact.where.text) for fact in lost)
    return HangPosition(
        kind="killed" if ended else "network",
        blamed=tuple(silent) if certain else (),
        operation=operation,
        seq=seq,
        why=f"{counted(len(lost), 'connection')} to a peer broke"
        + ("; one rank alone does not say so" if certain else ", whose end or whose link is not in the files")
        + (_LOOPS if loops else ""),
        certain=certain,
        silent=True,
        evidence=tuple(fact.where for fact in lost),
        missing=() if certain else ("the log of the rank at the other end, and the launcher's summary",),
    )
