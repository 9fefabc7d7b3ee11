"""ms-swift's `swift sft` and `swift pt`: arguments of Hugging Face's trainer with names and defaults of its own.

Sources: modelscope/ms-swift:swift/llm/argument/train_args.py, swift/trainers/arguments.py, swift/cli/main.py
(torchrun where NPROC_PER_NODE or NNODES is set), swift/llm/ds_config (DeepSpeed's configurations by name).
"""

import math
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ..keys import as_whole
from ..launch import SFT_OF_SWIFT, Launch

# a name of ms-swift's, and that of the argument that it is
NAMES = {
    "tuner_type": "finetuning_type",
    "train_type": "finetuning_type",
    "sft_type": "finetuning_type",
    "use_liger": "use_liger_kernel",
    "attn_impl": "attn_implementation",
    "model_id_or_path": "model",
    "quant_bits": "quantization_bit",
    "quant_method": "quantization_method",
    "bnb_4bit_quant_type": "quantization_type",
    "bnb_4bit_use_double_quant": "double_quantization",
    "batch_size": "per_device_train_batch_size",
}
DEFAULTS: Mapping[str, Any] = {
    "finetuning_type": "lora",
    "per_device_train_batch_size": 1,
    "gradient_checkpointing": True,
}
LEAST_BATCH = 16  # sequences of a step, where its passes are not said
SWIFT_HARMLESS = (
    r"arguments\.(?:dataset.*|split_dataset.*|streaming|add_version|model_(?:author|name|type)|use_hf|system|lazy_tokenize)",
    r"arguments\.(?:padding_free|attn_impl|truncation.*|loss_scale|target_modules|freeze_(?:vit|aligner)|load_from_cache.*)",
    r"arguments\.(?:packing.*|strict|agent_template|enable_thinking|load_args|check_model|swanlab.*|columns)",
)


def is_swifts(launch: Launch | None) -> bool:
    """Whether a command is `swift sft`, `swift pt`, or the program that these start."""
    return launch is not None and SFT_OF_SWIFT.search(launch.program) is not None


def swift_settings(arguments: Mapping[str, Any], launch: Launch) -> tuple[dict[str, Any], list[str]]:
    """Return ms-swift's arguments under Hugging Face's names with its defaults, and what was assumed.

    Raises InputError where the passes of a step are not said and depend on ranks that are not known.
    """
    found = {NAMES.get(key, key): value for key, value in arguments.items()}
    assumed = []
    if found.get("finetuning_type") is None and as_whole(found.get("lora_rank")) is None and found.get("adapters"):
        raise InputError(f"{launch.where}: adapters {found['adapters']}: of no rank that is said; say lora_rank=N")
    for key, value in DEFAULTS.items():
        if found.get(key) is None:
            found[key] = value
            assumed.append(f"{key} {str(value).lower()} (the default of ms-swift)")
    if str(found["finetuning_type"]).lower() == "lora" and found.get("lora_rank") is None:
        found["lora_rank"] = 8
        assumed.append("lora_rank 8 (the default of ms-swift)")
    dtype = str(found.get("torch_dtype") or "bfloat16").lower()
    if not found.keys() & {"bf16", "fp16"}:
        found |= {"bf16": True} if dtype in {"bfloat16", "bf16"} else {"fp16": True} if "16" in dtype else {}
        if found.get("torch_dtype") is None:
            assumed.append("precision bf16: torch_dtype is not said, so that of the checkpoint")
    found.setdefault("torch_dtype", "bfloat16")
    if found.get("gradient_accumulation_steps") is None:
        found["gradient_accumulation_steps"] = _passes(found, launch)
        told = f"gradient_accumulation_steps {found['gradient_accumulation_steps']}"
        assumed.append(f"{told} (ms-swift's own: {LEAST_BATCH} sequences over micro-batch and ranks)")
    return found, assumed


def _passes(found: Mapping[str, Any], launch: Launch) -> int:
    """Return the passes that a step has where they are not said: as many as make LEAST_BATCH sequences."""
    world, nodes, per_node = launch.counts.get("world"), launch.nodes, launch.per_node
    ranks = world[0] if world else nodes[0] * per_node[0] if nodes and per_node else None
    local = as_whole(found["per_device_train_batch_size"])
    if not local or not ranks:
        told = f"gradient_accumulation_steps: ms-swift takes as many as make {LEAST_BATCH} sequences"
        raise InputError(f"{launch.where}: {told}: say gradient_accumulation_steps=N")
    return max(1, math.ceil(LEAST_BATCH / (local * ranks)))
