"""Text of HCCL, Ascend's collectives: waits for another rank, ranks that did not connect, links, memory."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Absentees, Entered, Fact, Failure, Fingerprint, NotifyWait, SizesDiffer, StoreWait
from ..nouns.identities import RankIdentity
from ..nouns.names import collective_in
from ..nouns.where import Where
from ..text.lines import LogMessage

_TELLS = re.compile(
    r"RankID:|remote rank|rankNum|rankinfo|connect agent|E[IJ]00\d\d|error cqe|sync(?:hronize)? timeout|ECC|50705\d"
    r"|Cluster Exception|EL0004|207001|between ranks|CMD information|HcclCommInit"
    r"|listen on ip|listen start failed"
)
_SPEAKER = re.compile(r"\(PID:\d+, Device:\d+, RankID:(?P<rank>\d{1,6})\)")
_PROCESS = re.compile(r"^\[\w+\] ?[A-Z]{2,12}\((?P<pid>\d{2,8}),")  # of CANN's own logs
_INIT = re.compile(  # of the group of all ranks, or another
    r"Entry-HcclCommInit\w+: ?ranks\[(?P<ranks>\d{1,6})\], rank\[(?P<rank>\d{1,6})\]"
    r".*?(?:deviceLogicId\[(?P<device>\d{1,3})\]|$)"
)
_NOTIFY = re.compile(r"not received the Notify record from remote rank:? ?\[(?P<remote>\w+)\]")
_GROUP = re.compile(r"group:\[(?P<name>[^\]]*)\].*?rankSize\[(?P<size>\d{1,6})\], ?rankId\[(?P<place>\d{1,6})")
_CALL = re.compile(r"\btag:?\[(?P<call>[A-Za-z][^\]]{2,200})\]")
_ENTRY = re.compile(  # with HCCL_ENTRY_LOG_ENABLE
    r"\bEntry-Hccl\w{2,40}: ?tag\[(?P<call>[^\]]{3,200})\].{0,200}?\b(?P<shape>count\[\d+\], dataType\[\w+\])"
    r".{0,80}?\blocalRank\[(?P<rank>\d{1,6})\]"
)
_NEEDED = re.compile(r"need connect rankNum is \[(?P<ranks>\d{1,6})\]")
_CONNECTED = re.compile(r"connected rankinfo\[LINE \d+\]: (?P<ranks>[\d\[\], ]+)")
_AGENTS = re.compile(r"Failed to connect agent\[(?P<ranks>[\d, ]+)\]")
_CQE = re.compile(r"(?P<status>error cqe status: ?0x\w+)|EI001[38]", re.IGNORECASE)
_END = re.compile(r"\b(?P<side>Local|Peer) information: server (?P<host>[\w.:-]+), device ID (?P<device>\d{1,4})\b")
_UNLIKE = re.compile(  # of the arguments of one call, in the words of each version
    r"(?:inconsistent between ranks.*?parameter ?\[?|CMD information )(?P<name>\w+)\]?"
    r"(?: is|,|:| check fail\.)? ?(?:local(?: rank| end)? ?)?\[?(?P<own>[^\[\],\s]+)\]?"
    r"(?: on the local rank and|, ?remote(?: rank| end)?)? ?\[?(?P<other>[^\[\],\s]+)"
)
_OPERATION = re.compile(r"\b(?:operator |tag ?\[)(?:Hcom|Hccl)?(?P<name>[A-Z]\w*?)(?=[_\],. ])")
_LINK_TO = re.compile(r"localUserrank\[(?P<own>\d{1,6})\].*?remoteUserrank\[(?P<other>\d{1,6})\]")
_STREAM = re.compile(r"[Ss]tream sync(?:hronize)? timeout")
_MEMORY = re.compile(r"HBM multi[ -]?bit ECC|multi-?bit ecc|error code (?:is )?:? ?50705[34]", re.IGNORECASE)
_FULL = re.compile(r"\bEL0004\b.{0,80}?Failed to allocate memory|error code (?:is )?:? ?207001\b")
_LINK = re.compile(r"error code (?:is )?:? ?507056\b")  # between two devices
_ELSEWHERE = re.compile(  # what HCCL's heartbeat knows of another device when a wait ends
    r"Cluster Exception Location\[IP/ID\]:\[(?P<host>[\w.:]+)/(?P<device>\d{1,3})\]"
    r".*?ExceptionType:\[(?P<what>[^\]]*)\]"
)
_SOCKET = re.compile(r"EI0006: .*?(?:socket times out)")
_LISTEN = re.compile(
    r"listen on ip ?\[(?P<ip>[^\]]+)\] and (?:specific )?port ?\[(?P<port>\d{1,5})\] fail"
    r"|host nic listen start failed, port ?\[(?P<host_port>\d{1,5})\]"
)
_CODE = re.compile(r"(?:^|[\s(])(?P<code>E[IJ]00\d\d)\)?: ")  # not where advice speaks of it
_CODES = {  # of faults of their own, by CANN's list of errors, with what they say
    **dict.fromkeys(("EI0001", "EI0016"), ("exception", "an environment variable or an option has a wrong value")),
    "EI0003": ("exception", "a collective was called with a wrong argument"),
    **dict.fromkeys(("EI0004", "EI0014", "EI0017"), ("exception", "the table of ranks is wrong")),
    "EI0007": ("exception", "streams, events or other resources of an NPU are used up"),
    "EI0011": ("device_memory", "an NPU has no memory left for HCCL"),
    **dict.fromkeys(("EI0019", "EI0020", "EJ0003"), ("exception", "a port could not be listened on, or is taken")),
}
_OF_LINKS = {  # the other end may have gone
    "EI0009": "a link could not be set up",
    "EI0010": "NPUs of one host cannot reach each other",
    "EI0012": "a copy between NPUs failed (SDMA)",
}
_OF_CALLS = {"tag", "optype", "op_type", "cmdtype"}  # arguments that say which call it is
_BY = "HCCL"
_NEAR = 8  # messages after the one that names its rank
_UNKNOWN = 2**32 - 1


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what HCCL says in the messages of one file."""
    speaker, spoke = None, -_NEAR
    needed: int | None = None
    connected: set[int] = set()
    last: LogMessage | None = None
    largest = -1
    for index, message in enumerate(messages):
        text = message.text
        if "Entry-Hccl" in text and (entry := _ENTRY.search(text)):
            yield Entered(rank=int(entry["rank"]), call=entry["call"], shape=entry["shape"], where=message.where)
        if not _TELLS.search(text):
            continue
        if found := _SPEAKER.search(text):
            speaker, spoke = int(found["rank"]), index
            largest = max(largest, speaker)
        rank = message.rank if message.rank is not None else speaker if index - spoke < _NEAR else None
        if wanted := _NEEDED.search(text):
            needed, connected, last = int(wanted["ranks"]), set(), message
        elif needed is not None and (came := _CONNECTED.search(text)):
            connected |= {int(number) for number in re.findall(r"\d+", came["ranks"])}
        elif agents := _AGENTS.search(text):
            ranks = [int(number) for number in re.findall(r"\d+", agents["ranks"])]
            yield _did_not_connect(ranks, message, known=largest <= max(ranks, default=0))
        elif unlike := _UNLIKE.search(text):
            yield from _unlike(unlike, message, rank, messages[index : index + _NEAR])
        else:
            yield from _of_a_line(text, message, rank)
    if needed is not None and last is not None and connected:
        yield _did_not_connect(sorted(set(range(needed)) - connected), last, known=largest < needed)


