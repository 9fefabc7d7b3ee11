"""Configurations of trainers on top of Hugging Face's: axolotl's YAML, and the defaults of LLaMA-Factory and of TRL.

Each is turned into the settings that `huggingface` reads: those of TrainingArguments, of Accelerate and of DeepSpeed.
Sources: axolotl-ai-cloud/axolotl:src/axolotl/utils/schemas (0.19), hiyouga/LLaMA-Factory:src/llamafactory/hparams and
model/model_utils/checkpointing.py (0.9.5), huggingface/trl:trl/trainer/base_config.py and sft_config.py (1.1).
"""

import re
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ..keys import as_whole, dotted_keys

# axolotl's key, and the setting that it is
AXOLOTL = {
    "base_model": "arguments.model_name_or_path",
    "sequence_len": "arguments.max_length",
    "micro_batch_size": "arguments.per_device_train_batch_size",
    "gradient_accumulation_steps": "arguments.gradient_accumulation_steps",
    "gradient_checkpointing": "arguments.gradient_checkpointing",
    "deepspeed": "arguments.deepspeed",
    "optimizer": "arguments.optim",
    "lora_r": "arguments.lora_r",
    "load_in_4bit": "arguments.load_in_4bit",
    "load_in_8bit": "arguments.load_in_8bit",
    "fp16": "arguments.fp16",
    "bf16": "arguments.bf16",
    "fp8": "arguments.fp8",
    "fsdp_version": "accelerate.fsdp_config.fsdp_version",
    "dp_shard_size": "accelerate.parallelism_config.dp_shard_size",
    "dp_replicate_size": "accelerate.parallelism_config.dp_replicate_size",
    "tensor_parallel_size": "accelerate.parallelism_config.tp_size",
    "context_parallel_size": "accelerate.parallelism_config.cp_size",
    "sequence_parallel_degree": "accelerate.parallelism_config.cp_size",  # its name before 0.12
}
SPLIT = ("context_parallel_size", "sequence_parallel_degree")
KINDS = ("arguments", "accelerate", "deepspeed")  # of settings
AXOLOTL_DEFAULTS = {"sequence_len": 512, "micro_batch_size": 1, "gradient_accumulation_steps": 1}
# what changes neither time nor memory of a step: data, logs, checkpoints, and attention without padding
AXOLOTL_HARMLESS = (
    r"axolotl\.(?:datasets|test_datasets|dataset_.*|val_set_size|output_dir|special_tokens|tokens|added_tokens.*|wandb.*|mlflow.*)(?:\..*)?",
    r"axolotl\.(?:num_epochs|max_steps|lr_.*|learning_rate|warmup.*|weight_decay|adam_.*|max_grad_norm|logging.*|save.*|eval.*)",
    r"axolotl\.(?:resume.*|auto_resume.*|early_stopping.*|hub_.*|push_.*|trust_remote.*|tokenizer.*|model_type|seed|debug|strict)",
    r"axolotl\.(?:sample_packing.*|eval_sample.*|pad_to_sequence_len|min_sample_len|train_on_inputs|group_by_length|chat_template.*)",
    r"axolotl\.(?:flash_attention|sdp_attention|attention|attn_implementation|xformers.*|tf32|gradient_checkpointing_kwargs.*)",
    r"axolotl\.(?:excess_length.*|shuffle.*|roles.*|fsdp|lora_(?:alpha|dropout|target.*|modules.*)|is_.*_derived_model|remove_.*)",
    r"axolotl\.(?:plugins|save_first_step|use_tensorboard|use_wandb|use_mlflow|special_tokens|loss_watchdog.*|local_rank)",
)
# lengths of a prompt and of its answer, by the names of programs that put one behind the other
# (artidoro/qlora:qlora.py, THUDM/ChatGLM-6B:ptuning/main.py)
PARTS = (("source_max_len", "target_max_len"), ("max_source_length", "max_target_length"))
# names that TrainingArguments, or a script on them, has and a program with flags of its own has not
# of a sequence, by the names that programs on Hugging Face give it
LENGTHS = ("max_seq_length", "max_seq_len", "block_size", "cutoff_len", "model_max_length", "max_length", "seq_length")
TRAINER = frozenset(
    {
        *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "output_dir"),
        *("num_train_epochs", "lr_scheduler_type", "warmup_ratio", "warmup_steps", "report_to", "optim", "do_train"),
        *("save_strategy", "eval_strategy", "evaluation_strategy", "logging_strategy", "overwrite_output_dir"),
        *("model_name_or_path", "remove_unused_columns", "gradient_checkpointing_kwargs", "push_to_hub"),
    }
)
# settings of the arguments that messages ask for by `--job NAME=VALUE`
ASKED = frozenset({"lora_r", "lora_rank", "gradient_checkpointing", "max_length", "max_seq_length", "model_max_length"})
BY_DEFAULT = "checkpointed_by_default"  # beside gradient_checkpointing, where no file says it
ADAPTERS = frozenset({"lora", "qlora", "llama-adapter"})
NESTED = "axolotl.bnb_config_kwargs.bnb_4bit_use_double_quant"


