"""Job: what an engine's own configuration says will run; readers fill it, and what is emitted reads back into it."""

import itertools
from typing import Any, Literal

import msgspec

from ..errors import InputError
from ..layout import Layout, Offload, PipelineSchedule, Recompute
from ..quantities import Count, Layers, Sequences, Share, Tokens, Width
from ..units import counted
from ..workload.architecture import Architecture

FLAGS = {
    "world": "--gpus",
    "architecture": "--model",
    "seq_len": "--seq-len",
    "global_batch": "--global-batch",
}


class JobSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The keys of a layout that a configuration decides; None where it needs the number of GPUs, or says nothing.

    `dp` counts the ranks that take different sequences, whether they shard the model or not; the other keys mean what
    they mean in a `Layout`. `etp` is the tensor parallelism inside an expert, `offload` what lives in host memory.
    """

    tp: Count | None = None
    pp: Count | None = None
    cp: Count | None = None
    dp: Count | None = None
    ep: Count | None = None
    etp: Count | None = None
    vpp: Count | None = None
    mbs: Sequences | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    sp: Literal[0, 1] | None = None
    schedule: PipelineSchedule | None = None
    recompute: Recompute | None = None
    replicas: Count | None = None
    order: str | None = None
    offload: Offload | None = None

    @classmethod
    def of(cls, layout: Layout) -> "JobSplit":
        """Return the split of a layout."""
        return cls(**{name: getattr(layout, name) for name in cls.__struct_fields__ if hasattr(layout, name)})


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One training job: model, split, batch, sequence, precision, engine.

    `assumed` lists what the files left open and was taken from the engine's defaults, `ignored` the keys that change
    time or memory and are not understood, `notes` what differs from what one would expect.
    """

    engine: str
    files: tuple[str, ...]
    engine_version: str | None = None
    world: Count | None = None  # ranks
    gpus_per_node: Count | None = None
    machines: str | None = None  # as the files name them: an instance type, or an accelerator
    part_of_gpu: str = ""  # in the files' words, where a rank has a part of a GPU and no whole one
    layout: JobSplit = JobSplit()
    architecture: Architecture | None = None
    model_name: str | None = None
    global_batch: Sequences | None = None
    seq_len: Tokens | None = None
    precision: str | None = None
    routed_once: bool | None = None  # rows go once to each node of experts (DeepEP, HybridEP); None: not said
    half_sums: bool | None = None  # gradients are summed and reduced in half precision; None: as the engine does it
    # layers of each stage where they are uneven, virtual stages in the order of the model
    stages: tuple[Layers, ...] = ()
    stack: str = ""  # whose kernels the job runs, as the planner's --stack; "": its engine's nearest
    lora_rank: Width = 0  # of adapters that alone are trained; 0: all weights are
    lora_targets: tuple[str, ...] = ()  # kinds of matrices that these are on, as of workload.adapters; (): all
    weights: str = ""  # the type that weights are held in, as the planner's --weights; "": as the engine holds them
    loss: str = ""  # the way to the loss, as --loss; "": as the engine goes
    optimizer: str = ""  # as --optimizer; "": AdamW with moments in the type that the engine gives them
    modules: tuple[str, ...] = ()  # of recomputed.MODULES, that selective recomputation repeats; (): the engine's own
    results: tuple[str, ...] | None = None  # of recomputed.RESULTS, that selective recomputation keeps alone
    away: tuple[str, ...] = ()  # of recomputed.AWAY, activations in the hosts' memory until backward
    layers_again: Layers = 0  # of each virtual stage, that full recomputation repeats; 0: all of them
    offload_share: Share = 1.0  # of the states that offload=optimizer leaves to the host; the device has the rest
    recompute_text: str = ""  # in the engine's own words
    traits: tuple[str, ...] = ()  # what it does otherwise than runs of its engine's stack: "eager", "vanilla"
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The flags that must be given before this job can be priced."""
        return tuple(flag for name, flag in FLAGS.items() if getattr(self, name) is None)

    @property
    def states_of(self) -> str:
        """The engine whose states and traffic the job has: DeepSpeed's also where Accelerate starts it."""
        return "deepspeed" if self.engine_version == DEEPSPEED_INSIDE else self.engine

    @property
    def where(self) -> str:
        """The files, for messages."""
        return " + ".join(self.files)

    def full_layout(self) -> Layout:
        """Return the layout; InputError naming the flags that are missing, or what the layout contradicts."""
        if self.asked:
            raise InputError(f"{self.where}: {missing(self)}")
        known = {name: value for name, value in msgspec.to_builtins(self.layout).items() if name in LAYOUT_KEYS}
        if (known.get("ep") or 1) == 1:
            known.pop("etp", None)
        try:
            layout = msgspec.convert(known, Layout)
            plain = msgspec.structs.replace(layout, etp=None)
            return plain if plain.expert_tp == layout.expert_tp else layout
        except (msgspec.ValidationError, ValueError) as error:
            raise InputError(f"{self.where}: {error}") from None

    def unpriced(self) -> tuple[str, ...]:
        """Return the keys of the split that a Layout cannot hold and no price knows."""
        told = msgspec.to_builtins(self.layout)
        neutral = {"etp": self.layout.tp or 1}
        return tuple(f"{k}={v}" for k, v in told.items() if k not in LAYOUT_KEYS and v != neutral.get(k))

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints under `job`; `fp8_scales` tells fp8 by row or block from fp8 by tensor.

        Weights, loss and optimiser are there where files or options say them.
        """
        built: dict[str, Any] = msgspec.to_builtins(self)
        if self.precision and self.precision.startswith("fp8-"):
            built["precision"], built["fp8_scales"] = self.precision.split("-")
        for name in (name for name in HELD if not built[name]):
            del built[name]
        built["layout"] = {name: value for name, value in built["layout"].items() if value is not None}
        built["asked"] = list(self.asked)
        return built


# of weights in host memory, before DeepSpeed had offload_param (deepspeed/runtime/zero/config.py)
OLD_OFFLOAD = ("cpu_offload_param", "cpu_offload_params")
DEEPSPEED_INSIDE = "DeepSpeed"  # the version of a job of Accelerate's that DeepSpeed shards
LAYOUT_KEYS = frozenset(Layout.__struct_fields__)
HELD = ("weights", "loss", "optimizer")  # of a Job, told where files or options say them
WHY = {
    "--gpus": "the number of ranks is in none of the files",
    "--model": "the model is in none of the files, or is not in the catalogue",
    "--seq-len": "the length of a sequence is in none of the files",
    "--global-batch": "the batch is in none of the files",
}


def understood(job: Job) -> str:
    """Return in words what the files say of a job of which something is missing: model, ranks, layout, batch."""
    default = msgspec.to_builtins(Layout())
    layout = {
        key: value
        for key, value in job.as_json()["layout"].items()
        if key in {"dp", "mbs"} or value != default.get(key, 1)
    }
    batch = None if job.global_batch is None else f"{counted(job.global_batch, 'sequence')} a step"
    tokens = None if job.seq_len is None else f"{job.seq_len:,} tokens a sequence"
    ranks = None if job.world is None else counted(job.world, "GPU")
    model = job.architecture
    name = None if model is None else job.model_name or model.name or counted(model.num_hidden_layers, "layer")
    adapters = f"adapters of rank {job.lora_rank}" if job.lora_rank else None
    keys = (f"{key}={value}" for key, value in layout.items())
    told = [name, adapters, ranks, *keys, _cut_text(job), batch, tokens, job.precision]
    return ", ".join(filter(None, told))


def _cut_text(job: Job) -> str:
    """Return the layers of each pipeline rank where a file cuts them unevenly, "" where it does not."""
    ranks = job.layout.pp or 1
    counts = [sum(job.stages[rank::ranks]) for rank in range(ranks)] if job.stages else []
    runs = [(count, len(list(same))) for count, same in itertools.groupby(counts)]
    each = ", ".join(f"{times} x {count}" if times > 1 else str(count) for count, times in runs)
    return f"layers of the pipeline ranks: {each}" if counts else ""


def on_whole_nodes(job: Job, gpus: int, name: str, whole: int | None = None) -> Job:
    """Return a job that says where it has other ranks on a node than the cluster's nodes, which are priced full.

    Its ranks may be none that `whole` nodes have, which are priced with fewer `gpus` each.
    """
    own = job.gpus_per_node
    if whole is not None and job.world is not None and own != gpus < whole < job.world:
        told = f"{counted(job.world, 'GPU')} of {name}: priced as {job.world // gpus} nodes with {gpus} of {whole} each"
        return msgspec.structs.replace(job, ignored=(*job.ignored, told))
    if own is None or own == gpus or job.world is None or job.world <= min(own, gpus):
        return job
    told = f"{counted(own, 'rank')} on each node: priced with {gpus}, on all GPUs of each {name}"
    return msgspec.structs.replace(job, ignored=(*job.ignored, told))


def missing(job: Job) -> str:
    """Return the sentence that asks for what a job leaves open."""
    named = f" ({job.model_name} is not in the catalogue)" if job.model_name and job.architecture is None else ""
    of_ranks = job.layout.mbs or job.engine == "maxtext"  # whose batch is always one of each device
    follows = {"--global-batch"} if "--gpus" in job.asked and of_ranks else set()  # from the ranks, perhaps
    return "; ".join(f"{flag}: expected, since {WHY[flag]}" for flag in job.asked if flag not in follows) + named
