"""c10d's own text: watchdog, heartbeat, desync reports, monitored barriers, the store; torch 1.13 to today."""

import re
from collections.abc import Iterator

from ..nouns.facts import (
    Absentees,
    Arrived,
    DesyncReport,
    Fact,
    Failure,
    Fingerprint,
    GroupJoin,
    GroupProgress,
    Heartbeat,
    PeerLost,
    SizesDiffer,
    StoreWait,
    Timeout,
)
from ..nouns.identities import OwnCallFailed, Spoke, WorldSize
from ..nouns.names import spelled
from ..nouns.where import Where
from ..nouns.world import MOST_RANKS
from ..text.lines import LogMessage
from ..text.watchdog_words import global_rank, group_of

_WORK = re.compile(
    r"(?:\[Rank (?P<rank>\d+)\] )?"
    r"(?:(?:Watchdog ?)?[Cc]aught ?collective ?operation timeout: ?"  # a break takes the space
    r"|Work (?=Work\w*CCL\([^)]*\(ms\)=\d+\) timed out in blocking wait))"
    r"Work\w*CCL\((?P<inside>.*?\(ms\)=\d+)\)(?: ran for (?P<ms>\d+))?"
)
_NAME = re.compile(r"\w+")  # of an operation; a screen's own sign may stand in it, where a line was cut
_ENQUEUED = re.compile(r"last enqueued(?: NCCL)? work: (-?\d+)", re.IGNORECASE)
_STARTED = re.compile(r"last started(?: NCCL)? work: (-?\d+)(?: \((\w+)\))?", re.IGNORECASE)
_COMPLETED = re.compile(  # what is asked for by a dump signal ends in a full stop: without it the line is cut off
    r"last completed(?: NCCL work: (?P<whole>-?\d+)\.|(?: work)?:? (?P<number>-?\d+))", re.IGNORECASE
)
_FAILED_AT = re.compile(r"(?:watchdog at work|at work sequence id|work sequence id|NCCL work): (\d+)")
_GOT_STUCK = re.compile(r"watchdog got stuck for \d+ ?(?:seconds|milliseconds)|Heartbeat monitor timed out")
_DESYNC_AT = re.compile(r"- \[(\d+)\] Timeout at collective: (\w+), #(\d+)")
_LAGGING = "lagging/dead/mismatched ranks"  # the heading above whom a report names; where it is pasted alone, its first
_NEVER = re.compile(r"ranks \[([\d, -]+)\] are the lagging ranks that caused this timeout")
_UNFINISHED = re.compile(r"\[([\d, -]+)\] joined but didn't finish collective #(\d+)")
_NOT_JOINED = re.compile(r"\[([\d, -]+)\] finished collective #(\d+), but didn't join collective #(\d+)")
_SNAPSHOT = re.compile(r"^\s*#(\d+) (started|finished) ranks:")
_SNAPSHOT_RANKS = re.compile(r"^\s*\[([\d, -]+)\] (?:started|finished) (\w+)")
_BARRIER = re.compile(r"Ranks? (\d+(?:, \d+)*) failed to pass monitoredBarrier")
_OUR_BARRIER = re.compile(r"timed out in monitoredBarrier after [\d.]+ s: (rank \d+ .* did not come)")
_REACHED = re.compile(r"Rank (\d+) successfully reached monitoredBarrier")
_GLOO_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_GLOO_WAITED = re.compile(r"Timed out waiting \d+ ?ms for (?:recv|send) operation to complete")
_CONNECTS = re.compile(
    r"client socket has timed out.*?to connect|IPv4 network addresses of \(.*cannot be retrieved"
    r"|client socket has failed to connect to any network address"  # to one of them is a warning, and tried again
    r"|Timed out.*?connecting to.*?store"
)
_ADDRESS = re.compile(r"(?:connect to|address(?:es)? of) [\[(]([\w.:-]+)[\]]?(?:, |:)(\d+)\)?")
_UNKNOWN_NAME = re.compile(r"network addresses of \((?P<host>[\w.-]+), \d+\) cannot be retrieved \(gai error: -[235]\b")
_GAVE_UP = re.compile(
    r"client socket has timed out.*?to connect to [\[(](?P<host>[\w.-]+)"
    r"|Rendezvous(?:Connection|Timeout)Error|Dist(?:Network|Store)Error|connection to the C10d store has failed"
)
_HAS_ADDRESS = "client socket has failed to connect to ["
_MANY_TRIES = 3  # of a log that ends with them
_STORE = re.compile(
    r"wait timeout after \d+ ?ms, keys?: (\S+)|Socket Timeout"
    r"|waiting for (?:clients|workers)\. (\d+)/(\d+) (?:clients|workers) joined"
)
_UNIQUE_ID = re.compile(r"\[(\d+)\] is setting up NCCL communicator and retr(?:ie|ei)ving ncclUniqueId from \[(\d+)\]")
_STORE_GONE = re.compile(
    r"got error: .*(?:reset by peer|[Cc]onnection was (?:likely )?closed|Broken pipe|failed to recv)"
)
_STORE_BARRIER = re.compile(
    r"store.based barrier on rank:? (?P<rank>\d+),? (?:.*?key:? (?P<key>[\w:/.-]+))?.*?world_size=(?P<world>\d+)"
    r"(?:,? (?:worker_count|num_workers_joined)=(?P<joined>\d+))?"
)
_JOINS = re.compile(  # the last three before any group
    r"Added key: (?P<added>\S+) to store for rank: (?P<adds>\d{1,6})\b"
    r"|store.based barrier to initialize process group for (?:\S+ seconds,? ?)?rank: (?P<waits>\d{1,6}),"
    r" key: (?P<key>[^\s,]+)"
    r"|\bGLOBAL_RANK: (?P<member>\d{1,6}), MEMBER: \d+/\d+"
    r"|distributed init \(rank (?P<began>\d{1,6})\b|\[rank=(?P<train>\d{1,6}), world_size=\d+\]"
    r"|\b(?:init(?:_process_group|ializ\w+)?|join\w*|connect\w*|enter\w*|rendezvous)\b[^\d\n]{0,40}?"
    r"(?<!local )(?<!local_)(?<!node )\brank[ =:]+(?P<says>\d{1,6})"
    r"(?: of |/| / |,? (?:world(?:_size| size)?|out of)[ =:]+)\d{1,6}\b"
)
_WAITS_STILL = re.compile(  # said every ten seconds
    r"Waiting in store.based barrier to initialize process group for (?:\S+ seconds,? ?)?rank: (?P<rank>\d{1,6}),"
    r" key: (?P<key>[^\s,]+) \(world_size=(?P<world>\d{1,6}), (?:worker_count|num_workers_joined)=(?P<count>\d{1,6})\b"
)
_PASSED = re.compile(r"Completed store.based barrier for (?:key:|.*?key: ?)(?P<key>[^\s,]+)")
_COMES = re.compile(  # what a rank's program prints before it; the rows of a traceback are indented
    r"^(?!\s|Traceback)[^\n]{0,60}?(?:\binit_process_group\b"
    r"|\b(?:joining|entering) (?:the )?(?:process group|rendezvous|store)"
    r"|\bconnecting to (?:the )?(?:store|master|rendezvous)\b)(?!.*(?:rror|imed out|failed))",
    re.IGNORECASE,
)
_WORLD = re.compile(
    r"\bWORLD_SIZE[=:]\s*(\d+)|(?:\b|dist_)world[_ ]size[\"']?\s*[=:]\s*(\d+)"
    r"|\bGLOBAL_RANK: \d+, MEMBER: \d+/(\d+)|registered\. Starting with (\d+) processes|^Num processes: (\d+)$"
    r"|ased barrier for key:\S+ with (\d+) nodes|\bglobal_world_sizes=\[(\d+)|total number of"
    r" processes[^\d\n]*(\d+)|nnodes=\d+.*?world_size=(\d+)"
    r"|(?<!group )(?<![tpdec]p )(?<![\w-])rank=\d+,? world=(\d+)|(?<!\w)world=(\d+),? (?:pp|tp|dp|ep|cp)=\d",
    re.I,
)
_SIGNALLED = re.compile(r"dump signal due to .*? from\s+rank (\d+)")
_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d+)(?:, ?)?)?"
    r"OpType=(?P<operation>\w+)(?:, TensorShape=(?P<shape>\[[^\]]*\])(?:, TensorDtypes=(?P<types>[\w \[\],]{1,200}?)"
    r"(?:, TensorDeviceTypes=[^)]*\)[^)]*?device=(?P<device>\w+)|(?=\))))?)?"
)
_PEER_ENDED = re.compile(r"gloo/transport.*?(?:[Cc]onnection closed by peer|Connection reset by peer|Broken pipe)")
_PEER_LOST = re.compile(
    r"ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer"
    r"|NCCL WARN .*?(?:[Cc]onnection (?:reset|closed) by|Broken pipe)"
    r"|NCCL WARN .*?\b(?:send|recv)\w* failed with remote peer "
    r"|watchdog thread terminated with exception: (?:\[Rank \d+\] )?NCCL error: unhandled system error"
    r"|connectFullMesh failed"
    r"|\|CCL_ERROR\|.*?(?:\batl_|\bfi_|kvs).*?(?:[Cc]onnection (?:reset|closed|refused)|timed? ?out|unreachable)"
)
_RAISED = re.compile(  # before the error of a link, in one line
    r"(?:\[Rank (?P<place>\d+)\] )?Collective Work\w*CCL\(SeqNum=(?P<seq>\d+), OpType=(?P<operation>\w+)"
    r"(?:, NumelIn=(?P<numel_in>\d+), NumelOut=(?P<numel_out>\d+))?[^)]*(?:\(ms\)=\d+)?\)"
    r" raised the following async"
)
_MAY_TELL = (  # a quick look, since most lines are none of these
    *("atchdog", "operation timeout", "blocking wait", "work: ", "last completed", "Heartbeat"),
    *("Timeout at collective", "collective #", "ranks:", "lagging", " started ", "dump signal", "monitoredBarrier"),
    *("preamble", "FingerPrint", "Timed out", "gloo", "emote", "NCCL WARN", "keys", "key:", "Socket Timeout"),
    *("clients joined", "workers joined", "ncclUniqueId", "ased barrier", "orld size", "orld_size", "ORLD_SIZE"),
    *("of processes", "to connect", "onnecting to", "be retrieved", "RendezvousTimeout", "CCL_ERROR", "FullMesh"),
    *("GLOBAL_RANK", "Starting with", "Num processes", "Added key", "distributed init", "[rank=", "oining", "ntering"),
    *("init_process_group", "world="),
)
_OWN_FAILED = ("Some NCCL operations have failed or timed out", "Stack trace of the failed collective")
_OF_RANKS = re.compile(r"rank[ =:]+\d+(?: of |/| / )")
_OF_WORLD = ("orld", "ORLD", "GLOBAL_RANK", "Starting with", "Num processes", "ased barrier", "otal number of")


