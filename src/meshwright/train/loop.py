"""The training loop of one rank: forward and backward over micro-batches, one optimiser step, the loss of all ranks."""

import contextlib
import math
import resource
import signal
import statistics
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ..errors import InputError
from ..layout import Plan
from ..parallel.data_parallel import replicate
from .checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from .config import JobConfig
from .corpus import Corpus, Sampler, validation_sequences
from .decoder import Decoder
from .log import RunLog
from .memory import PeakMemory, training_tensors
from .optimizer import learning_rate, make_optimizer
from .recorder import Recorder, clock
from .run_folder import RunFolder

COUNTING_STEP = 2  # the step in which live tensors are counted, once DDP has settled its buckets; it is not measured
AGAIN_S = 1.0  # a second signal within this time is the same Ctrl-C, passed on by the launcher


class Trainer:
    """One rank's share of a training job."""

    def __init__(
        self, config: JobConfig, plan: Plan, corpus: Corpus, folder: RunFolder, *, rank: int, device: torch.device
    ) -> None:
        self.config, self.plan, self.folder = config, plan, folder
        self.rank, self.device = rank, device
        self.ranks = plan.layout.dp
        self.recorder = Recorder(rank, keep_steps=config.train.timeline_steps, enabled=config.train.record)
        torch.manual_seed(config.train.seed)  # the same weights on every rank
        self.module = Decoder(config.model, recompute=plan.layout.recompute == "full").to(device)
        self.optimizer = make_optimizer(self.module, config.optimizer)
        self.first_step = self._resume()
        self.model: torch.nn.Module = self.module
        if self.ranks > 1:
            self.model, self.reducer = replicate(self.module, bucket_bytes=plan.bucket_bytes, note=self._note_bucket)
        seq_len = config.data.seq_len
        self.sampler = Sampler(corpus.train, seq_len=seq_len, seed=config.train.seed)
        held_out = validation_sequences(corpus.validation, seq_len=seq_len, count=config.data.validation_sequences)
        self.held_out = torch.from_numpy(held_out)
        self.peak_memory_bytes = 0
        self._stop_requested_s: float | None = None

    def run(self, log: RunLog | None) -> str:
        """Train to the last step and return "", or save and return what stopped the run before it."""
        steps, train = self.config.train.steps, self.config.train
        for step in range(self.first_step, steps):
            counting = self._count_memory() if step == self.first_step + COUNTING_STEP else contextlib.nullcontext()
            start = clock()
            with counting:
                loss, norm, stop = self.step(step)
            row = {"step": step, "loss": loss, "learning_rate": self.optimizer.param_groups[0]["lr"], "grad_norm": norm}
            row |= self._speed(clock() - start)
            last = step + 1 == steps
            if last or stop or (step + 1) % train.validate_every == 0:
                row["validation_loss"] = self.validate()
            if log is not None:
                log.step(row)
            if last or stop or (train.checkpoint_every and (step + 1) % train.checkpoint_every == 0):
                self._save(step + 1)
            if stop and not last:
                return f"stopped after step {step + 1}; --resume {self.folder.path} goes on"
        return ""

    def step(self, step: int) -> tuple[float, float, bool]:
        """Run one optimiser step; return the loss (nats per token), the gradient norm, and whether to stop."""
        recorder = self.recorder
        rate = learning_rate(self.config.optimizer, step, self.config.train.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        tokens = self.config.train.global_batch * self.config.data.seq_len
        total = torch.zeros(2, dtype=torch.float64)
        for index in range(self.plan.micro_batches):
            with recorder.span("data", "data"):
                batch = self._draw(step, index)
            travels = self.ranks == 1 or index == self.plan.micro_batches - 1
            with contextlib.nullcontext() if travels else self._no_sync():
                with recorder.span("compute", "forward"), self._precision():
                    loss = self.model(batch[:, :-1], batch[:, 1:])
                self._backward(loss / tokens, travels=travels and self.ranks > 1)
            total[0] += loss.detach().double().cpu()
        with recorder.span("compute", "optimizer"):
            norm = self._clip()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._finish()
        total[1] = self._stop_requested_s is not None
        if self.ranks > 1:
            with recorder.span("comm", "all_reduce"):
                total = self._sum(total)
        recorder.end_step(step)
        return total[0].item() / tokens, norm, total[1].item() > 0

    def validate(self) -> float:
        """Return the loss over the held-out sequences, in nats per token, the same on every rank."""
        share = self.held_out[self.rank :: self.ranks]
        total = torch.zeros(1, dtype=torch.float64)
        with torch.no_grad(), self._precision():
            for batch in torch.split(share, self.plan.layout.mbs):
                batch = batch.to(self.device)
                total += self.module(batch[:, :-1], batch[:, 1:]).double().cpu()
        if self.ranks > 1:
            total = self._sum(total)
        return total.item() / self.held_out[:, 1:].numel()

    def request_stop(self, signum: int, _: FrameType | None) -> None:
        """Stop after the step under way; a second signal a second later leaves at once."""
        now = time.monotonic()
        if self._stop_requested_s is not None and now - self._stop_requested_s > AGAIN_S:
            signal.signal(signum, signal.SIG_DFL)
            raise KeyboardInterrupt
        self._stop_requested_s = self._stop_requested_s or now

    def _draw(self, step: int, index: int) -> Tensor:
        """Return the sequences of this rank's micro-batch, which depend on seed and step alone."""
        size = self.plan.layout.mbs
        first = step * self.config.train.global_batch + (index * self.ranks + self.rank) * size
        return torch.from_numpy(self.sampler.sequences(range(first, first + size))).to(self.device)

    def _backward(self, loss: Tensor, *, travels: bool) -> None:
        """Run backward; its span ends where the last gradient is there, waiting for others is communication."""
        start = clock()
        loss.backward()  # type: ignore[no-untyped-call]
        end = self.reducer.last_ready_s if travels else clock()
        self.recorder.note("compute", "backward", start, end)

    def _note_bucket(self, size_bytes: int, start_s: float, end_s: float) -> None:
        self.recorder.note("comm", "all_reduce", start_s, end_s, size_bytes)

    def _clip(self) -> float:
        limit = self.config.optimizer.max_grad_norm or math.inf
        return float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit))

    def _sum(self, values: Tensor) -> Tensor:
        values = values.to(self.device)
        dist.all_reduce(values)
        return values.cpu()

    def _no_sync(self) -> contextlib.AbstractContextManager[None]:
        assert isinstance(self.model, DistributedDataParallel)
        context: contextlib.AbstractContextManager[None] = self.model.no_sync()
        return context

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        choice = self.config.train.precision
        if choice == "bf16" or (choice == "auto" and self.device.type == "cuda"):
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _speed(self, step_time_s: float) -> dict[str, float]:
        tokens_per_s = self.config.train.global_batch * self.config.data.seq_len / step_time_s
        memory_bytes = (
            torch.cuda.memory_allocated(self.device)
            if self.device.type == "cuda"
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        speed = {"step_time_s": step_time_s, "tokens_per_s": tokens_per_s, "memory_bytes": float(memory_bytes)}
        predicted = self.plan.predicted
        if predicted.mfu:  # peak = model rate / MFU, in the prediction and here
            rate = predicted.model_tflops_per_gpu * predicted.step_time_s / step_time_s
            speed["mfu"] = rate * predicted.mfu / predicted.model_tflops_per_gpu
        return speed

    @contextlib.contextmanager
    def _count_memory(self) -> Any:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            yield
            self.peak_memory_bytes = torch.cuda.max_memory_allocated(self.device)
            return
        with PeakMemory(training_tensors(self.module, self.optimizer)) as memory:
            yield
        self.peak_memory_bytes = memory.peak_bytes

    def _resume(self) -> int:
        path = latest_checkpoint(self.folder.checkpoints)
        return load_checkpoint(path, self.module, self.optimizer) if path else 0

    def _save(self, step: int) -> None:
        problem = ""
        if self.rank == 0:
            try:
                save_checkpoint(self.folder.checkpoints, step, self.module, self.optimizer)
            except OSError as error:
                problem = f"{self.folder.checkpoints}: cannot save step {step}: {error.strerror or error}"
        failed = self._sum(torch.tensor([float(bool(problem))])) if self.ranks > 1 else torch.tensor(bool(problem))
        if failed.item():
            raise InputError(problem or "rank 0 cannot save the checkpoint")


def measured_steps(recorder: Recorder, warm_up: int) -> list[dict[str, float]]:
    """Return the parts of the steps that count: all after the warm-up, or the last one of a very short run."""
    return recorder.parts[warm_up:] or recorder.parts[-1:]


def median_parts(steps: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each part."""
    return {name: statistics.median(step[name] for step in steps) for name in steps[0]}
