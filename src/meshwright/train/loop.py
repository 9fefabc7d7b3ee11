"""The training loop of one rank: draw, one step of the engine, log, validate, checkpoint."""

import contextlib
import functools
import math
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..device import CPU, allocated_bytes, forget_peak, is_accelerator, moved, peak_bytes
from ..errors import InputError, MeshwrightError
from ..layout import Plan
from ..parallel.build import build_engine
from ..parallel.engine import Engine, Shard
from ..timeline import share_of_peak
from ..units import counted, format_bytes
from .checkpoint.folder import latest_checkpoint
from .checkpoint.resume import ResumeCheck, checkpoint_facts
from .checkpoint.saver import Saver
from .checkpoint.state import generators, load_weights, pieces_of, restore
from .data.corpus import Corpus
from .data.feed import Feed
from .integrity.finite import NotFinite, all_finite, not_finite
from .integrity.flips import flips
from .integrity.guard import Guard, Recheck
from .integrity.rank_context import RankContext
from .integrity.replay import StepReplay
from .job.config import JobConfig
from .job.precision import product_type
from .measure.memory import PeakMemory
from .measure.recorder import Recorder, clock
from .measure.straggler_monitor import StragglerMonitor
from .model.decoder import Decoder
from .model.engine_settings import engine_settings
from .model.optimizer import learning_rate
from .run.events import Event, EventLog, read_events
from .run.log import RunLog
from .run.run_folder import RunFolder, how_to_go_on

# the step in which live tensors are counted, once DDP has settled its buckets; it is not measured. A run of fewer steps
# counts in its last one
COUNTING_STEP = 2


