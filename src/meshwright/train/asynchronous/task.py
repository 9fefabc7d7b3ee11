"""The task of a worker: shares of a job's data with the job's model."""

import json
import statistics
from typing import Any

import msgspec
import torch
from torch import Tensor

from ...device import moved
from ...layout import Plan
from ...parallel.data_parallel import DataParallel, marked_last
from ...parallel.engine import live_tensors
from ...parallel.layers import dropout
from ...parallel.layers.compiled import compile_layers
from ...plan.search.asynchronous import worker_layout
from ...timeline import Span
from ..data.corpus import Corpus
from ..data.feed import Feed
from ..job.config import JobConfig
from ..measure.memory import PeakMemory
from ..measure.recorder import Recorder
from ..model.decoder import Decoder
from ..model.engine_settings import engine_settings
from ..model.optimizer import learning_rate
from .terms import clips_at_server, tokens_per_share, workers

COUNTED_SHARE = 2  # the share of this worker in which live tensors are counted; it is not measured
WARM_UP_SHARES = 5


class WorkerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One worker's report at the end."""

    rank: int
    parts: dict[str, float]  # seconds of one share, exchanges shared out
    spans: list[Span]
    peak_memory_bytes: int
    parts_of: tuple[int, ...] | None = None  # workers choose no steps together


class JobTask:
    """A job's model and data on one rank; `island_rank` of `island` ranks that train as one worker."""

    def __init__(
        self, config: JobConfig, plan: Plan, corpus: Corpus, *, rank: int, island_rank: int, device: torch.device
    ) -> None:
        self.config, self._rank, self._island_rank = config, rank, island_rank
        self._workers = workers(config, plan)
        self.recorder = Recorder(
            rank, keep_steps=config.train.timeline_steps, enabled=config.train.record, device=device
        )
        self._settings = engine_settings(config, device, self.recorder)
        torch.manual_seed(config.train.seed)
        self.module = moved(Decoder(config.model, recompute=plan.layout.recompute), device)
        if config.train.compile and not config.data_parallel.is_local:  # otherwise the island's engine does
            compile_layers(self.module)
        self.parameters: list[Tensor] = list(self.module.parameters())
        self._feed = Feed(config, plan, corpus, self.recorder, rank=rank, device=device)
        self._engine = None
        if config.data_parallel.is_local:  # an island is a synchronous job of its own
            layout = worker_layout(plan.layout, self._workers)
            self._engine = DataParallel(self.module, msgspec.structs.replace(plan, layout=layout), self._settings)
        whole = config.train.global_batch * config.data.seq_len
        self._tokens = whole if clips_at_server(config) else tokens_per_share(config, plan)
        self._peak_memory_bytes = 0
        self._shares = 0

    def train(self, share: int) -> tuple[float, float]:
        """Train on a share; return its summed loss and the norm of the gradient."""
        step, place = divmod(share, self._workers)
        island = self.config.data_parallel.island
        batches = self._feed.batches(step, place * island + self._island_rank, self._workers * island)
        counting = self._shares == COUNTED_SHARE
        self._shares += 1
        if not counting:
            return self._compute(share, batches)
        with PeakMemory(live_tensors(self.module, self._optimizer())) as memory:
            result = self._compute(share, batches)
        self._peak_memory_bytes = memory.peak_bytes
        return result

    def end(self, share: int) -> None:
        """Close the record of a share."""
        self.recorder.end_step(share // self._workers)

    def note(self, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        """Record communication."""
        self.recorder.note("comm", name, start_s, end_s, size_bytes)

    def evaluate(self, part: int, parts: int) -> float:
        """Return the mean loss of all held-out targets that this part of them adds."""
        island = self.config.data_parallel.island
        total = torch.zeros((), dtype=torch.float64)
        with torch.no_grad(), self._settings.precision(), dropout.evaluating(self.module):
            for inputs, targets in self._feed.held_out_batches(part * island + self._island_rank, parts * island):
                total += self.module(inputs, targets).double().cpu()
        if island > 1:
            torch.distributed.all_reduce(total)
        return total.item() / self._feed.held_out[:, 1:].numel()

    def record(self) -> str:
        """Return what was recorded."""
        measured = self.recorder.parts_after(WARM_UP_SHARES) or self.recorder.parts
        # the mean, for an exchange comes once in many shares
        parts = {name: statistics.fmean(share[name] for share in measured) for name in measured[0]} if measured else {}
        return msgspec.json.encode(
            WorkerRecord(self._rank, parts, self.recorder.spans(), self._peak_memory_bytes)
        ).decode()

    def _compute(self, share: int, batches: Any) -> tuple[float, float]:
        if self._engine is None:
            return self._gradient(share, batches)
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate(self.config.optimizer, share // self._workers, self.config.train.steps)
        loss, norm = self._engine.step(batches, self._tokens, number=share)
        if self.config.data_parallel.island > 1:
            torch.distributed.all_reduce(loss)
        return loss.item(), norm

    def _gradient(self, share: int, batches: Any) -> tuple[float, float]:
        """Leave the gradient of a share in the parameters, clipped unless the servers clip."""
        self.module.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        step, place = divmod(share, self._workers)
        moments = dropout.Moments(self._settings.seed, step, place, self._workers)
        for index, ((inputs, targets), _) in enumerate(marked_last(batches)):
            moment = moments.of(index, len(inputs))
            with self.recorder.span("compute", "forward"), self._settings.precision(), dropout.at(moment):
                loss = self.module(inputs, targets)
            start = self.recorder.now()
            (loss / self._tokens).backward()
            self.recorder.note("compute", "backward", start, self.recorder.now())
            total += loss.detach().double().cpu()
        if clips_at_server(self.config):
            return total.item(), 0.0  # of the sum, the servers say
        limit = self.config.optimizer.max_grad_norm or float("inf")
        return total.item(), float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit))

    def _optimizer(self) -> torch.optim.Optimizer:
        if self._engine is not None:
            return self._engine.optimizer
        return torch.optim.SGD(self.module.parameters(), lr=0.0)  # on the servers: none here


def parse_record(text: str) -> WorkerRecord:
    """Return the record that `JobTask.record` made."""
    return msgspec.convert(json.loads(text), WorkerRecord)
