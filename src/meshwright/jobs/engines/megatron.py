"""Megatron-LM: launch scripts, command lines and YAML arguments; the defaults are those of its argument parser."""

import re
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from ...errors import InputError
from ...workload.architecture import MOST_LAYERS
from ..draft import Draft
from ..job import Job
from ..keys import Keys, dotted_keys
from ..launch import flags_of, further_words
from ..models import vocabulary_of
from ..optimizers import momentum_of, read_optimizer, take_moments
from ..options import JobOptions
from ..ranks import DEPENDS, world_of
from ..sources import Sources
from .megatron_deepspeed import read_deepspeed, with_deepspeed_file
from .megatron_refusals import refuse_flags, take_ramp
from .megatron_stages import virtual, without_idle
from .wrappers import PRIMUS_HARMLESS, with_swift

# Flags without effect on the time or memory of a step: optimiser hyperparameters, files, logs, random numbers.
HARMLESS = (
    r"(?:adam|sgd|muon)-(?:beta.*|eps|momentum)",
    r"(?:lr|min-lr|weight-decay|start-weight-decay|end-weight-decay|clip-grad|init-method|initial-loss|loss-scale).*",
    r"(?:override-opt|use-checkpoint-opt|min-loss-scale|hysteresis|decoupled).*",
    r"(?:save|load|ckpt|checkpoint-dir|exit|tensorboard|wandb|one-logger|log|eval|train|valid|test|timing|profile).*",
    r"(?:no-load|no-save|finetune|auto-detect-ckpt|async-save|dist-ckpt|non-persistent|no-initialization|use-dist-ckpt).*",
    r"(?:data|split|seed|num-workers|dataloader|mock-data|per-split|num-dataset|reset-|eod-|no-create|create-|mmap).*",
    r"(?:merge-file|tiktoken|distributed-(?:backend|timeout).*|local-rank|rdzv.*|master-.*|node-rank|rank|world-size)",
    r"(?:mscale.*|beta-(?:fast|slow)|norm-epsilon|layernorm-epsilon|rotary-.*|rope-.*|use-rope-scaling|attention-softmax-in-fp32|no-masked.*)",
    r"(?:moe-(?:router-(?!topk$|padding|fusion).*|aux-loss-coeff|z-loss-coeff|input-jitter-eps|per-layer-logging))",
    r"(?:fp8-(?:amax.*|margin|interval)|apply-layernorm-1p|check-.*|use-mcore-models|use-legacy-models|mcore.*|spec)",
    r"(?:use-precision-aware-optimizer|name|job.*|experiment.*|yaml-cfg|use-cpu-initialization|apply-residual.*|sft.*|task|run.*|model.*)",
    r"(?:use-flash-attn.*|abort-on-unmet.*|kill-switch-path|deepspeed-activation-checkpointing|use-mpi|embed-layernorm)",
    r"(?:mtp-loss-scaling-factor|add-qkv-bias|transformer-impl|calculate-per-token-loss|disable-straggler.*|enable-experimental|export.*|inference.*)",
)
SIZES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num-layers",),
    "hidden_size": ("hidden-size",),
    "num_attention_heads": ("num-attention-heads",),
    "intermediate_size": ("ffn-hidden-size",),
    "head_dim": ("kv-channels",),
    "vocab_size": ("padded-vocab-size", "pad-vocab-size-to", "vocab-size"),
    "num_experts": ("num-experts", "num-moe-experts"),
    "moe_intermediate_size": ("moe-ffn-hidden-size", "moe-intermediate-size"),  # the second one is MindSpeed-LLM's
    "num_experts_per_tok": ("moe-router-topk",),
    "q_lora_rank": ("q-lora-rank",),
    "kv_lora_rank": ("kv-lora-rank",),
    "qk_nope_head_dim": ("qk-head-dim", "qk-nope-head-dim"),  # the second ones are Pai-Megatron-Patch's
    "qk_rope_head_dim": ("qk-pos-emb-head-dim", "qk-rope-head-dim"),
    "v_head_dim": ("v-head-dim",),
}

