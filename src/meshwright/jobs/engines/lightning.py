"""PyTorch Lightning: a trainer with its strategy, beside classes of one's own for model and data.

They stand in a YAML of its CLI, or in a program that calls `trainer.fit` (`python.lightning_fit`).

What the trainer says is Lightning's; batch, length and model are read from arguments of the classes where their names
leave no doubt, and listed. Sources: Lightning-AI/pytorch-lightning:src/lightning/pytorch (trainer/trainer.py,
strategies/fsdp.py, strategies/deepspeed.py, cli.py) and src/lightning/fabric/plugins/environments/slurm.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import flags_of
from ..optimizers import read_optimizer
from ..options import BY_LAYOUT, JobOptions
from ..ranks import ranks_of_node, world_of
from ..savings import HALF
from ..sources import Sources, plain_value

HARMLESS = (
    r"trainer\.(?:accelerator|logger.*|callbacks.*|max_.*|min_.*|limit_.*|val_.*|check_val.*|log_.*|enable_.*|num_sanity.*)",
    r"trainer\.(?:gradient_clip.*|deterministic|benchmark|inference_mode|use_distributed_sampler|profiler.*|detect_anomaly)",
    r"trainer\.(?:barebones|reload_.*|default_root_dir|overfit.*|fast_dev_run|sync_batchnorm|plugins)",
    r"trainer\.strategy\.(?:auto_wrap_policy|state_dict_type|limit_all_gathers|process_group.*|timeout|use_orig_params)",
    r"(?:model|data|optimizer|lr_scheduler)\.(?:class_path|lr|learning_rate|.*warmup.*|weight_decay|num_workers|betas|eps)",
    r"(?:model|data)\.(?:.*path|.*dir|.*file|seed|pin_memory|tokenizer.*|shuffle|dataset.*|persistent.*|prefetch.*)",
    r"(?:trainer|trainer\.strategy)\.class_path|(?:model|data|trainer\.strategy)\.\[\]|trainer\.strategy\.save_.*",
    r"(?:seed_everything|ckpt_path|config|c)|code\..*|(?:optimizer|lr_scheduler)\..*",
)
PRECISIONS = {
    **dict.fromkeys(("bf16-mixed", "bf16-true", "bf16"), "bf16"),
    **dict.fromkeys(("16-mixed", "16-true", "16"), "fp16"),
    **dict.fromkeys(("32-true", "32"), "fp32"),
    "transformer-engine": "fp8",
}
SHARDING = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2}
# names of a class's arguments that mean nothing else
BATCHES = ("batch_size", "train_batch_size", "micro_batch_size", "per_device_train_batch_size", "per_device_batch_size")
LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_length", "block_size")
MODELS = ("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id", "base_model", "model_path")
AGAIN = ("gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing")
RANKS = ("lora_r", "lora_rank")
STRATEGY = "trainer.strategy"
# plugins that may set the precision in place of the trainer's own word
OF_PRECISION = ("trainer.plugins", f"{STRATEGY}.mixed_precision", f"{STRATEGY}.precision_plugin")
MESH = "ModelParallelStrategy"
# what a price hangs on, and a program may leave to where it runs
ASKED = ("trainer.precision", f"{STRATEGY}.sharding_strategy", f"{STRATEGY}.cpu_offload")


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a YAML of Lightning's CLI, with the words of its `fit` on top."""
    keys = _keys(sources)
    nodes = ("trainer.num_nodes",) if question.gpus is None else ()
    if doubt := keys.doubtful("trainer.**", STRATEGY, f"{STRATEGY}.**", *ASKED, *nodes):
        raise InputError(f"{keys.where}: {doubt}: is not set in the files; say --job NAME=VALUE")
    named = (keys.word(f"{STRATEGY}.class_path", STRATEGY) or "auto").rpartition(".")[2]
    of_deepspeed = named.lower().startswith("deepspeed")
    draft = Draft("deepspeed" if of_deepspeed else "accelerate", sources.names, question)
    _ranks(draft, keys, sources)
    for name in ("tp", "pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    if of_deepspeed:
        _deepspeed(draft, keys, named)
    elif named == MESH and keys.raw(f"{STRATEGY}.class_path"):  # its bare name is none of Lightning's registry
        _mesh(draft, keys)
    else:
        _sharded(draft, keys, named)
    _recompute(draft, keys)
    _classes(draft, keys)
    draft.take_batch("steps", keys, "trainer.accumulate_grad_batches")
    _precision(draft, keys)
    read_optimizer(draft, keys, "optimizer.class_path", "code.optimizer")
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings, `init_args` left out of their names; InputError where a YAML of the command is not here."""
    words = {} if sources.launch is None else flags_of(sources.launch.arguments, dashes=False)
    for flag in ("config", "c"):
        named = words.pop(flag, None)
        for path in named if isinstance(named, list) else [named] if isinstance(named, str) else []:
            if sources.document(path) is None:
                raise sources.absent(path)
    values, origin = (_short(found) for found in sources.settings())
    if isinstance(words.get(STRATEGY), str):  # in the place of the file's
        values = {key: value for key, value in values.items() if not key.startswith(f"{STRATEGY}.")}
    own = {key: plain_value(value) if isinstance(value, str) else value for key, value in _short(words).items()}
    where = "" if sources.launch is None else sources.launch.where
    rest = {key: value for key, value in values.items() if key not in own}
    keys = sources.overridden(rest | own, origin | dict.fromkeys(own, where), sources.names[0])
    keys.aliases |= {key: key.removeprefix("code.") for key in keys.values if key.startswith("code.")}
    return keys


def _short(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their names without `init_args`; of a program's calls the class is its `class_path`."""
    named = {re.sub(r"\.\(\)$", ".class_path", key): value for key, value in found.items() if key != "()"}
    return {key.replace(".init_args", ""): value for key, value in named.items()}


def _ranks(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Set the ranks: the trainer's devices on its nodes, which must be the tasks that SLURM starts."""
    world_of(sources.launch, draft)
    started = draft.world
    nodes = keys.whole("trainer.num_nodes", least=1) or 1
    said = keys.raw("trainer.devices")
    devices = len(said) if isinstance(said, list) else None
    if devices is None and str(said) not in {"auto", "-1", "None"}:
        devices = keys.whole("trainer.devices", least=1)
    if devices is None and started is None and (all_of := ranks_of_node(draft, "Lightning takes all GPUs of a node")):
        devices = all_of[0]
    if devices is None:
        return
    told = f"trainer.devices {devices} x trainer.num_nodes {nodes} = {devices * nodes}"
    if started is not None and started[0] != devices * nodes and draft.question.gpus is None:
        raise draft.refused(f"{told} contradicts {started[1]}")
    draft.gpus_per_node = devices
    draft.world = (devices * nodes, f"{told} ({draft.files[0]})")


def _sharded(draft: Draft, keys: Keys, named: str) -> None:
    """Set what FSDP shards, or whole copies; InputError for strategies whose split stands in the model's code."""
    plain = named.removesuffix("Strategy").lower()
    if plain in {"auto", "ddp"} or plain.startswith("ddp_"):
        draft.zero(0)
        return
    if plain not in {"fsdp", "fsdp_cpu_offload"}:
        raise draft.refused(f"strategy {named}: expected FSDP, DDP or DeepSpeed: {BY_LAYOUT}")
    draft.note("Lightning runs PyTorch's FSDP: read as FSDP")
    draft.version = "FSDP 1"
    kind = (keys.word(f"{STRATEGY}.sharding_strategy") or "FULL_SHARD").upper()
    if kind not in SHARDING:
        raise draft.refused(f"sharding_strategy {kind}: expected one of {', '.join(SHARDING)}")
    draft.switches["zero"] = SHARDING[kind]
    if "HYBRID" in kind and keys.raw(f"{STRATEGY}.device_mesh") is not None:
        raise draft.refused(f"{keys.told(f'{STRATEGY}.device_mesh')}: is not read: {BY_LAYOUT}")
    if "HYBRID" in kind:
        draft.copies_by_node(kind)
    if plain == "fsdp_cpu_offload" or keys.switch(f"{STRATEGY}.cpu_offload", default=False):
        draft.offload("parameters")


def _mesh(draft: Draft, keys: Keys) -> None:
    """Set the degrees of ModelParallelStrategy; what a model's code shards on them is said as it is taken.

    Source: lightning/pytorch/strategies/model_parallel.py ("auto": data over the nodes, tensors inside each).
    """
    nodes = keys.whole("trainer.num_nodes", least=1) or 1
    for name, axis, of_itself in (("tensor", "tp", draft.gpus_per_node), ("data", "dp", nodes)):
        key = f"{STRATEGY}.{name}_parallel_size"
        if doubt := keys.doubtful(key):
            raise InputError(f"{keys.where}: {doubt}: is not set in the files; say --job NAME=VALUE")
        size = keys.whole(key, least=1)
        if not size and of_itself is None:
            raise draft.refused(
                f"{name}_parallel_size auto is all of a node: say --job trainer.devices=8, or their number"
            )
        draft.put(axis, size or of_itself or 1, keys.told(key) if size else f"{name}_parallel_size auto")
    shards = keys.switch("code.shards", default=False)
    draft.zero(3 if shards else 0)
    how = "sharded over the data-parallel ranks (fully_shard)" if shards else "whole on each data-parallel rank"
    taken = f"layers cut over tp, without sequence parallelism, weights {how}"
    draft.assume(f"{MESH}: the split that configure_model makes is not read, taken as {taken}")


def _deepspeed(draft: Draft, keys: Keys, named: str) -> None:
    """Set the stage and the offload by the strategy's name (`deepspeed_stage_3_offload`) or its arguments."""
    if keys.raw(f"{STRATEGY}.config") is not None:
        raise draft.refused(f"{keys.told(f'{STRATEGY}.config')}: give its stage as strategy deepspeed_stage_N")
    words = named.lower().split("_")
    stage = int(words[2]) if words[1:2] == ["stage"] and words[2:3] and words[2].isdecimal() else None
    if stage is None:
        stage = keys.whole(f"{STRATEGY}.stage")
    if stage is None:
        stage = 2
        draft.assume("ZeRO 2 (the default of Lightning's DeepSpeedStrategy)")
    if stage > 3:
        raise draft.refused(f"{STRATEGY} {named}: expected stage 0 to 3")
    draft.switches["zero"] = stage
    states = keys.switch(f"{STRATEGY}.offload_optimizer", default="offload" in words)
    weights = keys.switch(f"{STRATEGY}.offload_parameters", default="offload" in words and stage == 3)
    if weights and not states:
        draft.ignore("offload_parameters without offload_optimizer: priced with the weights on the GPU")
    draft.offload("none" if not states else "parameters" if weights and stage == 3 else "optimizer")


def _recompute(draft: Draft, keys: Keys) -> None:
    """Set recomputation: the strategy's policy of layers, or a switch of the model's class."""
    for name in ("activation_checkpointing_policy", "activation_checkpointing"):
        if keys.raw(f"{STRATEGY}.{name}"):
            draft.recompute("full", f"{name} of the strategy")
            return
    own = _own(keys, AGAIN)
    if own and keys.switch(*own):
        draft.recompute("full", keys.told(own[0]))
        return
    draft.recompute("none")
    if not own:
        draft.assume("no recomputation: no file switches it on")


def _own(keys: Keys, names: Sequence[str]) -> list[str]:
    """Return the arguments of the classes of model and data that have one of some names."""
    own = [key for key in keys.values if key.rpartition(".")[2] in names]
    said = [key for key in own if key.startswith(("model.", "data."))]
    return said or [key for key in own if key.startswith("code.")]


def _size(draft: Draft, keys: Keys, names: Sequence[str], what: str) -> tuple[int, str] | None:
    """Return the number under an argument of one of some names with the argument, None where there is none.

    Raises InputError where two arguments of such names differ.
    """
    sizes = {key: number for key in _own(keys, names) if (number := keys.whole(key, least=1)) is not None}
    if len(set(sizes.values())) > 1:
        raise draft.refused(f"{' and '.join(map(keys.told, sizes))}: which of them counts the {what} is not known")
    return next(((number, keys.told(key)) for key, number in sizes.items()), None)


def _classes(draft: Draft, keys: Keys) -> None:
    """Set batch, length, model and adapters from the arguments of one's own classes; sizes are said."""
    for names, what in ((BATCHES, "sequences of a rank in a pass"), (LENGTHS, "tokens of a sequence")):
        found = _size(draft, keys, names, what)
        if found is not None:
            draft.assume(f"{found[1]}: taken for the {what}")
        if found is not None and names is BATCHES:
            draft.batch["mbs"] = found
        elif found is not None:
            draft.seq_len = found[0]
    if (rank := _size(draft, keys, RANKS, "rank of adapters")) is not None:
        draft.adapters(rank[1], rank[0])
    if named := _own(keys, MODELS):
        draft.model_name = keys.word(*named)


def _precision(draft: Draft, keys: Keys) -> None:
    """Set the types of what is computed, and of the weights where they are in half precision too."""
    other = [key for key in OF_PRECISION if re.search(r"precision", str(keys.values.get(key, "")), re.IGNORECASE)]
    if other and keys.word("trainer.precision") is None and draft.question.precision is None:
        raise draft.refused(f"{other[0]} sets the precision, which is not read: say it with --precision")
    named = (keys.word("trainer.precision") or "32-true").lower()
    if named not in PRECISIONS:
        raise draft.refused(f"{keys.told('trainer.precision')}: expected one of {', '.join(PRECISIONS)}")
    draft.precision = PRECISIONS[named]
    if named == "bf16-true" and draft.engine != "deepspeed":
        draft.savings.weights = (HALF, keys.told("trainer.precision"))
