"""LitGPT's YAML and command lines: a model of its own under Fabric's FSDP, in full, by adapters, or from scratch.

Sources: Lightning-AI/litgpt:litgpt/pretrain.py, finetune/full.py, finetune/lora.py (their `setup`: defaults, strategy),
args.py (TrainArgs), config.py (Config), utils.py (parse_devices, get_default_supported_precision), and
Lightning-AI/pytorch-lightning:src/lightning/fabric/plugins/environments/slurm.py (nodes and tasks must agree).
"""

import re
from typing import Any

from ..draft import Draft
from ..job import Job
from ..keys import Keys, as_whole
from ..launch import Launch, flags_of
from ..optimizers import momentum_of, read_optimizer
from ..options import BY_LAYOUT, JobOptions
from ..ranks import ranks_of_node
from ..sources import Sources, named_arguments, plain_value

HARMLESS = (
    r"(?:data|eval|log|hf_config)(?:\..*)?|optimizer\.(?!class_path).*|optim\.(?!optimizer).*",
    r"train\.(?:save_interval|log_interval|lr_.*|epochs|max_tokens|max_steps|max_time|max_norm|min_lr|learning_rate)",
    r"train\.(?:weight_decay|beta[12]|decay_lr)|lora_(?:alpha|dropout)|seed|out_dir|resume|logger_name|io_dir",
    r"tokenizer_dir|initial_checkpoint_dir|access_token|name|model_config\.(?:name|hf_config.*|norm_eps|rope_.*|gelu_.*)",
    r"model_config\.(?:parallel_residual|shared_attention_norm|rotary_.*|scale_embeddings|block_size|vocab_size)",
    r"model_config\.(?:padding_multiple|padded_vocab_size|n_expert_per_token|attn_bias|lm_head_bias|norm_[12]|.*softcapping|rope_.*)",
)
FROM_SCRATCH, WHOLE, ADAPTERS = "pretrain", "finetune_full", "finetune_lora"
BATCHES = {FROM_SCRATCH: (512, 4), WHOLE: (16, 1), ADAPTERS: (16, 1)}  # sequences of a step, and of a pass on one rank
PRECISIONS = {
    **{"bf16-true": "bf16", "bf16-mixed": "bf16", "16-true": "fp16", "16-mixed": "fp16"},
    **{"32-true": "fp32", "32": "fp32"},
}
HALF = "bf16-true"  # weights, gradients and moments in half precision
FEW_BITS = {"nf4": "nf4", "nf4-dq": "nf4-nested", "fp4": "nf4", "fp4-dq": "nf4-nested", "int8-training": "int8"}
# what adapters are put on by default, and the switches of the rest
ADAPTED = {"query": True, "key": False, "value": True, "projection": False, "mlp": False, "head": False}
SIZES = {"num_hidden_layers": ("n_layer", 16), "hidden_size": ("n_embd", 4096), "num_attention_heads": ("n_head", 32)}
GATED = frozenset({"LLaMAMLP", "GemmaMLP", "LLaMAMoE"})
# the longest sequence of LitGPT's own models (`block_size`), to which pretraining cuts its samples where no file says
# another; not always that of the checkpoint: Gemma of 2024 has the default of 4096
BLOCKS: tuple[tuple[str, int], ...] = (
    (r"pythia-14m", 512),
    (r"pythia-31m", 1024),
    (r"pythia-.*|tiny-llama-1\.1b.*|falcon-(?:7b|40b|180b).*|open_llama_\d+b|olmo-[17]b-.*", 2048),
    (r"llama-2-\d+b.*|gemma-[27]b(?:-it)?|olmo-2-1124-.*|stablelm-.*", 4096),
    (r"llama-3-\d+b.*|gemma-2-\d+b.*", 8192),
    (r"llama-3\.[123]-.*|gemma-3-1b.*", 131072),
)


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a LitGPT YAML or command; InputError for what LitGPT itself refuses, and for Adapter."""
    method, keys = _method_and_keys(sources)
    draft = Draft("accelerate", sources.names, question)
    draft.note("LitGPT shards with Fabric's FSDP: read as FSDP")
    method = method or _method_of(keys, draft)
    if method not in BATCHES:
        raise draft.refused(f"LitGPT's {method} is not read: {BY_LAYOUT}")
    for name in ("tp", "pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    if doubt := keys.doubtful("num_nodes", "precision", "quantize", "lora_r"):
        raise draft.refused(f"{doubt}: is not set in the files; say --job NAME=VALUE")
    ranks = _ranks(draft, keys, sources.launch, method)
    _model(draft, keys, method)
    named = _precision(draft, keys)
    _states(draft, method, several=ranks is None or ranks > 1)
    if method == ADAPTERS:
        _adapters(draft, keys, named, several=ranks is None or ranks > 1)
    _batch(draft, keys, method, ranks)
    read_optimizer(
        draft, keys, "optimizer.class_path", "optimizer", "optim.optimizer",
        momentum=momentum_of(keys, "optimizer.init_args.momentum", "optimizer.momentum"),
    )  # fmt: skip
    return draft.conclude(sources, keys, HARMLESS)


def _method_and_keys(sources: Sources) -> tuple[str, Keys]:
    """Return what a command trains ("" where none says), and the settings with its flags on top.

    Raises InputError where the YAML that it names is not here.
    """
    launch = sources.launch
    words = {} if launch is None else named_arguments(launch)
    for flag in ("config", "c"):
        named = words.pop(flag, None)
        for path in named if isinstance(named, list) else [named] if isinstance(named, str) else []:
            if sources.document(path) is None:
                raise sources.absent(path)
    method, own = ("", None) if launch is None else _command(launch)
    values, origin = sources.settings()
    for key, value in words.items():
        values[key], origin[key] = value, launch.where if launch else ""
    if method == "finetune_qlora":
        method = ADAPTERS
        values = {"quantize": "bnb.nf4-dq", "precision": HALF} | values
    if own is not None and launch is not None:
        key = "model_name" if method == FROM_SCRATCH else "checkpoint_dir"
        values[key], origin[key] = plain_value(own), launch.where
    return method, sources.overridden(_flat(values), origin, sources.names[0])


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the model of an old release's `model` under its present name."""
    old = {key: value for key, value in values.items() if key.startswith("model.")}
    return {key: one for key, one in values.items() if key not in old} | {
        f"model_config.{key.removeprefix('model.')}": value for key, value in old.items()
    }


