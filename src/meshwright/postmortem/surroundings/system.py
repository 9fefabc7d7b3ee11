"""Messages of the system around a job: kernel log, SLURM, Kubernetes, shells; other schedulers are in `batch`."""

import re
from collections.abc import Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from ..nouns.facts import Exit, Fact, Failure, LinkUp, SharedMemoryFull, TrainingEnded
from ..nouns.identities import Placed, TimeUp
from ..nouns.names import BY_ITSELF, BY_REQUEST, OF_PROGRAM, WATCHDOG_OF_SERVER, bus_number
from ..nouns.where import Where
from ..nouns.world import MOST_RANKS
from ..ranks.hosts import SWITCH_PORT
from ..text.lines import LogMessage
from .pod_containers import Container, containers_of
from .pods import Pod, all_completed, described_pods, pod_of_event

_KILLED = re.compile(r"Killed process (?P<pid>\d+) \((?P<name>[^)]*)\).*?anon-rss:(?P<kb>\d+)kB")
_OOM_TASK = re.compile(r"oom-kill:(?:.*?\btask=(?P<name>[^,]+))?.*?\bpid=(?P<pid>\d+)")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[\w:.]+)\): (?P<xid>\d+)(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?P<rest>.*)")
_RECOVERED = re.compile(r"recovery action changed from .*? to 0x0")
_EARLIER_XID = re.compile(r"caused by previous Xid (\d+)")
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for gpu ?(?:\d{1,3}: ?)?(?P<bus>[0-9a-f:.]+): "
    r"(?P<why>(?:GPU is lost|Unknown Error)[^.]*)",
    re.IGNORECASE,
)
_SXID = re.compile(r"nvidia-nvswitch\S*: SXid \(PCI:(?P<bus>[\w:.]+)\): (?P<number>\d+), Fatal")
_LOST = re.compile(
    r"NVRM:.*?GPU (?:at"
    r" )?(?:PCI:)?(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.?\d?).*?(?P<what>fallen off the bus[^.]*)",
    re.IGNORECASE,
)
_AMD = re.compile(  # its driver counts errors on every query too, and says that there are none
    r"amdgpu (?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): .*?(?P<what>GPU reset begin"
    r"|GPU reset\(\d+\) failed|(?:ASIC|Mode ?[12]) reset failed|GPU Recovery Failed|device lost from bus"
    r"|GPU fault detected|\[\w+\] (?:no-)?retry page fault"
    r"|(?<!\bno )(?<!\b0 )(?<!\b0 new )uncorrectable hardware errors?(?:\s?\(\w+\))? detected"
    r"|poison is (?:consumed|created)|RAS poison consumption"
    r"|Queue preemption failed|MES failed to respond|ring [\w.]+ timeout(?!, but soft recovered)"
    r"|HW exception|ras .*?fatal error)",
    re.IGNORECASE,
)
_FAULT_OF = re.compile(r"\bfor process .{1,64}? pid (?P<pid>\d+) thread ")
_FAULT_AT = re.compile(r"\bin page starting at address (?P<address>0x[0-9a-fA-F]+)")
_BELOW_FAULT = 5  # lines
_AMD_RUNTIME = re.compile(
    r"(?P<what>HW Exception by GPU node-\d+.*|Memory access fault by GPU node-\d+.*?(?:Reason: [^.]*\.|$)"
    r"|Queue \S+ [Aa]borting with error ?: HSA_STATUS_ERROR_.*)"
)
_INTEL = re.compile(
    r"(?:i915|xe) (?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): .*?"
    r"(?P<what>GPU HANG(?=:.* in [\w.-]+ ?\[(?P<pid>\d+)\])?|device wedged|Engine reset|Timedout job)"
)
_HUNG = re.compile(r"INFO: task (?P<name>.{1,40}?):(?P<pid>\d+) blocked for more than (?P<s>\d+) seconds")
_IN_ONE_CALL = "stood in one kernel call"
_SERVER = re.compile(
    r"(?P<what>nfs: server \S+ not responding.*|LustreError: .*(?:timed out|evicted).*|ceph: .* hung"
    r"|Lustre: .*Connection to (?:\S+) \(at \S+\) was lost|\bmmfs: .*(?:[Ll]ost membership|[Uu]nmount\w* due to)\b.*"
    r"|beegfs: .*(?:[Cc]ommunication (?:error|timeout)|[Rr]etry)\b.*)"
)
_SERVER_BACK = re.compile(r"nfs: server (?P<server>\S+) OK\b|Lustre: .*Connection restored to (?P<target>[\w.-]+)")
_RESET = re.compile(r"NVRM: .*?(?P<what>Reset required \[NV_ERR_RESET_REQUIRED\])")
_CARD = re.compile(
    r"(?P<what>mlx5_core (?P<bus>\S+): .*?(?:device's health compromised|[Ff]atal error|reached miss count"
    r"|firmware internal error|[Ff]W fatal).*)"
)
_OOM_DAEMON = re.compile(  # systemd's, earlyoom, the kubelet's event
    r"System OOM encountered, victim process: (?P<victim>[^,]+), pid: (?P<of>\d+)"
    r"|systemd-oomd\[\d+\]: Killed (?P<unit>\S+) due to memory"
    r"|sending SIG(?:TERM|KILL) to process (?P<pid>\d+) uid \d+ \"(?P<name>[^\"]*)\": .*oom_score"
)
_SHORT_S = 60.0  # of an outage that holds nobody up for long
_MONOTONIC = re.compile(r"^\[ *(?P<s>\d+\.\d+)\]")
_LINK_DOWN = re.compile(
    r"(?P<what>\b(?:mlx[45]_\w+|bnxt_\w+|ice|i40e|ixgbe|igb|tg3|qede|ib\d+|irdma\w*|efa|hfi1\w*|cxi\w*|hsn\d+)\b.*?"
    r"(?:link (?:is )?down(?!ed)|state change(?:d)?:? .*DOWN|Cable (?:unplugged|error)|port (?!\d+ ==> ).*?DOWN(?!ed))"
    r"|\b(?:bond|team)\d+\b.*?(?:without any active (?:interface|slave|port)|Lost carrier|link (?:is )?down\b))",
    re.IGNORECASE,
)
_SWITCH = re.compile(
    r"(?P<what>\b(?:swp\d+\w*|Eth(?:ernet)?\d[\d/]*|et-\d\S*|(?:Hundred|Forty|TwentyFive|FourHundred)Gig\w*\S*|IB\d+(?:/\d+)+)"
    r"\b.*?(?:link (?:is |went )?down|(?:is|went) down|state (?:changed |set )?to down|oper\w*(?: state)?:? down"
    r"|ACTIVE -> DOWN)\b.*)",
    re.IGNORECASE,
)
_LINK_UP = re.compile(
    r"\b(?P<device>(?:mlx[45]_|bnxt_|ib|irdma|eth|en)\w*\d\w*)\b.*?(?:Link ACTIVE|[Ll]ink (?:is )?[Uu]p|becomes ready)"
    r"|\b(?P<bond>(?:bond|team)\d+): (?:Gained carrier|(?:first )?active interface up|link becomes ready)"
)
_LINK_PLUGGED = re.compile(
    r"\bmlx[45]_core (?P<bus>[\da-f:.]+\d)[: ].*?(?:Cable plugged|Link (?:ACTIVE|[Uu]p)|[Ll]ink is [Uu]p)"
)
_SHM_FULL = re.compile(r"^\S+ +\d\S* +\d\S* +\d\S* +(?:9[89]|100)% +/dev/shm$")
_NAMED_GPU = re.compile(r"NVRM: The NVIDIA GPU (?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.?\d?)\s*$")
_CAUGHT = re.compile(  # UCX's handler
    r"^\[(?P<host>[\w.-]+):(?P<pid>\d+) *:\d+:\d+\] Caught signal (?P<signal>\d+) \((?P<what>[\w ]+)"
)
_UCX = re.compile(r"(?:^|\] )\[(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+) *:\d+(?::\d+)?\] +\w+\.c:\d+ ")
_SEGFAULT = re.compile(r"(?P<name>[\w.-]+)\[(?P<pid>\d+)\]: segfault at")
_SRUN_TASKS = re.compile(r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,\[\]-]+): (?P<what>.*)")
_SRUN_ENDS = re.compile(
    r"srun: (?:Terminating|Force Terminated|Job step aborted)|slurmstepd: error: \*\*\* (?:JOB|STEP) .*CANCELLED"
)
_SERVER_ENDS = re.compile(  # SGLang ends all of its processes, and then itself
    r"[Rr]eceived sigquit from a child|\bSIGQUIT received\. signum=|" + WATCHDOG_OF_SERVER
)
_FATAL = re.compile(
    r"^Fatal Python error: (?P<what>Segmentation fault|Bus error|Illegal instruction|Floating point \w+)"
)
_CORRUPT = re.compile(  # what glibc prints before it aborts: malloc_printerr in malloc/malloc.c, __fortify_fail
    r"^(?P<what>(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): [a-z][\w()/ -]{3,60}"
    r"|double free or corruption \([\w!]+\)|corrupted (?:size vs\. prev_size|double-linked list)[\w ]{0,30}"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*)"
)
_SLURM_OOM = re.compile(
    r"slurmstepd: error: .*?(?:Detected \d+ oom[_-]kill|Exceeded (?:job|step) memory limit)", re.IGNORECASE
)
_SLURM_END = re.compile(
    r"\*\*\* (?:JOB|STEP) \S+ ON (?P<host>\S+) CANCELLED AT \S+ (?P<why>DUE TO (?:TIME LIMIT"
    r"|PREEMPTION|NODE FAILURE[^*]*|JOB REQUEUE)|(?=\*\*\*))",
)
_NODE_FAILED = re.compile(r"(?:srun: error: Node failure on|error: Node failure on) (?P<host>\S+)", re.IGNORECASE)
_EVICTED = re.compile(r"The node was low on resource: (?P<what>[\w-]+)")
_KUBERNETES = re.compile(
    r"(?P<what>\bEvictedDueTo\w+|\b[Ee]victed\b|\bEvict\b|\bPreempt(?:ed|ing)\b"
    r"|NodeNotReady|Node is not ready|TaintManagerEviction|NodeShutdown"
    r"|node shutdown|NodeLost|failed liveness probe"
    r"|PreemptionByScheduler|DeletionByTaintManager|EvictionByEvictionAPI|TerminationByKubelet)"
)
_EXIT_CODE = re.compile(r"^\s*Exit Code:\s+(?P<code>\d+)\s*$")  # kubectl describe pod
_TAKEN = re.compile(r"[Pp]reempt|Taint|ByScheduler")  # its machine is wanted for another, or gone
_PREEMPTOR = re.compile(r"\bPreempted workload [\w-]+/")  # Kueue's word on the one that goes on
_CONTEXT = re.compile(  # a workload is Kueue's
    r"pod[/ ]|workload\b|Pod|kubelet|-scheduler|k8s|kubernetes|Reason:|Warning |^[a-z0-9][\w.-]* +\d+/\d+ +",
    re.IGNORECASE,
)
_SHELL = re.compile(r"line \d+: +(?P<pid>\d+) (?:Killed|Segmentation fault|Bus error)\b")
_SHELL_BARE = re.compile(r"^(?:Killed|(?:Segmentation fault|Bus error)(?: \(core dumped\))?)$")
_SYSLOG = re.compile(  # syslog's clock, or journalctl's: with a zone, or seconds since the start
    r"(?:\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d| [A-Z]{3,4})?|^\[ *\d+\.\d+\]) (?P<host>[A-Za-z][\w.-]*)"
    r" (?:kernel|systemd-networkd\S*|NetworkManager\S*):"
)
_OF_NODE = re.compile(r"^(?:\S+ +){1,4}[Nn]ode/(?P<host>[\w.-]+) ")  # of an event of Kubernetes
_LOG_OF = re.compile(  # a comment
    r"^(?:#|//|---|===)\W*(?:\w+ ){0,4}?(?:host|node|machine|dmesg|kernel(?: log)?) (?:of|for|under|with|running)"
    r" (?:the )?(?:pod )?(?P<pod>[a-z0-9](?=[\w.]*[\d-])[\w.-]*[a-z0-9])(?![\w.-])"
)
_HEAD = 5  # lines
_RDMA = re.compile(
    r"(?P<what>mlx[45]: (?P<host>\S+): got completion with error|libfabric:\S+?(?:error|err)\w*\(\):\d+<warn> .*"
    r"|(?:Transport retry count|RNR retry(?: count)?) exceeded on \S+|Remote (?:access|operation) error on \S+"  # UCX
    r"|completion with error: (?:[Tt]ransport|RNR) retry count\w* exceeded"
    r"|mca_btl_tcp\w+\] connect\(\) to \S+ failed: (?:No route to host|Network is unreachable|Network is down))"
)
XIDS = {
    13: f"graphics engine exception, {OF_PROGRAM}",
    31: f"memory page fault of a kernel, {OF_PROGRAM}",
    48: "uncorrectable ECC error",
    61: "internal microcontroller breakpoint",
    62: "internal microcontroller halt",
    63: "row remapping or page retirement",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fell off the bus",
    92: "many correctable ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP processor does not answer",
    120: "GSP processor error",
    140: "unrecovered ECC error",
    145: "NVLink error",
    149: "NVLink error",
    154: "the driver asks for a recovery",
}  # NVIDIA's "Xid Errors" documentation
_KILLING = {4, 7, 8, 9, 11}  # signals that end a process by themselves
_AFTERMATH = {43, 45}  # a channel that stopped because its process or another engine did
_HARMLESS = {63, 92}  # the GPU goes on
_NVLINK = range(144, 151)  # say themselves whether they are fatal
_MAY_TELL = (  # a quick look, since most lines are none of these
    *("Killed", "oom", "OOM", "NVRM", "SXid", "device handle", "amdgpu", "by GPU node", "HSA_STATUS", "i915", "xe "),
    *("blocked for", "Caught signal", "responding", "Lustre", "Link", "link", "DOWN", "without any active", "carrier"),
    *("active interface up", "Down", "down", "Exit Code:", "Fatal Python", "plugged", "becomes ready", "segfault"),
    *("srun", "slurmstepd", "CANCELLED", "Node failure", "vict", "reempt", "NotReady", "ot ready", "hutdown"),
    *("low on", "Segmentation", "NodeLost", "liveness", "ByScheduler", "TaintManager", "ByKubelet", "Bus error"),
    *("(): ", "double free", "corrupted ", "*** stack", "*** buffer"),
    *("/dev/shm", "ceph", "mlx4", "mlx5", "libfabric:", "exceeded on", "error on", "with error:", "mca_btl_tcp"),
    *("nfs: server", "sending SIG", "sigquit", "SIGQUIT", "atchdog timeout ("),
)


