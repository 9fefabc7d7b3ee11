"""Lines of NCCL and RCCL (NCCL_DEBUG=INFO or WARN): who is who, calls by their opCount, broken links."""

import re
from collections.abc import Iterator

from .facts import CommunicatorCall, Fact, Failure, Fingerprint, Identity, WorldSize
from .lines import Message
from .names import spelled

_LINE = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+)\] (?P<rest>.*)")
_INIT = re.compile(
    r"comm(?: (?P<comm>0x\w+))? rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)(?: cudaDev (?P<device>\d+))?"
    r"(?: nvmlDev \d+)?(?: busId (?P<bus>\w+))?.*?(?:commId (?P<id>0x\w+).*?)?(?:- Init"
    r" COMPLETE|- Init START|localSize)"
)
_CALL = re.compile(
    r"(?P<operation>[A-Z]\w+): opCount (?P<seq>[0-9a-f]+) .*?count (?P<count>\d+) datatype (?P<type>\d+)"
    r".*?comm (?P<comm>0x\w+)(?: \[nranks=(?P<ranks>\d+)\])?"
)
_COMPLETION = re.compile(
    r"NET/IB\S* ?: Got completion (?:from peer (?P<peer>[\w.:\[\]-]+?)(?:<\d+>)? )?with"
    r" (?:status=|error )(?P<status>\d+)"
    r"(?:.*?vendor err (?P<vendor>\d+))?"
)
_ASYNC = re.compile(r"NET/IB\S* ?: (?:\S+ )?Got async (?:error )?(?:fatal )?event ?: (?P<what>[\w ]+)")
_LINK = re.compile(
    r"(?:connect(?:ing)? to (?P<to>\S+)|Call to connect)\b.*?(?P<why>No route to host|Connection timed out|Network is"
    r" unreachable|timed out)",
    re.IGNORECASE,
)
_FABRIC = re.compile(
    r"(?P<what>ibv_modify_qp.*?failed.*|NET/OFI .*?(?:completed with error|[Uu]nreachable|unresponsive receiver).*)"
)
_GPU_LOST = re.compile(
    r"Cuda failure (?:\d+ )?'(?P<what>uncorrectable ECC[^']*|[^']*hardware error|[^']*ECC[^']*)'", re.IGNORECASE
)
_OUT_OF_MEMORY = re.compile(r"Cuda failure (?:\d+ )?'out of memory'")
_MISMATCH = re.compile(r"Mismatched collective detected.*?rank (?P<rank>\d+)")
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


def read(messages: list[Message]) -> Iterator[Fact]:
    """Yield what NCCL says in the messages of one file."""
    for message in messages:
        match = _LINE.search(message.text) if "NCCL" in message.text else None
        if not match:
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
                operation=spelled(_snake(call.group("operation"))),
                seq=int(call.group("seq"), 16),
                count=int(call.group("count")),
                datatype=int(call.group("type")),
                ranks=int(call.group("ranks")) if call.group("ranks") else None,
                where=message.where,
            )
        elif init:
            yield from _identity(init, host, pid, device, message)
        yield from _faults(message, rest, host, pid)


def _identity(init: re.Match[str], host: str, pid: int, device: int, message: Message) -> Iterator[Fact]:
    rank, ranks = int(init.group("rank")), int(init.group("ranks"))
    yield Identity(
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


def _faults(message: Message, rest: str, host: str, pid: int) -> Iterator[Fact]:
    where, rank = message.where, message.rank
    completion, event, link = _COMPLETION.search(rest), _ASYNC.search(rest), _LINK.search(rest)
    if completion:
        status = int(completion.group("status"))
        what = f"InfiniBand/RoCE completion with status {status} ({STATUS.get(status, 'see ibv_wc_status')})"
        if completion.group("vendor"):
            what += f", vendor error {completion.group('vendor')}"
        if completion.group("peer"):
            what += f", peer {completion.group('peer')}"
        yield Failure(kind="network", what=what, host=host, pid=pid, rank=rank, where=where, follows=status == _FLUSHED)
    elif event and not re.search(r"client|lid change|gid change|sm change", event.group("what"), re.IGNORECASE):
        what = f"InfiniBand event: {event.group('what').strip()}"
        yield Failure(kind="network", what=what, host=host, pid=pid, rank=rank, where=where)
    elif fabric := _FABRIC.search(rest):
        yield Failure(kind="network", what=fabric.group("what")[:160], host=host, pid=pid, rank=rank, where=where)
    elif link and "WARN" in rest:
        what = f"connecting to {link.group('to') or 'a peer'} failed: {link.group('why')}"
        yield Failure(kind="network", what=what, host=host, pid=pid, rank=rank, where=where)
    lost = _GPU_LOST.search(rest)
    if lost:
        yield Failure(kind="device", what=lost.group("what"), host=host, pid=pid, rank=rank, where=where)
    elif _OUT_OF_MEMORY.search(rest):
        what = "NCCL could not allocate GPU memory"
        yield Failure(kind="device_memory", what=what, host=host, pid=pid, rank=rank, where=where)
    mismatch = _MISMATCH.search(rest)
    if mismatch:
        yield Fingerprint(rank=int(mismatch.group("rank")), where=where)


def world_of(identities: list[Identity]) -> list[WorldSize]:
    """Return the sizes of the communicators: the largest is the number of ranks."""
    return [WorldSize(ranks=i.ranks, where=i.where) for i in identities if i.ranks]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