def _command(launch: Launch) -> tuple[str, str | None]:
    """Return what a command trains, and the model that it names without a flag."""
    words = list(launch.arguments)
    path = re.search(r"(pretrain|finetune/\w+)\.py$", launch.program)
    if path is not None:
        method = path[1].replace("/", "_")
    else:
        method = words.pop(0) if words else FROM_SCRATCH
        if method == "finetune":
            kinds = {"lora", "qlora", "full", "adapter", "adapter_v2"}
            method = f"finetune_{words.pop(0)}" if words and words[0] in kinds else ADAPTERS
    return method, words[0] if words and not words[0].startswith("-") else None


def _method_of(keys: Keys, draft: Draft) -> str:
    """Return what a YAML trains by its keys, where no command says it."""
    if any(key.startswith("lora_") for key in keys.values) or "quantize" in keys:
        return ADAPTERS
    if "checkpoint_dir" not in keys:
        return FROM_SCRATCH
    draft.assume("litgpt finetune_full: the file has a checkpoint_dir and no adapters")
    return WHOLE


def _ranks(draft: Draft, keys: Keys, launch: Launch | None, method: str) -> int | None:
    """Set the ranks, and how many copies FSDP keeps; return the ranks, None where nothing says them."""
    nodes = keys.whole("num_nodes", least=1)
    told = keys.told("num_nodes") if nodes else ""
    started = None if launch is None else launch.nodes
    if started is not None and nodes is not None and started[0] != nodes:
        raise draft.refused(f"{told} contradicts {started[1]}")
    if nodes is None and started is not None:
        nodes, told = started
    if nodes is None:
        nodes, told = 1, "num_nodes 1 (the default of LitGPT)"
    devices, of_devices = _devices(draft, keys, launch, method)
    if devices is None and draft.question.gpus is not None:
        if draft.question.gpus % nodes:
            raise draft.refused(f"--gpus {draft.question.gpus} is not a multiple of {told}")
        devices, of_devices = draft.question.gpus // nodes, ""
    if devices is not None:
        draft.gpus_per_node = devices
        draft.world = (nodes * devices, f"{of_devices} x {told}" if of_devices else f"--gpus {nodes * devices}")
    ranks = draft.question.gpus or (None if devices is None else nodes * devices)
    if method == FROM_SCRATCH and nodes > 1:
        draft.put("replicas", nodes, told)
        draft.note("pretraining shards inside a node and keeps a copy on each (HYBRID_SHARD)")
    return ranks


