"""Lingua's YAML: a Llama of its own sizes under FSDP 2, batch and accumulation counted on each rank.

Sources: facebookresearch/lingua:apps/main/train.py (copies are what shards and tensor ranks leave),
lingua/distributed.py (fsdp_type, dp_shard, the policy of recomputation), apps/main/transformer.py (layers stay gathered
after their forward pass; output and embedding are two), lingua/transformer.py (the width of the feed-forward).
"""

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import assignments_of
from ..models import vocabulary_of
from ..optimizers import read_optimizer
from ..options import JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:config|optim|checkpoint|logging|profiling|eval|env|setup|async_eval_gpus)(?:\..*)?",
    r"(?:dump_dir|name|steps|seed|probe_freq|gc_collect_freq|doc_separator)",
    r"data\.(?:root_dir|sources|prefetch_size|n_views|load_async|add_[be]os|seed|tokenizer)(?:\..*)?",
    r"distributed\.(?:compile.*|matmul_allow_tf32|allow_bf16.*|detect_anomaly|spawn_method|float8_filter)",
    r"model\.(?:norm_eps|rope_theta|init_.*|max_seqlen|seed)",
)
SIZES = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
MAY_SIZE = {"num_key_value_heads": "n_kv_heads", "head_dim": "head_dim", "vocab_size": "vocab_size"}
OF_MODEL = {*SIZES.values(), *MAY_SIZE.values(), "ffn_dim_multiplier", "multiple_of", "weight_tying", "sliding_window"}
OF_MODEL |= {"norm_eps", "rope_theta", "init_base_std", "init_std_factor", "max_seqlen", "seed"}
PRECISIONS = ("bf16", "fp16", "fp32")


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a YAML of lingua's apps/main; InputError for models of its other programs."""
    keys = _keys(sources)
    draft = Draft("accelerate", sources.names, question)
    draft.note("lingua shards with FSDP 2: read as FSDP")
    world_of(sources.launch, draft)
    _model(draft, keys)
    _mesh(draft, keys)
    if keys.switch("distributed.selective_activation_checkpointing", default=False):
        draft.recompute("selective", "selective_activation_checkpointing")
    else:
        draft.recompute("none", "selective_activation_checkpointing false")
    draft.precision = keys.word("distributed.model_dtype") or "bf16"
    if draft.precision not in PRECISIONS:
        raise draft.refused(f"model_dtype {draft.precision}: expected one of {', '.join(PRECISIONS)}")
    if recipe := keys.word("distributed.float8_recipe"):
        draft.precision = "fp8"
        draft.recipe("float8_recipe", recipe)
    draft.take_batch("mbs", keys, "data.batch_size")
    draft.take_batch("steps", keys, "grad_acc_steps")
    if "steps" not in draft.batch:
        draft.batch["steps"] = (1, "grad_acc_steps 1")
        draft.assume("grad_acc_steps 1 (the default of lingua)")
    draft.seq_len = keys.whole("data.seq_len", least=1)
    read_optimizer(draft, keys, "optim.name")
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings with the `key=value` words of the command on top; InputError where its YAML is not here."""
    named = {} if sources.launch is None else assignments_of(sources.launch.arguments)
    if "config" in named and sources.document(named["config"]) is None:
        raise sources.absent(named["config"])
    return sources.with_words()


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes; a feed-forward is as wide as Llama's, and the vocabulary is the tokenizer's where none is said.

    Raises InputError for settings of models of other programs: of state spaces, recurrences, several heads.
    """
    own = {key.split(".")[1] for key in keys.values if key.startswith("model.")}
    if others := sorted(own - OF_MODEL):
        raise draft.refused(
            f"model.{others[0]} is of no plain transformer: of lingua's programs apps/main alone is read"
        )
    config = draft.config
    for name, key in (SIZES | MAY_SIZE).items():
        value = keys.whole(f"model.{key}", least=-1)
        if value is not None and value > 0:
            config[name] = value
    width, each = config.get("hidden_size"), config.get("head_dim")
    if width and each:
        config.setdefault("num_attention_heads", width // each)
    if width:
        config["intermediate_size"] = _feed_forward(keys, width)
    config["model_type"] = "llama"
    config["tie_word_embeddings"] = bool(keys.switch("model.weight_tying", default=False))
    if keys.whole("model.sliding_window"):
        draft.ignore(f"{keys.told('model.sliding_window')}: attention is priced over all tokens before")
    if "vocab_size" not in config:
        _vocabulary(draft, keys)


def _feed_forward(keys: Keys, width: int) -> int:
    """Return the width of the feed-forward: two thirds of four times the model's, rounded up to a multiple."""
    wide = int(2 * 4 * width / 3)
    if (factor := keys.word("model.ffn_dim_multiplier")) is not None:
        wide = int(float(factor) * wide)
    multiple = keys.whole("model.multiple_of", least=1) or 256
    return -(-wide // multiple) * multiple


def _vocabulary(draft: Draft, keys: Keys) -> None:
    """Set the vocabulary of the tokenizer; ask for it where its path names no model that is known."""
    path = keys.word("data.tokenizer.path") or keys.word("data.tokenizer.name") or ""
    found = vocabulary_of(path)
    if found is not None:
        draft.config["vocab_size"], told, sure = found
        draft.vocabulary_guessed = not sure
        draft.assume(f"vocabulary of {found[0]}: {told}")
    elif draft.question.architecture is None:
        raise draft.refused(
            f"the vocabulary is that of the tokenizer {path}, which is not here: --job model.vocab_size=N says it"
        )


def _mesh(draft: Draft, keys: Keys) -> None:
    """Set the degrees; copies are the ranks that shards and tensor parallelism leave."""
    for name in ("pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    tp = draft.degree("tp", keys, "distributed.tp_size", default=1) or 1
    draft.switches["sp"] = int(tp > 1)  # its plan cuts the norms over tokens
    kind = keys.word("distributed.fsdp_type") or "no_shard"
    if kind == "no_shard":
        draft.zero(0)
        return
    if kind != "full_shard":
        raise draft.refused(f"fsdp_type {kind}: expected full_shard or no_shard")
    draft.zero(2)
    draft.assume("layers stay gathered after their forward pass (ZeRO 2), as apps/main of lingua groups them")
    shards = keys.whole("distributed.dp_shard", least=1) or 1
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    if shards > 1 and world is not None:
        copies, left = divmod(world, shards * tp)
        if left or not copies:
            raise draft.refused(f"{world} GPUs do not divide by dp_shard {shards} x tp_size {tp}")
        if copies > 1:
            draft.put("replicas", copies, f"{world} GPUs / (dp_shard {shards} x tp_size {tp})")
