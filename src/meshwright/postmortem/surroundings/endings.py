"""How ranks end: exceptions, out of memory, words of their launcher; whether they came to the end of their training."""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from ..nouns.facts import CodeFrame, Fact, Failure, Shortened, TrainingEnded, UnlikeModel
from ..nouns.identities import Began, Torchrun
from ..nouns.names import LOADER_WORKER, NO_FABRIC, collective_in
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step
from ..text.watchdog_words import rank_ended
from .busy_with_data import by_bars, by_downloads, by_last_words
from .connections import no_address, not_reached
from .device_asserts import with_assertion
from .full_gpus import told_of_memory
from .quoted_errors import attributed
from .unraised import unraised
from .unused_parameters import with_unused_parameters

_FOR_LONG = 12  # steps of other ranks than the one with an error
_CUDA_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|NPU) out of memory\.? ?(?P<rest>.*)"
    r"|(?<![\w.])(?:torch\.)?(?:cuda\.)?OutOfMemoryError: (?P<other>.*)|CUDA error: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
    r"|(?:RESOURCE_EXHAUSTED|Resource exhausted): .*(?:Out of memory|while trying to allocate|Attempting to \w+ [\d.]+)"
    r"|OOM when allocating tensor(?!.{0,300}device:CPU)"  # TensorFlow
    r"|Attempting to (?:allocate|reserve) [\d.]+[KMGT]?\b.{0,60}?That was not possible"
    r"|Ran out of memory in memory space (?:hbm|vmem)"
    r"|MODULE:PT_DEVMEM Allocation failed|RESOURCE: Failed to allocate \d+ bytes on .*\bND\b",  # Gaudi, Neuron
)
_UNRESOLVED = re.compile(
    r"client socket has failed to resolve (?P<name>[\w.-]+): "
    r"|^ssh: Could not resolve hostname (?P<by_ssh>[\w.-]+):"
    r"|DNS resolution failed for (?:[a-z]+:/{0,3})?(?P<by_grpc>[\w.-]+)"
    r"|host not found: (?:Name or service|Temporary fail|nodename)"
    r"|^\s*(?P<error>socket\.gaierror: \[Errno -?\d+\])"
)
_OF_A_STORE = re.compile(r"torch/distributed/|TCPStore|rendezvous|init_process_group")
_DEVICE = re.compile(r"\bGPU (\d+)\b")
_ON_GPU = re.compile(r"\bProcess (?P<pid>\d+) has [\d.]+ ?\w+ memory in use|\b(?P<own>this process has)\b")
_ABSURD = re.compile(r"Tried to allocate more than 1EB")
_MAY_BE_FAULTY = ("ecc", "is lost", "fallen off", "cuda-capable", "hardware error", "nvlink error", "device_lost")
_CUDA_FAULT = re.compile(
    r"(?P<what>uncorrectable ECC error encountered|GPU is lost|GPU has fallen off the bus|"
    r"no CUDA-capable device|hardware error|uncorrectable NVLink error[\w ]*"
    r"|(?:UR|PI|ZE)_(?:RESULT_)?ERROR_DEVICE_LOST)",
    re.IGNORECASE,
)
_NO_FABRIC = re.compile(r"system not yet initialized\b|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady")
_OF_PEER = re.compile(r"Invalid access of peer GPU memory")  # the GPU at the other end of a link is the faulty one
_CUDA_ERROR = re.compile(r"(?P<what>(?:CUDA|HIP) error: (?!out of memory)[\w -]+)")
_ERROR = re.compile(
    r"^\s*(?:E +)?(?P<type>(?:[A-Za-z_]\w*\.)*_?(?P<name>Exception|[A-Z]\w*(?:Error|Exception|Failure"
    r"|Exit|Interrupt|Fault|Timeout)))(?::\s*(?P<text>.*))?$"
)
_RAISED = re.compile(  # what a traceback ends in, where its name has no usual ending: of a module, or of Python itself
    r"^(?P<type>(?:[A-Za-z_]\w*\.)+_?(?P<name>[A-Za-z]\w*)|(?P<builtin>StopIteration|StopAsyncIteration|GeneratorExit))"
    r"(?::\s*(?P<text>.*))?$"
)
_TRACEBACK = "Traceback (most recent call last):"
_OF_A_TOOL = re.compile(  # which somebody ran over what the job left
    r"torch/distributed/flight_recorder/|/fr_trace\.py|/torchfrtrace\b|tools/flight_recorder/"
)
_OF_A_SERVICE = re.compile(r"^(?:requests|urllib3|httpx|aiohttp|huggingface_hub|botocore|fsspec|google|azure)\.")
_NOT_THE_CAUSE = {
    *("ChildFailedError", "DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "SignalException"),
    *("KeyboardInterrupt", "SystemExit", "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError"),
    *("ConnectionError", "ConnectionAbortedError", "EOFError", "RayActorError", "ActorDiedError", "RayTaskError"),
    *("RankFailure", "CollectiveError", "WorkerCrashedError", "RendezvousConnectionError", "RendezvousClosedError"),
    *("CalledProcessError", "CancelledError", "RendezvousTimeoutError", "TimeoutExpired", "HorovodInternalError"),
    *("ProcessExitedException", "ProcessRaisedException", "LocalRayletDiedError", "NodeDiedError", "OwnerDiedError"),
    *("ObjectLostError", "UnavailableError", "AbortedError", "ActorHandleNotFoundError", "EngineDeadError"),
    *(
        "CheckpointException",
        "WorkerGroupError",
        "TrainingFailedError",
        "FunctionTimeoutError",
    ),  # pass on what befell another
    # waited for what another process holds or sends, and did not get it
    *("Timeout", "Empty", "GetTimeoutError", "RayChannelTimeoutError", "InactiveRpcError", "RpcError"),
    *("RendezvousGracefulExitError", "PeerLostError"),
}
_SAY_NOTHING = {"KeyboardInterrupt", "SystemExit", "ChildFailedError", "CalledProcessError", "CancelledError"}
_FOLLOWS = re.compile(
    r"[NH]CCL (?:[Ee]rror|communicator|operation)|EI000\d|nccl\w*Error"
    r"|[Cc]onnection (?:closed|reset|refused)|[Bb]roken pipe"
    r"|monitoredBarrier|Timed out waiting|wait timeout|Socket Timeout|[Ww]atchdog"
    r"|timed? ?out.*(?:rendezvous|store|collective|barrier)"
    r"|^Remote command exit(?:t|)ed with code: |^Horovod detected that one or more processes exited"
    # a task or a stream ran out of time, was stopped by another, or another's memory failed
    r"|NPU function error: .{1,120}?, error code is (?:10702[02]|50704[68]|50705[5-7])"
    r"|Stop_waiting response|failed to recv, got 0 bytes|oneCCL: .*\batl|Hccl[A-Z]"
    r"|\b[Ee]rrno:? ?(?:32|10[347])\b"  # a connection that the other end closed
    r"|ACL stream synchronize(?! failed, error code: ?5070[13]5)"  # but where a core of its own met an error
    r"|gloo/transport|aborted|socket has timed out|terminated with exception|connectFullMesh"
    r"|^\[(?:ring|jaccl|ibv)\] (?:Couldn't connect|Changing queue pair to RTR|Accept failed|Recv failed)"  # MLX
    r"|Detected mismatch between collectives|due to shape mismatches\. All shapes across devices"
    r"|has inconsistent 0 params|NRT_EXEC_HW_ERR_COLLECTIVES|\bnrt_\w{2,40} .{0,60}?\bstatus=1200\b"
    r"|process group has been|shutting down|SIGTERM|has been shut down|remote process exited|heartbeat timeout"
    r"|\b\d+ ?(?:/|of|out of) ?\d+ (?:clients|workers|ranks|peers|processes|nodes|agents|hosts|members)"
    r" (?:have |had |were )?(?:joined|connected|registered|arrived|checked in|showed up|came|present|ready)"
    r"|^(?:UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED): |Socket closed|MPI_ERR_PROC_FAILED"
    r"|\bMismatched [\w/ -]{4,60}: One rank "  # Horovod's, of the ranks' calls
    # says itself that another error came first
    r"|\b(?:[Ss]ee|[Cc]heck|[Rr]efer to|[Ll]ook at)\b.{0,80}\b(?:root cause|original (?:error|exception)|error above)\b"
    r"|^Failed: CUDA error \S+ 'unspecified launch failure'",  # a kernel of DeepEP's that waited too long ends itself
)
_DEEPEP_WAITED = re.compile(r"^DeepEP .{0,80}\btime-?out\b")  # behind it any call raises that launch failure
_RAN_OUT = re.compile(r"time(?:d )?[- ]?out", re.IGNORECASE)
_ON_OTHERS = re.compile(  # with the words above it: a wait for somebody else
    r"\b(?:ranks?|peers?|pair|barrier|collective|rendezvous|store|wait(?:ed|ing)?|participants?|replicas?"
    r"|dispatch|combine|recv|send|all[-_ ]?to[-_ ]?all)\b",
    re.IGNORECASE,
)
_WORKER_KILLED = re.compile(LOADER_WORKER + r" (?:is killed by signal: (?P<signal>\w+(?: \w+)*)|exited unexpectedly)")
_ENDED_BY_OTHERS = {"Terminated", "Interrupt", "Hangup", "Aborted"}
_LOADER_SLOW = re.compile(r"DataLoader timed out after")
_SHARED_MEMORY = re.compile(
    # a path that is named and lies elsewhere is a disk that is full
    r"(?:out of shared memory|No space left on device(?!: '(?!/dev/shm|/torch_|/psm_|/wnsm_|/mp-))).*"
    r"|unable to (?:mmap|open shared memory|write to file </torch)"
    r"|/dev/shm\b.{0,80}\b(?:full|exhausted|too small)\b|(?:insufficient|not enough) shared memory"
)
# a full disk is said in the words of a full shared memory: who writes a file, or shares nothing with other processes,
# writes to a disk
_WRITES = re.compile(r"torch/serialization\.py|, in (?:_?save\w*|write\w*|_?dump\w*|copyfile\w*)$", re.MULTILINE)
_SHARES = re.compile(r"multiprocessing/|shared_memory|SemLock|torch/utils/data/|dataloader")
_MOST_FRAMES = 16  # lines of a traceback, from its end
_PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)  # on the host of the store
_FINISHED = re.compile(
    r"\btraining (?:is |has |was )?(?:completed?|finished|done|ended)\b|[\"']train_runtime[\"']"
    r"|Trainer\.fit` stopped: `max_\w+=|^(?:Finished|Done|Completed) training\b|\bEnd time of running main:",  # swift
    re.IGNORECASE,
)
_LAST_EPOCH = re.compile(r"\bepochs?[ :=]{0,2}\[?(?P<last>\d{1,6})/(?P=last)\b.*\b100%", re.IGNORECASE)
_EXITED_WELL = re.compile(
    r"^(?:(?:\w+ )?(?:finished |exited |ended )?|.{0,80}\b(?:all done|finished|completed|exited|ended)[,.:;]? )"
    r"(?:with )?(?:exit|return)[ _-]?(?:code|status)[ :=]*0\.?$",
    re.IGNORECASE,
)
_MAY_FAIL = re.compile(r"rror|emory|_FAILED|xception|Interrupt|rank|Fault|Failure|Timeout|Exit|resol|Attempt|bad_alloc")
_HOST_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|Unable to allocate [\d.]+ \w+ for an array"
    r"|Cannot allocate memory|std::bad_alloc"
)
_BAD_ALLOC = "terminate called after throwing an instance of 'std::bad_alloc'"
_SHARED_MEMORY_WORKER = re.compile(r"Unexpected bus error encountered in worker")
_UNLIKE_MODEL = re.compile(
    r"(?P<what>(?:\[(?P<place>\d+)\]: )?params\[\d+\] in this process with .*?not to match .*?"
    r" of the same param in process 0"
    r"|DDP expects same model across all ranks, but Rank (?P<rank>\d{1,6}) has (?P<own>\d{1,9}) params,"
    r" while rank (?P<other>\d{1,6}) has inconsistent (?P<theirs>[1-9]\d{0,8}) params.*)"  # 0: the exchange broke
)
_COUNTED = (("rank", "own"), ("other", "theirs"))
_CODE = re.compile(r"\b(?:dist|distributed|c10d|torch\.distributed|funcol|comm)\.(?P<name>\w+)\(")
_CODE_FILE = re.compile(r'distributed_c10d\.py", line \d+, in (?P<name>\w+)')
TOLD_TO_END = re.compile(r"Received (?:Signals\.SIGTERM|15) death signal|SignalException: Process \d+ got signal: 15")
_LEFT = re.compile(r"\bexiting program after receiving SIGTERM\b")  # Megatron, with --exit-signal-handler
_HUNG_UP = re.compile(r"Received (?:Signals\.SIGHUP|1) death signal|SignalException: Process \d+ got signal: 1$")
_TERMINAL_CLOSED = (  # torchrun catches the signal that nohup lets it ignore
    "the launcher's terminal was closed (SIGHUP): tmux or sbatch keep a job from that, nohup does not under torchrun"
)
_INTERRUPTED = re.compile(r"got signal: 2$")  # Ctrl-C
_REPEATED = re.compile(r"\[repeated \d+x across (?:the )?cluster\]")
_COLLECTIVE_FAILED = re.compile(  # below an error of a runtime: of who did not fail by itself, too
    r"\b[Cc]ollective (?:call|operation|communication) (?:has |was )?(?:returned (?:an )?error|failed|aborted)"
)
_REFERS = "refer to 'Ascend Error Message'"
_OF_HCCL = re.compile(r"^E[IJ]00\d\d: ")  # Ascend's collectives: `hccl` reads what they say
_BELOW_HEADING = 10
_BELOW, _AMONG = 4, 64  # lines of one error, among those of other ranks
_SPEAKER = re.compile(r"^Rank (?P<rank>\d{1,6}): ")  # Megatron's assertions say on which rank they failed
_OURS = re.compile(
    r"\brank (?P<rank>\d+) \(host (?P<host>\S+), pid (?P<pid>\d+)\) (?P<happened>[^,]+), in (?P<call>\w+ #\d+)"
)


