"""Synchronous data parallelism: DDP with our own reduction hook, which sums, and notes when each bucket travelled."""

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# called with (bytes, start, end) of each bucket's all-reduce, from a thread of the backend
BucketNote = Callable[[int, float, float], None]


class Reducer:
    """The communication hook of DDP: gradients of a bucket are summed over the ranks.

    `last_ready_s` is the clock at which the last bucket of a backward pass was filled: from then on backward only
    waits for communication.
    """

    def __init__(self, group: dist.ProcessGroup | None, note: BucketNote) -> None:
        self._group = group
        self._note = note
        self.last_ready_s = 0.0

    def reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of a bucket; the future holds the sums."""
        buffer = bucket.buffer()
        size_bytes = buffer.numel() * buffer.element_size()
        start = time.monotonic()
        self.last_ready_s = start
        work = dist.all_reduce(buffer, group=self._group, async_op=True)

        def done(future: Any) -> torch.Tensor:
            self._note(size_bytes, start, time.monotonic())
            result: torch.Tensor = future.value()[0]
            return result

        future: torch.futures.Future[torch.Tensor] = work.get_future().then(done)
        return future


def replicate(
    model: torch.nn.Module, *, bucket_bytes: int, note: BucketNote, group: dist.ProcessGroup | None = None
) -> tuple[DistributedDataParallel, Reducer]:
    """Wrap `model` for synchronous data parallelism over `group`, called on all its ranks; gradients are summed.

    The loss of each rank must therefore be divided by the tokens of the global batch.
    """
    device = next(model.parameters()).device
    # buffers are the same everywhere by construction; the setting has another name since torch 2.13
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    settings: dict[str, Any] = {name: False}
    wrapped = DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        process_group=group,
        bucket_cap_mb=bucket_bytes / 2**20,
        gradient_as_bucket_view=True,
        **settings,
    )
    reducer = Reducer(group, note)
    wrapped.register_comm_hook(None, reducer.reduce)
    return wrapped, reducer