def read(messages: list[LogMessage]) -> list[Fact]:
    """Return what kernel, SLURM and Kubernetes say in the messages of one file."""
    found: list[Fact] = []
    named = ""  # the GPU of a notice that the driver spreads over three lines
    ends = False  # srun ends the step: who is killed from here on is killed by it
    server: re.Match[str] | None = None  # it ends itself; what its watchdog says of why, `servers` reads
    described, containers = described_pods(messages), containers_of(messages)
    for place, message in enumerate(messages):
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        if up := _LINK_UP.search(text):
            found = _up_again(found, up["device"] or up["bond"], message)
        if plugged := _LINK_PLUGGED.search(text):
            found = _up_again(found, plugged["bus"], message)
        if back := _SERVER_BACK.search(text):
            found = [fact for fact in found if not _was_short(fact, back["server"] or back["target"], message)]
        if _SHM_FULL.match(text):
            found.append(SharedMemoryFull(where=message.where))
        if gpu := _NAMED_GPU.search(text):
            named = gpu.group("bus")
        elif named and "fallen off the bus" in text and not _XID.search(text):
            text, named = f"NVRM: GPU {named} has fallen off the bus", ""
        told = list(_kernel(message, text, syslog_host(message.text) or message.host))
        found += [_of_page(fact, messages, place) if "page fault" in text else fact for fact in told]
        ends = ends or _SRUN_ENDS.search(text) is not None
        by_slurm = list(_slurm(message, text))
        found += [replace(f, follows=True) if ends and _is_killed(f) else f for f in by_slurm]
        server = server or _SERVER_ENDS.search(text)
        pod = described.get(place) or pod_of_event(text)
        around = _kubernetes(message, text, pod, containers.get(place, Container()))
        if not (server and server["after"]):
            found += [replace(f, follows=True) if server and _is_killed(f) else f for f in around]
    found = _with_file_systems(found)
    found += _of_pod(messages)
    if completed := all_completed(messages):
        found.append(TrainingEnded(rank=None, where=completed.where, exited=True))
    return found