def read(messages: list[LogMessage]) -> Iterator[Fact]:
    """Yield how ranks ended, as the messages of one file say."""
    messages = attributed(messages)
    went_on: dict[int | None, list[int]] = defaultdict(list)
    ends = _ends_of_tracebacks(messages)
    trapped = next((at for at, message in enumerate(messages) if _DEEPEP_WAITED.search(message.text)), len(messages))
    printed, in_threads = unraised(messages), _headed(messages, "Exception in thread ")
    for index, message in enumerate(messages):
        if is_step(message.text):
            if not went_on:
                yield Began(where=message.where)
            went_on[message.rank].append(index)
    yield from by_bars(messages, went_on)
    yield from by_last_words(messages)
    yield from by_downloads(messages)
    finished = begun = False
    for index, message in enumerate(messages):
        text = message.text
        begun = begun or message.rank is not None or is_step(text)
        if "orchrun" in text or "torch.distributed.elastic" in text or "torch/distributed/run.py" in text:
            yield Torchrun(where=message.where)
        if (left := _LEFT.search(text)) or TOLD_TO_END.search(text):
            what = f"the {'program' if left else 'launcher'} was told to end (SIGTERM)"
            yield Failure(kind="killed", what=what, where=message.where, follows=True, is_general=True)
        if ("SIGHUP" in text or "ignal" in text) and _HUNG_UP.search(text.rstrip()):
            what = _TERMINAL_CLOSED
            yield Failure(kind="killed", what=what, where=message.where, is_general=True)
        if _REPEATED.search(text):
            yield Shortened(where=message.where)
        if "(" in text:
            yield from _code(message)
        if "params" in text and (unlike := _UNLIKE_MODEL.search(text)):
            own = message.rank if message.rank is not None else unlike.group("place") or unlike.group("rank")
            rank = None if own is None else int(own)
            counts = {int(unlike[who]): int(unlike[of]) for who, of in _COUNTED if unlike[who] is not None}
            what, where = unlike.group("what")[:160], message.where.by(rank)
            yield UnlikeModel(rank=rank, what=what, counts=counts, where=where)
            continue
        if _FINISHED.search(text):
            finished = True
            yield _end_of_training(message, index, went_on)
        elif "100%" in text and _LAST_EPOCH.search(text):
            finished = True
        elif finished and _EXITED_WELL.search(text):
            yield TrainingEnded(rank=message.rank, where=message.where, exited=True)
        if index not in printed and (index in ends or _MAY_FAIL.search(text)):
            handled = was_handled(index, message.rank, went_on)
            if not begun and (unreached := _unreached(message, ends.get(index))):
                yield unreached
                continue
            for fact in _failure(message, ends.get(index)):
                fact = with_unused_parameters(with_assertion(fact, messages, index), messages, index)
                if fact.follows and index in in_threads:
                    continue  # a connection that a thread of a library lost: the program goes on
                is_trap = index > trapped and "unspecified launch failure" in text
                if fact.kind == "exception" and not fact.follows:
                    fact = replace(fact, follows=is_trap or _is_of_collective(messages, index))
                trained_on = message.rank is not None and bool(went_on.get(message.rank))  # steps of its own
                caught = handled and (fact.kind == "exception" or (fact.kind == "device_memory" and trained_on))
                yield replace(fact, follows=True, is_over=True) if caught else fact