def _devices(draft: Draft, keys: Keys, launch: Launch | None, method: str) -> tuple[int | None, str]:
    """Return the ranks of a node and what says them; None where LitGPT takes all GPUs that it finds."""
    options = {} if launch is None else flags_of(launch.options)
    if (started := as_whole(options.get("devices"))) is not None and started > 0:  # of `fabric run`
        return started, f"devices {started}"
    number = keys.whole("devices", least=-1)
    if number is not None and number > 0:
        return number, keys.told("devices")
    if "devices" not in keys and method != FROM_SCRATCH:
        return 1, "devices 1 (the default of LitGPT)"
    if doubt := keys.doubtful("devices"):
        draft.note(f"{doubt} is known only where the job runs")
    per_node = None if launch is None else launch.per_node
    all_of = None if doubt else ranks_of_node(draft, "LitGPT takes all GPUs of a node")
    return per_node or all_of or (None, "")


def _model(draft: Draft, keys: Keys, method: str) -> None:
    """Set the model: by its name, or by the sizes of a `model_config`, whose defaults are LitGPT's."""
    name = keys.word("model_name", "model_config.name") or (keys.known_part("checkpoint_dir") or "").rstrip("/")
    draft.model_name = name.rpartition("checkpoints/")[2] or None
    keys.raw("checkpoint_dir")
    longest = keys.whole("train.max_seq_length", least=1)
    if longest is not None and method != FROM_SCRATCH:
        draft.assume(f"{keys.told('train.max_seq_length')}: the longest sample is taken to have that many tokens")
    draft.seq_len = longest
    own = [key for key, value in keys.values.items() if key.startswith("model_config.") and value is not None]
    if not any(key.rpartition(".")[2] in {"n_layer", "n_embd", "n_head"} for key in own):
        if longest is None and method == FROM_SCRATCH:
            draft.seq_len = _block_of(draft)
        return
    if "model_config.latent_attention.kv_lora_rank" in keys and draft.question.architecture is None:
        raise draft.refused("model_config.latent_attention is not read: give the model with --model")
    if longest is None and method == FROM_SCRATCH:
        draft.seq_len = _size(keys, "block_size") or 4096
    _sizes(draft, keys)


def _block_of(draft: Draft) -> int | None:
    """Return the tokens of a sample as the model that is named has them, None where its `block_size` is not known."""
    plain = (draft.model_name or "").rpartition("/")[2].lower()
    block = next((size for pattern, size in BLOCKS if re.fullmatch(pattern, plain)), None)
    if block is not None:
        draft.assume(
            f"samples of {block} tokens: LitGPT's block_size of {draft.model_name}, as no max_seq_length is set"
        )
    return block


def _size(keys: Keys, name: str) -> int | None:
    return keys.whole(f"model_config.{name}", least=1)


