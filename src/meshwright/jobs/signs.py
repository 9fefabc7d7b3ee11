"""Signs in a file of the engine that it configures: what Python imports, and the keys of YAML, JSON and TOML."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .documents import Document
from .engines.llama_factory import is_second_form
from .engines.trainers import is_axolotl
from .keys import dotted_keys

# what a Python configuration says of itself: what it imports first, then classes that it calls
PYTHON_SIGNS = (
    (
        "nemo",
        (
            "nemo_run",
            "nemo.collections.llm",
            "nemo.lightning",
            "from nemo.collections import llm",
            "from nemo import lightning",
        ),
    ),
    ("bridge", ("megatron.bridge", "WorkloadBaseConfig")),
    ("torchtitan", ("torchtitan", "Trainer.Config")),
    ("bridge", ("ConfigContainer",)),
    ("huggingface", ("TrainingArguments(", "SFTConfig(", "deepspeed.initialize(")),  # with accelerate's own meshes
    ("torchtitan", ("TrainingConfig(", "ParallelismConfig(")),
)
# a program on Lightning's trainer, with a module or samples of its own; NeMo's, and those of its CLI, are others
LIGHTNING = re.compile(r"^\s*(?:import|from) (?:lightning|pytorch_lightning)\b", re.MULTILINE)
FITS = re.compile(r"\bTrainer\((?=.*\.fit\()", re.DOTALL)
OF_MODULE = re.compile(r"\bLightning(?:Data)?Module\b|\bDataLoader\(")
NOT_FITTED = re.compile(r"\bLightningCLI\(|^\s*(?:import|from) nemo\b", re.MULTILINE)
OF_TRLS = re.compile(r"\b(?:DPO|KTO|ORPO|CPO|Reward)Config\(")
NEMO_SIGNS = frozenset(
    {"tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "megatron_amp_O2", "mcore_gpt"}
)
DEEPSPEED = frozenset(
    {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"}
)
# of a DeepSpeed file that gives train_batch_size alone, which other trainers have too
SECTIONS = frozenset(
    {"fp16", "bf16", "optimizer", "scheduler", "gradient_accumulation_steps", "steps_per_print", "pipeline"}
)
# settings of a trainer of Levanter's
LEVANTER = re.compile(
    r"trainer\.(?:mp$|mesh\.|per_device_parallelism$|model_axis_size$|tensor_parallel_axes$|fsdp_axis$)"
)
# torchtitan's own settings, some in a `training` that other trainers have too
TITAN = re.compile(r"training\.(?:seq_len|local_batch_size|global_batch_size|\w+_parallel_\w*degree)$|model\.flavor$")
# settings of Megatron's beside its micro-batch in a section, whose name others have too
MEGATRON = frozenset(
    {"pipeline_model_parallel_size", "train_iters", "train_samples", "num_attention_heads", "ffn_hidden_size"}
    | {"num_query_groups", "use_distributed_optimizer", "lr_decay_style", "max_position_embeddings", "use_mcore_models"}
)
LINGUA = re.compile(r"distributed\.(?:fsdp_type|dp_shard|dp_replicate|model_dtype)$")
ACCELERATE = frozenset({"distributed_type", "compute_environment", "fsdp_config", "parallelism_config", "num_machines"})
ARGUMENTS = frozenset({"per_device_train_batch_size", "gradient_checkpointing", "model_name_or_path"})


def of_python(text: str) -> str | None:
    """Return the engine of a Python file by what it imports and calls."""
    for engine, signs in PYTHON_SIGNS:
        if any(sign in text for sign in signs) or (engine == "huggingface" and OF_TRLS.search(text)):
            return engine
    if LIGHTNING.search(text) and FITS.search(text) and OF_MODULE.search(text) and not NOT_FITTED.search(text):
        return "lightning"
    if "hydra.main(" in text and "transformers" in text and "Trainer(" in text:  # its arguments stand in Hydra's tree
        return "huggingface"
    return None


def is_neox(keys: frozenset[str]) -> bool:
    """Whether the first level of a file is GPT-NeoX's, and has the sizes of its model."""
    plain = {str(key).replace("-", "_") for key in keys}
    degrees = plain & {"pipe_parallel_size", "model_parallel_size"}
    return bool(degrees) and {"train_micro_batch_size_per_gpu", "num_layers", "hidden_size"} <= plain