def _of_pod(messages: Sequence[LogMessage]) -> Iterator[Placed]:
    """Yield the pod of the machine whose kernel's log this is, where a comment at its head says it."""
    pods = [(named["pod"], message) for message in messages[:_HEAD] if (named := _LOG_OF.match(message.text))]
    nodes = {host for message in messages if (host := syslog_host(message.text))} if len(pods) == 1 else set()
    if len(nodes) == 1:
        yield Placed(pod=pods[0][0], node=nodes.pop(), where=pods[0][1].where)


def _of_page(fact: Fact, messages: Sequence[LogMessage], place: int) -> Fact:
    """Return AMD's page fault with the process and the address that its driver says in the same line or the next."""
    amd = _AMD.search(messages[place].text)
    if not isinstance(fact, Failure) or amd is None:
        return fact
    near = [one.text for one in messages[place : place + _BELOW_FAULT] if amd["bus"] in one.text]
    process = next((int(one["pid"]) for text in near if (one := _FAULT_OF.search(text))), None)
    address = next((int(one["address"], 16) for text in near if (one := _FAULT_AT.search(text))), None)
    what = fact.what + (f" of process {process}" if process else "") + (f" at {address:#x}" if address else "")
    return replace(fact, what=what, pid=process)


def _is_killed(fact: Fact) -> bool:
    return isinstance(fact, Failure) and fact.kind == "killed" and not fact.is_general