def read(messages: list[LogMessage]) -> Iterator[Fact]:
    """Yield what c10d says in the messages of one file."""
    yield from _unknown_names(messages)
    yield from _waits_to_the_end(messages)
    report: DesyncReport | None = None
    snapshot: int | None = None
    for message in messages:
        text = message.text
        if message.rank is not None and any(words in text for words in _OWN_FAILED):
            yield OwnCallFailed(rank=message.rank, where=message.where)
        if not any(word in text for word in _MAY_TELL) and not _OF_RANKS.search(text):
            continue
        begun = _DESYNC_AT.search(text)
        if begun or (report is None and (_LAGGING in text or _NEVER.search(text))):
            if report:
                yield report
            report = DesyncReport(where=message.where, rank=message.rank)
        if report:
            grown, snapshot = _grown(report, text, snapshot)
            if grown is None:
                yield report
                report = None
            else:
                report = grown
        yield from _work(message)
        yield from _waits(message)
    if report:
        yield report


def _unknown_names(messages: list[LogMessage]) -> Iterator[Failure]:
    """Yield the hosts whose names were unknown to the last try of a client that then gave up, or tries still.

    One try by IPv6 fails on most machines, and a name may become known while a client tries.
    """
    asked: dict[str, list[LogMessage]] = {}
    for message in messages:
        text = message.text
        if "cannot be retrieved (gai error" in text and (named := _UNKNOWN_NAME.search(text)):
            asked.setdefault(named["host"], []).append(message)
            if "DistNetworkError" in text:  # the error itself says so
                yield _unknown_name(named["host"], asked.pop(named["host"]))
        elif asked and _HAS_ADDRESS in text:
            asked.clear()
        elif asked and (gave_up := _GAVE_UP.search(text)):
            host = gave_up["host"] or next((host for host, tries in asked.items() if len(tries) > 1), None)
            if host in asked:
                yield _unknown_name(host, asked.pop(host))
    for host, tries in asked.items():
        if len(tries) >= _MANY_TRIES and messages[-1] in tries:
            yield _unknown_name(host, tries)