def is_neox_together(documents: Sequence[Document]) -> bool:
    """Whether several files have together what GPT-NeoX takes from one, each a part of it."""
    together = frozenset().union(*(one.keys for one in documents))
    return len(documents) > 1 and is_neox(together) and not any(one.keys & ACCELERATE for one in documents)


def is_foundry(keys: frozenset[str]) -> bool:
    """Whether the first level of a file is LLM Foundry's, and has its model; OLMo's has `data`, no `train_loader`."""
    if "data" in keys and not keys & {"train_loader", "max_seq_len"}:
        return False
    own = keys & {"max_seq_len", "variables", "fsdp_config"}
    return "model" in keys and bool(own and keys & {"device_train_microbatch_size", "global_train_batch_size"})


def is_olmo(flat_keys: Collection[str]) -> bool:
    """Whether a file, by its settings under dotted names, is of allenai/OLMo: its model, and batches of its names."""
    batches = {"global_train_batch_size", "device_train_microbatch_size"} & set(flat_keys)
    loaded = any(key.startswith("train_loader.") for key in flat_keys)  # LLM Foundry's data
    own = "model.max_sequence_length" in flat_keys or any(key.startswith("data.") for key in flat_keys)
    return bool(batches) and "model.d_model" in flat_keys and own and not loaded


def is_lingua(flat_keys: Collection[str]) -> bool:
    """Whether a file, by its settings under dotted names, is lingua's: a model by its width beside data and ranks."""
    own = any(key.startswith("data.sources.") or LINGUA.match(key) for key in flat_keys)
    return own and "model.dim" in flat_keys and any(key.startswith("data.") for key in flat_keys)


def is_nanotron(keys: frozenset[str]) -> bool:
    """Whether the first level of a file is nanotron's."""
    return {"tokens", "parallelism", "model"} <= keys


def is_nemo_rl(keys: frozenset[str], flat_keys: Collection[str]) -> bool:
    """Whether a file is NeMo RL's, of training on texts or on answers that are compared, or lies over another file."""
    started = "policy" in keys and bool({"sft", "dpo", "rm", "defaults"} & keys)
    own = re.compile(r"policy\.(?:train_global_batch_size$|max_total_sequence_length$|(?:dtensor|megatron)_cfg\.)")
    return started and not {"grpo", "distillation", "ppo"} & keys and any(map(own.match, flat_keys))


def is_levanter(flat_keys: Collection[str]) -> bool:
    """Whether a file, by its settings under dotted names, is Levanter's, and says what model it trains."""
    batch = {"trainer.train_batch_size", "trainer.per_device_parallelism"} & set(flat_keys)
    own = any(LEVANTER.match(key) for key in flat_keys)
    return bool(batch and own and {"model.type", "initialize_from_hf"} & set(flat_keys))


def is_torchtune(flat_keys: Mapping[str, Any]) -> bool:
    """Whether a file, by its settings under dotted names, is torchtune's, and has its model and its batch."""
    return {"model._component_", "batch_size"} <= flat_keys.keys()


def is_litgpt(keys: frozenset[str], flat_keys: Mapping[str, Any]) -> bool:
    """Whether a file is LitGPT's: batches of its own names beside its model, or its adapters beside a checkpoint."""
    batches = {"train.micro_batch_size", "train.global_batch_size"} & flat_keys.keys()
    own = {"model_name", "model_config", "checkpoint_dir", "tokenizer_dir", "lora_r"} & keys
    return bool(batches and (own or "model.n_layer" in flat_keys)) or {"lora_r", "checkpoint_dir"} <= keys


def is_lightning(keys: frozenset[str], flat_keys: Collection[str]) -> bool:
    """Whether a file is of Lightning's CLI: a trainer beside classes by their paths."""
    return "trainer" in keys and any(key.rpartition(".")[2] == "class_path" for key in flat_keys)


def is_fit(arguments: Sequence[str]) -> bool:
    """Whether the words of a program are those of Lightning's CLI: `fit` with a file or with settings."""
    own = [word for word in arguments if re.match(r"(?:--config|-c|--trainer(?:\.\w+)*)(?:=|$)", word)]
    return list(arguments[:1]) == ["fit"] and bool(own)


