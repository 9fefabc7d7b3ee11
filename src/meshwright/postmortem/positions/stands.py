"""Where the main thread of one process stands, by its stack: in a collective, in its data, in another host call."""

import itertools
import re
from collections.abc import Sequence

import msgspec

from ..nouns.facts import Frame, StackTrace
from ..nouns.names import A_DEBUGGER, collective_in, snake
from ..nouns.where import Where
from .transfers import TRANSFERS, helper_that_waits, is_wait

WAITS = {"collective", "others", "device"}  # kinds of who waits for others
_LEAVES = re.compile(  # the groups of the job, after which a rank makes no call of them
    r"^(?:destroy_process_group|_shutdown_backend|(?:p?nccl|rccl)Comm(?:Destroy|Finalize)|MPI_Finalize)$"
)
DEEP = 30  # frames from the innermost that are looked at
_DATA = re.compile(
    r"torch/utils/data/|tf\.data|dataloader\.py|data_loader\.py"
    r"|(?:^|/)(?:datasets?|webdataset|tokenizers?|streaming/base|grain|ffcv|petastorm|nvidia/dali)/"
    r"|(?:^|/)data/(?:\w+/)*\w*(?:iterator|loader|sampler|reader|collat)\w*\.py"
)
_DATA_CALL = re.compile(
    r"^(?:_next_data|_try_get_data|_get_data|__getitem__|_tokenize\w*|tokenize\w*|collate_?(?:fn)?|load_dataset)$"
)
_COLLECTIVE_FILE = re.compile(
    r"distributed_c10d\.py|_functional_collectives|(?:^|/)(?:torch/distributed/(?!checkpoint/)|deepspeed/comm/"
    r"|deepspeed/runtime/pipe/|megatron/core/.*(?:p2p|parallel)|accelerate/(?:state|utils/operations)\.py"
    r"|jax/(?:experimental/multihost_utils|_src/distributed)\.py)"
)
_FOR_OTHERS = re.compile(  # those of the third line set up a group; below, JAX's
    r"^_?(?:wait\w*|communicate|result|get|barrier|synchronize|(?:recv|send)_\w+|\w+_(?:recv|send)"
    r"|store_based_barrier|create_c10d_store|\w+_rendezvous_handler|new_process_group_helper"
    r"|sync_global\w+|process_allgather|broadcast_one_to_all)$"
)
_NATIVE = re.compile(r"^(?:nccl|pnccl|rccl)(?P<name>[A-Z]\w+)")
_OF_LIBRARY = re.compile(  # functions of C++ in which a process is with others; DDP's reducer also copies
    r"^(?:(?:c10d::(?!Reducer|Logger)|gloo::|ccl::|horovod::|ccl_\w{1,60}::)(?:[\w~]{1,80}::){0,8}|ccl_|P?MPI_I?)"
    r"(?P<name>\w+)"
)
_ENGINE = re.compile(r"^torch::autograd::(?:\w{1,40}::){0,4}\w{0,40}Engine::execute")  # other threads do its work
DEVICE_WAIT = re.compile(
    r"^(?:synchronize|(?:cuda|hip|cu|aclrt)(?:Stream|Device|Event|Ctx)Synchronize\w*|_engine_run_backward|item|cpu|tolist"
    r"|wait_stream|nonzero|masked_select|_local_scalar_dense|mark_step|block_until_ready"
    r"|_?unscale_\w*|_maybe_opt_step|has_overflow|check_overflow|_has_inf_or_nan|clip_grad\w*|get_grad_norm\w*)$"
)
_BACKWARD = re.compile(
    r"torch/autograd/\w+\.py:(?:_?engine_)?(?:run_)?(?:backward|grad)$"
)  # older ones: its engine is C++
_HOST = re.compile(
    r"^(?:_{1,2}(?:libc_)?(?:p?write|p?read|open|fsync)(?:64|v|_nocancel)*|save_file|load_file|serialize_file"
    r"|save|_save|_legacy_save|load|_load|write|read|readinto|flush|fsync|open|recv|recv_into|send|sendall|connect|urlopen"
    r"|request|getresponse|sleep|acquire|wait|_wait_for_tstate_lock|join|communicate|poll|select|subprocess|input|set_trace"
    r"|interaction|copyfile\w*|copytree|copy2|rmtree|compile\w*|collect|unlink|rename|stat)$"
)
_DATA_LIBRARY = re.compile(r"(?:^|/)(?:tokenizers\b[\w.-]*|libdali\w*)\.so$")
_COLLECTS = re.compile(r"^(?:Garbage-collecting|gc_collect\w*|_?PyGC_Collect\w*)$")
_OF_LIBC = re.compile(r"^_{1,2}(?:GI_+)?(?:libc_)?|(?:64|_nocancel)+$")  # how it calls those of the kernel
# native calls that tell what a process does; a lock or a poll of which no library is seen to be the owner does not
_KERNEL = {"read", "write", "pread", "pwrite", "pread64", "pwrite64", "open", "fsync", "flock", "recv", "unlink"}
_DEBUGGER = re.compile(  # a person's, whom it waits for
    r"(?:^|/)(?:pdb|bdb|ipdb/\w+|pudb/\w+|remote_pdb|rpdb|web_pdb/\w+"
    r"|IPython/terminal/(?:debugger|embed|interactiveshell))\.py:"
    r"|(?:^|/)cmd\.py:cmdloop$|(?:^|/)code\.py:(?:interact|raw_input)$|debugpy/\S*:wait_for_client$"
)
_OF_JAX = re.compile(
    r"jax/_src/array\.py:(?:_value|__array__|__float__|__int__|__bool__|_copy_\w+)$|jax/_src/api\.py:_?device_get$"
    r"|jax/_src/interpreters/pxla\.py:__call__$"
)
_FEW_FRAMES = 8  # from the innermost, in which a debugger stands
_LOCK = re.compile(  # torch's extensions, torch's own and the package's FileLock, fcntl, Neuron's compile cache
    r"torch/utils/file_baton\.py:wait|(?:_filelock|filelock/\w+|fasteners/\w+)\.py:(?:_?acquire|__enter__|lock)"
    r"|:(?:flock|lockf)$|neuron_cc_cache\.py:(?:wait_for|acquire)_lock"
)
_COMPILES = re.compile(  # what a step of its own begins
    r"(?:^|/)(?:libneuronxla|neuronxcc)/|(?:^|/)(?:torch/_inductor|triton/(?:compiler|runtime))/.*:_*compile(?!d)"
    r"|(?:^|/)jax/_src/compiler\.py:"
)


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """Where one process stands: `kind` is collective, others or device (it waits), data, host, leaving or program.

    It is unknown where a native stack shows no name that tells.
    """

    rank: int | None
    name: str  # rank 2, or the process where its rank is not known
    kind: str
    call: str  # the collective, or the innermost function that tells
    line: str  # the user's own line
    where: Where
    is_lock: bool = False  # waits for the lock of a file, such as that of a build