def _waits_to_the_end(messages: list[LogMessage]) -> Iterator[StoreWait]:
    """Yield the ranks whose last word on a group is that they wait in the store's barrier, which nobody passed since.

    One that more came to than it counts (a store that an earlier run has left) lacks nobody.
    """
    last: dict[int, tuple[re.Match[str], LogMessage]] = {}
    for message in messages:
        text = message.text
        if "store" not in text or "barrier" not in text:
            continue
        if waits := _WAITS_STILL.search(text):
            last[int(waits["rank"])] = waits, message
        elif passed := _PASSED.search(text):
            last = {rank: one for rank, one in last.items() if one[0]["key"] != passed["key"]}
    for rank, (waits, message) in last.items():
        lacking = int(waits["world"]) - int(waits["count"])
        if lacking > 0:
            yield StoreWait(rank=rank, key=waits["key"], lacking=lacking, where=message.where.by(rank))


def _unknown_name(host: str, tries: list[LogMessage]) -> Failure:
    what = f"the name of host {host} is not known here: a service, DNS or /etc/hosts lacks it"
    return Failure(kind="network", what=what, where=tries[-1].where, is_general=True)


def _grown(report: DesyncReport, text: str, snapshot: int | None) -> tuple[DesyncReport | None, int | None]:
    """Return the report with what a line of it says; None for a line that is not of it."""
    at, never, unfinished = _DESYNC_AT.search(text), _NEVER.search(text), _UNFINISHED.search(text)
    not_joined, head, ranks = _NOT_JOINED.search(text), _SNAPSHOT.search(text), _SNAPSHOT_RANKS.search(text)
    values: dict[str, object] = {name: getattr(report, name) for name in report.__struct_fields__}
    if at:
        rank = int(at.group(1)) if report.rank is None else report.rank
        values |= {"rank": rank, "at_operation": spelled(at.group(2)), "at_seq": int(at.group(3))}
    elif never:
        values["never"] = _ranks(never.group(1))
    elif unfinished:
        values["unfinished"] = (*report.unfinished, (int(unfinished.group(2)), _ranks(unfinished.group(1))))
    elif not_joined:
        values["not_joined"] = (*report.not_joined, (int(not_joined.group(3)), _ranks(not_joined.group(1))))
    elif head:
        return report, int(head.group(1)) if head.group(2) == "started" else None
    elif ranks:
        if snapshot is not None:
            values["started"] = (*report.started, (snapshot, spelled(ranks.group(2)), _ranks(ranks.group(1))))
    elif _LAGGING not in text and "Snapshot of" not in text:
        return None, None
    return DesyncReport(**values), snapshot  # type: ignore[arg-type]  # the fields of the same struct


