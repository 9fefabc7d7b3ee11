"""Lines of NCCL and RCCL (NCCL_DEBUG=INFO or WARN): who is who, calls by their opCount, broken links."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from ..nouns.facts import CommunicatorCall, Fact, Failure, Fingerprint, SizesDiffer, Versions, VersionSeen
from ..nouns.identities import Adapters, PortUse, RankIdentity
from ..nouns.names import NO_FABRIC, UNLIKE_BOOTSTRAPS, snake, spelled
from ..nouns.where import Where
from ..text.lines import LogMessage

_LINE = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+)\] (?P<rest>.*)")
_INIT = re.compile(
    r"comm(?: (?P<comm>0x\w+))? rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)(?: cudaDev (?P<device>\d+))?"
    r"(?: nvmlDev \d+)?(?: busId (?P<bus>\w+))?.*?(?:commId (?P<id>0x\w+).*?)?(?:- Init"
    r" COMPLETE|- Init START|localSize)"
)
_CALL = re.compile(
    r"(?P<operation>[A-Z]\w+): opCount (?P<seq>[0-9a-f]+) .*?count (?P<count>\d+) datatype (?P<type>\d+)"
    r".*?comm (?P<comm>0x\w+)(?: \[nranks=(?P<ranks>\d+)\])?(?:.*? globalrank (?P<rank>\d{1,6}))?"
)
_BODY = re.compile(
    r"NCCL WARN (?P<rest>.*)|^(?P<bare>(?:Cuda|HIP) failure:? (?:\d+ )?'.*|socket(?:StartConnect|Progress\w*): .*"
    r"|Duplicate GPU .*|Error(?: while creating shared memory segment|: failed to extend) /dev/shm/.*)"
)
_COMPLETION = re.compile(
    r"NET/IB\S*? ?: ?Got completion (?:from peer (?P<peer>[\w.:%\[\]-]+?)(?:<\d+>)? )?with"
    r" (?:status=|error )(?:[A-Z_]+\()?(?P<status>\d+)"  # NCCL 2.27 and later name it
    r"(?:.*?vendor[ _]err[ =](?P<vendor>\d+))?"
)
_USED = re.compile(r"NET/IB : Using (?P<ports>\[\d+\].*)")
_PORT = re.compile(r"\[\d+\](?P<name>[\w.-]+):\d+/(?:IB|RoCE)")
_CHANNEL = re.compile(  # of a communicator, to or from another host
    r"Channel \d+(?:/\d+)? : (?P<from>\d{1,6})\[\w+\] -> (?P<to>\d{1,6})\[\w+\] \[(?P<way>send|receive)\] via NET/IB/"
    r"(?P<place>\d{1,3})\b(?:.*\bn[rR]anks (?P<ranks>\d{1,6}))?"
)
_ASYNC = re.compile(r"NET/IB\S* ?: (?:\S+ )?Got async (?:error )?(?:fatal )?event ?: (?P<what>[\w ]+)")
_LINK = re.compile(
    r"(?:connect(?:ing)? to (?P<to>[^\s<]+)(?:<\d+>)?|Call to connect)\b.*?(?P<why>No route to host"
    r"|Connection timed out|connection abort|Connection refused|Network is unreachable|timed out)"
    r"|error (?P<error>[\w ]+), revents \w+, connect to (?P<other>[\w.:-]+)",
    re.IGNORECASE,
)
_SOCKET = re.compile(  # of a socket that had been open; one that its peer closed or reset tells of that process instead
    r"socketProgress\w*: (?:Call to )?(?:recv|send) (?:from|to) (?P<peer>[\w.:%\[\]-]+?)(?:<\d+>)? failed ?: "
    r"(?P<why>Connection timed out|No route to host|Network is (?:unreachable|down)|Host is (?:unreachable|down))"
)
_FABRIC = re.compile(
    r"(?P<what>ibv_(?:modify_qp|reg_|create_|alloc_|poll_|post_)\w*.*?failed.*"
    r"|NET/OFI .*?(?:completed with error|[Uu]nreachable|unresponsive receiver"
    r"|Couldn't \w+|failed: \w+|Unable to \w+|Unexpected number of remote \w+).*)"
)
_FAR_HOST = re.compile(r"\bPeer host id: (?P<peer>i-[0-9a-f]{8,17})\b")  # of EFA: an instance of EC2
_GPU_LOST = re.compile(
    r"(?:Cuda|HIP) failure:? (?:\d+ )?'(?P<what>uncorrectable ECC[^']*|[^']*hardware error|[^']*ECC[^']*)'",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(r"(?:Cuda|HIP) failure:? (?:\d+ )?'out of memory'")
_CUDA = re.compile(r"(?:Cuda|HIP) failure:? (?:\d+ )?'(?P<what>[^']+)'")
_ENDING = "driver shutting down"  # what CUDA says in a process that is being ended
_MISMATCH = re.compile(r"Mismatched collective detected.*?rank (?P<rank>\d+)")
_SIZES = re.compile(
    r"collective mismatch error,? local size (?P<local>\d+) remote (?:size )?(?P<remote>\d+)"
    r"|NET/.*[Mm]essage truncated : rece\w+ (?P<came>\d+) bytes instead of (?P<wanted>\d+)"
)
_SEGMENT = "Error while creating shared memory segment"
_SHARED_MEMORY = re.compile(rf"posix_fallocate failed : No space left|failed to extend /dev/shm|{_SEGMENT}")
_NO_SEGMENT = re.compile(
    r"(?P<call>shm_open|ftruncate|mmap)\S* failed ?: (?P<why>(?!No space left|Cannot allocate)[A-Z][\w ]+)"
)
_VERSIONS = re.compile(r"Mismatched NCCL version detected : rank (\d+) version (\d+) rank (\d+) version (\d+)")
_BOOTSTRAP = re.compile(r"Message truncated : received (\d+) bytes instead of (\d+)")  # of NCCL's own, no tensor's
_OWN_VERSION = re.compile(r"\bNCCL version (?P<major>\d)\.(?P<minor>\d{1,2})\.(?P<patch>\d{1,2})\b")
_SETUP = (  # what the ranks were told differs, before any collective: the job's, not a rank's
    (
        re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+) both on CUDA device (\w+)"),
        "ranks {0} and {1} use one GPU (bus id {2}): each rank needs its own, by LOCAL_RANK",
    ),
    (
        re.compile(r"Bootstrap Root : rank (\d+) of (\d+) ranks has already checked in"),
        "two processes call themselves rank {0} of {1}: the launcher gives one rank twice",
    ),
    (
        re.compile(r"Bootstrap Root : mismatch in rank count from procs (\d+) : (\d+)"),
        "processes disagree about the number of ranks: {0} and {1}",
    ),
    (
        _VERSIONS,
        "rank {0} has NCCL {1}, rank {2} has NCCL {3}: the same version is needed everywhere",
    ),
    (_BOOTSTRAP, f"{UNLIKE_BOOTSTRAPS}: {{0}} bytes came where {{1}} were expected"),
)
_FLUSHED = 5  # IBV_WC_WR_FLUSH_ERR: what was queued behind the one that failed
STATUS = {
    1: "local length error",
    4: "local protection error",
    5: "flushed behind another failure",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "retries exhausted: the peer's side no longer acknowledges",
    13: "receiver not ready, retries exhausted",
    21: "response time-out",
}  # ibv_wc_status of libibverbs


def read(messages: list[LogMessage]) -> Iterator[Fact]:
    """Yield what NCCL says in the messages of one file."""
    denied: set[tuple[str, int]] = set()  # processes that said why they could not make a segment
    ways: set[tuple[str, int, str]] = set()  # of processes to other hosts
    for message in messages:
        match = _LINE.search(message.text) if "NCCL" in message.text else None
        if "CCL version" in message.text and (own := _OWN_VERSION.search(message.text)):
            yield from _version(message, own, match["host"] if match else "")
        if not match:  # cut from its prefix, or told again by torch below "Last error:"
            body = _BODY.search(message.text)
            if body and not (denied and _SEGMENT in message.text):
                yield from _faults(message, "NCCL WARN " + (body.group("rest") or body.group("bare")), "", None)
            continue
        host, pid, device = match.group("host"), int(match.group("pid")), int(match.group("device"))
        rest = match.group("rest")
        init = _INIT.search(rest) if "nranks" in rest or "nRanks" in rest else None
        call = _CALL.search(rest) if "opCount" in rest else None
        if call:
            yield CommunicatorCall(
                host=host,
                pid=pid,
                device=device,
                communicator=call.group("comm"),
                operation=spelled(snake(call.group("operation"))),
                seq=int(call.group("seq"), 16),
                count=int(call.group("count")),
                datatype=int(call.group("type")),
                ranks=int(call.group("ranks")) if call.group("ranks") else None,
                rank=int(call.group("rank")) if call.group("rank") else None,
                where=message.where,
            )
        elif init:
            yield from _identity(init, host, pid, device, message)
        elif "Using [" in rest and (used := _USED.search(rest)):
            yield Adapters(host=host, ports=tuple(_PORT.findall(used["ports"])), where=message.where)
        elif "via NET/IB" in rest and (channel := _CHANNEL.search(rest)):
            way = host, pid, channel["place"]
            yield from _of_channel(channel, host, pid, message) if way not in ways else ()  # it has many channels
            ways.add(way)
        if _NO_SEGMENT.search(rest):
            denied.add((host, pid))
        if not ((host, pid) in denied and _SEGMENT in rest):
            yield from _faults(message, rest, host, pid)


def _of_channel(channel: re.Match[str], host: str, pid: int, message: LogMessage) -> Iterator[Fact]:
    """Yield the port of a process, and its rank where the line says how many ranks the communicator has."""
    yield PortUse(host=host, pid=pid, place=int(channel["place"]), where=message.where)
    if channel["ranks"]:
        rank = int(channel["from"] if channel["way"] == "send" else channel["to"])
        where = message.where.by(rank)
        yield RankIdentity(rank=rank, host=host, pid=pid, ranks=int(channel["ranks"]), where=where)


def _version(message: LogMessage, own: re.Match[str], host: str) -> Iterator[VersionSeen]:
    """Yield the version of NCCL of the rank or of the host that a line is of, in the form in which NCCL compares it."""
    number = f"{own['major']}{int(own['minor']):02d}{int(own['patch']):02d}"
    if host or message.rank is not None:
        yield VersionSeen(version=number, rank=message.rank, host=host, where=message.where)


def _identity(init: re.Match[str], host: str, pid: int, device: int, message: LogMessage) -> Iterator[Fact]:
    rank, ranks = int(init.group("rank")), int(init.group("ranks"))
    yield RankIdentity(
        rank=rank,
        host=host,
        pid=pid,
        device=int(init.group("device")) if init.group("device") else device,
        bus_id=(init.group("bus") or "").lower(),
        communicator=init.group("comm") or "",
        communicator_id=init.group("id") or "",
        ranks=ranks,
        where=message.where.by(rank),
    )


def _faults(message: LogMessage, rest: str, host: str, pid: int | None) -> Iterator[Fact]:
    own = _network(rest) or _process(rest) if "WARN" in rest or "Got " in rest else None
    if own:
        if own.kind == "device_memory" and host:
            own = replace(own, what=f"{own.what}{_of_gpu(message, host)}")
        who = (None, None) if own.what.startswith(UNLIKE_BOOTSTRAPS) else (pid, message.rank)
        yield replace(own, host=host, pid=who[0], rank=who[1], where=message.where)
    if "version" in rest and (unlike := _VERSIONS.search(rest)):
        yield Versions(versions=((int(unlike[1]), unlike[2]), (int(unlike[3]), unlike[4])), where=message.where)
    if mismatch := _MISMATCH.search(rest):
        yield Fingerprint(rank=int(mismatch.group("rank")), where=message.where)
    if sizes := _SIZES.search(rest):
        came, expected = (int(sizes[one] or sizes[other]) for one, other in (("remote", "came"), ("local", "wanted")))
        yield SizesDiffer(rank=message.rank, came_bytes=came, expected_bytes=expected, where=message.where)


def _of_gpu(message: LogMessage, host: str) -> str:
    """Return the GPU of a line, as its process counts."""
    line = _LINE.search(message.text)
    return f" on GPU {line['device']} of {host}" if line and int(line["device"]) >= 0 else f" on GPUs of {host}"


def _network(rest: str) -> Failure | None:
    """Return the link that failed, by a line of NCCL."""
    completion, event, link = _COMPLETION.search(rest), _ASYNC.search(rest), _LINK.search(rest)
    if completion:
        status = int(completion.group("status"))
        what = f"InfiniBand/RoCE completion with status {status} ({STATUS.get(status, 'see ibv_wc_status')})"
        if completion.group("vendor"):
            what += f", vendor error {completion.group('vendor')}"
        if completion.group("peer"):
            what += f", peer {completion.group('peer')}"
        return _failure("network", what, follows=status == _FLUSHED)
    if event:
        harmless = re.search(r"active|client|lid change|gid change|sm change", event.group("what"), re.IGNORECASE)
        return None if harmless else _failure("network", f"InfiniBand event: {event.group('what').strip()}")
    if fabric := _FABRIC.search(rest):
        far = _FAR_HOST.search(rest)
        return _failure("network", fabric.group("what")[:160] + (f", peer {far['peer']}" if far else ""))
    if "socketProgress" in rest and (socket := _SOCKET.search(rest)):
        return _failure("network", f"a socket broke: {socket['why']}, peer {socket['peer']}")
    if link and "WARN" in rest:
        to, why = link["to"] or link["other"] or "a peer", link["why"] or link["error"]
        return _failure("network", f"connecting to {to} failed: {why}")
    return None


def _process(rest: str) -> Failure | None:
    """Return what failed on the GPU or in the process that printed a line of NCCL."""
    for pattern, told in _SETUP:
        if (found := pattern.search(rest)) and not _SIZES.search(rest):
            return _failure("exception", told.format(*found.groups()), is_general=True)
    if lost := _GPU_LOST.search(rest):
        return _failure("device", lost.group("what"))
    if _OUT_OF_MEMORY.search(rest):
        return _failure("device_memory", "NCCL could not allocate GPU memory")
    if denied := _NO_SEGMENT.search(rest):
        return _failure("exception", f"NCCL could not make a segment in /dev/shm: {denied['why']} ({denied['call']})")
    if _SHARED_MEMORY.search(rest):
        full = "shared memory is full: " if "No space" in rest else ""
        return _failure("host_memory", f"{full}NCCL could not make a segment in /dev/shm")
    if cuda := _CUDA.search(rest):
        what = cuda.group("what")
        if what == "system not yet initialized":
            return _failure("device", NO_FABRIC)
        return _failure("exception", f"CUDA failed inside NCCL: {what}", follows=_ENDING in what)
    return None


def _failure(kind: str, what: str, *, follows: bool = False, is_general: bool = False) -> Failure:
    return Failure(kind=kind, what=what, where=Where("", 0, ""), follows=follows, is_general=is_general)