def _is_down(fact: Fact, device: str) -> bool:
    """Whether a fact is that a link went down which is up again."""
    return isinstance(fact, Failure) and fact.kind == "network" and device in fact.what


def _up_again(found: list[Fact], device: str, message: LogMessage) -> list[Fact]:
    """Return the facts without links of a device that are up again soon; one that was down for long has an end."""
    up_s = _clock_s(message.where)
    kept: list[Fact] = []
    for fact in found:
        if isinstance(fact, Failure) and _is_down(fact, device):
            down_s = _clock_s(fact.where)
            if up_s is None or down_s is None or not up_s - down_s > _SHORT_S:
                continue
            kept.append(LinkUp(down=fact.where, where=message.where))
        kept.append(fact)
    return kept


def _with_file_systems(found: list[Fact]) -> list[Fact]:
    """Return the facts, a process that stands in one kernel call with the file system that did not answer before."""
    told = list(found)
    silent: int | None = None
    for place, fact in enumerate(found):
        if not isinstance(fact, Failure) or fact.kind != "host":
            continue
        if _SERVER.search(fact.what):
            silent = place
        elif silent is not None and _IN_ONE_CALL in fact.what:
            lost = cast(Failure, found[silent])
            what = f"{fact.what}, after {lost.what}"
            told[place], told[silent] = replace(fact, what=what), replace(lost, what=what, pid=fact.pid)
    return told


