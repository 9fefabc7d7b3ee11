"""NeMo RL's YAML of supervised and preference training: a policy under FSDP 2 (DTensor), or under Megatron.

Its programs that make answers while they train (GRPO, distillation) start other models beside it and are not read.
Sources: NVIDIA-NeMo/RL:examples/configs (sft.yaml, dpo.yaml, rm.yaml), nemo_rl/algorithms (dpo.py, rm.py: pairs double
both batches), nemo_rl/models/policy (weights of DTensor's workers are loaded in fp32), nemo_rl/models/megatron/setup.py
(recomputation), nemo_rl/utils/config.py (a file lies over the files that its `defaults` name).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..documents import load_document, read_document
from ..draft import Draft
from ..interpolation import Interpolated
from ..job import Job
from ..keys import Keys, dotted_keys
from ..launch import assignments_of, named_by
from ..nearby import nearby
from ..objectives import compare_answers
from ..optimizers import momentum_of, read_optimizer
from ..options import JobOptions
from ..sources import Sources, plain_value
from ..unsupported import HINT
from .bridge import HARMLESS as BRIDGE_HARMLESS
from .nemo import as_megatron, fill_shared_settings

KINDS = ("sft", "dpo", "rm")  # its algorithms that are read, by the sections of their settings
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
DTENSOR, MEGATRON = "policy.dtensor_cfg.", "policy.megatron_cfg."
HARMLESS = (
    r"(?:sft|dpo|rm|checkpointing|data|logger|env|cluster|defaults)(?:\..*)?",
    r"policy\.(?:tokenizer|generation|scheduler|dynamic_batching|sequence_packing|optimizer\.kwargs|reward_model_cfg)(?:\..*)?",
    r"policy\.(?:make_sequence_length.*|max_grad_norm|offload_optimizer_for_logprob|logprob_.*|refit_.*|generation_batch.*)",
)
OF_DTENSOR = (
    r"policy\.megatron_cfg(?:\..*)?|policy\.dtensor_cfg\.(?:_v2|enabled|env_vars.*|automodel_kwargs\..*|lora_cfg\..*)",
)
OF_MEGATRON = (
    r"policy\.(?:dtensor_cfg|optimizer)(?:\..*)?|model\.(?:enabled|env_vars.*|empty_unused.*|train_iters|scheduler\..*)",
    r"model\.(?:peft\..*|fp8_cfg\..*|activation_checkpointing|pipeline_dtype|freeze_moe.*|moe_router_.*|moe_per_layer.*)",
    r"model\.(?:apply_rope_fusion|bias_activation_fusion|moe_permute_fusion|converter_type|force_.*)",
    r"optimizer\.(?:bf16|fp16|params_dtype)|ddp\.grad_reduce_in_fp32",
)
# NeMo RL's places, and those where Megatron-Bridge has the same settings
PLACES = (
    (f"{MEGATRON}optimizer.", "optimizer."),
    (f"{MEGATRON}distributed_data_parallel_config.", "ddp."),
    (MEGATRON, "model."),
)
BATCHES = {
    "policy.train_global_batch_size": "global_batch_size",
    "policy.train_micro_batch_size": "micro_batch_size",
    "policy.max_total_sequence_length": "seq_length",
}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a NeMo RL YAML; InputError where it names a file that is not here, or has no policy."""
    keys = _keys(sources)
    kinds = [kind for kind in KINDS if any(key.startswith(f"{kind}.") for key in keys.values)]
    if not kinds or any(key.startswith("grpo.") for key in keys.values):
        raise InputError(f"{keys.where}: of NeMo RL's algorithms {', '.join(KINDS)} are read: {HINT}")
    under_megatron = bool(keys.switch(f"{MEGATRON}enabled", default=False))
    if under_megatron == bool(keys.switch(f"{DTENSOR}enabled", default=False)):
        both = "both of" if under_megatron else "neither of"
        raise InputError(f"{keys.where}: {both} {DTENSOR}enabled and {MEGATRON}enabled is true: expected one")
    draft = Draft("bridge" if under_megatron else "automodel", sources.names, question)
    nodes, each = keys.whole("cluster.num_nodes", least=1), keys.whole("cluster.gpus_per_node", least=1)
    if nodes is not None and each is not None:
        draft.nodes_times((nodes, keys.told("cluster.num_nodes")), (each, keys.told("cluster.gpus_per_node")))
    draft.model_name = keys.word("policy.model_name")
    if under_megatron:
        keys = _megatron(draft, keys)
    else:
        _dtensor(draft, keys)
    compare_answers(draft, kinds[0], f"{kinds[0]} ({keys.where})")
    draft.assume(f"sequences of the full {draft.seq_len} tokens: those of the data may be shorter")
    return draft.conclude(
        sources, keys, (*HARMLESS, *((*BRIDGE_HARMLESS, *OF_MEGATRON) if under_megatron else OF_DTENSOR))
    )


def _keys(sources: Sources) -> Keys:
    """Return the settings with the files beneath that it builds on, and with the words of the command on top."""
    launch = sources.launch
    named = None if launch is None else named_by(launch.arguments, "config")
    document = sources.document(named) if named else next((one for one in sources.documents if one.data), None)
    if document is None:
        raise sources.absent(named or "its YAML")
    path = Path(document.path) if document.path else nearby(sources.folder, named or document.name)
    values = dotted_keys(_laid(document.data, path or sources.folder / document.name, sources))
    origin = dict.fromkeys(values, document.name)
    if launch is not None:
        for key, text in assignments_of(launch.arguments).items():
            values[key], origin[key] = plain_value(text), launch.where
    found = Interpolated(values, {**sources.variables, **sources.overrides}, sources.names[0])
    return sources.overridden(found.resolved(), origin, sources.names[0])