TOKENIZER = ("tokenizer-type", "patch-tokenizer-type", "tokenizer-model", "tokenizer-name-or-path", "vocab-file")
EXPERT_RANKS = ("expert-model-parallel-size", "expert-parallel-size", "moe-expert-parallel-size")
SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}  # Megatron-FSDP's strategies
SGD_MOMENTUM = 0.9  # Megatron's default (megatron/training/arguments.py)
# Megatron's defaults of multi-latent attention (megatron/training/arguments.py, MLATransformerConfig)
LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a Megatron-LM launch: flags, or YAML arguments, with nodes and ranks from its launcher."""
    draft = Draft("megatron", sources.names, question)
    keys, wrapper = megatron_keys(sources)
    if sources.launch is not None:
        world_of(sources.launch, draft)
    elif (nodes := keys.whole("nnodes", "num-nodes")) is not None:
        draft.nodes_times((nodes, keys.told("nnodes")), _per_node(keys))
    fill(draft, keys)
    _refuse_guess(draft, keys, sources)
    _other_models(draft, keys, "" if sources.launch is None else sources.launch.program)
    refuse_flags(draft, keys, whole=_says_all(keys, sources, wrapped=bool(wrapper)))
    read_deepspeed(draft, keys)
    _sums(draft, keys, "" if sources.launch is None else sources.launch.launcher)
    if "peft" in keys:
        draft.adapters(f"tuner_type {keys.word('peft')}", keys.whole("lora-rank", least=1))
    return draft.conclude(sources, keys, (*HARMLESS, *PRIMUS_HARMLESS, *wrapper))


def _sums(draft: Draft, keys: Keys, launcher: str) -> None:
    """Say how gradients add up under bf16, fp8 beside it or not (arguments.py, accumulate_allreduce_grads_in_fp32)."""
    held = keys.word("main-grads-dtype")
    half = keys.switch("grad-reduce-in-bf16", default=False) or held in {"bf16", "fp16"}
    if keys.switch("bf16", default=False) and launcher != "deepspeed" and "deepspeed" not in keys:
        draft.half_sums = bool(half)


# of MindSpeed-LLM on torch's FSDP, which builds the model of Hugging Face that this folder has
FROM_FOLDER = "init-from-hf-path"
# programs whose models flags of a decoder do not describe, and flags that say so
OTHERS = re.compile(
    r"(?:^|[/_-])(?:mamba|hybrid|t5|retro|vision|vlm|multimodal|ict|realm|biencoder|dino|inpaint)\w*\.py$"
)
MORE_LAYERS = (
    *("hybrid-layer-pattern", "hybrid-override-pattern", "hybrid-attention-ratio", "mamba-state-dim"),
    *("vision-model-type", "language-model-type", "freeze-LM", "freeze-ViT"),  # a vision model before the decoder
)


def _other_models(draft: Draft, keys: Keys, program: str) -> None:
    """Take back the sizes of a model that is no plain decoder: `--model` is asked for."""
    match = OTHERS.search(program)
    flag = next((name for name in MORE_LAYERS if name in keys), None)
    if (match or flag) and draft.config:
        draft.config.clear()
        draft.model_name = draft.model_name or f"the model of {program.rpartition('/')[2] or flag}"
        draft.note(
            f"{flag or program.rpartition('/')[2]}: the layers are not those of a plain decoder; "
            "give the model's config.json with --model"
        )
    if "pretrain_bert" in program:
        draft.ignore("pretrain_bert.py: attention sees both sides, priced as a decoder's")


def megatron_keys(sources: Sources) -> tuple[Keys, tuple[str, ...]]:
    """Return the flags of the command and the YAML arguments as one set of keys under the flags' names.

    Beside them stand the patterns of a wrapper's own flags that change nothing.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    flags = {} if sources.launch is None else flags_of(sources.launch.arguments)
    for _, path in _yaml_flags(flags):
        sources.document(path)  # where it is at hand, it is among them
    for document in sources.documents:
        for key, value in dotted_keys(document.data).items():
            name = key.rpartition(".")[2].replace("_", "-")
            values[name], origin[name] = value, document.name
    values |= flags
    with_deepspeed_file(values, origin, sources)
    given = {key.lstrip("-").replace("_", "-"): text for key, text in sources.given_keys.items()}
    values |= given
    origin |= dict.fromkeys(given, "--job")
    wrapper = with_swift(values, sources)
    return Keys(values, sources.names[0], sources=origin, flags=sources.launch is not None), wrapper


