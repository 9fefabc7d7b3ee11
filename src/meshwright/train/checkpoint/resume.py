"""The check of a run that goes on: against the job of its checkpoint, difference by difference."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from ...errors import InputError, nearest
from ...layout import Plan
from ...units import counted
from ..data.corpus import Corpus
from ..job.config import JobConfig
from ..run.run_folder import RunFolder
from .manifest import CheckpointFacts

CHANGED_VARIABLE = "MESHWRIGHT_CHANGED"  # keys, with commas between, in which a run may differ from its checkpoint
CORPUS = "data.paths"  # stands for the tokens of the corpus, wherever they come from


class ConfigDifference(msgspec.Struct, frozen=True):
    """One key of the configuration that is not what it was when the checkpoint was saved."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        if self.key == CORPUS:
            return f"{CORPUS}: other tokens than the run was trained on (checksum {self.before}, now {self.now})"
        return f"{self.key}: {self.before}, now {self.now}"


class ResumeCheck:
    """The check of the checkpoints of a run against its configuration."""

    def __init__(
        self, config: JobConfig, plan: Plan, corpus: Corpus, folder: RunFolder, *, precision: str = ""
    ) -> None:
        self._config, self._plan, self._corpus, self._folder = config, plan, corpus, folder
        self._precision = precision

    def differences(self, saved: CheckpointFacts) -> list[ConfigDifference]:
        """Return in what the job differs from that of a checkpoint; what an older version did not save is left out."""
        now = checkpoint_facts(self._config, self._plan, saved.step, self._corpus, precision=self._precision)
        return list(_differences(saved, now))

    def check(self, saved: CheckpointFacts) -> None:
        """Raise InputError that names each difference, unless it was said that this key has changed."""
        train = self._config.train
        where = f"{self._folder.checkpoints}: step {saved.step}"
        if (saved.seed, saved.next_sequence) != (train.seed, saved.step * train.global_batch):
            raise InputError(
                f"{where} was reached with seed {saved.seed} and "
                f"{counted(saved.next_sequence, 'sequence')}, the run has seed "
                f"{train.seed} and batches of {train.global_batch}"
            )
        self.check_end(saved.step)
        said = set(filter(None, os.environ.get(CHANGED_VARIABLE, "").split(",")))
        found = [difference for difference in self.differences(saved) if difference.key not in said]
        if found:
            raise InputError(
                f"{where} was saved by another job: {'; '.join(map(str, found))}; to go on all the same: "
                f"--resume {self._folder.path} {' '.join(f'--changed {difference.key}' for difference in found)}"
            )

    def check_end(self, step: int) -> None:
        """Raise InputError where a checkpoint is from beyond the last step: it is not what the run ends with."""
        if step > self._config.train.steps:
            raise InputError(
                f"{self._folder.checkpoints}: step {step} is saved, the run ends at train.steps = "
                f"{self._config.train.steps}; give it {step} or more, or set the newer checkpoints aside"
            )

    def from_nothing(self, warn: Callable[[str], None]) -> None:
        """Raise InputError where steps had been saved, of which no checkpoint is left; warn where rows are dropped."""
        path = self._folder.path
        if self._folder.saved.exists():
            step = self._folder.saved.read_text("utf-8", "replace").strip()
            raise InputError(
                f"{self._folder.checkpoints}: step {step} had been saved, and no checkpoint is left; put one back, or "
                f"start a new run (--run-dir); {path} is left as it is"
            )
        rows = len(self._folder.metric_rows())
        if rows:
            warn(
                f"{path}: nothing had been saved; {counted(rows, 'step')} "
                f"{'is' if rows == 1 else 'are'} trained anew from step 0"
            )


def checkpoint_facts(
    config: JobConfig, plan: Plan, step: int, corpus: Corpus, *, precision: str = ""
) -> CheckpointFacts:
    """Return what a checkpoint after `step` steps says of a job.

    `precision` is what its products are computed in on this machine ("" is not held against a checkpoint).
    """
    train, optimizer = config.train, msgspec.to_builtins(config.optimizer)
    return CheckpointFacts(
        step=step,
        seed=train.seed,
        next_sequence=step * train.global_batch,
        schedule={name: value for name, value in optimizer.items() if not isinstance(value, str)},
        steps=train.steps,
        layout=str(plan.layout),
        ranks=plan.layout.world_size,
        model=msgspec.to_builtins(config.model),
        optimizer=config.optimizer.kind,
        seq_len=config.data.seq_len,
        corpus=corpus.content,
        precision=precision,
    )


def check_keys(keys: Iterable[str]) -> None:
    """Raise InputError where a key cannot have changed: it is none, or is not held against the checkpoint."""
    data = msgspec.to_builtins(JobConfig())
    known = [f"{section}.{name}" for section in ("model", "optimizer") for name in data[section]]
    known += ["train.steps", "train.precision", "data.seq_len", CORPUS]
    for key in keys:
        if key not in known:
            raise InputError(
                f"--changed {key}: expected a key that is held against the checkpoint ({nearest(key, known)})"
            )


def _differences(saved: CheckpointFacts, now: CheckpointFacts) -> Iterator[ConfigDifference]:
    for section, before, after in (("model", saved.model, now.model), ("optimizer", saved.schedule, now.schedule)):
        for name, value in after.items():
            if name in before and before[name] != value:
                yield ConfigDifference(f"{section}.{name}", before[name], value)
    for key, old, new in (
        ("optimizer.kind", saved.optimizer, now.optimizer),
        ("train.steps", saved.steps, now.steps),
        ("train.precision", saved.precision, now.precision or saved.precision),
        ("data.seq_len", saved.seq_len, now.seq_len),
        (CORPUS, saved.corpus, now.corpus),
    ):
        if old and old != new:
            yield ConfigDifference(key, old, new)
