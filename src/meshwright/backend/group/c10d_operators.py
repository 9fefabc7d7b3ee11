"""Torch's operators `c10d::*`, under which its dispatcher makes and marks the calls of a group in C++."""

_ROWS = (  # an operator, the method of the group that it calls, and the names that we give to such calls
    ("allreduce_", "allreduce", "all_reduce", "all_reduce of a sparse tensor"),
    ("allreduce_coalesced_", "allreduce_coalesced", "all_reduce_coalesced"),
    ("reduce_", "reduce", "reduce"),
    ("reduce_scatter_", "reduce_scatter", "reduce_scatter"),
    ("_reduce_scatter_base_", "reduce_scatter_single", "reduce_scatter_single"),
    ("reduce_scatter_tensor_coalesced_", "reduce_scatter_single_coalesced", "reduce_scatter_coalesced"),
    ("broadcast_", "broadcast", "broadcast"),
    ("allgather_", "allgather", "all_gather"),
    ("_allgather_base_", "all_gather_single", "all_gather_single"),
    ("allgather_into_tensor_coalesced_", "all_gather_single_coalesced", "all_gather_coalesced"),
    ("allgather_coalesced_", "allgather_coalesced"),
    ("gather_", "gather", "gather"),
    ("scatter_", "scatter", "scatter"),
    ("alltoall_", "alltoall", "all_to_all"),
    ("alltoall_base_", "all_to_all_single", "all_to_all_single"),
    ("barrier", "barrier", "barrier"),
    ("send", "send"),
    ("recv_", "recv"),
    ("recv_any_source_", "recv_anysource"),
)
OPERATOR_OF_METHOD = {method: operator for operator, method, *_ in _ROWS}
OPERATOR_OF_CALL = {call: operator for operator, _, *calls in _ROWS for call in calls}