def _was_short(fact: Fact, server: str, message: LogMessage) -> bool:
    """Whether a fact is that a server did not respond which came back soon."""
    if not isinstance(fact, Failure) or fact.kind != "host" or f" {server} " not in fact.what:
        return False
    if fact.what.startswith("Lustre: "):
        return True  # clients of Lustre reconnect again and again, and what they began goes on
    begun, ended = _clock_s(fact.where), _clock_s(message.where)
    return begun is not None and ended is not None and 0 <= ended - begun <= _SHORT_S


def _clock_s(where: Where) -> float | None:
    """Return the time of a kernel's line: of the year, or since the start of the machine."""
    since = _MONOTONIC.match(where.text)
    return float(since["s"]) if since else where.time_s


def _kernel(message: LogMessage, text: str, host: str) -> Iterator[Fact]:
    """Yield what a line of the kernel says: of memory, of a GPU, or of the rest of the machine."""
    for reader in (_of_memory, _of_gpu, _of_machine):
        if found := list(reader(message, text, host)):
            yield from found
            return


def _of_memory(message: LogMessage, text: str, host: str) -> Iterator[Failure]:
    where = message.where
    if killed := _KILLED.search(text):
        gib = int(killed.group("kb")) / 2**20
        what = f"the kernel killed process {killed['pid']} ({killed['name']}) for memory, {gib:.1f} GiB resident"
        yield Failure(kind="host_memory", what=what, host=host, pid=int(killed.group("pid")), where=where)
    elif task := _OOM_TASK.search(text):
        named = f" ({task['name']})" if task["name"] else ""
        what = f"the kernel's out-of-memory killer chose process {task.group('pid')}{named}"
        yield Failure(kind="host_memory", what=what, host=host, pid=int(task.group("pid")), where=where)
    elif daemon := _OOM_DAEMON.search(text):
        number, name = daemon["pid"] or daemon["of"], daemon["name"] or daemon["victim"]
        who = f"process {number} ({name})" if number else daemon["unit"]
        pid = int(number) if number else None
        yield Failure(kind="host_memory", what=f"{who} was ended for memory", host=host, pid=pid, where=where)