def _work(message: LogMessage) -> Iterator[Fact]:
    text, group = message.text, group_of(message.text)
    work = _WORK.search(text)
    if work:
        inside = dict(re.findall(r"(\w+)(?:\(ms\))?=(\[[^\]]*\]|[^,]+)", work.group("inside")))
        group_rank = _number(work.group("rank"))
        rank = message.rank if message.rank is not None else global_rank(group_rank, group)
        yield Timeout(
            rank=rank,
            group_rank=group_rank,
            group=group,
            operation=spelled(name) if _NAME.fullmatch(name := inside.get("OpType", "")) else "",
            seq=_number(inside.get("SeqNum")),
            numel_in=_number(inside.get("NumelIn")) or _elements(inside.get("TensorShape")),
            numel_out=_number(inside.get("NumelOut")),
            waited_s=int(work.group("ms")) / 1000 if work.group("ms") else None,
            counted_in_group=message.rank is None,
            where=message.where.by(rank),
        )
    enqueued, started, completed = _ENQUEUED.search(text), _STARTED.search(text), _COMPLETED.search(text)
    if enqueued or completed:
        place = re.search(r"Rank (\d+)\]", text)
        group_rank = int(place.group(1)) if place else None
        failed = _FAILED_AT.search(text)
        rank = message.rank if message.rank is not None else global_rank(group_rank, group)
        yield GroupProgress(
            rank=rank,
            group_rank=group_rank,
            group=group,
            enqueued=_number(enqueued.group(1)) if enqueued else None,
            started=_number(started.group(1)) if started else None,
            started_operation=spelled(started.group(2) or "") if started else "",
            completed=_number(completed["whole"] or completed["number"]) if completed else None,
            failed_at=int(failed.group(1)) if failed else None,
            where=message.where.by(rank),
        )
    if signalled := _SIGNALLED.search(text):  # the rank that waited longest: it exists, and is no culprit
        yield Spoke(rank=int(signalled.group(1)), where=message.where)
    if _GOT_STUCK.search(text):
        place = re.search(r"Rank (\d+)\]", text)
        yield Heartbeat(
            rank=message.rank
            if message.rank is not None
            else global_rank(int(place.group(1)) if place else None, group),
            where=message.where,
        )