def is_axolotl(keys: frozenset[str]) -> bool:
    """Whether the first level of a YAML is axolotl's: it names the model `base_model` and says what to train on."""
    return "base_model" in keys and bool(keys & {"datasets", "sequence_len", "micro_batch_size", "pretraining_dataset"})


def refuse_axolotl(data: Mapping[str, Any], where: str) -> None:
    """Raise InputError for sequences that are split and packed, several a pass: axolotl takes one (ring-flash-attn)."""
    name = next((name for name in SPLIT if (as_whole(data.get(name)) or 1) > 1), None)
    micro = as_whole(data.get("micro_batch_size")) or 1
    if name is not None and micro > 1 and str(data.get("sample_packing", False)).lower() == "true":
        raise InputError(
            f"{where}: micro_batch_size {micro} contradicts {name} {data[name]}: "
            "axolotl splits packed sequences one at a time; expected micro_batch_size 1, or sample_packing off"
        )


def axolotl_settings(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an axolotl YAML as settings of Hugging Face, Accelerate and DeepSpeed, and what was assumed.

    Keys without such a setting stand under `axolotl.`.
    """
    found: dict[str, Any] = {}
    assumed = []
    for key, default in AXOLOTL_DEFAULTS.items():
        if data.get(key) is None and not (key == "gradient_accumulation_steps" and data.get("batch_size")):
            found[AXOLOTL[key]] = default
            assumed.append(f"{key} {default} (the default of axolotl)")
    for key, value in data.items():
        if key in AXOLOTL and value is not None:
            found[AXOLOTL[key]] = value
        elif key == "fsdp_config" and isinstance(value, Mapping):
            for name, inner in dotted_keys(value).items():
                found[f"accelerate.fsdp_config.fsdp_{name.removeprefix('fsdp_')}"] = inner
        elif value is not None:
            found |= dotted_keys({"axolotl": {key: value}})
    total, micro = as_whole(data.get("batch_size")), as_whole(data.get("micro_batch_size"))
    if total and micro and data.get("gradient_accumulation_steps") is None:
        found[AXOLOTL["gradient_accumulation_steps"]] = total // micro  # of one rank (axolotl/utils/config)
        found.pop("axolotl.batch_size", None)
    for old, name in (("float16", "fp16"), ("bfloat16", "bf16")):  # the model's own type, without autocasting
        if data.get(old) is True:
            found[f"arguments.{name}"] = True
            found.pop(f"axolotl.{old}", None)
    said = {"bf16", "fp16", "bfloat16", "float16"} & data.keys()
    bf16 = data.get("bf16") if said else "auto"  # the default of axolotl (utils/schemas/config.py)
    if str(bf16).lower() in {"auto", "full"}:
        found["arguments.bf16"] = True
        if bf16 == "auto":
            assumed.append("bf16: auto, so true where the GPU has it")
    if str(found.get("arguments.bf16")).lower() == "true":  # the type that weights are loaded in (loaders/model.py)
        found["axolotl.bf16"] = bf16 or "bfloat16"
    if str(data.get("gradient_checkpointing")) in {"offload", "offload_disk", "unsloth"}:
        found["arguments.gradient_checkpointing"] = True
        found["axolotl.gradient_checkpointing"] = data["gradient_checkpointing"]  # named: activations leave the GPU
    if data.get("fsdp") or data.get("fsdp_config"):
        found["accelerate.distributed_type"] = "FSDP"
    elif not data.get("deepspeed"):  # whole copies, of split sequences too (axolotl's docs, N-D parallelism)
        found["accelerate.distributed_type"] = "MULTI_GPU"
    adapter = str(data.get("adapter") or "").lower()
    if adapter in ADAPTERS:
        found["arguments.finetuning_type"] = "lora"
        found.pop("axolotl.adapter", None)
    if adapter == "qlora" and data.get("load_in_4bit") is True and NESTED not in found:
        found[NESTED] = True
        assumed.append("scales of the four bits in eight bits (axolotl's bnb_4bit_use_double_quant)")
    return found, assumed


def full_name(key: str, values: Mapping[str, Any]) -> str:
    """Return a setting that is given beside the files under its full name: of the kind of file that has it.

    One that none has is TrainingArguments' by its name, else DeepSpeed's.
    """
    if key.startswith(tuple(f"{kind}." for kind in KINDS)):
        return key
    own = next((kind for kind in KINDS if f"{kind}.{key}" in values), None)
    return f"{own or ('arguments' if key in TRAINER | ASKED else 'deepspeed')}.{key}"


def llama_factory_settings(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what LLaMA-Factory sets that its file leaves out, and what was assumed; nothing for other files."""
    if not ({"cutoff_len", "finetuning_type"} & arguments.keys() and {"stage", "template"} & arguments.keys()):
        return {}, []
    found: dict[str, Any] = {}
    assumed = []
    if arguments.get("cutoff_len") is None:
        found["cutoff_len"] = 2048
        assumed.append("cutoff_len 2048 (the default of LLaMA-Factory)")
    if arguments.get("finetuning_type") is None:
        found["finetuning_type"] = "lora"
        assumed.append("finetuning_type lora (the default of LLaMA-Factory)")
    if str(arguments.get("disable_gradient_checkpointing", False)).lower() != "true":
        found["gradient_checkpointing"] = True
        assumed.append("gradient checkpointing, which LLaMA-Factory switches on unless disable_gradient_checkpointing")
    if str(arguments.get("pure_bf16", False)).lower() == "true":
        found["torch_dtype"] = "bfloat16"
    if str(arguments.get("use_unsloth", False)).lower() == "true":
        adapters = str(found.get("finetuning_type") or arguments["finetuning_type"]).lower() == "lora"
        found |= _unsloths(arguments) if adapters else {}
    return found, assumed


def _unsloths(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what LLaMA-Factory's use_unsloth brings beside adapters (model/model_utils/unsloth.py).

    Inputs of layers wait on the host, logits exist in parts, and the kernels are Unsloth's where no adapter drops rows.
    """
    again = {"gradient_checkpointing": True, "use_gradient_checkpointing": "unsloth"}
    drops = str(arguments.get("lora_dropout") or 0) not in {"0", "0.0"}
    return {**again, "loss_type": "chunked_nll", **({} if drops else {"unsloth_kernels": True}), "use_unsloth": None}


def is_axolotls(program: str) -> bool:
    """Whether a program is axolotl's command, or the module that it starts."""
    return program.rpartition("/")[2] == "axolotl" or program.startswith("axolotl.")


def is_trls(program: str) -> bool:
    """Whether a program is TRL's own: its command, or a script of its package or of its repository."""
    return program == "trl" or re.search(r"(?:^|[/.])trl[/.](?:scripts|examples|trl)[/.]", program) is not None


def trls_configuration(name: str) -> dict[str, Any] | None:
    """Return a configuration of Accelerate that TRL has by name (trl/accelerate_configs); None for another name."""
    many = {"num_machines": 1, "num_processes": 8, "mixed_precision": "bf16"}
    if name in {"zero1", "zero2", "zero3"}:
        return {**many, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": int(name[-1])}}
    if name in {"fsdp1", "fsdp2"}:
        sharded = {"fsdp_version": int(name[-1]), "fsdp_reshard_after_forward": True}
        return {**many, "distributed_type": "FSDP", "fsdp_config": sharded}
    if name == "multi_gpu":
        return {**many, "distributed_type": "MULTI_GPU"}
    return {**many, "distributed_type": "NO", "num_processes": 1} if name == "single_gpu" else None


def trl_settings(arguments: Mapping[str, Any], config: str = "SFTConfig") -> tuple[dict[str, Any], list[str]]:
    """Return what a configuration of TRL's sets otherwise than TrainingArguments where nothing says it, and the words.

    All of them are _BaseConfig's but the way to the loss, which is SFTConfig's alone.
    `max_seq_length` is gone since TRL 0.20 (huggingface/trl#3912): a job that has it is of a release before 1.7, from
    which on the loss is in chunks by default (huggingface/trl#5846).
    """
    found: dict[str, Any] = {}
    if arguments.get("bf16") is None and str(arguments.get("fp16") or False).lower() == "false":
        found["bf16"] = True
    if arguments.get("gradient_checkpointing") is None:
        found["gradient_checkpointing"] = True
    if not {"max_length", "max_seq_length"} & arguments.keys():
        found["max_length"] = 1024
    liger = str(arguments.get("use_liger_kernel") or False).lower()
    if config == "SFTConfig" and arguments.get("loss_type") is None and liger == "false":
        found["loss_type"] = "nll" if "max_seq_length" in arguments else "chunked_nll"
    told = [f"{key} {value} (the default of TRL's {config})" for key, value in found.items()]
    return found | ({BY_DEFAULT: True} if "gradient_checkpointing" in found else {}), told
