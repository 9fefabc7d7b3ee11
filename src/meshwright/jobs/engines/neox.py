"""GPT-NeoX's YAML files: Megatron's model and degrees with DeepSpeed's states and batch, on the hosts of a hostfile.

Sources: EleutherAI/gpt-neox:configs/neox_arguments.md, megatron/neox_arguments/arguments.py (precision, batch) and
deepy.py (the launcher).
"""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from ...errors import InputError
from ..draft import Draft
from ..hosts import chosen_hosts, even_slots, hostfile_text, read_hosts, slots_of, told_hosts
from ..job import OLD_OFFLOAD, Job
from ..keys import Keys, dotted_keys
from ..optimizers import momentum_of, read_optimizer
from ..options import BY_LAYOUT, JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:data|train_data|test_data|valid_data|vocab|merge|tokenizer|save|load|log|tensorboard|wandb|checkpoint_(?!act)).*",
    r"(?:optimizer\.(?!type).*|scheduler|min_lr|lr.*|warmup|weight_decay|gradient_clipping|hysteresis|train_iters|eval.*|seed|steps_per.*)",
    r"(?:launcher|hostfile|include|exclude|master_.*|distributed_backend|mmap_warmup|split|num_workers|keep_last.*|wall_clock.*)",
    r"(?:rotary.*|rope.*|max_position.*|attention_dropout|hidden_dropout|init_method.*|output_layer_init.*|layernorm.*)",
    r"(?:scaled_.*|bias_gelu.*|bias_dropout.*|masked_softmax.*|apply_query.*|partition_activations|synchronize_each.*|contiguous_check.*)",
    r"(?:use_bias_in.*|gpt_j_.*|output_layer_parallelism|deepspeed_mpi|deepspeed_slurm|no_ssh_check|fp32_allreduce|extra_save.*)",
    r"zero_optimization\.(?:allgather.*|reduce_.*|overlap_comm|contiguous_gradients|round_robin.*|load_from.*)|(?:fp16|bf16)\.(?!enabled).*",
)
SIZES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_kv_heads",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
}
NO_ATTENTION = frozenset({"rwkv", "mamba", "gmlp", "amlp"})
SPARSE = frozenset({"local", "sparse_fixed", "sparse_variable", "bigbird", "bslongformer"})
TYPES = {"bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "half": "fp16", "float16": "fp16", "fp32": "fp32"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of GPT-NeoX files; InputError where they have what is not read (experts, other layers)."""
    keys = _keys(sources)
    draft = Draft("deepspeed", sources.names, question)
    draft.note("GPT-NeoX: Megatron's model with DeepSpeed's ZeRO stage")
    if (keys.whole("moe_num_experts", "num_experts") or 1) > 1:
        raise draft.refused(f"experts of GPT-NeoX are not read: {BY_LAYOUT}")
    _world(draft, keys, sources)
    draft.degree("tp", keys, "model_parallel_size", default=1)
    draft.degree("cp", keys, "context_parallel_size", default=1)
    stages = keys.whole("pipe_parallel_size")
    draft.put("pp", stages or 1, keys.told("pipe_parallel_size") if stages else "pipe_parallel_size 1")
    _model(draft, keys)
    _attention(draft, keys)
    draft.take_batch("mbs", keys, "train_micro_batch_size_per_gpu")
    draft.take_batch("steps", keys, "gradient_accumulation_steps", "gas")
    draft.take_batch("global", keys, "train_batch_size")
    if "steps" not in draft.batch and "global" not in draft.batch:
        draft.batch["steps"] = (1, "gradient_accumulation_steps 1")
        draft.assume("gradient_accumulation_steps 1 (the default of GPT-NeoX)")
    draft.seq_len = keys.whole("seq_length", least=1)
    draft.switches["sp"] = int(bool(keys.switch("sequence_parallel", default=False)))
    _states(draft, keys)
    read_optimizer(draft, keys, "optimizer.type", momentum=momentum_of(keys, "optimizer.params.momentum"))
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings of all files under names with underscores; InputError for one that the launch names alone."""
    names = [] if sources.launch is None else _named(sources.launch.arguments)
    for word in names:
        if all(sources.document(name) is None for name in (word, f"{word}.yml", f"{word}.yaml")):
            raise sources.absent(word)
    stems = {PurePath(word).stem if word.endswith((".yml", ".yaml")) else PurePath(word).name for word in names}
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for document in sources.documents:
        if stems and PurePath(document.name).stem not in stems:
            continue
        for key, value in dotted_keys(document.data).items():
            head, dot, rest = key.partition(".")
            name = f"{head.replace('-', '_')}{dot}{rest}"
            if name in values and values[name] != value:
                told = f"{name} {values[name]} ({origin[name]}) contradicts {value} ({document.name})"
                raise InputError(f"{told}: GPT-NeoX refuses a key in two files")
            values[name], origin[name] = value, document.name
    return sources.overridden(values, origin, sources.names[0])


def _named(arguments: Sequence[str]) -> list[str]:
    """Return the configurations that deepy.py is given: words without a flag, behind its program and its folder."""
    folders = {place + 1 for place, word in enumerate(arguments) if word in {"-d", "--conf_dir"}}
    inside = "".join(f"{arguments[place]}/" for place in folders if place < len(arguments))
    return [
        f"{inside}{word}"
        for place, word in enumerate(arguments)
        if place not in folders and not word.startswith("-") and not word.endswith(".py")
    ]


def _world(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Set the ranks by the hostfile, else by the launch; a host may be left out by a comment."""
    world_of(sources.launch, draft)
    path = keys.word("hostfile")
    named = None if path is None else hostfile_text(path, sources.hostfiles, sources.folder)
    text = named if path else next(iter(sources.hostfiles.values()), None)
    if text is None and path:
        draft.note(f"hostfile {path} is not here: give it too, or --gpus")
    each, nodes = keys.whole("num_gpus", least=1), keys.whole("num_nodes", least=1)
    if text is None:
        if not path and draft.world is None and each is not None:
            draft.nodes_times(
                (nodes or 1, keys.told("num_nodes") if nodes else "one node"), (each, keys.told("num_gpus"))
            )
        return
    said = [key for key in ("include", "exclude", "num_nodes", "num_gpus") if key in keys]
    slots = chosen_hosts(read_hosts(text), {key: keys.raw(key) for key in said})
    if slots is None:
        draft.note(f"{', '.join(map(keys.told, said))}: not of the hosts of the hostfile; give --gpus")
    elif slots:
        draft.world = (len(slots_of(slots)), told_hosts(slots))
        draft.gpus_per_node = even_slots(slots)


def _model(draft: Draft, keys: Keys) -> None:
    """Set the sizes of the model under the keys of a config.json."""
    config = draft.config
    for name, key in SIZES.items():
        if (value := keys.whole(key, least=1)) is not None:
            config[name] = value
    activation = (keys.word("activation") or "gelu").lower()
    of_llama = keys.word("mlp_type") == "llama"
    gated = activation in {"swiglu", "geglu", "reglu", "bilinear", "glu"} or of_llama
    config["intermediate_size"] = _width(draft, keys, gated=gated, of_llama=of_llama)
    config["model_type"] = "llama" if "rms" in (keys.word("norm") or "layernorm") or gated else "gpt2"
    config["gated_mlp"] = gated
    config["mlp_bias"] = not gated and bool(keys.switch("use_bias_in_mlp", default=True))
    config["tie_word_embeddings"] = not keys.switch("no_weight_tying", default=False)
    learned = (keys.word("pos_emb") or "learned") == "learned"
    config["max_position_embeddings"] = (keys.whole("max_position_embeddings") or 0) if learned else 0
    _vocabulary(draft, keys)


def _vocabulary(draft: Draft, keys: Keys) -> None:
    """Set the vocabulary of GPT-NeoX's own tokenizer, or of GPT-2's, which is the default, padded as it pads it.

    Source: EleutherAI/gpt-neox:megatron/neox_arguments/neox_args.py and megatron/tokenizer/tokenizer.py.
    """
    kind = keys.word("tokenizer_type") or "GPT2BPETokenizer"
    own = re.search(r"20B_tokenizer|gpt-?neox", f"{kind} {keys.word('vocab_file') or ''}", re.IGNORECASE)
    if "vocab_size" in draft.config or not (own or kind == "GPT2BPETokenizer"):
        return
    multiple = (keys.whole("make_vocab_size_divisible_by", least=1) or 128) * draft.get("tp")
    size, whose = (50277, "GPT-NeoX's tokenizer") if own else (50257, kind)
    whose += "" if own or "tokenizer_type" in keys else " (the default of GPT-NeoX)"
    draft.config["vocab_size"] = -(-size // multiple) * multiple
    draft.assume(f"vocabulary of {draft.config['vocab_size']}: the {size} of {whose}, in whole rounds of {multiple}")


def _attention(draft: Draft, keys: Keys) -> None:
    """Set the kernels of attention by its kinds, and refuse layers that have none.

    Source: EleutherAI/gpt-neox:megatron/model/transformer.py (ParallelSelfAttention: "flash" alone is a fused kernel,
    or Transformer Engine's).
    """
    kinds = set(re.findall(r"[a-z_]+", str(keys.raw("attention_config") or "global").lower()))
    if others := sorted(kinds & NO_ATTENTION):
        raise draft.refused(f"attention_config: layers of {', '.join(others)} are not read: {BY_LAYOUT}")
    if sparse := sorted(kinds & SPARSE):
        draft.ignore(f"attention_config: {', '.join(sparse)}: priced as attention to all tokens before")
    fused = keys.switch("te_mha", default=False)
    if not fused and "flash" not in kinds:
        draft.without_fused_attention("attention_config names no flash")


def _width(draft: Draft, keys: Keys, *, gated: bool, of_llama: bool) -> int:
    """Return the width of the network between its matrices.

    A gated one is made as large as the plain one of a size: a third of it (megatron/model/transformer.py, ParallelMLP);
    LLaMA's of before 2024 has the size itself (LLaMAParallelMLP).
    """
    hidden, said = draft.config["hidden_size"], draft.config.get("intermediate_size")
    factor, multiple = keys.word("expansion_factor"), keys.whole("mlp_multiple_of", least=1) or 256
    whole = said or (
        int(float(factor) * hidden) if factor and re.fullmatch(r"\d{1,3}(?:\.\d+)?", factor) else 4 * hidden
    )
    if not gated or (of_llama and said):
        return int(whole)
    width = int(2 * hidden * 4 / 3) if of_llama else int(whole * 2 / 3) // 2
    width = -(-width // multiple) * multiple
    if said:
        draft.assume(f"a gated network {width} wide: a third of {keys.told('intermediate_size')}, as GPT-NeoX makes it")
    return width


def _states(draft: Draft, keys: Keys) -> None:
    """Set ZeRO, offload, recomputation and precision."""
    stage = keys.whole("zero_optimization.stage") or 0
    if stage > 3:
        raise draft.refused(f"zero_optimization.stage {stage}: expected 0 to 3")
    draft.switches["zero"] = stage
    device = (keys.word("zero_optimization.offload_optimizer.device") or "none").lower()
    weights = (keys.word("zero_optimization.offload_param.device") or "none").lower()
    old = keys.switch("zero_optimization.cpu_offload", default=False)
    if keys.switch(*(f"zero_optimization.{name}" for name in OLD_OFFLOAD), default=False):
        weights = "cpu"
    draft.offload(
        "parameters" if weights != "none" and stage == 3 else "optimizer" if old or device != "none" else "none"
    )
    again = keys.switch("checkpoint_activations", default=False)
    draft.recompute("full" if again else "none", f"checkpoint_activations {str(bool(again)).lower()}")
    if again and (each := keys.whole("checkpoint_num_layers", least=1) or 1) > 1:
        draft.ignore(f"checkpoint_num_layers = {each}: priced as a checkpoint of each layer")
    if keys.switch("partition_activations", default=False):
        draft.ignore("partition_activations: each rank of tp keeps a part of a checkpoint; priced as whole ones")
    _precision(draft, keys)


def _precision(draft: Draft, keys: Keys) -> None:
    """Set the precision; a `type` of fp16's section is heeded by releases 1 alone (their "derive precision")."""
    named = (keys.word("precision") or "").lower()
    kind = TYPES.get((keys.word("fp16.type") or "").lower())
    enabled = keys.switch("fp16.enabled", default=False)
    if kind == "bf16" and TYPES.get(named) in {None, "fp16"}:
        later = named or ("fp16" if enabled else "fp32")
        draft.assume(
            f"precision bf16: {keys.told('fp16.type')}, which GPT-NeoX 1 heeds; GPT-NeoX 2 computes in {later}"
        )
        named = "bf16"
    elif enabled and not named:
        named = "fp16"
    elif keys.switch("bf16.enabled", default=False) and not named:
        named = "bf16"
    elif not named:
        draft.assume("precision fp32: no file switches mixed precision on")
    draft.precision = TYPES.get(named, "fp32")