def _of_gpu(message: LogMessage, text: str, host: str) -> Iterator[Failure]:
    where = message.where
    if xid := _XID.search(text):
        yield _xid(xid, host, where)
    elif reset := _RESET.search(text):
        yield Failure(kind="device", what=f"a GPU: {reset['what']}", host=host, where=where)
    elif handle := _NO_HANDLE.search(text):
        what = f"GPU {handle.group('bus')} does not answer: {handle.group('why')}"
        yield Failure(kind="device", what=what, host=host, bus_id=bus_number(handle.group("bus")), where=where)
    elif switch := _SXID.search(text):
        what = f"SXid {switch.group('number')} (a fatal fault of the NVSwitch) on {switch.group('bus')}"
        yield Failure(kind="device", what=what, host=host, where=where)
    elif lost := _LOST.search(text):
        what = f"GPU {lost.group('bus')} has {lost.group('what').strip()}"
        yield Failure(kind="device", what=what, host=host, bus_id=bus_number(lost.group("bus")), where=where)
    elif amd := _AMD.search(text):
        what = f"amdgpu {amd.group('bus')}: {amd.group('what')}"
        yield Failure(kind="device", what=what, host=host, bus_id=bus_number(amd.group("bus")), where=where)
    elif runtime := _AMD_RUNTIME.search(text):
        yield Failure(kind="device", what=runtime.group("what")[:160], host=host, rank=message.rank, where=where)
    elif intel := _INTEL.search(text):
        what = f"Intel GPU {intel.group('bus')}: {intel.group('what')}"
        pid = int(intel["pid"]) if intel["pid"] else None
        yield Failure(kind="device", what=what, host=host, pid=pid, bus_id=bus_number(intel["bus"]), where=where)


