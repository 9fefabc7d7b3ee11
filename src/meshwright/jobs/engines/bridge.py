"""Megatron-Bridge: recipes in Python (read, never imported), YAML overrides of a ConfigContainer, workload presets."""

import re
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ..draft import Draft
from ..job import Job
from ..keys import Keys, as_whole
from ..launch import assignments_of, flags_of, named_by
from ..models import architecture_named, catalogue_name
from ..options import JobOptions
from ..python.values import PythonCall
from ..ranks import world_of
from ..shell.marks import shown
from ..sources import Sources, plain_value
from .nemo import HARMLESS as NEMO_HARMLESS
from .nemo import as_megatron, fill_shared_settings

HARMLESS = (
    *NEMO_HARMLESS,
    r"(?:checkpoint|logger|scheduler|profiling|rng|tokenizer|dist|validation|rerun_state_machine|straggler|comet).*",
    r"(?:ft|inprocess_restart|nvrx_straggler|peft\..*|tensor_inspect|env|model\.(?:cuda_graph_warmup_steps|\(\)|\[\]))",
    r"train\.(?!global_batch_size|micro_batch_size|rampup).*",
    r"dataset\.(?!seq_length|sequence_length|packed).*",
    r"optimizer\.(?!optimizer_cpu_offload|optimizer_offload|use_distributed|use_precision|main_|exp_).*",
    r"(?:.*\.)?(?:\(\)|\[\]|_target_)|model\.(?:transformer_impl|pipeline_dtype|attention_backend|make_vocab.*)",
    r"comm_overlap\.tp_comm_overlap_cfg\..*",  # kernels of the overlap, which is named itself
    r"(?:account|partition|time_limit|container_.*|task|gpu|data|max_steps|hf_token|log_dir|nemo_home|dryrun|wandb.*)",
    r"ddp\.(?:check_for.*|_target_|average_in_collective)|mixed_precision\.\(\)|name|peft|(?:lr|min_lr|train_iters).*",
)
PLACES = ("model.", "train.", "dataset.", "mixed_precision.", "ddp.", "")
RECIPES = ("recipe", "model-recipe-name", "model-name", "model-size")  # flags that name one
# the same settings as the flags of the launch scripts of recipes
FLAGS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "vp": "virtual_pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "et": "expert_tensor_parallel_size",
    "mb": "micro_batch_size",
    "gb": "global_batch_size",
    "sl": "seq_length",
}
# What recipes start from (NVIDIA-NeMo/Megatron-Bridge:src/megatron/bridge/recipes/common.py, 0.3.1)
TUNED: dict[str, Any] = {
    "train.global_batch_size": 128,
    "train.micro_batch_size": 1,
    "dataset.seq_length": 2048,
    "optimizer.use_distributed_optimizer": True,
    "mixed_precision": "bf16_mixed",
}
BASES: dict[str, dict[str, Any]] = {
    "_pretrain_common": TUNED
    | {"train.global_batch_size": 32, "train.micro_batch_size": 2, "dataset.seq_length": 4096}
    | {"ddp.use_distributed_optimizer": True, "ddp.overlap_grad_reduce": True, "ddp.overlap_param_gather": True},
    "_sft_common": TUNED,
    "_peft_common": TUNED | {"peft.()": "LoRA"},
}
# What a command of its scripts must say itself where the recipe that it names is not here, and what these scripts set
# beside it (NVIDIA-NeMo/Megatron-Bridge:scripts/performance/utils/overrides.py, set_user_overrides; recipes/common.py)
DECIDED = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
BATCHED = ("micro_batch_size", "global_batch_size", "seq_length", "num_gpus", "compute_dtype")
OF_EXPERTS = ("expert_model_parallel_size", "expert_tensor_parallel_size")
TYPES = {"bf16": "bf16", "fp8_cs": "fp8", "fp8_ds": "fp8", "fp8_sc": "fp8-block", "fp8_mx": "mxfp8", "nvfp4": "nvfp4"}
PRECISIONS = (("NVFP4", "nvfp4"), ("FP8_MX", "mxfp8"), ("FP8_SC", "fp8-block"), ("FP8", "fp8"), ("BF16", "bf16"))


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a Megatron-Bridge recipe."""
    draft = Draft("bridge", sources.names, question)
    keys = _keys(sources)
    if any(key.startswith("perf_matrix.") for key in keys.values):
        raise InputError(
            f"{keys.where}: perf_matrix holds several jobs; give one of them as NAME=VALUE words or a recipe"
        )
    world_of(sources.launch, draft)
    gpus = keys.whole("num_gpus", "num-gpus", least=1)
    if gpus is not None and draft.world is None:
        draft.world = (gpus, keys.told(keys.find("num_gpus", "num-gpus") or ""))
        draft.gpus_per_node = draft.gpus_per_node or keys.whole("gpus_per_node", least=1)
    _world_of_name(draft, sources)
    _base(draft, keys)
    plain = as_megatron(keys, PLACES)
    sequence = keys.whole("dataset.sequence_length", "dataset.seq_length")
    _name(draft, keys, sources)
    fill_shared_settings(draft, keys, plain)
    draft.seq_len = draft.seq_len or sequence
    if sources.python is None and (computed := keys.word("compute_dtype")) in TYPES:
        draft.precision = TYPES[computed]
    if keys.switch("use_megatron_fsdp", default=False):
        draft.zero(3)  # what the scripts of the presets set
    _preset(draft, keys, sources)
    for key in ("model.cpu_offloading_num_layers", "cpu_offloading_num_layers"):
        layers = keys.whole(key)
        if layers:
            draft.ignore(f"{key} = {layers}: activations of these layers are kept in host memory")
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    values, origin = sources.settings(inside="ConfigContainer")
    arguments = () if sources.launch is None else sources.launch.arguments
    recipe = next(filter(None, (named_by(arguments, name) for name in RECIPES)), None)
    if sources.launch is not None:
        launched = {**assignments_of(sources.launch.arguments)}
        for key, value in flags_of(sources.launch.arguments, dashes=False).items():
            first = value[0] if isinstance(value, list) else value  # overrides without dashes follow a flag's value
            if isinstance(first, str):
                launched[FLAGS.get(key, key)] = first
        for key, value in launched.items():
            values[key], origin[key] = plain_value(value), sources.launch.where
    if recipe is not None and sources.python is None:
        values |= _beside_recipe(shown(recipe), values, sources)
    return sources.overridden(values, origin, sources.names[0])


def _beside_recipe(recipe: str, values: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """Return what scripts set beside the words of a command that says all degrees and the batch of a recipe itself.

    Raises InputError naming what it takes from the recipe, which is not here.
    """
    model = catalogue_name(recipe)
    said = {key.rpartition(".")[2]: value for key, value in values.items() if value is not None}  # model.NAME=VALUE too
    needed = [*DECIDED, *BATCHED]
    if str(said.get("pipeline_model_parallel_size", 1)) != "1":
        needed.append("virtual_pipeline_model_parallel_size")
    if model is None or architecture_named(model).experts:
        needed += OF_EXPERTS
    if (launch := sources.launch) is not None and ("world" in launch.counts or (launch.nodes and launch.per_node)):
        needed.remove("num_gpus")
    missing = [name for name in needed if said.get(name) is None]
    known = str(said.get("compute_dtype")) in TYPES
    if missing or not known or said.get("task", "pretrain") not in {"pretrain", "sft"}:
        told = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "") or "its settings"
        read = ", ".join(f"{name} {shown(str(said[name]))}" for name in needed if name in said)
        raise InputError(
            f"{sources.names[0]}: takes {told} from the recipe {recipe} (as FILE.py:FUNCTION), "
            f"which is not here: give it too{f'; the command says {read}' if read else ''}"
        )
    sources.assumed.append(
        f"the recipe {recipe} is not here: the command says its degrees and its batch; no recomputation, no graphs, "
        "sequence parallelism with tp > 1 and a distributed optimizer are what the scripts and recipes set"
    )
    sequences = (as_whole(said["tensor_model_parallel_size"]) or 1) > 1
    named = {"mixed_precision": "bf16_mixed"}  # beside it `compute_dtype` says in what products are
    return {"sequence_parallel": sequences, "ddp.use_distributed_optimizer": True, **named}


def _world_of_name(draft: Draft, sources: Sources) -> None:
    """Take the ranks that a performance recipe has in its name (llama3_70b_pretrain_64gpu_h100_bf16_config)."""
    named = re.search(r"_([1-9]\d{0,5})gpu_", sources.python[1]) if sources.python is not None else None
    if named and draft.world is None and draft.question.gpus is None:
        draft.world = (int(named.group(1)), f"the name {named.group(0).strip('_')}")
        draft.assume(f"{named.group(1)} GPUs: from the name of the recipe")


def _base(draft: Draft, keys: Keys) -> None:
    """Take what a recipe leaves to the base that it starts from; one that is not at hand may hold the degrees."""
    name = str(keys.values.get("()", ""))
    if name.endswith("_config"):
        if not any(key.endswith("_parallel_size") for key in keys.values):
            raise InputError(
                f"{keys.where}: takes its degrees from {name}, which is not here: give the file that has it"
            )
        draft.assume(f"what {name} sets beyond this file is not known: Megatron's own defaults are taken")
    taken = []
    for key, value in BASES.get(name, {}).items():
        alone = not any(other.startswith(f"{key}.") for other in keys.values)
        if keys.values.get(key) is None and alone:
            keys.values[key] = value
            taken.append(f"{key} {value}")
    if taken:
        draft.assume(f"{', '.join(taken)}: from {name}, which the recipe starts from (Megatron-Bridge 0.3.1)")
    if keys.values.get("peft.()") or isinstance(keys.values.get("peft"), str):
        draft.adapters("peft", keys.whole("peft.dim", least=1), str(keys.raw("peft.target_modules") or ""))


def _name(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Set the model: the Hugging Face name that the recipe loads, else the recipe's own name."""
    named = ("hf_path", "model.hf_path", "recipe", "model_recipe_name", "model_family_name")
    words = [keys.word(name) or "" for name in named]
    words += _texts(keys.values.get("model.[]"))
    words.append(str(keys.values.get("model.()", "")))
    words.append(str(keys.values.get("()", "")))  # the recipe that it starts from
    if sources.python is not None:
        words.append(sources.python[1])
    words += [sources.names[0].rpartition(".")[0]]
    for word in words:
        for text in (word, *re.findall(r"['\"]([^'\"]+)['\"]", word)):
            found = catalogue_name(re.sub(r"(?<=[a-z\d])Model.*?(?=\d)", "-", text)) if text else None
            if found:
                draft.model_name = found
                return
    draft.model_name = next((word for word in words if word), None)


def _texts(value: Any) -> list[str]:
    """Return the texts among arguments, those of inner calls too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, PythonCall):
        return _texts([*value.args, *value.fields.values()])
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def _preset(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Take precision and switches from a workload preset, whose name says them."""
    if sources.python is None or keys.values.get("()") != "WorkloadBaseConfig":
        return
    name = sources.python[1]
    draft.precision = next((value for part, value in PRECISIONS if part in name), draft.precision)
    draft.assume(f"precision {draft.precision}: from the name {name}")
    if draft.get("tp") > 1 and keys.raw("sequence_parallel") is None:
        draft.switches["sp"] = 1
        draft.assume("sequence parallelism with tp > 1 (what the presets' scripts set)")
    modules = keys.raw("recompute_modules")
    layers = keys.whole("recompute_num_layers")
    if layers:
        draft.recompute("full", f"recompute_num_layers {layers}, method block")
        draft.ignore(f"recompute_num_layers = {layers}: priced as if every layer were recomputed")
    elif modules:
        draft.recompute("selective", f"recompute_modules {modules}")
        draft.recompute_modules([word for text in _texts(modules) for word in text.split()])