def _waits(message: LogMessage) -> Iterator[Fact]:
    text, where = message.text, message.where
    barrier = _BARRIER.search(text) or _OUR_BARRIER.search(text)
    reached, sizes = _REACHED.search(text), _GLOO_SIZES.search(text)
    if barrier:
        named = barrier.group(1)
        ranks = _ranks(named) if named[0].isdecimal() else tuple(map(int, re.findall(r"\brank (\d+) \(", named)))
        yield Absentees(ranks=ranks, where=where)
    if reached:
        yield Arrived(rank=int(reached.group(1)) if message.rank is None else message.rank, where=where)
    if sizes:
        yield SizesDiffer(
            rank=message.rank, came_bytes=int(sizes.group(1)), expected_bytes=int(sizes.group(2)), where=where
        )
    if _PEER_ENDED.search(text) or _PEER_LOST.search(text):
        kind = "killed" if _PEER_ENDED.search(text) else "network"
        call = _RAISED.search(text)
        yield PeerLost(
            rank=message.rank,
            group_rank=_number(call["place"]) if call else None,
            kind=kind,
            operation=spelled(call["operation"]) if call else "",
            seq=int(call["seq"]) if call else None,
            numel_in=_number(call["numel_in"]) if call else None,
            numel_out=_number(call["numel_out"]) if call else None,
            where=where,
        )
    if "FingerPrint" in text:
        yield from _fingerprints(message)
    if _GLOO_WAITED.search(text):
        yield Timeout(rank=message.rank, where=where)
    if ("rank" in text or "RANK" in text) and (joins := _JOINS.search(text)):
        rank = int(next(joins[name] for name in ("adds", "waits", "member", "began", "train", "says") if joins[name]))
        yield GroupJoin(rank=rank, key=joins["added"] or joins["key"] or "", where=where.by(rank))
    elif message.rank is not None and _COMES.search(text):
        yield GroupJoin(rank=message.rank, where=where)
    yield from _of_store(message)
    if "RendezvousTimeoutError" in text:
        yield StoreWait(rank=None, where=where, what="for the other hosts at torchrun's rendezvous")
    world = _WORLD.search(text) if any(word in text for word in _OF_WORLD) else None
    if world and not _STORE_BARRIER.search(text):
        yield WorldSize(ranks=int(next(group for group in world.groups() if group)), where=where)