def _xid(xid: re.Match[str], host: str, where: Where) -> Failure:
    number, over = int(xid.group("xid")), _RECOVERED.search(xid.group("rest")) is not None
    if number in _AFTERMATH and (earlier := _EARLIER_XID.search(xid.group("rest"))):
        number = int(earlier.group(1))  # the driver names what this one follows from
    named = XIDS.get(number, xid.group("rest").strip(" ,.") or "see NVIDIA's list")
    return Failure(
        kind="device",
        what=f"Xid {number} ({named}) on {xid.group('bus')}",
        host=host,
        pid=int(xid.group("pid")) if (xid.group("pid") or "").isdecimal() else None,
        bus_id=bus_number(xid.group("bus")),
        where=where,
        follows=over or number in _AFTERMATH | _HARMLESS or _is_harmless(number, xid.group("rest")),
        is_over=over,
    )


def _of_machine(message: LogMessage, text: str, host: str) -> Iterator[Failure]:
    where = message.where
    if card := _CARD.search(text):
        yield Failure(kind="network", what=card["what"][:160], host=host, where=where)
    elif hung := _HUNG.search(text):
        what = f"process {hung.group('pid')} ({hung.group('name')}) {_IN_ONE_CALL} for {hung.group('s')} s"
        yield Failure(kind="host", what=what, host=host, pid=int(hung.group("pid")), where=where)
    elif server := _SERVER.search(text):
        yield Failure(kind="host", what=server.group("what")[:120], host=host, where=where)
    elif rdma := _RDMA.search(text):
        place = _UCX.search(text) or _UCX.search(where.text)
        host = place["host"] if place else host or rdma["host"] or ""
        pid = int(place["pid"]) if place else None
        yield Failure(kind="network", what=rdma["what"][:160], host=host, pid=pid, where=where)
    elif (down := _LINK_DOWN.search(text)) and not _SWITCH.search(text):
        yield Failure(kind="network", what=down.group("what")[:120], host=host, where=where)
    elif switch := _SWITCH.search(text):
        yield Failure(kind="network", what=f"{SWITCH_PORT}{switch['what'][:120]}", where=where)
    elif fatal := _FATAL.search(text):
        what = f"{BY_ITSELF}{fatal.group('what').lower()}"
        yield Failure(kind="killed", what=what, host=host, rank=message.rank, pid=message.pid, where=where)
    elif corrupt := _CORRUPT.search(text):
        what = f"{BY_ITSELF}corrupted memory ({corrupt.group('what')})"
        yield Failure(kind="killed", what=what, host=host, rank=message.rank, pid=message.pid, where=where)
    elif (caught := _CAUGHT.search(text)) and int(caught["signal"]) in _KILLING:
        what = f"{BY_ITSELF}{caught['what'].strip().lower()}"
        pid = int(caught["pid"])
        yield Failure(kind="killed", what=what, host=caught["host"], rank=message.rank, pid=pid, where=where)
    elif match := _SEGFAULT.search(text):
        what = f"process {match.group('pid')} ({match.group('name')}) ended with a segmentation fault"
        yield Failure(kind="killed", what=what, host=host, pid=int(match.group("pid")), where=where)


def _is_harmless(number: int, rest: str) -> bool:
    return number in _NVLINK and re.search(r"\bNon-?fatal\b", rest, re.IGNORECASE) is not None


