"""LLaMA-Factory's second form of YAML: `dist_config`, `peft_config` and their like beside a model and its batch.

Source: hiyouga/LLaMA-Factory:src/llamafactory/v1/config (training_args.py, model_args.py) and docs of its v1. Its first
form has the arguments of Hugging Face's trainer and is read as these.
"""

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ..keys import as_whole, dotted_keys

PLUGINS = frozenset({"dist_config", "peft_config", "kernel_config", "init_config", "quant_config", "optim_config"})
OWN = frozenset({"train_dataset", "model_class", "enable_activation_checkpointing", "batching_strategy"})
PARALLEL = "accelerate.parallelism_config."
# a key of its first level, the setting that it is, and its default
SETTINGS: Mapping[str, tuple[str, Any]] = {
    "cutoff_len": ("arguments.max_length", 2048),
    "micro_batch_size": ("arguments.per_device_train_batch_size", 1),
    "bf16": ("arguments.bf16", True),
    "enable_activation_checkpointing": ("arguments.gradient_checkpointing", True),
}
FSDP = {
    "reshard_after_forward": "accelerate.fsdp_config.fsdp_reshard_after_forward",
    "offload_params": "accelerate.fsdp_config.fsdp_offload_params",
}
# data, files, logs, and how weights are loaded
FACTORY_HARMLESS = (
    r"factory\.(?:template|train_dataset|eval_dataset|output_dir|learning_rate|num_train_epochs|max_.*|seed|save_.*)",
    r"factory\.(?:logging.*|batching_workers|model_class|init_config\..*|trust_remote.*|lr_scheduler_config\..*|resume.*)",
    r"factory\.(?:peft_config\.(?:lora_.*|target_modules.*)|dist_config\.dcp_path|dist_timeout|dp_size|cp_mode|warmup.*)",
)


def is_second_form(data: Mapping[str, Any]) -> bool:
    """Whether a YAML is of LLaMA-Factory's second form: a model by name, and settings that no other file has."""
    own = {key for key in PLUGINS if isinstance(data.get(key), Mapping) and "name" in data[key]} | (OWN & data.keys())
    return isinstance(data.get("model"), str) and bool(own) and bool(data.keys() & {"cutoff_len", *OWN, *SETTINGS})


def second_form_settings(data: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Return such a YAML as settings of Hugging Face, Accelerate and DeepSpeed, and what was assumed.

    Keys without such a setting stand under `factory.`. Raises InputError for what is not read: layers that are frozen,
    a backend of another name, copies of shards without their number.
    """
    found: dict[str, Any] = {"arguments.model_name_or_path": data["model"]}
    assumed = []
    for key, (setting, default) in SETTINGS.items():
        found[setting] = default if data.get(key) is None else data[key]
        if data.get(key) is None:
            assumed.append(f"{key} {str(default).lower()} (the default of LLaMA-Factory)")
    rest = {key: value for key, value in data.items() if key not in {"model", *SETTINGS} and value is not None}
    found |= _distributed(rest, where) | _adapters(rest, where)
    quantization, kernels, optimizer = (rest.get(f"{name}_config") or {} for name in ("quant", "kernel", "optim"))
    if quantization.get("quantization_bit"):
        found["arguments.quantization_bit"] = rest.pop("quant_config")["quantization_bit"]
    if kernels.get("name") == "liger_kernel":
        found["arguments.use_liger_kernel"] = True
        del rest["kernel_config"]
    if optimizer.get("name"):
        found["arguments.optim"] = rest.pop("optim_config")["name"]
    return found | dotted_keys({"factory": rest}), assumed


def _distributed(rest: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the backend and the degrees, which stand beside it or in it, and take them from what is left."""
    backend = dict(rest.pop("dist_config", None) or {})
    name = backend.pop("name", None)
    degrees = {key: backend.pop(key, None) or rest.pop(key, None) for key in ("cp_size", "mp_replicate_size")}
    shards = as_whole(backend.pop("mp_shard_size", None) or rest.pop("mp_shard_size", None))
    copies = as_whole(degrees["mp_replicate_size"]) or 1
    found: dict[str, Any] = {f"{PARALLEL}cp_size": degrees["cp_size"]} if degrees["cp_size"] else {}
    if shards:
        found |= {f"{PARALLEL}dp_replicate_size": copies, f"{PARALLEL}dp_shard_size": shards}
    elif copies > 1:
        raise InputError(f"{where}: mp_replicate_size {copies}: say mp_shard_size too, the ranks that share the states")
    if name == "deepspeed":
        found["arguments.deepspeed"] = backend.pop("config_file", None)
    elif name == "fsdp2":
        found |= {"accelerate.distributed_type": "FSDP", "accelerate.fsdp_config.fsdp_version": 2}
        found[FSDP["reshard_after_forward"]] = True
        found |= {setting: backend.pop(key) for key, setting in FSDP.items() if key in backend}
    elif name not in {None, "ddp"}:
        raise InputError(f"{where}: dist_config {name}: expected fsdp2, deepspeed or ddp")
    rest |= {"dist_config": backend} if backend else {}
    return found


def _adapters(rest: dict[str, Any], where: str) -> dict[str, Any]:
    """Return what adapters are trained, and take their rank from what is left."""
    tuned = dict(rest.get("peft_config") or {})
    if not tuned:
        return {}
    name = tuned.pop("name", None)
    if name != "lora":
        raise InputError(f"{where}: peft_config {name}: trains some layers alone, which is not read")
    rank = tuned.pop("r", None) or 8
    rest["peft_config"] = tuned
    return {"arguments.finetuning_type": "lora", "arguments.lora_r": rank}