def _sizes(draft: Draft, keys: Keys) -> None:
    """Set the sizes of a `model_config` under the keys of a config.json."""
    config: dict[str, Any] = draft.config
    for key, (name, default) in SIZES.items():
        config[key] = _size(keys, name) or default
        if _size(keys, name) is None:
            draft.assume(f"{name} {default} (the default of LitGPT)")
    network = keys.word("model_config.mlp_class_name") or "GptNeoxMLP"
    plain = "RMS" not in (keys.word("model_config.norm_class_name") or "LayerNorm")
    config["model_type"] = "gpt2" if plain else "llama"
    config["gated_mlp"] = network in GATED
    config["mlp_bias"] = bool(keys.switch("model_config.bias", default=True))
    config["tie_word_embeddings"] = bool(keys.switch("train.tie_embeddings", default=False))
    config["qk_layernorm"] = bool(keys.switch("model_config.norm_qk", default=False))
    config["max_position_embeddings"] = 0  # rotary
    if (width := _size(keys, "intermediate_size")) is None and network in GATED:
        raise draft.refused("model_config: intermediate_size: missing (LitGPT has no default of it for this network)")
    config["intermediate_size"] = width or 4 * config["hidden_size"]
    config["num_key_value_heads"] = _size(keys, "n_query_groups") or config["num_attention_heads"]
    if (head := _size(keys, "head_size")) is not None:
        config["head_dim"] = head
    rows, multiple = _size(keys, "vocab_size") or 50254, _size(keys, "padding_multiple") or 512
    config["vocab_size"] = _size(keys, "padded_vocab_size") or -(-rows // multiple) * multiple
    if (experts := keys.whole("model_config.n_expert")) is not None and experts:
        config["num_experts"] = experts
        config["num_experts_per_tok"] = _size(keys, "n_expert_per_token") or 0
        config["moe_intermediate_size"] = _size(keys, "moe_intermediate_size") or config["intermediate_size"]


def _precision(draft: Draft, keys: Keys) -> str:
    """Set the types of weights and of what is computed; return the name that LitGPT has for them."""
    named = (keys.word("precision") or "").lower()
    if not named:
        named = "bf16-mixed"
        draft.assume("precision bf16-mixed (the default of LitGPT on GPUs that have it)")
    if named not in PRECISIONS:
        raise draft.refused(f"{keys.told('precision')}: expected one of {', '.join(PRECISIONS)}")
    draft.precision = PRECISIONS[named]
    if named == HALF:
        draft.stack = "litgpt"
    elif named == "16-true":
        draft.ignore("precision 16-true: priced with copies of the weights in single precision")
    return named


def _states(draft: Draft, method: str, *, several: bool) -> None:
    """Set what FSDP shards and recomputes: all of it on several ranks, nothing on one."""
    draft.zero(3 if several else 0)
    if method == FROM_SCRATCH:
        draft.recompute("none", "pretraining keeps its activations")
        return
    draft.recompute("full" if several else "none", "each block again" if several else "one rank keeps its activations")


def _adapters(draft: Draft, keys: Keys, named: str, *, several: bool) -> None:
    """Have adapters trained alone, beside frozen weights in few bits where the job says so."""
    rank = keys.whole("lora_r", least=1)
    if rank is None:
        rank = 8
        draft.assume("adapters of rank 8 (the default of LitGPT)")
    on = [name for name, default in ADAPTED.items() if keys.switch(f"lora_{name}", default=default)]
    draft.adapters("LoRA", rank, " and ".join(on))
    kind = (keys.word("quantize") or "").removeprefix("bnb.")
    if not kind:
        return
    told = keys.told("quantize")
    if kind not in FEW_BITS:
        raise draft.refused(f"{told}: expected one of {', '.join(f'bnb.{name}' for name in FEW_BITS)}")
    if several:
        raise draft.refused(f"{told}: LitGPT quantizes on one device alone (devices 1, num_nodes 1)")
    if "mixed" in named:
        raise draft.refused(f"{told} contradicts precision {named}: LitGPT quantizes under bf16-true or 32-true")
    if kind.startswith("fp4"):
        draft.assume(f"{told}: fp4 is as large as nf4, and priced as it")
    draft.savings.weights = (FEW_BITS[kind], told)


def _batch(draft: Draft, keys: Keys, method: str, ranks: int | None) -> None:
    """Set the batch as LitGPT rounds it: each rank's share of a step down, in passes down."""
    whole, each = BATCHES[method]
    mbs = draft.take_batch("mbs", keys, "train.micro_batch_size") or each
    total = draft.take_batch("global", keys, "train.global_batch_size") or whole
    if draft.batch_open:
        return
    for name, default in (("global_batch_size", whole), ("micro_batch_size", each)):
        if f"train.{name}" not in keys:
            draft.assume(f"{name} {default} (the default of LitGPT)")
    told = f"global_batch_size {total}"
    draft.batch["mbs"] = (mbs, f"micro_batch_size {mbs}")
    if ranks is None:
        draft.batch["global"] = (total, told)
        return
    passes = total // ranks // mbs
    if not passes:
        raise draft.refused(f"{told} on {ranks} ranks leaves no whole pass of micro_batch_size {mbs}")
    run = passes * mbs * ranks
    if run != total:
        draft.note(f"{told}: LitGPT rounds a rank's share down to {passes} x {mbs} sequences, {run} in all")
    draft.batch["global"] = (run, told)
