"""Names that came with torch 2.13: of two collectives, whose old names it warns of, and the one that a caller gives to
collectives for the profiler (`torch.distributed.record_comm`).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_c10d = torch._C._distributed_c10d
callers_name: Callable[[], str] = getattr(_c10d, "_get_comm_profiling_name", str)
_set_callers_name: Callable[[str], None] = getattr(_c10d, "_set_comm_profiling_name", lambda _: None)


def without_callers_name(make: Callable[[], None]) -> None:
    """Call `make` as if the caller had given no name."""
    name = callers_name()
    _set_callers_name("")
    try:
        make()
    finally:
        _set_callers_name(name)