def _slurm(message: LogMessage, text: str) -> Iterator[Fact]:
    where = message.where
    tasks, cancelled, node = _SRUN_TASKS.search(text), _SLURM_END.search(text), _NODE_FAILED.search(text)
    if tasks:
        what, numbers = tasks.group("what"), _numbers(tasks.group("tasks"))
        kind = "host_memory" if "Out Of Memory" in what else "killed"
        code = int(ended[1]) if (ended := re.search(r"Exited with exit code (\d+)", what)) else 0
        if re.search(r"Out Of Memory|Killed|Segmentation fault|Bus error", what) or code - 128 in _KILLING:
            told = f"SLURM: task {tasks.group('tasks')} on {tasks.group('host')}: {what.strip()}"
            own = kind == "host_memory"  # no time-out of the others brings it about; srun collects it at the end
            host = tasks.group("host")
            yield Failure(kind=kind, what=told, ranks=numbers, host=host, where=where, is_summary=own)
        elif code and len(numbers) == 1:
            yield Exit(rank=None, task=numbers[0], code=code, first=True, host=tasks.group("host"), where=where)
    elif _SLURM_OOM.search(text):
        yield Failure(kind="host_memory", what="SLURM: a task was killed for its memory limit", where=where)
    elif cancelled:
        why = cancelled.group("why").strip().lower()
        what = f"SLURM cancelled the job {why}" if why else BY_REQUEST
        limit = "TIME LIMIT" in text
        follows = "DUE TO" not in text or limit  # it ends a job that hangs
        yield Failure(kind="killed", what=what, where=where, follows=follows, is_general=True)
        if limit:
            yield TimeUp(where=where)
    elif node:
        host = node.group("host")
        yield Failure(kind="killed", what=f"node {host} failed", host=host, where=where, is_general=True)


def _kubernetes(message: LogMessage, text: str, pod: Pod, container: Container) -> Iterator[Fact]:
    if container.trains is False:
        return  # it stands beside the one that trains
    pod = pod if container.trains else Pod(pod.name)
    where, low, told = message.where.by(pod.rank), _EVICTED.search(text), _KUBERNETES.search(text)
    kind, what = "killed", ""
    if "OOMKilled" in text:
        kind, what = "host_memory", "Kubernetes: container OOMKilled (memory limit)"
    elif low:
        kind = "host_memory" if low.group("what") == "memory" else "killed"
        what = f"Kubernetes evicted the pod: node low on {low.group('what')}"
    elif told and _CONTEXT.search(text) and not _PREEMPTOR.search(text):
        what = f"Kubernetes: {told.group('what')}"
    elif (code := _EXIT_CODE.match(text)) and int(code.group("code")) - 128 in _KILLING:
        what = f"Kubernetes: a container ended by signal {int(code.group('code')) - 128}"
    if what:
        of = [f"{noun} {name}" for noun, name in (("container", container.name), ("pod", pod.name)) if name]
        what += f": {' of '.join(of)}" if of else ""
        is_general = kind == "killed" and _TAKEN.search(what) is not None
        yield Failure(kind=kind, what=what, rank=pod.rank, pod=pod.name, where=where, is_general=is_general)
    elif match := _SHELL.search(text):
        what = f"the shell saw process {match.group('pid')} end: {text.strip()[-60:]}"
        yield Failure(kind="killed", what=what, pid=int(match.group("pid")), where=where)
    elif _SHELL_BARE.match(text):
        yield Failure(kind="killed", what=f"the shell saw a process end: {text}", rank=message.rank, where=where)


def syslog_host(text: str) -> str:
    """Return the host that a line of the kernel's log, or an event of Kubernetes, is of; "" where it names none."""
    match = _SYSLOG.search(text) or _OF_NODE.search(text)
    return match.group("host") if match else ""


def _numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found += range(int(first), min(int(last or first) + 1, int(first) + MOST_RANKS))
    return tuple(found)