class Trainer:
    """One rank's share of a training job."""

    def __init__(
        self, config: JobConfig, plan: Plan, corpus: Corpus, folder: RunFolder, *, rank: int, device: torch.device
    ) -> None:
        self.config, self.plan, self.folder, self.corpus = config, plan, folder, corpus
        self.rank, self.device = rank, device
        self._precision = product_type(config.train.precision, device)
        self.ranks = plan.layout.world_size
        self.recorder = Recorder(
            rank, keep_steps=config.train.timeline_steps, enabled=config.train.record, device=device
        )
        self.events = EventLog(folder.events, rank)
        self.events.keep_room()
        self.monitor = StragglerMonitor(self.recorder, self.events, folder, plan.layout, rank=rank)
        self._flips = flips(rank)
        self.here = RankContext(rank, self.ranks, device)
        inside = plan.layout.zero >= 2
        self._replay = StepReplay(
            config.train, self.events, self._flips, self.monitor.host_of, self.here, summed_inside=inside
        )
        self.engine = self._built()
        self._log: RunLog | None = None
        self._rows_refused = False
        self._past = read_events(folder.events) if rank == 0 else []  # of earlier starts
        self.current_step = self.first_step = self._resume()
        again = Recheck(self._rerun, self.monitor.host_of)
        self.guard = Guard(config.train, self.engine.shards(), self.events, again, self.here)
        self.saver = Saver(
            folder.checkpoints,
            rank=rank,
            ranks=self.ranks,
            store=dist.distributed_c10d._get_default_store() if self.ranks > 1 else None,
            keep_last=config.train.keep_last,
            keep_every=config.train.keep_every,
            timeout_s=config.launch.timeout_s,
            marker=folder.saved,
        )
        self.feed = Feed(config, plan, corpus, self.recorder, rank=rank, device=device)
        self.peak_memory_bytes = 0
        self._stop_requested = self._interrupted = False

    def run(self, log: RunLog | None) -> str:
        """Train to the last step and return "", or save and return what stopped the run before it."""
        self._log = log
        if log is not None and self.guard.alone_bytes:
            self._say(
                f"note: no other rank holds {format_bytes(self.guard.alone_bytes)} of rank 0's weights and moments "
                f"under {self.plan.layout}; train.check_replicas does not see bits that flip there"
            )
        steps, train = self.config.train.steps, self.config.train
        counted_step = min(self.first_step + COUNTING_STEP, steps - 1)
        for step in range(self.first_step, steps):
            counting = self._count_memory() if step == counted_step else contextlib.nullcontext()
            self.current_step, start = step, clock()
            with counting:
                loss, norm, stop = self.step(step)
            self._check_finite(loss=loss, grad_norm=norm)
            row = {
                "step": step,
                "loss": loss,
                "learning_rate": self.engine.optimizer.param_groups[0]["lr"],
                "grad_norm": norm,
            }
            row |= self._speed(clock() - start)
            last = step + 1 == steps
            if last or stop or (step + 1) % train.validate_every == 0:
                row["validation_loss"] = self.validate()
                self._check_finite(validation_loss=row["validation_loss"])
            if log is not None:
                self._write_row(log, row)
            if last or stop or train.saves_after(step):
                self._save(step + 1)
            if last or stop:
                self._finish_saves()
            if stop and not last:
                self.events.record(Event(kind="stop", message=f"told to stop; saved step {step + 1}", step=step))
                return f"stopped after step {step + 1}; --resume {self.folder.path} goes on"
        return ""

    def step(self, step: int) -> tuple[float, float, bool]:
        """Run one optimiser step; return the loss (nats per token), the gradient norm, and whether to stop."""
        self._set_rate(step)
        tokens = self.config.train.global_batch * self.config.data.seq_len
        if self._flips is not None:
            self._flips.begin(step, self.engine.shards())
        draw = functools.partial(self.feed.batches, step, self.engine.data_rank, self.engine.data_ranks)
        loss = self._replay.accumulate(self.engine, draw, tokens, number=step, paused=self.recorder.paused)
        norm = self.engine.update()
        problem = self.saver.take_problem()
        flags = torch.tensor([self._stop_requested, bool(problem), not math.isfinite(norm)], dtype=torch.float64)
        total = torch.cat((loss.reshape(1), flags, self.monitor.contribute(), self.guard.contribute(step)))
        if self.ranks > 1:
            with self.recorder.span("comm", "all_reduce"):
                total = self.here.sum(total)
        self.recorder.end_step(step)
        if total[2].item():
            self._not_saved(problem)
        shared = total[4:].tolist()
        for text in self.monitor.judge(step, shared):
            self._say(f"warning: {text}")
        self.guard.judge(step, shared[self.monitor.places :])
        if total[3].item():  # the gradient of some rank is not finite, and it has made no update of it
            self.guard.confirm(step)
            self._replay.explain(self.engine, draw, tokens, number=step, paused=self.recorder.paused)
            norm = math.nan if math.isfinite(norm) else norm  # all ranks have to see it: they end together
        return total[0].item() / tokens, norm, total[1].item() > 0

    def validate(self) -> float:
        """Return the loss over the held-out sequences, in nats per token, the same on every rank."""
        total = torch.zeros(1, dtype=torch.float64)
        with self.recorder.paused():
            for batch in self.feed.held_out_batches(self.engine.data_rank, self.engine.data_ranks):
                total += self.engine.evaluate(batch)
        if self.ranks > 1:
            total = self.here.sum(total)
        return total.item() / self.feed.held_out[:, 1:].numel()

    def request_stop(self, signum: int, _: FrameType | None) -> None:
        """Stop after the step under way; a second Ctrl-C leaves at once."""
        if signum == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted |= signum == signal.SIGINT
        self._stop_requested = True

    def _set_rate(self, step: int) -> None:
        rate = learning_rate(self.config.optimizer, step, self.config.train.steps)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate

    def _speed(self, step_time_s: float) -> dict[str, float | None]:
        tokens_per_s = self.config.train.global_batch * self.config.data.seq_len / step_time_s
        memory_bytes = (
            allocated_bytes(self.device)
            if is_accelerator(self.device)
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        speed: dict[str, float | None] = {
            "step_time_s": step_time_s,
            "tokens_per_s": tokens_per_s,
            "memory_bytes": float(memory_bytes),
        }
        predicted = self.plan.predicted
        if predicted.mfu:  # peak = model rate / MFU, in the prediction and here
            rate, peak = predicted.model_tflops_per_gpu, predicted.model_tflops_per_gpu / predicted.mfu
            speed["mfu"] = share_of_peak(rate * predicted.step_time_s / step_time_s, peak)
        return speed

    @contextlib.contextmanager
    def _count_memory(self) -> Any:
        if is_accelerator(self.device):
            forget_peak(self.device)
            yield
            self.peak_memory_bytes = peak_bytes(self.device)
            return
        with PeakMemory(self.engine.tensors()) as memory:
            yield
        self.peak_memory_bytes = memory.peak_bytes

    def _resume(self) -> int:
        """Load the newest good checkpoint, or the weights to start from; return the first step to run."""
        train = self.config.train
        shards = self.engine.shards()
        resumed = ResumeCheck(self.config, self.plan, self.corpus, self.folder, precision=self._precision)
        facts = restore(
            self.folder.checkpoints, shards, self.rank, total=self._total, warn=self._warn, accept=resumed.check
        )
        if facts is None:
            resumed.from_nothing(self._warn if self.rank == 0 else lambda text: None)
            if train.start_from:
                load_weights(Path(train.start_from), shards)
            return 0
        if self.rank == 0:
            text = f"goes on from step {facts.step}, saved by {counted(facts.ranks, 'rank')} under {facts.layout}"
            text += "".join(f"; changed: {difference}" for difference in resumed.differences(facts))
            self.events.record(Event(kind="resume", message=text, step=facts.step))
        return facts.step

    def _built(self) -> Engine:
        """Return the engine with the weights that the seed gives, the same on every rank."""
        torch.manual_seed(self.config.train.seed)
        layout = self.plan.layout
        where = CPU if layout.offload == "parameters" else self.device  # which need not hold the whole model at once
        module = moved(Decoder(self.config.model, recompute=layout.recompute), where)
        settings = engine_settings(self.config, self.device, self.recorder)
        probe = self._replay if self._replay.is_needed else None
        return build_engine(module, self.plan, settings._replace(probe=probe))

    def _rerun(self, step: int) -> Sequence[Shard]:
        """Run the steps from the last good checkpoint to the end of `step` again; return what they come to."""
        self.saver.finish()
        self._flips = None
        self.engine = self._built()
        shards = self.engine.shards()
        facts = restore(self.folder.checkpoints, shards, self.rank, total=self._total, warn=self._warn)
        if facts is None and self.config.train.start_from:
            load_weights(Path(self.config.train.start_from), shards)
        tokens = self.config.train.global_batch * self.config.data.seq_len
        with self.recorder.paused():
            for number in range(facts.step if facts else 0, step + 1):
                self._set_rate(number)
                batches = self.feed.batches(number, self.engine.data_rank, self.engine.data_ranks)
                self.engine.step(batches, tokens, number=number)
        return self.engine.shards()

    def _save(self, step: int) -> None:
        self.guard.confirm(step - 1)  # copies that differ are never saved
        pieces = pieces_of(self.engine.shards())
        if self._total(not all_finite(piece.tensor for piece in pieces)):
            self._not_finite("weights or moments")
        facts = checkpoint_facts(self.config, self.plan, step, self.corpus, precision=self._precision)
        self.saver.save(facts, [*pieces, *generators(self.rank)])

    def _check_finite(self, **figures: float) -> None:
        """End the run where a figure, the same on all ranks, is NaN or infinite: nothing after it is worth saving."""
        what = not_finite(**figures)
        if what:
            self._not_finite(what)

    def _not_finite(self, what: str) -> None:
        """End with what is no number any more; the ranks are started again once from the last checkpoint, if asked."""
        self.saver.finish()
        saved = latest_checkpoint(self.folder.checkpoints)
        kept = f"the last checkpoint is {saved.name}" if saved else "nothing had been saved"
        text = f"step {self.current_step}: not finite: {what}; {kept}"
        rewinds = self.config.train.on_not_finite == "rewind" and not self._has_rewound_from(self.current_step)
        if self.rank == 0:
            self.events.record(Event(kind="not_finite", message=text, step=self.current_step))
        raise (MeshwrightError if rewinds else NotFinite)(text)

    def _has_rewound_from(self, step: int) -> bool:
        """Return whether the run has gone back from this step before: then it comes to the same again."""
        seen = self._total(self.rank == 0 and any(e.kind == "not_finite" and e.step == step for e in self._past))
        return seen > 0

    def _finish_saves(self) -> None:
        """Wait until what was saved is on disk, on all ranks."""
        self.saver.finish()
        problem = self.saver.take_problem()
        if self._total(bool(problem)):
            self._not_saved(problem)

    def _not_saved(self, problem: str) -> None:
        """End the run with what kept a checkpoint from being saved, or say it and go on, as configured."""
        self.monitor.disk_refuses()
        text = self.saver.shared_problem(problem)
        self.events.record(Event(kind="storage", message=text, step=self.current_step))
        if self.config.train.on_storage_error == "end":
            raise InputError(how_to_go_on(text, self.folder.path))
        if self.rank == 0:
            self._say(f"warning: {text}; training goes on")

    def _write_row(self, log: RunLog, row: dict[str, Any]) -> None:
        """Log a step; a disk that refuses ends the run, or is said once, as configured."""
        try:
            log.step(row)
        except OSError as error:
            if self.config.train.on_storage_error == "end":
                raise
            self.monitor.disk_refuses()
            if not self._rows_refused:
                self._warn(f"{self.folder.metrics}: {error.strerror or error}; training goes on")
            self._rows_refused = True

    def _warn(self, text: str) -> None:
        self.events.record(Event(kind="storage", message=text))
        self._say(f"warning: {text}")

    def _say(self, text: str) -> None:
        if self._log is not None:
            self._log.say(text)
        else:
            sys.stderr.write(text + "\n")

    def _total(self, value: int) -> int:
        """Return the sum of a whole number over the ranks."""
        if self.ranks == 1:
            return int(value)
        return int(self.here.sum(torch.tensor([float(value)], dtype=torch.float64)).item())
