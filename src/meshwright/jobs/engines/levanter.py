"""Levanter's YAML: a Llama, GPT-2 or a model of Hugging Face's under JAX, whose devices are a data and a model axis.

Sources: stanford-crfm/levanter:src/levanter/trainer.py (TrainerConfig: axes, batches, their defaults and checks),
models/llama.py (LlamaConfig), main/train_lm.py (initialize_from_hf, use_hf_model_config).
"""

import re
from collections.abc import Mapping

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import flags_of, named_by
from ..models import vocabulary_of
from ..optimizers import read_optimizer
from ..options import BY_LAYOUT, JobOptions
from ..ranks import world_of
from ..sources import Sources, plain_value

HARMLESS = (
    r"(?:data|eval|hf_.*|log_.*|data_seed|epoch|z_loss_weight|initialize_from_.*|pad_tokenizer.*|cache_.*|alpha)(?:\..*)?",
    r"trainer\.(?:wandb|tracker|watch|checkpointer|ray|distributed|jax_config|id|seed|log_.*|run_base_dir|profiler.*)(?:\..*)?",
    r"trainer\.(?:num_train_steps|steps_per_eval|max_eval_batches|per_device_eval.*|load_checkpoint.*|initialize_from|batch_axis)",
    r"trainer\.(?:require_accelerator|shutdown_at_exit|crash_on_.*|allow_.*|use_explicit_.*)|optimizer\.(?!type).*",
    r"model\.(?:rope.*|activation_function|initializer_range|layer_norm_epsilon|use_flash_attention|flash_attention.*|attn_backend)",
    r"model\.(?:gradient_checkpointing_block_size|scan_layers|reference_checkpoint|tokenizer|.*_pdrop|upcast_attn|use_layer_norm.*)",
)
SIZES = {
    "hidden_size": "hidden_dim",
    "intermediate_size": "intermediate_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
}
LLAMA: Mapping[str, int] = {
    **{"hidden_dim": 4096, "intermediate_dim": 11008, "num_layers": 32, "num_heads": 32, "num_kv_heads": 32},
    "seq_len": 2048,
}
TYPES = {
    **{"f32": "fp32", "float32": "fp32", "full": "fp32", "bf16": "bf16", "bfloat16": "bf16"},
    **{"f16": "fp16", "float16": "fp16", "half": "fp16"},
}
TRAINS = re.compile(r"(?:train_lm|lora_lm|sft|main)(?:\.py)?$")  # its programs that train on texts


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a Levanter YAML; InputError for a mesh of named axes, and for programs that do not train."""
    keys = _keys(sources)
    draft = Draft("maxtext", sources.names, question)
    draft.note("Levanter: priced as MaxText, which is JAX too")
    if sources.launch is not None:
        if not TRAINS.search(sources.launch.program):
            raise draft.refused(f"{sources.launch.program} of Levanter is not read: {BY_LAYOUT}")
        world_of(sources.launch, draft)
    if named := next((key for key in keys.values if key.startswith("trainer.mesh.")), None):
        raise draft.refused(f"{keys.told(named)}: a mesh of named axes is not read: {BY_LAYOUT}")
    for name in ("pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    _axes(draft, keys)
    _model(draft, keys)
    _batch(draft, keys)
    _precision(draft, keys)
    again = keys.word("model.gradient_checkpointing") or "true"
    if "model.gradient_checkpointing" not in keys:
        draft.assume("gradient_checkpointing true (the default of Levanter's models)")
    for key, text in keys.values.items():
        if isinstance(text, str) and (included := re.match(r"!include\s+(\S+)", text)):
            draft.note(f"{key}: {included[1]}, which it includes, is not here: what that says of it is not known")
    draft.recompute("none" if again.lower() == "false" else "full", f"gradient_checkpointing {again.lower()}")
    if again.lower() not in {"true", "false"}:
        draft.ignore(f"{keys.told('model.gradient_checkpointing')}: priced as layers computed again as a whole")
    read_optimizer(draft, keys, "optimizer.type")
    if (rank := keys.whole("lora.r", least=1)) is not None:
        draft.adapters("lora", rank, str(keys.raw("lora.target_modules") or ""))
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings with the flags of the command on top; InputError where the file that it names is not here."""
    launch = sources.launch
    named = (
        None if launch is None else named_by(launch.arguments, "config-path") or named_by(launch.arguments, "config")
    )
    if named is not None and sources.document(named) is None:
        raise sources.absent(named)
    values, origin = sources.settings()
    for key, value in {} if launch is None else flags_of(launch.arguments, dashes=False).items():
        if key not in {"config_path", "config"} and launch is not None:
            values[key] = plain_value(value) if isinstance(value, str) else value
            origin[key] = launch.where
    return sources.overridden(values, origin, sources.names[0])


