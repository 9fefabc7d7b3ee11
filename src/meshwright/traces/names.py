"""Names in traces: which kernels communicate, which collective a name means, how large an element of a type is.

Names of kernels: NCCL and RCCL since 2.4, MSCCL and MSCCL++, oneCCL, HCCL, NVSHMEM and its likes, PyTorch's symmetric
memory, the all-reduces of vLLM, TensorRT-LLM, FlashInfer and Transformer Engine, and expert dispatchers (DeepEP and
DeepSeek's own, Hybrid-EP, UCCL, PPLX, MoRI, TensorRT-LLM).
"""

import re
from typing import Any

_LIBRARIES = re.compile(
    r"""(?<![a-z])(?:nccl|rccl|msccl(?:pp)?|oneccl|hccl|hcom|hcl|xccl|eccl|mccl)(?![a-z]*tune)   # collectives
    |(?<![a-z])ccl(?:::|_)
    |(?:nv|roc|i)shmem|roc_shmem                                             # one-sided
    |userbuffers                                                             # Transformer Engine
    |cross_device_reduce|quick_?reduce::                                     # vLLM and its heirs, AITER
    |(?:one|two)_?shot_?(?:all_?reduce|reduce_?scatter)                      # symmetric memory, TensorRT-LLM
    |multimem_|symm_mem|symmetric_memory::|(?:put|wait)_signal_kernel
    |all_?reduce_(?:fusion_)?kernel|lamport
    |all_?reduce.*(?:one|two)shot|mnnvl
    """,
    re.IGNORECASE | re.VERBOSE,
)
# any other kernel that bears the name of a collective, which Inductor's bear for the calls beside them in the graph
_BY_NAME = re.compile(r"(?<![a-z])(?:all_?gather|reduce_?scatter|all_?reduce)(?![a-z])", re.IGNORECASE)
_COMPUTES = re.compile(r"^triton_[a-z]{2,4}_|gemm|matmul", re.IGNORECASE)
_CAMEL = re.compile(r"(?:one|two)Shot(?:AllReduce|ReduceScatter)|moeA2A|moeAllToAll|allReduceKernel")
# what moves tokens to experts and back: by the namespace of a dispatcher, or by how its nodes lie to one another
_DISPATCHER = re.compile(
    r"""(?:(?<![a-z])(?:deep_?ep|hybrid_ep|dpsk::ep|nccl_ep|uccl|pplx|mori|a2a_kernels?|all_?to_?all)(?:::|_|(?=[A-Z]))
    |(?<![a-z])(?:inter|intra)node(?:_ll)?::
    |(?<![a-zA-Z])Ep(?=Dispatch|Combine))
    .*?(?P<what>dispatch|combine|notify|barrier|sync|a2a|all_?to_?all)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LOCAL = re.compile(r"layout|permute|topk", re.IGNORECASE)  # a dispatcher's own arithmetic, which sends nothing
_NAMELESS = re.compile(r"\((?:anonymous namespace|anonymous class)\)(?:::)?")
_TEMPLATE = re.compile(r"[<(].*", re.DOTALL)
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "moeatoa": "all_to_all",
    "dispatch": "all_to_all",
    "combine": "all_to_all",
    "crossdevicereduce": "all_reduce",
    "sendrecv": "send_recv",
    "collectivepermute": "send_recv",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "scatter": "scatter",
    "gather": "gather",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
_SYNCHRONIZING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_FROM_ROOT = frozenset({"broadcast", "scatter"})
_POINT_TO_POINT = frozenset({"send", "recv", "send_recv", "send_activation", "recv_activation", "send_gradient",
                             "recv_gradient", "drain"})  # fmt: skip
_DTYPE_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1, "bool": 1,
    "complexfloat": 8, "complexdouble": 16, "uint16": 2, "uint32": 4, "uint64": 8,
    "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1,
}  # fmt: skip
# how a library of the host marks a collective: "gloo:all_reduce"
MARKED = re.compile(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|meshwright):", re.ASCII)
DEVICE_LIBRARY = re.compile(r"(?:nccl|rccl|xccl|hccl):", re.ASCII)
# operators of a host that begin a collective or wait for one
_HOST_LAUNCH = re.compile(r"_?c10d(?:_functional(?:_autograd)?)?::|record_param_comms$", re.ASCII)
NO_CALL = frozenset({"wait", "init", "coalesced"})  # what c10d records beside its collectives


def communicates(kernel: str) -> bool:
    """Return whether a kernel of this name moves data between ranks."""
    plain = _bare(kernel)
    if _LIBRARIES.search(plain) or _CAMEL.search(plain) or (_BY_NAME.search(plain) and not _COMPUTES.search(plain)):
        return True
    return bool(_DISPATCHER.search(plain)) and not _LOCAL.search(plain)


def launches_on_host(operator: str) -> bool:
    """Return whether an operator of a host only begins a collective or waits for one."""
    return _HOST_LAUNCH.match(operator) is not None


def communicates_on_host(operator: str) -> bool:
    """Return whether an operator of a host is a collective, or begins one or waits for one."""
    return launches_on_host(operator) or MARKED.match(operator) is not None


def _bare(name: str) -> str:
    """Return the name of a function without its template and its arguments."""
    whole = _NAMELESS.sub("", name)
    return _TEMPLATE.sub("", whole) or whole


def collective(name: str) -> str:
    """Return our name of a collective: "ncclDevKernel_AllReduce_Sum_f32_RING_LL" is all_reduce."""
    plain = re.sub(r"[^a-z]", "", _bare(name).lower().replace("a2a", "atoa"))
    return next((ours for theirs, ours in _COLLECTIVES.items() if theirs in plain), "communication")


def synchronizes(name: str) -> bool:
    """Return whether no rank can end this collective before the last one has come."""
    return name in _SYNCHRONIZING


def from_root(name: str) -> bool:
    """Return whether one rank sends to all others, which cannot end before it came; it may end before they come."""
    return name in _FROM_ROOT


def point_to_point(name: str) -> bool:
    """Return whether two ranks alone take part, as neighbours in a pipeline do."""
    return name in _POINT_TO_POINT


def payload_bytes(elements_in: Any, elements_out: Any, dtype: Any) -> int:
    """Return the payload as nccl-tests count it: the larger of what goes in and what comes out; 0 if not known."""
    name = str(dtype).lower()
    size = 1 if name.startswith("float8") else _DTYPE_BYTES.get(name, 0)
    return int(max(number(elements_in), number(elements_out)) * size)


def number(value: Any) -> float:
    """Return a count of a file, 0 for what is none."""
    if isinstance(value, str) and len(value) <= 20 and value.strip().isdecimal():
        value = int(value)
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**60 else 0.0
