"""LLM Foundry's YAML: a model trained by Composer under FSDP, with `key=value` words of the command on top.

Sources: mosaicml/llm-foundry:llmfoundry/command_utils/train.py and models/mpt/configuration_mpt.py (0.15),
mosaicml/composer:composer/utils/parallelism.py (0.28: FSDPConfig and its defaults) and cli/launcher.py.
"""

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..optimizers import momentum_of, read_optimizer
from ..options import JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:variables|tokenizer|train_loader|eval_loader|scheduler|callbacks|loggers|algorithms|eval_.*|icl_.*)(?:\..*)?",
    r"(?:run_name|seed|global_seed|data_local|data_remote|log_to_console|max_duration|device_eval.*|save_.*|load_.*|console_log.*|progress_bar|python_log.*|autoresume|dist_timeout)",
    r"optimizer\..*|(?:model|fsdp_config)\.(?:name|init_device|loss_fn|init_config.*|pretrained|use_auth_token|max_seq_len)",
    r"model\.(?:attn_config\.(?:attn_impl|alibi.*|rope.*|attn_uses.*|clip_qkv|qk_ln)|emb_pdrop|resid_pdrop|tokenizer_name|config_overrides\.max_seq_len)",
    r"fsdp_config\.(?:activation_checkpointing_reentrant|limit_all_gathers|verbose|sync_module_states|state_dict_type|use_orig_params)",
    r"model\.(?:peft_config\.(?:task_type|lora_alpha|lora_dropout|bias)|config_overrides\.(?:rope_scaling\..*|max_position_embeddings))",
    r"fsdp_config\.(?:backward_prefetch.*|forward_prefetch.*|auto_wrap|load_.*|save_.*|sharded_ckpt.*|flatten_parameters)",
)
SHARDING = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2}
PRECISION = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8", "fp32": "fp32", "bf16": "bf16"}
SIZES = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of an LLM Foundry YAML."""
    keys = _keys(sources)
    draft = Draft("accelerate", sources.names, question)
    draft.note("LLM Foundry runs Composer's FSDP: read as FSDP")
    world_of(sources.launch, draft)
    draft.degree("tp", keys, "tp_config.tensor_parallel_degree", default=1)
    for name in ("pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    _model(draft, keys)
    _states(draft, keys)
    draft.seq_len = keys.whole("max_seq_len", "model.max_seq_len", least=1)
    draft.take_batch("global", keys, "global_train_batch_size")
    draft.take_batch("mbs", keys, "device_train_microbatch_size")
    _share(draft)
    if (keys.word("device_train_microbatch_size") or "auto") == "auto":
        draft.note("device_train_microbatch_size auto: Composer finds the largest that fits where the job runs")
    named = keys.word("precision") or "amp_bf16"
    if named not in PRECISION:
        raise draft.refused(f"precision {named}: expected one of {', '.join(PRECISION)}")
    draft.precision = PRECISION[named]
    read_optimizer(draft, keys, "optimizer.name", momentum=momentum_of(keys, "optimizer.momentum"))
    _adapters(draft, keys)
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings with the words of the command on top; InputError where its YAML is not here."""
    launch = sources.launch
    for word in launch.arguments[:1] if launch is not None else ():
        if word.endswith((".yaml", ".yml")) and sources.document(word) is None:
            raise sources.absent(word)
    return sources.with_words()


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes of an MPT, or the name of a model from Hugging Face."""
    draft.model_name = keys.word("model.pretrained_model_name_or_path")
    if "model.d_model" not in keys:
        return
    config = draft.config
    for name, key in SIZES.items():
        value = keys.whole(f"model.{key}", least=1)
        if value is not None:
            config[name] = value
    ratio = keys.whole("model.expansion_ratio", least=1) or 4
    width = keys.whole("model.ffn_config.ffn_hidden_size", least=1)
    config["intermediate_size"] = width or ratio * config["hidden_size"]
    heads = keys.whole("model.attn_config.kv_n_heads", least=1)
    if keys.word("model.attn_config.attn_type") == "multiquery_attention":
        heads = 1
    if heads is not None:
        config["num_key_value_heads"] = heads
    if (vocabulary := keys.whole("model.vocab_size", least=1)) is not None:
        config["vocab_size"] = vocabulary
    config["model_type"] = "llama" if "rms" in (keys.word("model.norm_type") or "") else "gpt2"
    config["gated_mlp"] = "glu" in (keys.word("model.ffn_config.ffn_type") or "")
    config["mlp_bias"] = not keys.switch("model.no_bias", default=False)
    config["tie_word_embeddings"] = bool(keys.switch("model.tie_word_embeddings", default=True))
    placed = keys.switch("model.attn_config.alibi", default=False) or keys.switch(
        "model.attn_config.rope", default=False
    )
    learned = keys.switch("model.learned_pos_emb", default=True) and not placed
    config["max_position_embeddings"] = (keys.whole("model.max_seq_len") or 0) if learned else 0


def _share(draft: Draft) -> None:
    """Have a micro-batch be no more than the batch of a device, as LLM Foundry has it (utils/config_utils.py)."""
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    if world is None or not {"global", "mbs"} <= draft.batch.keys():
        return
    (total, whole), (micro, told) = draft.batch["global"], draft.batch["mbs"]
    share, rest = divmod(total * draft.get("tp"), world)
    if rest == 0 and micro > share:
        draft.batch["mbs"] = (share, f"{whole} / {world} devices")
        draft.note(f"{told} is more than the {share} of a device: LLM Foundry takes these")


def _adapters(draft: Draft, keys: Keys) -> None:
    """Have adapters alone trained where the model has a peft_config: of a rank of 8 where it says none, as PEFT has."""
    own = [key for key in keys.values if key.startswith("model.peft_config.")]
    if not own:
        return
    kind = (keys.word("model.peft_config.peft_type") or "LORA").upper()
    rank = keys.whole("model.peft_config.r", least=1)
    if rank is None and kind == "LORA":
        rank = 8
        draft.assume("adapters of rank 8 (the default of PEFT)")
    targets = keys.raw("model.peft_config.target_modules")
    draft.adapters(f"peft_config {kind}", rank if kind == "LORA" else None, str(targets or ""))


def _states(draft: Draft, keys: Keys) -> None:
    """Set what FSDP shards and recomputes; without its section the model is replicated."""
    if not any(key.startswith("fsdp_config.") for key in keys.values):
        draft.zero(0)
        draft.recompute("none")
        draft.assume("plain data parallelism: the file has no fsdp_config")
        return
    named = (keys.word("fsdp_config.sharding_strategy") or "FULL_SHARD").upper()
    if named not in SHARDING:
        raise draft.refused(f"sharding_strategy {named}: expected one of {', '.join(SHARDING)}")
    draft.switches["zero"] = SHARDING[named]
    copies = keys.whole("fsdp_config.data_parallel_replicate_degree", least=1)
    shards = keys.whole("fsdp_config.data_parallel_shard_degree", least=-1)
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    if copies is None and "HYBRID" in named and not (shards and shards > 0):
        draft.copies_by_node(named)
    if copies is None and shards and shards > 0 and world is not None and world % shards == 0:
        copies = world // shards
    if copies is not None and copies > 1:
        draft.put("replicas", copies, f"data_parallel_replicate_degree {copies}")
    if keys.switch("fsdp_config.cpu_offload", default=False):
        draft.offload("parameters")
    again = keys.switch("fsdp_config.activation_checkpointing", default=False)
    draft.recompute("full" if again else "none", f"activation_checkpointing {str(bool(again)).lower()}")
    kept = (keys.word("fsdp_config.mixed_precision") or "DEFAULT").upper()
    if kept != "DEFAULT":
        draft.ignore(f"mixed_precision = {kept}: priced with gradients reduced as FSDP does by default")