def _axes(draft: Draft, keys: Keys) -> None:
    """Set the split of the model, and what is sharded over the data axis."""
    draft.degree("tp", keys, "trainer.model_axis_size", default=1)
    axes = keys.raw("trainer.tensor_parallel_axes")
    own = any(key.startswith(("trainer.axis_resources.", "trainer.parameter_axis_resources.")) for key in keys.values)
    if own:
        draft.ignore("trainer.axis_resources, parameter_axis_resources: priced as if the usual axes were cut")
    if draft.get("tp") > 1 and not axes and not own:
        told = keys.told("trainer.model_axis_size")
        raise draft.refused(f"{told}: no tensor_parallel_axes are cut over it: devices would repeat each other's work")
    copies = [keys.whole(f"trainer.replica_{net}_axis_size", least=1) or 1 for net in ("ici", "dcn")]
    if (count := copies[0] * copies[1]) > 1:
        draft.put("replicas", count, f"replica_ici_axis_size {copies[0]} x replica_dcn_axis_size {copies[1]}")
    sharded = "trainer.fsdp_axis" not in keys.values or keys.raw("trainer.fsdp_axis") is not None
    draft.zero(3 if sharded else 0)
    if "trainer.fsdp_axis" not in keys.values:
        draft.assume("fsdp_axis embed (the default of Levanter)")


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes of the model, or its name on Hugging Face where its own configuration counts."""
    named = keys.word("initialize_from_hf")
    kind = (keys.word("model.type") or "").lower()
    length = keys.whole("train_seq_len", "model.seq_len", "model.max_seq_len", least=1)
    if keys.switch("use_hf_model_config", default=False) and named and named.lower() not in {"true", "false"}:
        draft.model_name, draft.seq_len = named, keys.whole("train_seq_len", least=1)
        if draft.seq_len is None:
            _note_positions(draft)
        return
    values = {name: keys.whole(f"model.{name}", least=1) for name in SIZES.values()}
    if kind == "llama":
        taken = {name: LLAMA[name] for name, value in values.items() if value is None}
        values |= taken
        if length is None:
            length = taken["seq_len"] = LLAMA["seq_len"]
        if taken:
            draft.assume(f"{', '.join(f'{name} {value}' for name, value in taken.items())} (of Levanter's LlamaConfig)")
    draft.seq_len = length
    if any(values[name] is None for name in ("hidden_dim", "num_layers", "num_heads")):
        draft.model_name = named or f"model.type {kind}"
        return
    draft.config |= {name: values[own] for name, own in SIZES.items() if values[own] is not None}
    draft.config["model_type"] = kind
    if kind == "gpt2":
        draft.config["intermediate_size"] = (keys.whole("model.mlp_scale", least=1) or 4) * draft.config["hidden_size"]
        draft.config["max_position_embeddings"] = length or 0
        draft.config["tie_word_embeddings"] = True
    else:
        draft.config["tie_word_embeddings"] = bool(keys.switch("model.tie_word_embeddings", default=False))
    if (known := vocabulary_of(keys.word("data.tokenizer", "tokenizer") or "")) is not None:
        draft.config["vocab_size"], told, sure = known
        draft.vocabulary_guessed = not sure
        draft.assume(f"vocabulary of {known[0]}: {told}")


def _note_positions(draft: Draft) -> None:
    """Say how long sequences are where the model's own configuration decides it, which is not here."""
    model = draft.named_model()
    own = "" if model is None else f": {model.max_position_embeddings} of the published one"
    draft.note(f"use_hf_model_config: sequences are as long as the model's config.json has positions{own}")


def _batch(draft: Draft, keys: Keys) -> None:
    """Set the batch; without per_device_parallelism each device takes its whole share at once."""
    total = draft.take_batch("global", keys, "trainer.train_batch_size")
    if total is None and not draft.batch_open:
        total = 512
        draft.batch["global"] = (total, "train_batch_size 512")
        draft.assume("train_batch_size 512 (the default of Levanter)")
    each = keys.raw("trainer.per_device_parallelism")
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    if each not in {None, -1}:
        draft.take_batch("mbs", keys, "trainer.per_device_parallelism")
    elif total is not None and world is not None and total * draft.get("tp") % world == 0:
        share = total * draft.get("tp") // world
        draft.batch["mbs"] = (share, f"per_device_parallelism -1: {share} sequences")
        draft.assume(f"{share} sequences of each device at once: per_device_parallelism is not set")


def _precision(draft: Draft, keys: Keys) -> None:
    """Set in what products are computed and weights are held (jmp's policies: `p=f32,c=bfloat16`)."""
    named = keys.word("trainer.mp")
    if named is None:
        named = "f32"
        draft.assume("mp f32 (the default of Levanter)")
    parts = {"p": named, "c": named}
    if "=" in named:
        parts |= {key.strip()[:1]: value.strip() for key, _, value in (one.partition("=") for one in named.split(","))}
    kinds = {key: TYPES.get(parts[key].lower()) for key in ("p", "c")}
    if None in kinds.values():
        raise draft.refused(f"{keys.told('trainer.mp')}: expected a policy such as p=f32,c=bfloat16")
    draft.precision = kinds["c"]
    if kinds["p"] != "fp32" and kinds["p"] is not None:
        draft.savings.weights = (kinds["p"], keys.told("trainer.mp"))