def _end_of_training(message: LogMessage, index: int, went_on: Mapping[int | None, Sequence[int]]) -> TrainingEnded:
    """Return the end that a message tells of, the last one where no step of any rank follows."""
    is_last = all(places[-1] <= index for places in went_on.values())
    return TrainingEnded(rank=message.rank, where=message.where, is_last=is_last)


def _is_of_collective(messages: list[LogMessage], index: int) -> bool:
    """Whether an error, or the lines of the same rank right below it, say that a collective failed.

    MindSpore's errors refer to a message of Ascend's below.
    """
    rank = messages[index].rank
    own = [one.text for one in islice(messages, index, index + _AMONG) if one.rank == rank]
    if _REFERS in own[0]:
        return any(_OF_HCCL.match(text) for text in own[:_BELOW_HEADING])
    return any("ollective" in text and _COLLECTIVE_FAILED.search(text) for text in islice(own, _BELOW))


def _failure(message: LogMessage, frames: str | None) -> Iterator[Failure]:
    """Yield what failed by a message; `frames` is the traceback that it ends."""
    text, where, rank = message.text, message.where, message.rank
    memory, worker, ours = (pattern.search(text) for pattern in (_CUDA_MEMORY, _WORKER_KILLED, _OURS))
    fault = _CUDA_FAULT.search(text) if any(map(text.lower().__contains__, _MAY_BE_FAULTY)) else None
    if memory:
        follows = bool(_ABSURD.search(text))
        device = _DEVICE.search(text)
        yield Failure(
            kind="device_memory",
            what=told_of_memory(text),
            rank=rank,
            pid=message.pid if message.pid is not None else _only_process(text),
            host=_host_of_process(message),
            device=int(device.group(1)) if device else None,
            where=where,
            follows=follows,
        )
    elif _BAD_ALLOC in text:
        yield Failure(kind="host_memory", what="out of host memory: std::bad_alloc", rank=rank, where=where)
    elif worker:
        killed = worker.group("signal") in {"Killed", "Bus error"}
        what = f"a data loader's worker ended ({worker.group('signal') or 'unexpectedly'})"
        follows = worker.group("signal") in _ENDED_BY_OTHERS  # the launcher ends the workers of ranks that waited
        kind = "host_memory" if killed else "data"
        yield Failure(kind=kind, what=what, rank=rank, where=where, follows=follows)
    elif _SHARED_MEMORY_WORKER.search(text):
        what = "a data loader's worker met a bus error: shared memory is full"
        yield Failure(kind="host_memory", what=what, rank=rank, where=where)
    elif _LOADER_SLOW.search(text):
        yield Failure(kind="data", what="the data loader timed out", rank=rank, where=where)
    elif _NO_FABRIC.search(text) and "Warning: " not in text:
        yield Failure(kind="device", what=NO_FABRIC, rank=rank, host=message.host, where=where)
    elif fault and re.search(r"CUDA|GPU|cuda|ECC|DEVICE_LOST", text):
        rank = rank_ended(text) if rank is None else rank
        follows = _OF_PEER.search(text) is not None
        yield Failure(kind="device", what=fault.group("what"), rank=rank, where=where.by(rank), follows=follows)
    elif unresolved := _UNRESOLVED.search(text):
        yield from _unresolved(unresolved, message, frames or "")
    elif ours:
        died = bool(re.search(r"died|ended|left|exit|killed|gone", ours.group("happened")))
        what = f"rank {ours.group('rank')} {ours.group('happened')}, in {ours.group('call')}"
        yield Failure(kind="killed" if died else "absent", what=what, rank=int(ours.group("rank")), where=where)
    elif cuda := _CUDA_ERROR.search(text):
        rank = rank_ended(text) if rank is None else rank
        what, host = cuda.group("what").strip(), _host_of_process(message)
        yield Failure(kind="exception", what=what, rank=rank, pid=message.pid, host=host, where=where.by(rank))
    else:
        yield from _exception(message, frames)


