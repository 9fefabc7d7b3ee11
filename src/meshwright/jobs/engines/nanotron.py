"""nanotron's YAML: tensor, pipeline and context parallelism of a Llama or Qwen2 with ZeRO 1.

Sources: huggingface/nanotron:src/nanotron/config (parallelism_config.py, config.py, models_config.py), models/base.py
(build_model: how layers become stages), models/llama.py and qwen.py (get_block_compute_costs), helpers.py (optimiser).
"""

import re
from collections.abc import Mapping
from typing import Any

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..optimizers import read_optimizer
from ..options import BY_LAYOUT, JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:general|checkpoints|data_stages|data|logging|tokenizer|lighteval|s3_upload|profiler|metrics_logging)(?:\..*)?",
    r"model\.(?:init_method.*|ddp_bucket_cap_mb|make_vocab_size_divisible_by)|experiment_logger(?:\..*)?",
    r"model\.model_config\.(?:is_\w+_config|\w+_token_id|hidden_act|initializer_range|max_position_embeddings|pretraining_tp)",
    r"model\.model_config\.(?:rms_norm_eps|rope_.*|use_cache|z_loss.*|no_rope_layer|_attn_implementation|_fused.*|_use_doc.*)",
    r"optimizer\.(?:clip_grad|weight_decay.*|learning_rate_scheduler\..*|optimizer_factory\.(?!name).*)",
    r"tokens\.(?:train_steps|val_check_interval|limit_.*)|parallelism\.(?:tp_linear_async.*|expert_parallel_size)",
)
# sizes of models_config.py where the file leaves one out
SIZES: Mapping[str, int] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
FAMILIES = ("is_llama_config", "is_qwen2_config")  # models whose layers are read
FAMILY = re.compile(r"model\.model_config\.is_\w+_config")
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16"}
SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a nanotron YAML; InputError where it has what is not read (experts, other models)."""
    keys = sources.named_settings("config-file")
    draft = Draft("megatron", sources.names, question)
    draft.stack = "nanotron"
    draft.note("nanotron: other layouts are looked for among Megatron's")
    if (keys.whole("parallelism.expert_parallel_size") or 1) > 1 or "model.model_config.moe_config" in _heads(keys):
        raise draft.refused(f"experts of nanotron are not read: {BY_LAYOUT}")
    world_of(sources.launch, draft)
    for name, key in (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("cp", "context_parallel_size")):
        draft.degree(name, keys, f"parallelism.{key}", default=1)
    _model(draft, keys)
    _states(draft, keys)
    draft.take_batch("mbs", keys, "tokens.micro_batch_size")
    draft.take_batch("steps", keys, "tokens.batch_accumulation_per_replica")
    draft.seq_len = keys.whole("tokens.sequence_length", least=1)
    read_optimizer(draft, keys, "optimizer.optimizer_factory.name")
    return draft.conclude(sources, keys, HARMLESS)


def _heads(keys: Keys) -> set[str]:
    """Return the sections that hold something, under their dotted names."""
    return {key.rpartition(".")[0] for key, value in keys.values.items() if value is not None}


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes of the model, and the layers of each stage as nanotron cuts them."""
    said = [key for key in keys.values if FAMILY.fullmatch(key) and keys.switch(key)]
    if not said:
        draft.assume("a model of LlamaConfig, the first that nanotron tries: the file has no is_llama_config")
    elif not any(key.endswith(FAMILIES) for key in said):
        raise draft.refused(f"model.model_config: expected a model with {' or '.join(FAMILIES)}")
    config: dict[str, Any] = draft.config
    for name, default in SIZES.items():
        value = keys.whole(f"model.model_config.{name}", least=1)
        config[name] = default if value is None else value
        if value is None:
            draft.assume(f"{name} {default} (the default of nanotron)")
    heads = keys.whole("model.model_config.num_key_value_heads", least=1)
    config["num_key_value_heads"] = heads or config["num_attention_heads"]
    config["model_type"] = "llama"
    config["attention_bias"] = bool(keys.switch("model.model_config.attention_bias", default=False))
    config["tie_word_embeddings"] = bool(keys.switch("model.model_config.tie_word_embeddings", default=False))
    config["max_position_embeddings"] = 0
    if draft.get("pp") > 1:
        draft.stages = stages_by_cost(config, draft.get("pp"))
        if 0 in draft.stages:
            cut = "-".join(map(str, draft.stages))
            raise draft.refused(f"{draft.origin('pp')}: cuts the layers as {cut}, which leaves a stage without one")


def stages_by_cost(config: Mapping[str, Any], pp: int) -> tuple[int, ...]:
    """Return the layers of each of `pp` stages: a stage ends with the block that passes its share of the costs.

    A layer costs its multiplications of a token, the output its width times the vocabulary, the rest nothing.
    """
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    head = width // config["num_attention_heads"]
    layer = 4 * config["num_attention_heads"] * head * width + 3 * config["intermediate_size"] * width
    total = layers * layer + config["vocab_size"] * width
    found, stage, spent = [0] * pp, 0, 0
    for _ in range(layers):
        found[stage] += 1
        spent += layer
        if spent * pp > total * (stage + 1):
            stage += 1
    return tuple(found)


def _states(draft: Draft, keys: Keys) -> None:
    """Set ZeRO, schedule, sequence parallelism, recomputation and precision."""
    stage = keys.whole("optimizer.zero_stage") or 0
    if stage > 1:
        raise draft.refused(f"{keys.told('optimizer.zero_stage')}: nanotron has 0 and 1")
    draft.switches["zero"] = stage
    engine = (keys.word("parallelism.pp_engine") or "afab").lower()
    if engine not in SCHEDULES:
        raise draft.refused(f"pp_engine {engine}: expected one of {', '.join(SCHEDULES)}")
    if "parallelism.pp_engine" in keys or draft.get("pp") > 1:
        draft.switches["schedule"] = SCHEDULES[engine]
    mode = (keys.word("parallelism.tp_mode") or "ALL_REDUCE").upper()
    draft.switches["sp"] = int(mode == "REDUCE_SCATTER")
    if mode == "REDUCE_SCATTER" and not keys.switch("parallelism.tp_recompute_allgather", default=True):
        draft.ignore("tp_recompute_allgather is off: gathered activations are kept; priced as gathered again")
    again = keys.switch("parallelism.recompute_layer", default=False)
    draft.recompute("full" if again else "none", f"recompute_layer {str(bool(again)).lower()}")
    named = (keys.word("model.dtype") or "bfloat16").lower()
    if named not in TYPES:
        raise draft.refused(f"model.dtype {named}: expected one of {', '.join(TYPES)}")
    draft.precision = TYPES[named]
    if draft.precision == "bf16":
        wide = keys.switch("optimizer.accumulate_grad_in_fp32")
        if wide is None:
            draft.assume("accumulate_grad_in_fp32 true, as in nanotron's examples: the file does not say it")
        draft.half_sums = wide is False