def _did_not_connect(ranks: Sequence[int], message: LogMessage, *, known: bool) -> Absentees:
    """Return who did not connect; their numbers are places where a larger rank of the job is known."""
    return Absentees(ranks=tuple(ranks) if known else (), by=_BY, operation="", where=message.where)


def _unlike(
    unlike: re.Match[str], message: LogMessage, rank: int | None, following: Sequence[LogMessage]
) -> Iterator[Fact]:
    """Yield the arguments of one call on two ranks that compared them: of whom, a line below says by places in a group.

    A rank and its place there are one where they are the same number. Who says it is known, or nobody is named.
    """
    name, own, other = unlike["name"], unlike["own"], unlike["other"].rstrip(".")
    if rank is None:
        what = f"HCCL: {name} is {own} on one rank and {other} on another"
        yield SizesDiffer(rank=None, what=what, where=message.where)
        return
    ended = next((at for at, one in enumerate(following) if at and _UNLIKE.search(one.text)), len(following))
    rows = (one.text for one in following[:ended] if one.rank in {None, message.rank} and "Userrank" in one.text)
    link = next((found for row in rows if (found := _LINK_TO.search(row))), None)
    called = _OPERATION.search(unlike.string)
    operation = collective_in(called["name"]) if called else ""
    place, where = int(link["own"]) if link else rank, message.where.by(rank)
    sides = [(place, own, rank), *([(int(link["other"]), other, None)] if link else [])]
    for of, value, speaker in sides:
        call, shape = (value, "") if name.lower() in _OF_CALLS else (operation or "a call", f"{name} {value}")
        yield Fingerprint(rank=of, operation=call, shape=shape, speaker=speaker, where=where)