def _unreached(message: LogMessage, frames: str | None) -> Failure | None:
    """Return that a client had no way to a host, by the error with which it gave up before any rank was there."""
    is_error = _ERROR.match(message.text) or (frames is not None and _RAISED.match(message.text))
    what = not_reached(message.text) if is_error else ""
    return Failure(kind="network", what=what, where=message.where, is_general=True) if what else None


def _unresolved(found: re.Match[str], message: LogMessage, frames: str) -> Iterator[Failure]:
    """Yield that the name of a host has no address."""
    if found["error"] and not _OF_A_STORE.search(frames):
        yield from _exception(message, frames or None)
        return
    name = found["name"] or found["by_ssh"] or found["by_grpc"] or "of the store"
    yield Failure(kind="network", what=no_address(name), where=message.where, is_general=True)


def _host_of_process(message: LogMessage) -> str:
    """Return the host on which the process of a message has its number, "" where that or the process is not told."""
    return message.host if message.pid is not None and message.rank is None else ""


def _only_process(text: str) -> int | None:
    """Return the one process that an error of the GPU's memory names: of several, which raised it is not told."""
    named = list(_ON_GPU.finditer(text))
    return int(named[0]["pid"]) if len(named) == 1 and named[0]["pid"] else None


def was_handled(index: int, rank: int | None, went_on: dict[int | None, list[int]]) -> bool:
    """Return whether the job trained on after an error: its rank, or, where that prints no steps, others for long.

    What waits in a buffer is printed late: a few steps of others prove nothing.
    """
    if rank is not None and not went_on.get(rank):
        return sum(len(lines) - bisect.bisect_right(lines, index) for lines in went_on.values()) >= _FOR_LONG
    lines = went_on.get(rank, [])
    return len(lines) - bisect.bisect_right(lines, index) >= (1 if rank is not None else MANY_STEPS)


