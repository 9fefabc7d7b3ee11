"""verl's supervised fine-tuning under FSDP, whose `key=value` words are settings of Hugging Face by names of its own.

Its programs of reinforcement learning train beside other models and are not read, nor its other engines.
Sources: volcengine/verl:verl/trainer/config (sft_trainer.yaml of fsdp_sft_trainer, sft_trainer_engine.yaml of
sft_trainer with engine/fsdp.yaml and model/hf_model.yaml), verl/trainer/fsdp_sft_trainer.py (products in bf16, sums in
fp32; train_batch_size is of all ranks, those of Ulysses share a sequence) and verl/workers/engine/utils.py (under
use_dynamic_bsz a pass has max_token_len_per_gpu tokens on each rank).
"""

import re
from typing import Any

from ...units import counted
from ..keys import as_whole
from ..launch import Launch, assignments_of, flags_of
from ..sources import plain_value

PROGRAM = re.compile(r"(?:^|[./])verl[./]trainer[./](?:fsdp_)?sft_trainer(?:\.py)?$")
# its setting, and the one that it is
SETTINGS = {
    "model.partial_pretrain": "arguments.model_name_or_path",
    "model.path": "arguments.model_name_or_path",
    "model.enable_gradient_checkpointing": "arguments.gradient_checkpointing",
    "model.use_liger": "arguments.use_liger_kernel",
    "model.lora_rank": "arguments.lora_rank",
    "model.target_modules": "arguments.lora_target_modules",
    "model.enable_activation_offload": "arguments.enable_activation_offload",
    "data.max_length": "arguments.max_length",
    "data.micro_batch_size_per_gpu": "arguments.per_device_train_batch_size",
    "data.train_batch_size": "factory.global_batch_size",
    "ulysses_sequence_parallel_size": "accelerate.parallelism_config.sp_size",
    "engine.ulysses_sequence_parallel_size": "accelerate.parallelism_config.sp_size",
    "engine.offload_policy": "accelerate.fsdp_config.fsdp_offload_params",
    "engine.reshard_after_forward": "accelerate.fsdp_config.fsdp_reshard_after_forward",
}
DEFAULTS = {
    "data.train_batch_size": 256,
    "data.micro_batch_size_per_gpu": 4,
    "data.max_length": 1024,
    "model.enable_gradient_checkpointing": True,  # off in the first releases
}
HALF = frozenset({"bf16", "bfloat16"})
TYPES = ("model.fsdp_config.model_dtype", "engine.model_dtype")  # of the weights, fp32 by default
BUDGET = 8192  # tokens of a pass on each rank, the default of sft_trainer
HARMLESS = (
    r"verl\.(?:(?:trainer|checkpoint|optim|hydra)\..*|data\.(?!micro_batch_size$).*)|verl\.(?:engine|optim|model|use_rem.*)",
    r"verl\.model\.(?:lora_alpha|trust_remote_code|external_lib|use_shm|use_remove_padding|tokenizer_path|attn_.*)",
    r"verl\.(?:engine|model\.fsdp_config)\.(?:wrap_policy.*|strategy|forward_prefetch|use_orig_params)",
)


def is_verls(launch: Launch) -> bool:
    """Whether a command starts verl's supervised fine-tuning under FSDP, on no file of settings but verl's own."""
    words = assignments_of(launch.arguments)
    own = flags_of(launch.arguments).get("config-name")
    whole = not isinstance(own, str) or own.removesuffix(".yaml") in {"sft_trainer", "sft_trainer_engine"}
    return PROGRAM.search(launch.program) is not None and words.get("engine", "fsdp") == "fsdp" and whole


def verl_settings(launch: Launch) -> tuple[dict[str, Any], list[str]]:
    """Return the words as settings of Hugging Face and Accelerate, and what was assumed.

    Those without such a setting stand under `verl.`.
    """
    words = {key: plain_value(text) for key, text in assignments_of(launch.arguments).items()}
    taken = {name: value for name, value in DEFAULTS.items() if name not in words}
    by_engine = not launch.program.removesuffix(".py").endswith("fsdp_sft_trainer")
    if by_engine and words.get("data.use_dynamic_bsz", True):
        taken.pop("data.micro_batch_size_per_gpu", None)
    assumed = [f"{name} {value} (the default of verl)" for name, value in taken.items()]
    words |= taken
    if by_engine and words.get("data.use_dynamic_bsz", True):
        assumed += _of_tokens(words)
    if not words.get("model.lora_rank"):  # 0, its default: no adapters
        words.pop("model.lora_rank", None)
        words.pop("model.target_modules", None)
    found = {SETTINGS.get(name) or f"verl.{name}": value for name, value in words.items()}
    strategy = words.get("model.strategy", words.get("engine.strategy", "fsdp"))
    found["accelerate.distributed_type"] = "FSDP"
    found["accelerate.fsdp_config.fsdp_version"] = 2 if strategy == "fsdp2" else 1
    found.setdefault("accelerate.fsdp_config.fsdp_reshard_after_forward", True)
    offloaded = [found.pop(f"verl.model.fsdp_config.{name}", False) for name in ("cpu_offload", "offload_params")]
    if all(offloaded):
        found["accelerate.fsdp_config.fsdp_offload_params"] = True
    if found.get("verl.engine.fsdp_size") == -1:  # as many as there are
        del found["verl.engine.fsdp_size"]
    half = next((words[name] for name in TYPES if name in words), "fp32") in HALF
    computed = str(found.pop("verl.engine.dtype", "bfloat16"))
    if half:
        found["arguments.dtype"] = "bfloat16"
    elif computed in {*HALF, "fp16", "float16"}:
        found["arguments.bf16" if computed in HALF else "arguments.fp16"] = True
    for name in ("model.strategy", *TYPES):
        found.pop(f"verl.{name}", None)
    return found, assumed


def _of_tokens(words: dict[str, Any]) -> list[str]:
    """Set the micro-batch to the sequences of full length that a budget of tokens holds; return what was assumed."""
    budget = as_whole(words.pop("data.max_token_len_per_gpu", BUDGET))
    ranks = as_whole(words.get("engine.ulysses_sequence_parallel_size", 1)) or 1
    length = as_whole(words["data.max_length"])
    if not budget or not length:
        return []
    words["data.micro_batch_size_per_gpu"] = micro = max(1, budget * ranks // length)
    told = f"{budget} tokens on each of {counted(ranks, 'rank')} of a sequence hold {micro}"
    return [f"use_dynamic_bsz: sequences of the full {length} tokens, of which {told}"]