def _laid(data: Mapping[str, Any], path: Path, sources: Sources, depth: int = 0) -> dict[str, Any]:
    """Return settings laid over those of the files that `defaults` names; InputError for one that is not here."""
    named = data.get("defaults")
    bases = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if depth > 20:
        raise InputError(f"{path.name}: its defaults name each other")
    found: dict[str, Any] = {}
    for base in bases:
        file = path.parent / str(base)
        given = next((one for one in sources.documents if one.name == file.name and file.name != path.name), None)
        if given is None and not file.is_file():
            raise sources.absent(str(base))
        kind, text = ("", "") if given is not None else read_document(str(file))
        inner = given.data if given is not None else load_document(file.name, text, kind)
        found = _merged(found, _laid(inner, file, sources, depth + 1))
    return _merged(found, {key: value for key, value in data.items() if key != "defaults"})


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two trees of settings as one; where both have a value the one above counts."""
    found = dict(below)
    for key, value in above.items():
        inner = found.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        found[key] = _merged(inner, value) if both and inner is not None else value
    return found


def _dtensor(draft: Draft, keys: Keys) -> None:
    """Set what FSDP 2 shards beside tensor and context parallelism, over weights in single precision."""
    draft.degree("tp", keys, f"{DTENSOR}tensor_parallel_size", default=1)
    draft.degree("cp", keys, f"{DTENSOR}context_parallel_size", default=1)
    draft.degree("ep", keys, f"{DTENSOR}expert_parallel_size", default=1)
    draft.put("pp", 1, "pp 1")
    draft.take_batch("global", keys, "policy.train_global_batch_size")
    draft.take_batch("mbs", keys, "policy.train_micro_batch_size")
    draft.seq_len = keys.whole("policy.max_total_sequence_length", least=1)
    draft.zero(3)
    draft.switches["sp"] = int(bool(keys.switch(f"{DTENSOR}sequence_parallel", default=False)))
    again = bool(keys.switch(f"{DTENSOR}activation_checkpointing", default=False))
    draft.recompute("full" if again else "none", f"activation_checkpointing {str(again).lower()}")
    if keys.switch(f"{DTENSOR}cpu_offload", default=False):
        draft.offload("parameters")
    draft.precision = TYPES.get((keys.word("policy.precision") or "bfloat16").lower(), "bf16")
    draft.savings.weights = ("fp32", "NeMo RL, which loads weights in single precision")
    read_optimizer(draft, keys, "policy.optimizer.name", momentum=momentum_of(keys, "policy.optimizer.kwargs.momentum"))
    adapters = f"{DTENSOR}lora_cfg."
    if keys.switch(f"{adapters}enabled", default=False):
        whole = keys.switch(f"{adapters}match_all_linear", default=True)
        targets = "" if whole else str(keys.raw(f"{adapters}target_modules") or "")
        draft.adapters("lora_cfg", keys.whole(f"{adapters}dim", least=1), targets)


def _megatron(draft: Draft, keys: Keys) -> Keys:
    """Fill a draft from the settings of Megatron; return all of them under Megatron-Bridge's names."""
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, value in keys.values.items():
        start, place = next(((old, new) for old, new in PLACES if key.startswith(old)), ("", ""))
        name = BATCHES.get(key) or place + key.removeprefix(start)
        values[name], names[name] = value, key
    again = bool(keys.switch(f"{MEGATRON}activation_checkpointing", default=False))
    if again and values.get("model.recompute_granularity", "full") == "full":
        values |= {"model.recompute_granularity": "full", "model.recompute_method": "uniform"}
        values["model.recompute_num_layers"] = 1
    elif not again:
        values.pop("model.recompute_granularity", None)
    values["precision"] = TYPES.get(str(values.pop("policy.precision", "bfloat16")).lower(), "bf16")
    wide = values.get("ddp.grad_reduce_in_fp32")
    values |= (
        {} if wide is None else {"mixed_precision.grad_reduce_in_fp32": wide}
    )  # no precision of its own comes first
    if keys.switch(f"{MEGATRON}fp8_cfg.enabled", default=False):
        values["model.fp8"] = keys.word(f"{MEGATRON}fp8_cfg.fp8")
        values["model.fp8_recipe"] = keys.word(f"{MEGATRON}fp8_cfg.fp8_recipe")
    if keys.switch(f"{MEGATRON}peft.enabled", default=False):
        targets = str(keys.raw(f"{MEGATRON}peft.target_modules") or "").strip("[]")
        draft.adapters("peft", keys.whole(f"{MEGATRON}peft.dim", least=1), targets)
    found = Keys(values, keys.where, sources={name: keys.source(key) for name, key in names.items()})
    found.aliases = names
    for key in ("policy.model_name", "precision"):
        found.raw(key)
    plain = as_megatron(found, ("model.", ""))
    plain.aliases = {flag: names.get(path, path) for flag, path in plain.aliases.items()}
    fill_shared_settings(draft, found, plain)
    return found
