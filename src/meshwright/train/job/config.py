"""The configuration of a training job: one TOML file, every key with its meaning and default.

The comment beside each key is what `meshwright train --print-config` prints; this file is the only place where a key
is described.
"""

import inspect
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...errors import InputError, nearest
from ...files import convert, read_data, read_struct
from ...quantities import Count, CountOrNone, Factor, Number, Patience, Seed, Sequences, Share, Tokens
from ...workload.transformer import ModelConfig

Backend = Literal["auto", "gloo", "meshwright", "nccl"]
Precision = Literal["auto", "float32", "bf16", "fp8", "fp8-emulated"]
DataParallelMode = Literal["sync", "parameter_server", "local_sgd", "diloco"]


def _positive(struct: Any, *names: str) -> None:
    for name in names:
        if getattr(struct, name) < 1:
            raise ValueError(f"{name}: expected 1 or more, got {getattr(struct, name)}")


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The text to train on."""

    paths: tuple[str, ...] = ()  # text files or folders; none: the source of this Python's standard library
    pattern: str = "*.py"  # which files of a folder are taken
    tokenizer: str = "bytes"  # "bytes", or the path of a Hugging Face tokenizer.json
    validation_share: Share = 0.05  # share of the files that is held out, whole files at a time
    validation_sequences: Sequences = 256  # how many held-out sequences the validation loss averages
    seq_len: Tokens = 128  # tokens of a sequence

    def __post_init__(self) -> None:
        _positive(self, "seq_len", "validation_sequences")
        if not self.pattern:
            raise ValueError("pattern: expected which files of a folder are taken, such as *.py")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share: expected a share between 0 and 1, got {self.validation_share}")


class OptimizerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """AdamW with linear warm-up and cosine decay."""

    kind: Literal["adamw", "sgd"] = "adamw"  # sgd: plain steps along the gradient
    learning_rate: Factor = 3.5e-3  # at the top of the schedule
    final_share: Factor = 0.05  # the schedule ends at this share of the learning rate
    warmup_steps: Number = 40  # steps of linear warm-up
    weight_decay: Factor = 0.1  # of matrices; norms are not decayed
    beta1: Share = 0.9  # decay of the mean of gradients
    beta2: Share = 0.95  # decay of the mean of squared gradients
    eps: Factor = 1e-8  # added to the root of the second moment
    max_grad_norm: Factor = 1.0  # gradients are scaled down to this global norm; 0: never

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate: expected more than 0, got {self.learning_rate}")
        for name in ("weight_decay", "max_grad_norm", "warmup_steps", "final_share", "eps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 0 or more and less than 1, got {getattr(self, name)}")


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long, how much at a time, and what is written on the way."""

    steps: Number = 1300  # optimiser steps
    global_batch: Sequences = 8  # sequences of one optimiser step, over all ranks
    seed: Seed = 0  # of weights and data order
    validate_every: Number = 250  # steps between validation losses; always after the last step
    checkpoint_every: Number = 500  # steps between checkpoints; always after the last step; 0: only then
    keep_last: Number = 3  # how many of the newest checkpoints are kept; 0: all
    keep_every: Number = 0  # checkpoints at multiples of this number of steps are kept for good; 0: none
    on_storage_error: Literal["end", "warn"] = "end"  # a checkpoint or metrics cannot be written: end, or go on
    on_not_finite: Literal["end", "rewind"] = "end"  # a loss is NaN or infinite: end, or once from the last checkpoint
    check_replicas: Number = 10  # steps between comparisons of what several ranks hold; also before each save; 0: never
    replay: Number = 0  # computed twice and compared: a step in this many, and one before each save; 0: none
    on_corruption: Literal["end", "restart", "exclude"] = "end"  # values differ: end, restart, or without the rank
    start_from: str = ""  # a checkpoint whose weights a new run starts from
    precision: Precision = "auto"  # auto: bf16 on GPUs, float32 on CPUs; fp8: layers by torchao; -emulated: imitated
    compile: bool = False  # torch.compile each layer; CPUs need a C++ compiler, first steps take long
    async_tensor_parallel: bool = False  # GPUs, tp with sp=1: what a layer sends travels during its products
    record: bool = True  # record the timeline of every rank
    timeline_steps: Number = 20  # how many of the last steps go into timeline.json

    def __post_init__(self) -> None:
        _positive(self, "steps", "global_batch", "validate_every", "timeline_steps")
        for name in ("checkpoint_every", "keep_last", "keep_every", "check_replicas", "replay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")

    def saves_after(self, step: int) -> bool:
        """Return whether a checkpoint is planned after a step."""
        done = step + 1
        return done == self.steps or bool(self.checkpoint_every and done % self.checkpoint_every == 0)


class LaunchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where it runs and how it is split."""

    ranks: CountOrNone = 0  # processes on this machine; 0: the planner chooses
    min_ranks: CountOrNone = 2  # the fewest that the planner may choose, where there are that many cores or GPUs
    layout: str = ""  # such as "dp=2,mbs=4"; what is left out is chosen by the planner
    backend: Backend = "auto"  # auto: nccl on GPUs, meshwright on CPUs
    port: Number = 0  # of the rendezvous; 0: a free one
    timeout_s: Patience = 600.0  # how long a rank waits for another
    max_restarts: Number = 3  # how often the ranks are started again from the last good checkpoint after one has died
    nodes: Count = 1  # machines; with more than one, start the same command on each
    min_nodes: CountOrNone = 0  # the job goes on, on fewer ranks, with at least this many machines; 0: only with all
    rejoin_s: Patience = 60.0  # how long machines that are left, and too few, wait for one more; timeout_s at least
    rendezvous: str = ""  # HOST:PORT where the machines meet; HOST is one of them
    topology: str = ""  # file of `scontrol show topology`: near nodes are neighbours; "": what SLURM tells its tasks

    def __post_init__(self) -> None:
        _positive(self, "nodes")
        for name in ("ranks", "min_ranks", "port", "max_restarts", "min_nodes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if self.port > 65535:
            raise ValueError(f"port: expected 0 to 65535, got {self.port}")
        if self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes: expected at most nodes = {self.nodes}, got {self.min_nodes}")
        if self.nodes > 1 and not re.fullmatch(r"[^:]+:[0-9]{1,5}", self.rendezvous):
            raise ValueError(f"rendezvous: {self.nodes} nodes need HOST:PORT, got {self.rendezvous!r}")
        for name in ("timeout_s", "rejoin_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")


class DataParallelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The mode of data parallelism: who waits for whom, and what travels between the ranks."""

    mode: DataParallelMode = "sync"  # parameter_server, local_sgd, diloco: asynchronous, docs/asynchronous.md
    compression: Literal["none", "bf16", "int8", "powersgd"] = "none"  # sync: of gradients on their way
    powersgd_rank: Count = 4  # powersgd: columns that a matrix of gradients is squeezed into
    wire: Literal["full", "bf16", "int8"] = "full"  # asynchronous: what workers send, and get back in local SGD
    staleness: Number | Literal["unbounded"] = 1  # parameter_server: steps that a gradient may be old; 0: synchronous
    staleness_aware: bool = False  # parameter_server: divide the learning rate of a late gradient by its delay
    servers: Count = 1  # processes that the weights are spread over
    sync_every: Number = 50  # local_sgd, diloco: inner steps between two exchanges of a weight
    fragments: Number = 1  # local_sgd, diloco: parts that are exchanged one after the other
    stream: bool = True  # local_sgd, diloco: train on while an exchange is under way
    adapt: bool = True  # local_sgd, diloco: slow workers take fewer steps between exchanges
    outer_learning_rate: Factor = 0.7  # diloco: of the outer optimiser, SGD with Nesterov momentum
    outer_momentum: Share = 0.9  # diloco
    island: Count = 1  # local_sgd, diloco: neighbouring ranks that train synchronously, as one worker
    silence_s: Patience = 1.5  # a worker that is not heard for so long is out
    patience_s: Patience = 60.0  # how long the first worker waits for the others before it starts without them

    def __post_init__(self) -> None:
        _positive(self, "powersgd_rank", "servers", "sync_every", "fragments", "island")
        if self.staleness != "unbounded" and self.staleness < 0:
            raise ValueError(f'staleness: expected 0 or more, or "unbounded", got {self.staleness}')
        for name in ("outer_learning_rate", "silence_s", "patience_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
        if not 0 <= self.outer_momentum < 1:
            raise ValueError(f"outer_momentum: expected 0 or more and less than 1, got {self.outer_momentum}")
        if self.sync_every % self.fragments:
            raise ValueError(f"fragments: {self.fragments} does not divide sync_every = {self.sync_every}")
        if self.mode == "parameter_server" and (self.fragments > 1 or self.island > 1):
            raise ValueError(
                'mode: "parameter_server" has no fragments and no islands; they are of local_sgd and diloco'
            )
        if self.mode == "sync" and (self.island > 1 or self.servers > 1 or self.wire != "full"):
            raise ValueError('mode: "sync" has no islands, servers or wire; choose another mode, or compression')
        if self.mode != "sync" and self.compression != "none":
            raise ValueError(f'compression: is of mode = "sync"; with {self.mode}, set wire')

    @property
    def is_local(self) -> bool:
        """Whether workers have weights of their own."""
        return self.mode in {"local_sgd", "diloco"}


class JobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training job. `model` has the key names of a Hugging Face config.json."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    launch: LaunchConfig = LaunchConfig()
    data_parallel: DataParallelConfig = DataParallelConfig()

    def __post_init__(self) -> None:
        if self.data.seq_len > self.model.max_position_embeddings:
            raise ValueError(
                f"data.seq_len: {self.data.seq_len} is more than model.max_position_embeddings = "
                f"{self.model.max_position_embeddings}"
            )
        parallel = self.data_parallel
        if self.train.replay and (parallel.mode != "sync" or parallel.compression != "none"):
            raise ValueError(
                'train.replay: expected 0 unless data_parallel.mode is "sync" and compression is "none": what is left '
                "over of one sum goes into the next"
            )


def load_job(path: str | Path | None, overrides: dict[str, Any]) -> JobConfig:
    """Return the job of a TOML file (None: the default job) with dotted keys overridden.

    Raises InputError naming the file, the key and the nearest known key.
    """
    config = read_struct(path, JobConfig) if path is not None else JobConfig()
    return with_overrides(config, {}, overrides, where=str(path or "config"))


def with_overrides(
    config: JobConfig, sections: dict[str, dict[str, Any]], overrides: dict[str, Any], *, where: str
) -> JobConfig:
    """Return the job with the keys of these sections in place of its own, and then with dotted keys overridden."""
    data = msgspec.to_builtins(config)
    for section, keys in sections.items():
        data[section] |= keys
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        if name not in data.get(section, {}):
            known = [f"{s}.{n}" for s, keys in data.items() for n in keys]
            raise InputError(f"--set {key}: unknown key ({nearest(key, known)})")
        is_list = isinstance(data[section][name], list | tuple)
        data[section][name] = [value] if is_list and isinstance(value, str) else value  # one of them, named alone
    return convert(data, JobConfig, where=where)


def template() -> str:
    """Return a TOML file of all keys at their defaults, each with its meaning."""
    lines = ["# A Meshwright training job. Every key is optional; the values are the defaults.", ""]
    for section in msgspec.structs.fields(JobConfig):
        kind: Any = section.type
        lines += [f"[{section.name}]", f"# {inspect.getdoc(kind).splitlines()[0]}"]  # type: ignore[union-attr]
        meanings = _comments(kind)
        for field in msgspec.structs.fields(kind):
            setting = f"{field.encode_name} = {_toml(field.default)}"
            lines.append(f"{setting:<36}# {meanings[field.name]}" if field.name in meanings else setting)
        lines.append("")
    return "\n".join(lines)


def read_whole_config(path: Path) -> JobConfig:
    """Return the configuration that `to_toml` has written, in which a person may have changed values since.

    InputError where a key is missing: the file was cut off, and its default may be another job.
    """
    data, defaults = read_data(path), msgspec.to_builtins(JobConfig())
    for section, keys in defaults.items():
        found = data.get(section, {})
        missing = [name for name in keys if isinstance(found, dict) and name not in found]
        if missing:
            raise InputError(
                f"{path}: [{section}] has no {missing[0]}: the file was cut off, or is of an older version; give it "
                f"(the default is {_toml(keys[missing[0]])})"
            )
    return convert(data, JobConfig, where=str(path))


def to_toml(config: JobConfig) -> str:
    """Return the resolved configuration as TOML."""
    lines = []
    for section, keys in msgspec.to_builtins(config).items():
        lines += [f"[{section}]", *(f"{name} = {_toml(value)}" for name, value in keys.items()), ""]
    return "\n".join(lines)


def _comments(kind: type) -> dict[str, str]:
    """Return the comment behind each field of a struct, read from its source."""
    found = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), flags=re.MULTILINE)
    return dict(found)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()  # a JSON string is a TOML basic string
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
