"""Text of AWS Neuron: the codes of its runtime, its collectives (CCOM) as they connect, the cache of its compiler.

Who waits in a collective says that another rank may have failed, and the codes say of which kind a failure is:
Neuron's "nrt_status.h" and "Neuron Runtime Troubleshooting".
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..nouns.facts import Busy, Fact, Failure, StoreWait
from ..nouns.identities import LocalProcess, RankIdentity, Spoke, WorldSize
from ..surroundings.system import syslog_host
from ..text.lines import LogMessage

_TELLS = re.compile(r"NRT|nrt_|TDRV|CCOM|NEURON_HW_ERR|gid \d|neff|must be compiling|NCC_WRAPPER")  # a quick look
_PROCESS = re.compile(  # and the number of its device, where collectives speak
    r"(?<![\w.:])(?P<pid>\d{2,8}):\d{2,8} +(?:(?:ERROR|WARN|FATAL|INFO)\b|\[(?P<number>\d{1,4})\] )"
)
_OF_COMPILER = re.compile(r": {1,4}(?P<pid>\d{2,8}) {1,4}\[?(?:DEBUG|INFO|WARNING|ERROR)\b")
_STATUS = re.compile(
    r"\b(?P<name>NRT_[A-Z_]{4,40})\b|\bnrt_\w{2,40}\b.{0,60}?\bstatus(?:_code)?[ =:]{1,3}(?P<code>\d{1,4})\b"
    r"|\bNRT status (?P<bare>\d{1,4})\b"
)
_NAMES = {
    **{4: "NRT_RESOURCE", 5: "NRT_TIMEOUT", 6: "NRT_HW_ERROR", 11: "NRT_FAIL_HOST_MEM_ALLOC", 1006: "NRT_EXEC_OOB"},
    **{1002: "NRT_EXEC_BAD_INPUT", 1003: "NRT_EXEC_COMPLETED_WITH_NUM_ERR", 1004: "NRT_EXEC_COMPLETED_WITH_ERR"},
    **{1100: "NRT_COLL_PENDING", 1200: "NRT_EXEC_HW_ERR_COLLECTIVES", 1201: "NRT_EXEC_HW_ERR_HBM_UE"},
    **{1202: "NRT_EXEC_HW_ERR_NC_UE", 1203: "NRT_EXEC_HW_ERR_DMA_ABORT", 1204: "NRT_EXEC_SW_NQ_OVERFLOW"},
    **{1205: "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE", 1206: "NRT_NETWORK_PROXY_FAILURE"},
}
_KINDS = {
    **dict.fromkeys(("NRT_HW_ERROR", "NRT_EXEC_HW_ERR_DMA_ABORT", "NRT_EXEC_HW_ERR_NC_UE"), "device"),
    **dict.fromkeys(("NRT_EXEC_HW_ERR_HBM_UE", "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE"), "device"),
    **dict.fromkeys(("NRT_EXEC_COMPLETED_WITH_NUM_ERR", "NRT_EXEC_COMPLETED_WITH_ERR", "NRT_EXEC_OOB"), "exception"),
    **dict.fromkeys(("NRT_EXEC_BAD_INPUT", "NRT_EXEC_SW_NQ_OVERFLOW", "NRT_INVALID"), "exception"),
    "NRT_RESOURCE": "device_memory",
    "NRT_FAIL_HOST_MEM_ALLOC": "host_memory",
    "NRT_NETWORK_PROXY_FAILURE": "network",
}
_IN_COLLECTIVE = {"NRT_EXEC_HW_ERR_COLLECTIVES", "NRT_COLL_PENDING"}  # "possibly a hardware error on another worker"
_HARDWARE = re.compile(
    r"(?P<what>uncorrectable (?:HBM )?memory error|DMA [TR]X engine \d{1,4} is in an abort state"
    r"|NEURON_HW_ERR=(?P<code>[A-Z_]{4,60}))",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"\b(?:Neuron Device |ND |MLA |nd-id=)(?P<device>\d{1,3})\b")
_CORE = re.compile(  # of a process, by its device and the core there
    r"\[ND (?P<device>\d{1,3})\]\[NC (?P<core>\d{1,2})\]|\bNeuron Device (?P<on>\d{1,3}) NC (?P<nc>\d{1,2})\b"
)
_PER_HOST = re.compile(r"--nproc[-_]per[-_]node[= ](?P<ranks>\d{1,3})\b")
_NODE = re.compile(r"\bhostname=(?P<host>[\w.-]+)")
_HANGS = re.compile(r"missing collectives status|suspected hang (?:in|between)\b", re.IGNORECASE)
_COMPUTES = re.compile(r"\b(?:execution|inference) timeout \(\d+ ms\)")
_CONNECTS = re.compile(
    r"CCOM WARN .{0,80}?(?P<what>Timeout waiting for (?:RX|TX|incoming connection)|Connect to \S{1,80} failed)"
)
_GLOBAL = re.compile(r"\[nec_dev (?P<number>\d{1,4}), gid (?P<rank>\d{1,6})\]")
_LOADED = re.compile(  # of a model, for one process: its place among all, where each has one of them
    r"nrt_load_collectives\b.{0,60}?\bnc_count=1\b.{0,40}?\bglobal_device_id=(?P<rank>\d{1,6})\b"
    r".{0,20}?\bglobal_device_count=(?P<ranks>\d{1,6})\b"
)
_LOCKED = re.compile(r"Another process must be compiling (?P<what>\S{1,400})")
_COMPILED = re.compile(r"Using a cached neff|[Ss]uccessfully compiled|Compiler status PASS|Compilation Successfully")


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what Neuron's runtime, collectives and compiler say in the messages of one file."""
    own = [message for message in messages if _TELLS.search(message.text)]
    if not own:
        return
    yield from _runtime(own)
    yield from _of_cores(own, {int(n["ranks"]) for m in messages if (n := _PER_HOST.search(m.text))})
    yield from _loading(own)
    yield from _connecting(own)
    yield from _compiling(own)