def is_torchtitan(keys: frozenset[str], flat_keys: Collection[str]) -> bool:
    """Whether a TOML is torchtitan's: by a section of its own, or by `training` with settings that are its own."""
    own = keys & {"parallelism", "job", "experimental", "activation_checkpoint"}
    return bool(own) or any(TITAN.match(key) for key in flat_keys)


def is_picotron(flat_keys: Collection[str]) -> bool:
    """Whether a file, by its settings under dotted names, is picotron's."""
    return "distributed.tp_size" in flat_keys and "training.micro_batch_size" in flat_keys


def of_document(document: Document) -> str | None:
    """Return the engine of a YAML, JSON or TOML file by the settings in it."""
    for engine, known in (("neox", is_neox), ("foundry", is_foundry), ("nanotron", is_nanotron)):
        if known(document.keys):
            return engine
    keys = set(flat := dotted_keys(document.data))
    if is_nemo_rl(document.keys, keys):
        return "nemo_rl"
    if is_levanter(keys):
        return "levanter"
    if is_torchtune(flat):
        return "torchtune"
    if is_picotron(keys):
        return "picotron"
    if is_olmo(keys):
        return "olmo"
    if is_lingua(keys):
        return "lingua"
    if is_lightning(document.keys, keys):
        return "lightning"
    if is_litgpt(document.keys, flat):
        return "litgpt"
    if kind_of_document(document):
        return "huggingface"
    heads = document.keys
    if document.kind == "toml":
        return "torchtitan" if is_torchtitan(heads, keys) else None
    meshes = keys & {"distributed.tp_size", "distributed.dp_size"}
    model = any(key.rpartition(".")[2] in {"_target_", "pretrained_model_name_or_path"} for key in keys)
    if (meshes and (model or "model" not in heads)) or heads & {"step_scheduler", "parallelizer", "autopipeline"}:
        return "automodel"
    if heads & {"ConfigContainer", "perf_matrix"} or _is_bridge(heads, keys):
        return "bridge"
    if any(key.startswith(("ici_", "dcn_")) for key in keys) or heads & {
        "per_device_batch_size",
        "base_config",
        "remat_policy",
    }:
        return "maxtext"
    if "system.tensor_model_parallel_size" in keys:  # FlagScale's, around Megatron
        return "megatron"
    if "model.micro_batch_size" in keys or ("trainer" in heads and _is_nemo(document.data, keys)):
        return "nemo"
    last = {key.rpartition(".")[2] for key in keys}
    own = "micro_batch_size" in heads or ("micro_batch_size" in last and bool(last & MEGATRON))
    if "tensor_model_parallel_size" in last or own:
        return "megatron"
    return None


def _is_bridge(heads: frozenset[str], keys: set[str]) -> bool:
    """Whether a file with a `model` and a `train` is Megatron-Bridge's: many programs have such files."""
    last = {key.rpartition(".")[2] for key in keys}
    own = NEMO_SIGNS | {"global_batch_size", "train_iters", "context_parallel_size", "seq_length"}
    return {"train", "model"} <= heads and "trainer" not in heads and bool(last & own)


def _is_nemo(data: Mapping[str, Any], keys: set[str]) -> bool:
    """Whether a file with a `trainer` is NeMo's: any program on Lightning has one."""
    last = {key.rpartition(".")[2] for key in keys}
    named = any("nemo" in str(value).lower() for key, value in dotted_keys(data).items() if key.endswith("_target_"))
    alone = "model" not in data and {"trainer.num_nodes", "trainer.devices"} <= keys  # one file of several
    return named or alone or bool(last & NEMO_SIGNS) or bool(data.keys() & {"exp_manager", "run"})


def kind_of_document(document: Document) -> str | None:
    """Return which of the five kinds a document is, None for another."""
    if is_axolotl(document.keys):
        return "axolotl"
    if is_second_form(document.data):
        return "factory"
    alone = document.keys & DEEPSPEED == {"train_batch_size"} and len(document.keys) > 1
    if document.keys & DEEPSPEED and (not alone or document.keys & SECTIONS):
        return "deepspeed"
    if document.keys & ACCELERATE - {"fsdp_config"}:
        return "accelerate"
    of_program = document.kind == "python"  # its TrainingArguments, or defaults of its flags
    return "arguments" if of_program or document.keys & (ARGUMENTS | {"fsdp_config"}) else None
