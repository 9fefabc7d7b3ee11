"""Synchronous data parallelism: DDP with our own reduction hook, which sums, and notes when each bucket travelled."""

import contextlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..device import is_accelerator
from ..layout import Plan
from .compression import Compressor, make_compressor
from .engine import Batch, Settings, Shard, live_tensors, make_state, unsplit_shard
from .layers import dropout
from .layers.compiled import compile_layers

# called with (bytes, start, end) of each bucket's all-reduce, from a thread of the backend
BucketNote = Callable[[int, float, float], None]
Now = Callable[[], float]  # `Notes.now`


class Reducer:
    """The communication hook of DDP: gradients of a bucket are summed over the ranks, by a compressor if there is one.

    `last_ready_s` is the clock at which the last bucket of a backward pass was filled: from then on backward only
    waits for communication. `buffers` are the buckets of the last backward pass, which DDP keeps.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        note: BucketNote,
        compressor: Compressor | None = None,
        sent: Callable[[dist.GradBucket], None] | None = None,
        now: Now = time.monotonic,
    ) -> None:
        self._group = group
        self._sent = sent
        self._now = now
        self._note = note
        self._compressor = compressor
        self._thread = ThreadPoolExecutor(1) if compressor is not None else None  # its collectives block
        self.last_ready_s = 0.0
        self.buffers: list[Tensor] = []

    def reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of a bucket; the future holds the sums."""
        buffer = bucket.buffer()
        size_bytes = buffer.numel() * buffer.element_size()
        start = self._now()
        self.last_ready_s = start
        if bucket.index() == 0:
            self.buffers.clear()
        self.buffers.append(buffer)
        if self._sent is not None:
            self._sent(bucket)
        if self._thread is not None:
            return self._compressed(bucket, start)
        work = dist.all_reduce(buffer, group=self._group, async_op=True)

        def done(future: Any) -> torch.Tensor:
            self._note(size_bytes, start, self._now())
            result: torch.Tensor = future.value()[0]
            return result

        future: torch.futures.Future[torch.Tensor] = work.get_future().then(done)
        return future

    def _compressed(self, bucket: dist.GradBucket, start: float) -> torch.futures.Future[torch.Tensor]:
        assert self._thread is not None
        index, gradients, buffer = bucket.index(), bucket.gradients(), bucket.buffer()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def run() -> None:
            assert self._compressor is not None
            try:
                before = self._compressor.sent_bytes
                self._compressor.sum(index, gradients, buffer)
                self._note(round(self._compressor.sent_bytes - before), start, self._now())
                future.set_result(buffer)
            except Exception as error:
                future.set_exception(error)  # type: ignore[arg-type]  # its stub wants a result

        self._thread.submit(run)
        return future


def replicate(
    model: torch.nn.Module,
    *,
    bucket_bytes: int,
    note: BucketNote,
    group: dist.ProcessGroup | None = None,
    compressor: Compressor | None = None,
    sent: Callable[[dist.GradBucket], None] | None = None,
    now: Now = time.monotonic,
) -> tuple[DistributedDataParallel, Reducer]:
    """Wrap `model` for synchronous data parallelism over `group`, called on all its ranks; gradients are summed.

    The loss of each rank must therefore be divided by the tokens of the global batch. `sent` sees each bucket before
    it travels.
    """
    device = next(model.parameters()).device
    # buffers are the same everywhere by construction; the setting has another name since torch 2.13
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    settings: dict[str, Any] = {name: False}
    wrapped = DistributedDataParallel(
        model,
        device_ids=[device] if is_accelerator(device) else None,
        process_group=group,
        bucket_cap_mb=bucket_bytes / 2**20,
        gradient_as_bucket_view=True,
        **settings,
    )
    reducer = Reducer(group, note, compressor, sent, now)
    wrapped.register_comm_hook(None, reducer.reduce)
    return wrapped, reducer