def _runtime(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield faults of devices and processes, and who waits in a collective for others.

    A process whose own execution does not end while others wait for it in collectives waits for none itself.
    """
    in_collectives: dict[tuple[int | None, int | None], StoreWait] = {}
    computing: dict[tuple[int | None, int | None], StoreWait] = {}
    for message in messages:
        text, pid = message.text, _pid_of(message)
        status = _STATUS.search(text) if "NRT" in text or "nrt_" in text else None
        name = (status["name"] or _NAMES.get(int(status["code"] or status["bare"]), "")) if status else ""
        if broken := _HARDWARE.search(text):
            yield _fault(broken, message, pid)
        elif name in _IN_COLLECTIVE or _HANGS.search(text):
            wait = StoreWait(
                rank=message.rank, pid=pid, what="in a collective of Neuron's runtime", where=message.where
            )
            in_collectives.setdefault((message.rank, pid), wait)
        elif name == "NRT_TIMEOUT" or _COMPUTES.search(text):
            wait = StoreWait(rank=message.rank, pid=pid, what="for a model of Neuron's to end", where=message.where)
            computing.setdefault((message.rank, pid), wait)
        elif kind := _KINDS.get(name):
            what = f"Neuron's runtime: {name}"
            yield Failure(kind=kind, what=what, rank=message.rank, pid=pid, host=message.host, where=message.where)
    yield from (in_collectives or computing).values()


def _pid_of(message: LogMessage) -> int | None:
    own = _PROCESS.search(message.text)
    return int(own["pid"]) if own else message.pid


def _fault(broken: re.Match[str], message: LogMessage, pid: int | None) -> Failure:
    device, node = _DEVICE.search(message.text), _NODE.search(message.text)
    on = f" on Neuron device {device['device']}" if device else ""
    what = (broken["code"] or broken["what"]).lower().replace("_", " ")
    return Failure(
        kind="device",
        what=f"{what}{on}",
        rank=message.rank,
        pid=pid,
        host=node["host"] if node else syslog_host(message.text) or message.host,
        where=message.where,
    )


def _of_cores(messages: Sequence[LogMessage], sizes: set[int]) -> Iterator[LocalProcess]:
    """Yield the numbers on their host of processes that each have one core, where a launcher starts one for each core.

    A launcher's number of processes is then that of devices times that of cores on each. Nothing where these cannot be
    told apart: devices have two, four or eight cores.
    """
    cores: dict[int, set[tuple[int, int]]] = defaultdict(set)
    lines: dict[int, LogMessage] = {}
    for message in messages:
        pid = _pid_of(message)
        if pid is not None and (found := _CORE.search(message.text)):
            cores[pid].add((int(found["device"] or found["on"]), int(found["core"] or found["nc"])))
            lines.setdefault(pid, message)
    told = [core for own in cores.values() for core in own]
    if len(sizes) != 1 or not told or any(len(own) > 1 for own in cores.values()) or len(set(told)) < len(cores):
        return
    size = sizes.pop()
    devices, least = max(device for device, _ in told) + 1, max(core for _, core in told) + 1
    fitting = [n for n in range(least, size + 1) if size % n == 0 and size // n >= devices]
    if len(fitting) != 1:
        return
    for pid, own in cores.items():
        ((device, core),) = own
        yield LocalProcess(pid=pid, number=device * fitting[0] + core, host=lines[pid].host, where=lines[pid].where)


def _loading(messages: Sequence[LogMessage]) -> Iterator[RankIdentity | Spoke | WorldSize]:
    """Yield the ranks of the processes that load a model for collectives, each with one core, and how many there are.

    A process that loads for several places among all has no rank of its own.
    """
    places: dict[int, set[tuple[int, int]]] = defaultdict(set)
    lines: dict[int, LogMessage] = {}
    for message in messages:
        pid = _pid_of(message)
        if pid is not None and (loaded := _LOADED.search(message.text)):
            places[pid].add((int(loaded["rank"]), int(loaded["ranks"])))
            lines[pid] = message
    sizes = {size for own in places.values() for _, size in own}
    if len(sizes) != 1:
        return
    for pid, own in places.items():
        ((rank, size), *others) = own
        if not others and rank < size:
            yield RankIdentity(rank=rank, pid=pid, host=lines[pid].host, where=lines[pid].where.by(rank))
            yield Spoke(rank=rank, where=lines[pid].where)
            yield WorldSize(ranks=size, where=lines[pid].where)


def _connecting(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks that connect for their collectives and wait for others, and the processes of ranks.

    The number in brackets is that of a device on its host. What it is away from the rank, a line of the host tells.
    """
    found: dict[tuple[int, int], tuple[LogMessage, str]] = {}
    numbers: dict[int, set[int]] = defaultdict(set)  # of devices, by process
    apart: set[int] = set()
    is_shown = False
    for message in messages:
        process = _PROCESS.search(message.text)
        if process and (both := _GLOBAL.search(message.text)):
            rank, number = int(both["rank"]), int(both["number"])
            apart.add(rank - number)
            is_shown = is_shown or rank > 0
            where = message.where.by(rank)
            yield RankIdentity(rank=rank, pid=int(process["pid"]), host=message.host, where=where)
        elif process and process["number"] and (waits := _CONNECTS.search(message.text)):
            numbers[int(process["pid"])].add(int(process["number"]))
            found.setdefault((int(process["number"]), int(process["pid"])), (message, waits["what"]))
    first = apart.pop() if len(apart) == 1 and is_shown else None
    for (number, pid), (message, told) in found.items():
        whose = message.rank if first is None else number + first
        own = pid if len(numbers[pid]) == 1 else None
        what = f"for others as Neuron's collectives connect ({told})"
        yield StoreWait(rank=whose, pid=own, host=message.host, what=what, where=message.where.by(whose))


def _compiling(messages: Sequence[LogMessage]) -> Iterator[Busy]:
    """Yield the processes that wait for the lock under which another one compiles, to the end of a log."""
    waits: dict[int, LogMessage] = {}
    for message in messages:
        own = _OF_COMPILER.search(message.text)
        pid = int(own["pid"]) if own else message.pid
        if pid is not None and _LOCKED.search(message.text):
            waits[pid] = message
        elif pid is not None and _COMPILED.search(message.text):
            waits.pop(pid, None)
    what = "a wait for the lock of Neuron's compile cache, which another process holds or has left behind,"
    for pid, message in waits.items():
        yield Busy(rank=message.rank, pid=pid, kind="host", what=what, where=message.where)
