"""Names of collectives, as c10d, NCCL, gloo and Python call them, in one spelling; of GPUs on their bus."""

import functools
import re

_ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "bcast": "broadcast",
    "allreducebarrier": "barrier",
    "monitoredbarrier": "monitored_barrier",
    "isend": "send",
    "irecv": "recv",
    "batchisendirecv": "batch_isend_irecv",
}
_COLLECTIVES = {
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "monitored_barrier", "send", "recv"),
    *("batch_isend_irecv", "broadcast", "reduce", "gather", "scatter"),
}
WATCHDOG_OF_SERVER = r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<after>\d+)(?!.*soft=True)"  # SGLang's
LOADER_WORKER = r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\)"  # torch's error of the rank that lost it
# each rank may bring another amount, or only the root has a buffer
UNEVEN = {
    *("all_to_all", "gather", "scatter", "send", "recv", "barrier", "monitored_barrier", "coalesced"),
    *("all_gather_v", "reduce_scatter_v"),
}
NO_LONGER_HEARD = "JAX's coordination service no longer hears task"  # how such a fault begins
NO_FABRIC = "CUDA is not initialized on its host (error 802): most often its NVSwitches' fabric manager does not run"
UNLIKE_BOOTSTRAPS = "NCCL's own messages at its start have another size on one side, most often another version of NCCL"
BY_LOOPBACK = "gloo fell back to the loopback address, as the host's name does not resolve: no other host reaches it"
NOT_FINITE = "the training stopped itself, as a value was not finite"
UNUSED_PARAMETERS = "DDP waits for gradients of parameters that took no part in the loss"
HELD_BY_OTHERS = "others hold memory of that GPU: "
FRAGMENTED = "reserved by PyTorch but unallocated, in pieces too small for it"
A_DEBUGGER = "a debugger's "  # in whose function a stack waits for a person
OF_GAUDI = "Gaudi "  # how the name of such an accelerator begins
BY_REQUEST = "SLURM cancelled the job by request (scancel)"
OF_PROGRAM = "most often of the program"  # a GPU's fault that a kernel brings about
BY_ITSELF = "a process ended by itself: "  # how a crash begins, which a signal or the C library ended
NO_PROGRESS = "no progress"  # what a monitor saw of the ranks that it ended
MEETINGS = {  # which no rank ends before all are in
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "monitored_barrier"),
}
ROOTED = {"broadcast", "scatter", "reduce", "gather"}
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")  # where one begins inside a name
_ENDINGS = re.compile(
    r"(_base|_oop|_into_tensor|_tensor|_single|_object_list|_object|_coalesced|_list|_nosize|_out|_autograd)+$"
)


def snake(name: str) -> str:
    """Return a name in camel case with underscores between its words, its letters as they were: All_Reduce."""
    return _WORD.sub("_", name)


@functools.cache
def spelled(name: str) -> str:
    """Return a collective's name in one spelling: `_ALLGATHER_BASE`, `allGather`, `nccl:_all_gather_base` are one."""
    bare = name.rsplit(":", 1)[-1].split(" ")[0].strip().lower().lstrip("_")
    bare = _ENDINGS.sub("", bare)
    return _ALIASES.get(bare.replace("_", ""), bare)


def collective_in(name: str) -> str:
    """Return the spelling of a collective, "" for a function that is none."""
    found = spelled(name)
    return found if found in _COLLECTIVES else ""


def bus_number(text: str) -> str:
    """Return a PCI address as the hexadecimal number that NCCL prints as busId: `0000:44:00` is `44000`."""
    domain, bus, device = (["0", *text.split(".")[0].split(":")])[-3:]
    return f"{(int(domain, 16) << 20) | (int(bus, 16) << 12) | (int(device, 16) << 4):x}"


def same_bus(nccl: str, kernel: str) -> bool:
    """Return whether a busId of NCCL and a PCI address, as `bus_number` has it, are of one GPU, or one device file."""
    try:
        return bool(nccl) and int(nccl, 16) & ~0xF == int(kernel, 16)
    except ValueError:
        return nccl == kernel