class DataParallel:
    """The engine of plain data parallelism: every rank holds the whole model; on one rank nothing travels."""

    def __init__(self, module: nn.Module, plan: Plan, settings: Settings) -> None:
        self.settings = settings
        self.module = module
        dropout.prepare_dropout(module)
        if settings.compiled:
            compile_layers(module)
        self.optimizer = settings.optimizer(module)
        self.data_ranks = plan.layout.dp
        self.data_rank = dist.get_rank() if self.data_ranks > 1 else 0
        self._model = module
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        self._keeps_gradients = False
        if self.data_ranks > 1:
            self._model, self._reducer = replicate(
                module,
                bucket_bytes=plan.bucket_bytes,
                note=self._note_bucket,
                now=settings.notes.now,
                compressor=make_compressor(settings.compression, None, powersgd_rank=settings.powersgd_rank),
                sent=self._sent if settings.probe is not None else None,
            )

    def step(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> tuple[Tensor, float]:
        """Forward and backward over the micro-batches, gradients travelling during the last; then the update."""
        return self.accumulate(batches, tokens, number=number), self.update()

    def accumulate(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> Tensor:
        """Forward and backward over the micro-batches, gradients travelling during the last."""
        notes = self.settings.notes
        # on its device: a loss that comes to the host in each micro-batch makes that wait for the device each time
        total = torch.zeros((), dtype=torch.float64, device=self.settings.device)
        moments = dropout.Moments(self.settings.seed, number, self.data_rank, self.data_ranks)
        for index, ((inputs, targets), last) in enumerate(marked_last(batches)):
            travels = last and self.data_ranks > 1
            with contextlib.nullcontext() if last else self._no_sync():
                moment = moments.of(index, len(inputs))
                with notes.span("compute", "forward"), self.settings.precision(), dropout.at(moment):
                    loss = self._model(inputs, targets)
                self._backward(loss / tokens, travels=travels)
            total += loss.detach().double()
        # gradients that several micro-batches add up to stay in DDP's buckets: elsewhere they would lie twice
        self._keeps_gradients = bool(index and travels)
        if self.settings.probe is not None:
            self.settings.probe.received((n, p.grad) for p, n in self._names.items() if p.grad is not None)
        return total.cpu()

    def update(self) -> float:
        """Clip, update and clear."""
        with self.settings.notes.span("compute", "optimizer"):
            limit = self.settings.max_grad_norm or math.inf
            norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit))
            if math.isfinite(norm):
                self.optimizer.step()
            self.discard()
        return norm

    def discard(self) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad(set_to_none=not self._keeps_gradients)

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of this rank's batch."""
        with torch.no_grad(), self.settings.precision(), dropout.evaluating(self.module):
            loss: Tensor = self.module(*batch)
        return loss.double().cpu()

    def shards(self) -> list[Shard]:
        """Return whole parameters; rank 0 owns them."""
        make_state(self.optimizer)
        owner = self.data_rank == 0
        return [unsplit_shard(name, p, self.optimizer, owner=owner) for name, p in self.module.named_parameters()]

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        buckets = self._reducer.buffers if self.data_ranks > 1 else []
        return [*live_tensors(self.module, self.optimizer), *buckets]

    def _backward(self, loss: Tensor, *, travels: bool) -> None:
        """Run backward; its span ends where the last gradient is there, waiting for others is communication."""
        now = self.settings.notes.now
        start = now()
        loss.backward()  # type: ignore[no-untyped-call]
        end = self._reducer.last_ready_s if travels else now()
        self.settings.notes.note("compute", "backward", start, end)

    def _sent(self, bucket: dist.GradBucket) -> None:
        assert self.settings.probe is not None
        names = (self._names[parameter] for parameter in bucket.parameters())  # type: ignore[index]
        self.settings.probe.sent(zip(names, bucket.gradients(), strict=True))

    def _note_bucket(self, size_bytes: int, start_s: float, end_s: float) -> None:
        self.settings.notes.note("comm", "all_reduce", start_s, end_s, size_bytes)

    def _no_sync(self) -> contextlib.AbstractContextManager[None]:
        if self.data_ranks == 1:
            return contextlib.nullcontext()
        assert isinstance(self._model, DistributedDataParallel)
        context: contextlib.AbstractContextManager[None] = self._model.no_sync()
        return context


def marked_last(batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Yield each micro-batch, drawn one ahead, with whether it is the last of the step."""
    ahead = iter(batches)
    batch = next(ahead)
    for following in ahead:
        yield batch, False
        batch = following
    yield batch, True