def stand_of(stack: StackTrace) -> Stand:
    """Return where the process of a stack stands."""
    frames = stack.frames[:DEEP]
    kind, call = _kind(frames)
    tells = kind in WAITS | {"leaving"} or _OF_LIBC.sub("", call) in _KERNEL
    if stack.is_native and not tells and not (kind == "data" and any(_DATA_LIBRARY.search(f.file) for f in frames)):
        kind = "unknown"
    users = [f for f in frames if f.file and f.line is not None and not _is_library(f.file)]
    own = next((f for f in users if not _DEBUGGER.search(f"{f.file}:{f.function}")), (*users, frames[0])[0])
    line = own.file.rsplit("/", 1)[-1] + (f":{own.line}" if own.line is not None else "")
    process = f"{stack.pid or ''} of {stack.host}".strip() if stack.host else f"{stack.pid or stack.where.file}"
    name = f"rank {stack.rank}" if stack.rank is not None else f"process {process}"
    return Stand(
        rank=stack.rank,
        name=name,
        kind=kind,
        call=call,
        line=line,
        where=msgspec.structs.replace(stack.where, text=f"{name} stands in {call} at {line}", rank=stack.rank),
        is_lock=kind == "host" and any(_LOCK.search(f"{frame.file}:{frame.function}") for frame in frames),
    )


def debugger_in(frames: Sequence[Frame]) -> str:
    """Return the function of a debugger in which a stack waits for a person, "" for none."""
    near = frames[:_FEW_FRAMES]
    return next((frame.function for frame in near if _DEBUGGER.search(f"{frame.file}:{frame.function}")), "")