def _ends_of_tracebacks(messages: list[LogMessage]) -> dict[int, str]:
    """Return which messages end a traceback, and its frames: the first line of the rank behind it without an indent."""
    found: dict[int, str] = {}
    opened: dict[tuple[int | None, int | None], list[str]] = {}  # lines since the heading, by rank and process
    for index, message in enumerate(messages):
        key = message.rank, message.pid
        if message.text.startswith(_TRACEBACK) or message.text.endswith(_TRACEBACK):  # behind a logger's words
            opened[key] = []
        elif key in opened:
            if message.text[:1].isspace():
                opened[key].append(message.text)
            elif frames := opened.pop(key):  # an empty traceback is cut off
                found[index] = "\n".join(frames[-_MOST_FRAMES:])
    return found


def _headed(messages: list[LogMessage], heading: str) -> set[int]:
    """Return which messages end a traceback under a heading of Python's, as of a thread."""
    found: set[int] = set()
    opened: set[tuple[int | None, int | None]] = set()
    for index, message in enumerate(messages):
        key = message.rank, message.pid
        if message.text.startswith(heading):
            opened.add(key)
        elif key in opened and not message.text[:1].isspace() and not message.text.startswith(_TRACEBACK):
            opened.remove(key)
            found.add(index)
    return found


