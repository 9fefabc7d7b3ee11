"""OLMo's YAML (allenai/OLMo, before OLMo-core): a decoder under FSDP, its batch counted over all ranks.

Sources: allenai/OLMo:olmo/config.py (names and defaults; `fsdp_config` is the `fsdp` of its first releases),
olmo/model.py (a gated feed-forward is cut in two halves, each half as wide as mlp_hidden_size), scripts/train.py.
"""

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import flags_of
from ..optimizers import read_optimizer
from ..options import JobOptions
from ..ranks import world_of
from ..sources import Sources, plain_value
from .foundry import PRECISION, SHARDING

HARMLESS = (
    r"(?:data|tokenizer|scheduler|wandb|speed_monitor|evaluators|compile|softmax_auxiliary.*|time_limit)(?:\..*)?",
    r"(?:run_name|seed|epoch|dry_run|max_duration|stop_.*|save_.*|load_.*|restore_.*|reset_.*|eval_.*|no_pre_train.*)",
    r"(?:device_eval.*|max_grad_norm.*|gen1_gc_interval|console_log.*|remote_save.*|force_save.*|python_profiling)",
    r"(?:device_train_batch_size|device_train_grad_accum|n_gpus|canceled_check.*|early_stopping.*|fused_loss|torch_profiling)",
    r"optimizer\..*|(?:fsdp|fsdp_config)\.(?:wrapping_strategy|use_orig_params|mixed_precision|precision|verbose|backward_.*)",
    r"model\.(?:eos_token_id|pad_token_id|init_.*|alibi_bias_max|flash_attention|rope_.*|layer_norm_.*|scale_.*|precision)",
    r"model\.(?:attention_dropout|residual_dropout|embedding_dropout|attention_layer_norm.*|norm_after|clip_qkv|block_.*)",
)
AGAIN = {"whole_layer": "full", "fine_grained": "selective"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of an OLMo YAML."""
    keys = _keys(sources)
    draft = Draft("accelerate", sources.names, question)
    draft.note("OLMo shards with PyTorch's FSDP: read as FSDP")
    world_of(sources.launch, draft)
    for name in ("tp", "pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    _model(draft, keys)
    _states(draft, keys)
    draft.seq_len = keys.whole("model.max_sequence_length", least=1)
    draft.take_batch("global", keys, "global_train_batch_size")
    draft.take_batch("mbs", keys, "device_train_microbatch_size")
    named = keys.word("precision") or ""
    if named not in PRECISION:
        raise draft.refused(f"precision {named or 'is not set'}: expected one of {', '.join(PRECISION)}")
    draft.precision = PRECISION[named]
    read_optimizer(draft, keys, "optimizer.name")
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings with the `--key=value` words of the command on top; InputError where its YAML is not here."""
    words = () if sources.launch is None else sources.launch.arguments
    named = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    if named is not None and sources.document(named) is None:
        raise sources.absent(named)
    values, origin = sources.settings()
    for key, value in flags_of(words, dashes=False).items():
        values[key] = plain_value(value) if isinstance(value, str) else value
        origin[key] = sources.launch.where if sources.launch is not None else ""
    return sources.overridden(values, origin, sources.names[0])


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes; InputError where the file leaves the kind of its feed-forward open, by which its size goes."""
    config = draft.config
    for name, key in {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
    }.items():
        value = keys.whole(f"model.{key}", least=1)
        if value is not None:
            config[name] = value
    if draft.question.architecture is not None or "hidden_size" not in config:
        return
    kind = keys.word("model.activation_type")
    if kind is None:
        raise draft.refused(
            "model.activation_type is not set, and OLMo's default has changed (gelu at first, swiglu later): "
            "--job model.activation_type=swiglu (or gelu) says it"
        )
    gated = kind == "swiglu"
    inner = keys.whole("model.mlp_hidden_size", least=1)
    ratio = keys.whole("model.mlp_ratio", least=1) or 4
    inner = inner or ratio * config["hidden_size"]
    config["intermediate_size"] = inner // 2 if gated else inner
    config["gated_mlp"] = gated
    config["model_type"] = "llama" if (keys.word("model.layer_norm_type") or "") == "rms" else "gpt2"
    config["mlp_bias"] = config["attention_bias"] = bool(keys.switch("model.include_bias", default=True))
    heads = keys.whole("model.n_kv_heads", least=1)
    if keys.switch("model.multi_query_attention", default=False):
        heads = 1
    if heads is not None:
        config["num_key_value_heads"] = heads
    size, tokens = keys.whole("model.embedding_size", least=1), keys.whole("model.vocab_size", least=1)
    vocabulary = size or tokens
    if vocabulary is not None:
        config["vocab_size"] = vocabulary
    config["tie_word_embeddings"] = bool(keys.switch("model.weight_tying", default=True))
    placed = keys.switch("model.alibi", default=False) or keys.switch("model.rope", default=False)
    config["max_position_embeddings"] = 0 if placed else keys.whole("model.max_sequence_length") or 0


def _states(draft: Draft, keys: Keys) -> None:
    """Set what FSDP shards and recomputes; without its section OLMo takes FSDP's defaults."""
    if (keys.word("distributed_strategy") or "fsdp") != "fsdp":
        draft.zero(0)
    else:
        named = (keys.word("fsdp.sharding_strategy", "fsdp_config.sharding_strategy") or "FULL_SHARD").upper()
        if named not in SHARDING:
            raise draft.refused(f"sharding_strategy {named}: expected one of {', '.join(SHARDING)}")
        draft.switches["zero"] = SHARDING[named]
        copies = keys.whole("fsdp.hybrid_sharding_num_model_replicas", least=1)
        if "HYBRID" in named and copies is None:
            draft.copies_by_node(named)
        elif copies is not None and copies > 1:
            draft.put("replicas", copies, f"hybrid_sharding_num_model_replicas {copies}")
    reduced = (keys.word("fsdp.precision", "fsdp_config.mixed_precision") or "").lower()
    if reduced == "pure":
        draft.ignore("fsdp.precision = pure: priced with gradients reduced as FSDP does by default")
    again = keys.word("activation_checkpointing", "fsdp_config.activation_checkpointing") or "none"
    if again.lower() in {"none", "false", "null"}:
        draft.recompute("none", "activation_checkpointing none")
    elif again.lower() == "true":
        draft.recompute("full", "activation_checkpointing true")
    elif again in AGAIN:
        draft.recompute("full" if again == "whole_layer" else "selective", f"activation_checkpointing {again}")
    else:
        raise draft.refused(f"activation_checkpointing {again}: expected one of {', '.join(AGAIN)}")