def _kind(frames: Sequence[Frame]) -> tuple[str, str]:
    """Return what the innermost telling function is; data before the lock that a loader waits for, a debugger first.

    Who compiles inside a step, or waits for the lock of that, has not come to its device; nor who collects garbage
    there, unless what that destroys waits for others itself.
    """
    collects = next((at for at, frame in enumerate(frames) if _COLLECTS.match(frame.function)), None)
    if collects is not None:
        within = frames[:collects] or frames[collects + 1 :]  # faulthandler says it above what is destroyed
        kind, call = _kind(within) if within else ("program", "")
        return (kind, call) if kind in {"collective", "others"} else ("host", "the garbage collector")
    if debugger := debugger_in(frames):
        return "host", f"{A_DEBUGGER}{debugger}"
    if leaves := next((frame.function for frame in frames if _LEAVES.search(frame.function)), ""):
        return "leaving", leaves
    told = next((at for at, frame in enumerate(frames) if frame.transfer), None)
    if told is not None and all(map(is_wait, frames[:told])):
        return "collective", frames[told].transfer
    compiles = ""
    for at, frame in enumerate(frames):
        if not compiles and (_LOCK.search(named := f"{frame.file}:{frame.function}") or _COMPILES.search(named)):
            compiles = frame.function
        native = _NATIVE.match(frame.function) or _OF_LIBRARY.match(frame.function)
        name = _called_in_library(frames[at:]) or _called_in_nccl(frames[at:]) if native else ""
        name = name or (collective_in(frame.function) if _COLLECTIVE_FILE.search(frame.file) else "")
        if name:
            return "collective", name
        if native or (_FOR_OTHERS.match(frame.function) and _COLLECTIVE_FILE.search(frame.file)):
            return _above(frames[at + 1 :]) or ("others", frame.function)
        if _DATA.search(frame.file) or _DATA_CALL.match(frame.function):
            return "data", frame.function
        named = f"{frame.file}:{frame.function}"
        waits = _ENGINE.match(frame.function) or (DEVICE_WAIT.match(frame.function) and not _own(*frames[at : at + 2]))
        if waits or _BACKWARD.search(named) or _OF_JAX.search(named):
            if helper := helper_that_waits(frames[at:]):
                return "others", helper
            return ("host", compiles) if compiles else ("device", frame.function)
    if helper := helper_that_waits(frames):
        return "others", helper
    for frame in frames:
        if _HOST.match(frame.function) or _LOCK.search(f"{frame.file}:{frame.function}"):
            return "host", frame.function
    return "program", frames[0].function


def _called_in_library(frames: Sequence[Frame]) -> str:
    """Return the collective of c10d, oneCCL, gloo or MPI in which a process is, "" for none: the outermost.

    The first call of a group gathers addresses in it.
    """
    called = [found["name"] for frame in frames if (found := _OF_LIBRARY.match(frame.function))]
    return next((name for call in reversed(called) if (name := collective_in(call))), "")


def _called_in_nccl(frames: Sequence[Frame]) -> str:
    """Return the collective of NCCL in which a process is, by the frames above its own functions, "" for none."""
    for frame in itertools.takewhile(lambda frame: not frame.file.endswith(".py"), frames):
        native = _NATIVE.match(frame.function)
        if native and (name := collective_in(snake(native.group("name")))):
            return name
    return ""


def _above(frames: Sequence[Frame]) -> tuple[str, str] | None:
    """Return the send or receive whose wait the frames below are, where torch's own functions lead to one."""
    for frame in frames:
        if frame.transfer:
            return "collective", frame.transfer
        if not _COLLECTIVE_FILE.search(frame.file):
            return None
        if (name := collective_in(frame.function)) in TRANSFERS:
            return "collective", name
    return None


def _own(frame: Frame, *above: Frame) -> bool:
    """Whether a function is the user's, whose `item` may be anything; those of C are shown at their caller's line."""
    is_of_c = any((frame.file, frame.line) == (caller.file, caller.line) for caller in above)
    return bool(frame.file and frame.line) and not (is_of_c or "/" in frame.file or _is_library(frame.file))


def _is_library(file: str) -> bool:
    return bool(
        re.search(
            r"torch/|site-packages|<frozen|lib/python|^(?:threading|queue|socket|selectors|subprocess|ssl)\.py"
            r"|^(?:filelock|fasteners|huggingface_hub|transformers|urllib3|requests|fsspec|multiprocessing|concurrent)/"
            r"|\.(?:so(?:\.\d+)*|dylib|c|cc|cpp|cu|h|hpp|S)$",
            file,
        )
    )


def own_frames(stack: StackTrace) -> tuple[Frame, ...]:
    """Return the frames of a stack that are of no library, innermost first."""
    return tuple(frame for frame in stack.frames if frame.file and not _is_library(frame.file))