def is_of_others(name: str, told: str) -> bool:
    """Return whether an exception says that another process broke off, or did not answer in time."""
    waited = _RAN_OUT.search(told or name) is not None and (not told or _ON_OTHERS.search(told) is not None)
    return name in _NOT_THE_CAUSE or _FOLLOWS.search(told) is not None or waited


def _exception(message: LogMessage, frames: str | None) -> Iterator[Failure]:
    if frames is not None and _OF_A_TOOL.search(frames):
        return
    match = _ERROR.match(message.text) or (_RAISED.match(message.text) if frames is not None else None)
    if not match:
        return
    told = match.group("text") or ""
    name = match.group("name") or match.group("builtin")
    if "killed due to the node running low on memory" in told:
        return  # Ray's word on a worker, with its process in the next line (`launchers`)
    # a service's error is none of another rank, nor is a file that ends too soon
    taken = _PORT_TAKEN.search(told) is not None
    is_own = taken or bool(_OF_A_SERVICE.match(match.group("type"))) or (name == "EOFError" and bool(told))
    not_full = "Too many open files" in told  # the limit of a process, not of /dev/shm
    # a path was looked at already; torch's own names are in /dev/shm
    shares = "'" in told or "</torch_" in told or _SHARES.search(frames or "") is not None
    on_disk = "No space left" in told and (_WRITES.search(frames or "") is not None or not shares)
    if _SHARED_MEMORY.search(told) and not on_disk and not not_full:
        what = f"shared memory is full: {told[:80]}"
        host = _host_of_process(message)
        yield Failure(kind="host_memory", what=what, rank=message.rank, pid=message.pid, host=host, where=message.where)
        return
    if _HOST_MEMORY.search(told) or name == "MemoryError":
        what = f"out of host memory: {told[:120]}".rstrip(": ")
        host = _host_of_process(message)
        yield Failure(kind="host_memory", what=what, rank=message.rank, pid=message.pid, host=host, where=message.where)
        return
    speaker = _SPEAKER.match(told) if message.rank is None else None
    yield Failure(
        kind="exception",
        what=f"{name}: {told[:160]}" if told else name,
        rank=int(speaker["rank"]) if speaker else message.rank,
        pid=message.pid,
        host=_host_of_process(message),
        where=message.where,
        follows=not is_own and is_of_others(name, told),
        is_over=name in _SAY_NOTHING or (name == "SignalException" and _INTERRUPTED.search(told) is not None),
        is_general=taken,
    )


def _code(message: LogMessage) -> Iterator[Fact]:
    match = _CODE.search(message.text) or _CODE_FILE.search(message.text)
    if match:
        operation = collective_in(match.group("name"))
        if operation:
            yield CodeFrame(rank=message.rank, operation=operation, where=message.where)
