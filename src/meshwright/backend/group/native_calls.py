"""The optional short way of a group's usual calls in C: from torch to the C helper, without Python in between.

It is an extension module, built once like the helper where Python's headers are too, and needs DLPack's C interface to
tensors, which torch 2.13 has. `MESHWRIGHT_HELPER=0` goes without it.
"""

import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.autograd import profiler
from torch.distributed import ReduceOp, Work
from torch.utils import _python_dispatch as modes

from ...native import load_extension
from ..faults.flight import CAPACITY, OPERATIONS, operation_number
from ..local import helper
from ..local.ranks import LocalGroup
from .work import DONE, CollectiveWorker, DoneWork, PendingWork, Tensors

SOURCE = Path(__file__).with_name("calls.c")
EXCHANGE = "__dlpack_c_exchange_api__"
CALLS = (  # in the order of the enumeration in calls.c
    *("all_reduce", "broadcast", "all_gather", "all_gather_single"),
    *("reduce_scatter_single", "all_to_all_single", "barrier"),
)


def load_calls() -> ModuleType | None:
    """Return the extension module, built if need be; None where it is switched off or cannot be had."""
    if not hasattr(torch.Tensor, EXCHANGE):
        return None
    abi = sysconfig.get_config_var("SOABI")
    flags = (*helper.FLAGS, f"-DABI={abi}", f"-I{sysconfig.get_path('include')}")
    return load_extension(SOURCE, flags, (helper.SOURCE, *helper.HEADERS))


def native_fast_path(
    group: LocalGroup, worker: CollectiveWorker, stopped: Callable[[str, BaseException], None], *, inline: bool
) -> Any:
    """Return what does the usual calls of a group on one host, like `PythonFastPath`; None where it cannot be had.

    It calls only while `worker` is idle; `stopped` hears of the error that ends a call. Where asynchronous calls are to
    run `inline`, they run at once if all ranks come soon. It is also the lock that the group's other calls must hold.
    """
    module, native = load_calls(), group.native
    if module is None or native is None or group.size == 1:
        return None

    def go_on(operation: int, collective: int, filled_bytes: int) -> None:
        try:
            native.run(collective, filled_bytes)
        except BaseException as error:
            stopped(OPERATIONS[operation], error)
            raise
        group.flight.end()

    def finish(operation: int, collective: int, filled_bytes: int, result: Tensors | None) -> Work:
        """Return the Work of a call that needs Python; a blocking one has no result."""
        if result is None:
            go_on(operation, collective, filled_bytes)
            return DONE
        work = PendingWork(lambda: go_on(operation, collective, filled_bytes), result)
        work.run()
        return work

    return module.Calls(
        state=native.address,
        issued=worker.counts_address,
        exchange=getattr(torch.Tensor, EXCHANGE),
        record=group.flight.address,
        capacity=CAPACITY,
        operations=tuple(map(operation_number, CALLS)),
        options=group.flight.options,
        done=DONE,
        done_work=DoneWork,
        finish=finish,
        profiler=profiler,
        modes=modes,
        tensor_type=torch.Tensor,
        parameter_type=torch.nn.Parameter,
        filling_bytes=helper.FILLING_BYTES,
        sum=hash(ReduceOp.SUM),
        runs_inline=inline,
    )