def _of_store(message: LogMessage) -> Iterator[Fact]:
    """Yield who waited for a key of the store or for the store itself, or lost its connection to it."""
    text, where = message.text, message.where
    unique, stored, store = (form.search(text) for form in (_UNIQUE_ID, _STORE_BARRIER, _STORE))
    if unique and re.search(r"timeout|timed out", text, re.IGNORECASE):
        place, writer = int(unique.group(1)), int(unique.group(2))
        in_world = message.rank is None or message.rank == place  # else both count inside a group
        rank = place if message.rank is None else message.rank
        yield StoreWait(rank=rank, of=writer if in_world else None, where=where)
    elif unique and _STORE_GONE.search(text) and message.rank in {None, int(unique[1])}:  # else it counts in a group
        yield PeerLost(rank=int(unique[1]), of=int(unique[2]), kind="killed", where=where)
    elif stored:
        yield _of_barrier(stored, where)
        yield WorldSize(ranks=int(stored["world"]), where=where)
    elif store or _CONNECTS.search(text):
        to = _ADDRESS.search(text) if not store else None
        is_host = store is not None and store.group(3) is not None
        address = f"{to.group(1)}:{to.group(2)}" if to else ""
        joined, size = (int(store[2]), int(store[3])) if store and is_host else (None, 0)
        lacking = size - joined if joined is not None else None
        what = f"for clients of the store, of which {joined} of {size} came" if lacking else "for a key of the store"
        yield StoreWait(
            rank=message.rank, where=where, to=address, what=what, is_host=is_host, lacking=lacking, joined=joined
        )
        if store and store.group(3):
            yield WorldSize(ranks=int(store.group(3)), where=where)


def _of_barrier(stored: re.Match[str], where: Where) -> StoreWait:
    """Return a rank's wait in a barrier of the store, with how many of the job's ranks came to it."""
    joined, size = _number(stored["joined"]), int(stored["world"])
    rank, key = int(stored["rank"]), stored["key"] or ""
    if joined is None:
        return StoreWait(rank=rank, key=key, where=where)
    if joined > size:
        what = f"in a barrier of the store, which counts {joined} of {size}: keys of an earlier run are left in it"
        return StoreWait(rank=rank, key=key, what=what, where=where)
    what = f"in a barrier of the store, to which {joined} of {size} came"
    return StoreWait(rank=rank, key=key, what=what, joined=joined, lacking=size - joined, where=where)


def _fingerprints(message: LogMessage) -> Iterator[Fingerprint]:
    """Yield the calls that one rank's comparison shows, its own first."""
    for at, made in enumerate(_FINGERPRINT.finditer(message.text)):
        yield Fingerprint(
            rank=int(made["rank"]),
            operation=spelled(made["operation"]),
            shape=made["shape"] or "",
            types=" on ".join(part for part in made.group("types", "device") if part),
            seq=_number(made["seq"]),
            speaker=message.rank if at == 0 else None,
            where=message.where,
        )


def _ranks(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)
    return tuple(found)


def _number(text: str | None) -> int | None:
    number = int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None
    return None if number is not None and number >= 2**63 else number  # -1 printed without its sign: not known


def _elements(shape: str | None) -> int | None:
    """Return the elements of a tensor whose shape torch 1.13 printed as [2, 3]."""
    if not shape or not re.fullmatch(r"\[[\d, ]*\]", shape):
        return None
    total = 1
    for size in _ranks(shape):
        total *= size
    return total