def _yaml_flags(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the flags that name a YAML of arguments, and what they name."""
    named = [(flag, value) for flag, value in values.items() if "yaml" in flag and isinstance(value, str)]
    return [(flag, value) for flag, value in named if value.endswith((".yaml", ".yml"))]


def _refuse_guess(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Raise InputError where no flag says the precision, and a YAML of arguments that is named is not here.

    Megatron's default is single precision, which a job has that says so nowhere; here another place may say it.
    """
    if draft.precision != "fp32" or draft.question.precision is not None:
        return
    absent = next((path for _, path in _yaml_flags(keys.values) if sources.document(path) is None), None)
    if absent is not None:
        raise sources.absent(absent)


def _says_all(keys: Keys, sources: Sources, *, wrapped: bool) -> bool:
    """Whether a flag that is not there is off: the words are Megatron's own, all of them are known."""
    launch = sources.launch
    if launch is None or wrapped or keys.switch("deepspeed", default=False) or further_words(launch.arguments):
        return False
    return not sources.documents or bool(_yaml_flags(keys.values))


def _per_node(keys: Keys) -> tuple[int, str] | None:
    value = keys.whole("nproc-per-node")
    return None if value is None else (value, keys.told("nproc-per-node"))


def fill(draft: Draft, keys: Keys) -> None:
    """Fill a draft from Megatron's flags."""
    draft.degree("tp", keys, "tensor-model-parallel-size", "model-parallel-size", default=1)
    draft.degree("pp", keys, "pipeline-model-parallel-size", default=1)
    draft.degree("cp", keys, "context-parallel-size", "ds-sequence-parallel-size", default=1)
    if (keys.whole("ds-sequence-parallel-size") or 1) > 1:
        draft.ignore("ds-sequence-parallel-size: Ulysses's all-to-alls are priced as context parallelism")
    draft.degree("ep", keys, *EXPERT_RANKS, default=1)
    draft.degree("dp", keys, "data-parallel-size")  # of forks, and of arguments as Megatron prints them
    if keys.switch("moe-tp-extend-ep", default=False):  # MindSpeed's: whole experts on the ranks of tp too
        draft.put("ep", draft.get("ep") * draft.get("tp"), f"{draft.origin('ep')} x {draft.origin('tp')}")
        draft.put("etp", 1, "moe-tp-extend-ep")
    elif draft.get("ep") > 1 or "expert-tensor-parallel-size" in keys:
        draft.degree("etp", keys, "expert-tensor-parallel-size", default=draft.get("tp"))
    sizes(draft, keys)
    virtual(draft, keys, draft.said_layers())
    without_idle(draft, keys)
    draft.take_batch("mbs", keys, "micro-batch-size", "batch-size")
    draft.take_batch("global", keys, "global-batch-size")
    if "mbs" not in draft.batch:
        made = ", ".join(note.removesuffix(DEPENDS) for note in draft.notes if note.endswith(DEPENDS))
        why = f"words of the command come of {shorten(made, 100)}" if made else "Megatron has no default"
        raise InputError(f"{keys.where}: micro-batch-size: missing ({why})")
    if "global" not in draft.batch and not draft.batch_open:
        draft.batch["steps"] = (1, "one micro-batch a step")
        draft.assume("global-batch-size: not set, so one micro-batch a rank and step (Megatron's default)")
    take_ramp(draft, keys)
    draft.seq_len = keys.whole("seq-length", "encoder-seq-length", least=1)
    if any(name in keys for name in MORE_LAYERS):  # where `seq-length` counts the embeddings of one image
        draft.seq_len = keys.whole("decoder-seq-length", least=1) or draft.seq_len
    draft.further_tokens(keys, "mtp-num-layers")
    states(draft, keys)
    overlaps(draft, keys)
    draft.switches["sp"] = int(bool(keys.switch("sequence-parallel", default=False)))
    draft.precision = precision(keys)
    draft.recipe("fp8-recipe", keys.word("fp8-recipe"))
    recomputation(draft, keys)
    if keys.switch("use-tp-pp-dp-mapping", default=False):
        draft.switches["order"] = "tp-cp-pp-dp"
    for flag in ("hidden-dropout", "attention-dropout"):
        share = keys.word(flag)
        if share is not None and share.strip("0.") != "":
            draft.ignore(f"{flag} = {share}: masks are kept for the backward pass")


def overlaps(draft: Draft, keys: Keys) -> None:
    """Set what travels beside computation: by default nothing does."""
    if keys.switch("tp-comm-overlap", default=False):
        draft.traits.append("tp-overlap")
    gradients = keys.switch("overlap-grad-reduce", default=False)
    weights = keys.switch("overlap-param-gather", default=False)
    set_waits(draft, gradients=bool(gradients), weights=bool(weights))
    keys.switch("moe-grouped-gemm", default=False)
    keys.switch("squared-relu", default=False)
    dispatching(draft, keys)


def set_waits(draft: Draft, *, gradients: bool, weights: bool) -> None:
    """Price as waited for what nothing hides: gradients after the backward pass, weights after the update."""
    draft.traits += [] if gradients else ["dp-waits"]
    draft.traits += [] if weights or draft.switches.get("zero") == 0 else ["gather-waits"]


def dispatching(draft: Draft, keys: Keys) -> None:
    """Say how rows reach their experts; the flexible dispatcher is DeepEP where it names no other."""
    dispatcher = keys.word("moe-token-dispatcher-type")
    backend = keys.word("moe-flex-dispatcher-backend") if dispatcher == "flex" else None
    keys.switch("moe-enable-deepep", default=False)
    padded = keys.values.get("moe-pad-expert-input-to-capacity") is not None  # not read: its rows are not priced
    draft.dispatch("moe-token-dispatcher-type", dispatcher, backend or "", padded=padded)


def states(draft: Draft, keys: Keys) -> None:
    """Set ZeRO and offload: the distributed optimizer, Megatron's FSDP or torch's."""
    stage = keys.whole("zero-stage") if keys.switch("deepspeed", default=False) else None
    strategy = keys.word("data-parallel-sharding-strategy")
    distributed = keys.switch("use-distributed-optimizer", default=False)
    if keys.switch("use-megatron-fsdp", "use-custom-fsdp", default=False):
        draft.switches["zero"] = SHARDED.get(strategy or "no_shard", 3)
        if strategy is None:
            draft.assume("data-parallel-sharding-strategy no_shard (Megatron-FSDP's default)")
    elif keys.switch("use-torch-fsdp2", default=False):
        draft.zero(3)
    elif stage is not None:
        draft.switches["zero"] = stage
    else:
        draft.zero(1 if distributed else 0)
    shards = keys.whole("num-distributed-optimizer-instances", least=1)
    if shards is not None and shards > 1:
        draft.put("replicas", shards, keys.told("num-distributed-optimizer-instances"))
        if draft.switches["zero"] < 2:
            draft.degrees.pop("replicas")
            draft.ignore(f"num-distributed-optimizer-instances = {shards}")
    hybrid = keys.word("optimizer") == "hybridadam"  # Pai-Megatron-Patch's, whose states live in host memory
    read_optimizer(draft, keys, "optimizer", momentum=momentum_of(keys, "sgd-momentum", default=SGD_MOMENTUM))
    if keys.switch("use-precision-aware-optimizer", default=False):
        take_moments(draft, keys, "exp-avg-dtype", "exp-avg-sq-dtype")
    if hybrid and keys.word("optimizer-offload-policy") == "auto":
        draft.ignore("optimizer-offload-policy = auto: priced as all states in host memory")
    if keys.switch("optimizer-cpu-offload", default=hybrid):
        share = keys.word("optimizer-offload-fraction") or "1"
        if (part := _fraction(share)) is None:
            raise draft.refused(f"optimizer-offload-fraction = {share}: expected a number from 0 to 1")
        if part > 0:
            draft.offload("optimizer")
            draft.offload_share = part
    elif keys.switch("cpu-offload", "cpu-optimizer", default=False):
        draft.offload("optimizer")
    elif keys.switch("swap-optimizer", default=False):  # MindSpeed's
        draft.offload("optimizer")
        draft.ignore("swap-optimizer: states come back to be updated on the device; priced as updated on the host")


def _fraction(text: str) -> float | None:
    """Return a number from 0 to 1, None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def sizes(draft: Draft, keys: Keys) -> None:
    """Set the sizes of the model under the keys of a config.json, or its name where another file has them."""
    if FROM_FOLDER in keys:
        named = keys.raw(FROM_FOLDER)
        draft.model_name = named if isinstance(named, str) else None
        draft.note(f"{FROM_FOLDER}: the model is the one of that folder, whatever sizes stand beside it")
        if keys.word("loss-compute-mode") == "chunk":
            draft.savings.loss = ("chunked", keys.told("loss-compute-mode"))
        return
    for name, flags in SIZES.items():
        value = keys.whole(*flags)
        if value is not None:
            draft.config[name] = value
    config: dict[str, Any] = draft.config
    if "hidden_size" not in config:
        draft.model_name = keys.word("model-name", "model", "tokenizer-model", "hf-model")
        if keys.switch("multi-latent-attention") is False:
            config["multi_latent_attention"] = False
        return
    two_thirds = keys.switch("swiglu", "gated-linear-unit", default=False) or keys.word("activation-func") == "swiglu"
    gated = keys.switch("geglu", default=False) or "glu-activation" in keys or two_thirds
    rms = (keys.word("normalization") or "LayerNorm").lower() == "rmsnorm"
    key_value_heads(draft, keys)
    patched = "qk-nope-head-dim" in keys  # Pai-Megatron-Patch has no switch for it
    latent = keys.switch("multi-latent-attention", "multi-head-latent-attention", default=patched)  # or MindSpeed-LLM's
    for name in () if latent else ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        config.pop(name, None)
    if latent:
        config.pop("head_dim", None)
        for name, default in LATENT.items():
            config.setdefault(name, default)
    if "intermediate_size" not in config:
        hidden = config["hidden_size"]
        config["intermediate_size"] = int(hidden * 8 / 3) // 64 * 64 if two_thirds else 4 * hidden
    config["model_type"] = "llama" if rms or gated else "gpt2"
    config["gated_mlp"] = bool(gated)
    config["qk_layernorm"] = bool(keys.switch("qk-layernorm", default=False)) and not latent
    biased = keys.switch("add-bias-linear", default=True)  # of YAML arguments, which hold what the flags set
    config["mlp_bias"] = bool(biased) and not keys.switch("disable-bias-linear", default=False)
    config["tie_word_embeddings"] = not keys.switch("untie-embeddings-and-output-weights", default=False)
    config["max_position_embeddings"] = keys.whole("max-position-embeddings") or 0
    positions(draft, keys)
    experts(draft, keys)
    vocabulary(draft, keys)


def key_value_heads(draft: Draft, keys: Keys) -> None:
    """Set the heads of keys and values; of flags Megatron takes groups of queries where their switch is on alone."""
    groups = keys.whole("num-query-groups", least=1)
    grouped = keys.switch("group-query-attention", default=False)
    if (heads := keys.whole("num-key-value-heads", least=1)) is not None:  # Megatron-DeepSpeed
        draft.config["num_key_value_heads"] = heads
    elif keys.word("attention-head-type") == "multiquery":  # bigcode's and Pai-Megatron-Patch's
        draft.config["num_key_value_heads"] = keys.whole("n-head-kv", least=1) or 1
    elif grouped or (groups and not (keys.flags and keys.source("num-query-groups") == keys.where)):
        draft.config["num_key_value_heads"] = groups or 1
    elif groups and groups != draft.config.get("num_attention_heads"):
        draft.note(
            f"{keys.told('num-query-groups')} has no effect without group-query-attention: "
            "every head has keys and values of its own"
        )


def positions(draft: Draft, keys: Keys) -> None:
    """Learned positions are parameters; rotary ones are none."""
    kind = keys.choice("position-embedding-type") or (
        "rope" if keys.switch("use-rotary-position-embeddings", default=False) else "learned_absolute"
    )
    if keys.switch("no-position-embedding", default=False) or not kind.startswith("learned"):
        draft.config["max_position_embeddings"] = 0


def experts(draft: Draft, keys: Keys) -> None:
    """Set how many experts a layer has, how wide they are and which layers have none."""
    config = draft.config
    if config.get("num_experts", 0) == 1 and "moe-expert-parallel-size" in keys:
        del config["num_experts"]  # one expert is a dense network
    if "num_experts" not in config:
        for name in ("moe_intermediate_size", "num_experts_per_tok"):
            config.pop(name, None)
        return
    old = "moe-expert-parallel-size" in keys  # Megatron-DeepSpeed
    config.setdefault("num_experts_per_tok", keys.whole("topk", least=1) or (1 if old else 2))
    if old and config["num_experts"] > 1:  # megatron/model/transformer.py: layers that `expert-interval` divides
        every = keys.whole("expert-interval", least=1) or 2
        layers = min(config.get("num_hidden_layers") or 0, MOST_LAYERS)
        config["layers_with_experts"] = [int((place + 1) % every == 0) for place in range(layers)]
    config.setdefault("moe_intermediate_size", config["intermediate_size"])
    shared = keys.whole("moe-shared-expert-intermediate-size")
    if (number := keys.whole("num-shared-experts", "n-shared-experts")) and shared is None:
        shared = number * config["moe_intermediate_size"]
    if shared:
        config["shared_expert_intermediate_size"] = shared
    pattern, first = keys.raw("moe-layer-freq"), keys.whole("first-k-dense-replace") or 0  # the latter MindSpeed-LLM's
    if pattern is None and not first:
        return
    layers = config.get("num_hidden_layers") or 0
    sparse = layers_with_experts(1 if pattern is None else pattern, layers)
    if sparse is not None and first:
        sparse = [0] * min(first, len(sparse)) + sparse[first:]
    if sparse is not None and layers and len(sparse) != layers <= MOST_LAYERS:
        raise InputError(f"{keys.where}: moe-layer-freq: expected {layers} layers (num-layers), got {len(sparse)}")
    dense = 0 if sparse is None or 1 not in sparse else sparse.index(1)
    if sparse is not None and sparse == [0] * dense + [1] * (len(sparse) - dense):
        config["first_k_dense_replace"] = dense
    elif sparse is not None:
        config["layers_with_experts"] = sparse
    else:
        draft.ignore(f"moe-layer-freq = {str(pattern)[:60]}")


def layers_with_experts(pattern: Any, layers: int) -> list[int] | None:
    """Return 1 for each layer with experts and 0 for a dense one, of Megatron's moe-layer-freq; None if it is no such.

    A number N makes every N-th layer one with experts, from the first; else a Python list such as "[0]*3+[1]*58".
    """
    if isinstance(pattern, list):
        return [int(bool(one)) for one in pattern]
    text = re.sub(r"[\s'\"()]", "", str(pattern))
    if text.isdecimal():
        every = int(text)
        return [int(place % every == 0) for place in range(min(layers, MOST_LAYERS))] if every > 0 else None
    found: list[int] = []
    for term in text.split("+"):
        match = re.fullmatch(r"\[([01](?:,[01])*),?\](?:\*(\d{1,4}))?", term)
        if match is None:
            return None
        found += [int(one) for one in match.group(1).split(",")] * int(match.group(2) or 1)
    return found


def vocabulary(draft: Draft, keys: Keys) -> None:
    """Set the vocabulary as Megatron pads it: to a multiple of 128 x tp unless said otherwise."""
    size = draft.config.get("vocab_size")
    tokenizer = " ".join(text for name in TOKENIZER if (text := keys.known_part(name)))
    if size is None and (known := vocabulary_of(tokenizer)) is not None:
        size, told, sure = known
        draft.vocabulary_guessed = not sure
        draft.assume(f"vocabulary of {size}: {told}")
    if size is not None:
        draft.config["vocab_size"] = size
    keys.raw("make-vocab-size-divisible-by")


def precision(keys: Keys) -> str:
    """Return the precision of the matrix products."""
    half = keys.switch("bf16", default=False)
    fp8 = keys.word("fp8-format", "fp8")
    if keys.switch("fp8-hybrid", "fp8-e4m3", default=False):
        fp8 = fp8 or "hybrid"  # the switches of before 2023
    recipe = keys.word("fp8-recipe")
    if keys.word("fp4-format", "fp4") not in {None, "False"}:
        if keys.values.get("fp4-recipe") == "nvfp4":  # the only one that is priced
            keys.raw("fp4-recipe")
        return "nvfp4"
    if fp8 not in {None, "False", "false"}:
        return "mxfp8" if recipe == "mxfp8" else "fp8"
    if half:
        return "bf16"
    return "fp16" if keys.switch("fp16", default=False) else "fp32"


def recomputation(draft: Draft, keys: Keys) -> None:
    """Set what is computed again, from granularity, method and layers, or the older flags."""
    kind = keys.word("recompute-granularity", "activations-checkpoint-granularity")
    method = keys.word("recompute-method", "activations-checkpoint-method")
    layers = keys.whole("recompute-num-layers", "activations-checkpoint-num-layers")
    modules = keys.raw("recompute-modules")
    if kind is None and "activations-checkpoint-method" in keys:
        kind = "full"  # before granularities there were only whole layers
    if keys.switch("recompute-activations", default=False):
        kind = "selective"
    if keys.switch("checkpoint-activations", default=False) if "checkpoint-activations" in keys else False:
        kind = "full"
    text = "" if modules is None else modules if isinstance(modules, str) else " ".join(map(str, modules))
    names = re.findall(r"\w+", text)
    words = [
        f"recompute-granularity {kind}",
        f"method {method}" if method else "",
        f"{layers} layers" if layers else "",
    ]
    words.append(f"modules {' '.join(names)}" if names else "")
    if kind == "selective" and names not in ([], ["core_attn"]):
        draft.recompute_modules(names)
    if kind == "full" and method == "block" and layers is not None:
        kind, draft.layers_again = ("full" if layers else "none"), layers
        told = f"recompute-method block, recompute-num-layers {layers}"
        if layers:
            draft.ignore(f"{told}: priced as average layers of each stage")
        else:
            draft.note(f"{told}: no layer is computed again, whatever recompute-granularity says")
    if kind == "full" and method == "uniform" and (layers or 1) > 1:
        draft.ignore(f"recompute-num-layers {layers}: priced as if each layer kept what enters it")
    named = {"full": "full", "selective": "selective"}
    draft.switches["recompute"] = named.get(kind or "", "none")
    draft.recompute_text = ", ".join(word for word in words if word) if kind else ""
