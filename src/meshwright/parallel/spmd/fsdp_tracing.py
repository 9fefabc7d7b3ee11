"""The collectives of FSDP2, saying when they travelled, how many bytes, and for how long the rank waited.

FSDP2 takes collectives of one's own through interfaces that are not public: this file is their only user.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from ...backend.group.torch_compat import all_gather_single, reduce_scatter_single
from .channel import Stopwatch, bytes_of, when_done


def trace_collectives(part: FSDPModule, stopwatch: Stopwatch, axis: str, *, copies: int) -> None:
    """Let `stopwatch` hear of what a sharded module sends along `axis`, and of the sums over its copies."""
    scatter = TracedReduceScatter(stopwatch, axis)
    part.set_custom_all_gather(TracedAllGather(stopwatch, axis))
    part.set_custom_reduce_scatter(scatter)
    if copies > 1:
        part.set_all_reduce_hook(scatter.summed_over(copies))


class _Temporary:
    """New memory for each call, as by default."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory that is not initialised."""
        return torch.empty(*size, dtype=dtype, device=device)


class TracedAllGather(_Temporary, AllGather):
    """An all-gather of weights; an asynchronous one blocks the rank only while it is awaited."""

    def __init__(self, stopwatch: Stopwatch, axis: str) -> None:
        self._stopwatch, self._axis = stopwatch, axis

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Gather the inputs of all ranks in the output; return the work if asynchronous."""
        size_bytes, members = bytes_of(output_tensor), f"{group.size()} ranks of {self._axis}"
        start = self._stopwatch.now()

        def note() -> None:
            self._stopwatch.note("all_gather", start, self._stopwatch.now(), size_bytes, members)

        work: dist.Work | None = all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        if work is None:
            note()
            self._stopwatch.wait(start, self._stopwatch.now())
            return None
        return _Awaited(work, self._stopwatch, None if when_done(work, note) else note)


class TracedReduceScatter(_Temporary, ReduceScatter):
    """A reduce-scatter of gradients, which FSDP2 waits for where it does not run on a stream of a GPU."""

    def __init__(self, stopwatch: Stopwatch, axis: str) -> None:
        self._stopwatch, self._axis = stopwatch, axis
        self._done_s = 0.0

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,  # a ReduceOp or its kind
        async_op: bool = False,
    ) -> dist.Work | None:
        """Put this rank's part of the sum in the output; return the work if asynchronous."""
        start = self._stopwatch.now()
        work: dist.Work | None = reduce_scatter_single(
            output_tensor, input_tensor, op=op, group=group, async_op=async_op
        )
        self._done_s = self._stopwatch.now()
        members = f"{group.size()} ranks of {self._axis}"
        self._stopwatch.block("reduce_scatter", start, self._done_s, bytes_of(input_tensor), members)
        return work

    def summed_over(self, copies: int) -> Callable[[Tensor], None]:
        """Return the hook that FSDP2 calls when copies have summed what the last call scattered."""

        def note(summed: Tensor) -> None:
            members = f"{copies} ranks of replica"
            self._stopwatch.block("all_reduce", self._done_s, self._stopwatch.now(), bytes_of(summed), members)

        return note


class _Awaited(dist.Work):
    """A work that says from when to when the rank waited for it."""

    def __init__(self, work: dist.Work, stopwatch: Stopwatch, note: Callable[[], None] | None) -> None:
        super().__init__()
        self._work, self._stopwatch, self._note = work, stopwatch, note

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the work."""
        start = self._stopwatch.now()
        done = self._work.wait() if timeout is None else self._work.wait(timeout)
        if self._note is not None:  # its end cannot be told otherwise
            self._note()
            self._note = None
        self._stopwatch.wait(start, self._stopwatch.now())
        return done