def _of_a_line(text: str, message: LogMessage, rank: int | None) -> Iterator[Fact]:
    where = message.where.by(rank)
    process = _PROCESS.match(text)
    pid = int(process["pid"]) if process else None
    if made := _INIT.search(text):
        number = int(made["device"]) if made["device"] else None
        own_rank, ranks = int(made["rank"]), int(made["ranks"])
        own_where = message.where.by(own_rank)
        yield RankIdentity(rank=own_rank, pid=pid, device=number, ranks=ranks, where=own_where)
    if other := _ELSEWHERE.search(text):
        told = other["what"].removesuffix(" Occurred").lower()
        what = f"HCCL: {told} of device {other['device']} on {other['host']}"
        kind = "network" if "cqe" in told else "killed"
        device, host = int(other["device"]), other["host"]
        yield Failure(kind=kind, what=what, device=device, host=host, where=message.where, is_summary=True)
    if wait := _NOTIFY.search(text):
        group, call = _GROUP.search(text), _CALL.search(text)
        number = int(wait["remote"]) if wait["remote"].isdecimal() else _UNKNOWN
        yield NotifyWait(
            rank=rank,
            remote=None if number >= _UNKNOWN else number,
            call=call["call"] if call else "",
            group=group["name"] if group else "",
            size=int(group["size"]) if group else None,
            place=int(group["place"]) if group else None,
            where=where,
        )
    elif taken := _LISTEN.search(text):
        at = f"port {taken['port'] or taken['host_port']}{f' of {ip}' if (ip := taken['ip']) else ''}"
        what = f"HCCL could not listen on {at}: another process has it, or has just left it"
        yield Failure(kind="exception", what=what, rank=rank, pid=pid, where=where)
    elif link := _CQE.search(text):
        ends = {end["side"]: (end["host"], int(end["device"])) for end in _END.finditer(text)}
        told = " and ".join(f"device {device} on {host}" for host, device in sorted(ends.values()))
        told = f" between {told}" if told else f", {link['status']}" if link["status"] else ""
        if rank is not None and (own := ends.get("Local")):
            yield RankIdentity(rank=rank, host=own[0], device=own[1], where=where)
        yield Failure(kind="network", what=f"HCCL: packets are not answered{told}", where=where)
    elif _MEMORY.search(text) and "Error Information" not in text:  # that is npu-smi's
        yield Failure(kind="device", what="the memory of an NPU fails (ECC)", rank=rank, pid=pid, where=where)
    elif _FULL.search(text):
        yield Failure(kind="device_memory", what="the memory of an NPU is full (EL0004)", rank=rank, where=where)
    elif _LINK.search(text):
        yield Failure(kind="network", what="a link between two NPUs is broken (507056)", rank=rank, where=where)
    elif _SOCKET.search(text):
        yield StoreWait(rank=rank, where=where, what="for the socket of a remote rank (HCCL's EI0006)")
    elif _STREAM.search(text):
        yield StoreWait(rank=rank, where=where, what="for a stream of its NPU")
    elif found := _CODE.search(text):
        yield from _of_code(found["code"], rank, where)


def _of_code(code: str, rank: int | None, where: Where) -> Iterator[Fact]:
    """Yield what one of HCCL's codes says that nothing else on its line does."""
    if code in _CODES:
        kind, what = _CODES[code]
        yield Failure(kind=kind, what=f"HCCL: {what} ({code})", rank=rank, where=where)
    elif code in _OF_LINKS:
        yield Failure(kind="network", what=f"HCCL: {_OF_LINKS[code]} ({code})", rank=rank, where=where, follows=True)
    elif code == "EI0008":
        what = "HCCL: the ranks have other versions of a package (EI0008)"
        yield Failure(kind="exception", what=what, where=where, is_general=True)
    elif code == "EI0015":
        what = "for others, as HCCL gathers the ranks of a group (EI0015)"
        yield StoreWait(rank=rank, where=where, what=what)
