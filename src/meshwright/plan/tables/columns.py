"""Columns of a table of runs, with what each means; and the words that its cells may hold."""

import difflib
import itertools
import re
from collections.abc import Iterable

from ...errors import InputError
from .cells import FLAGS, is_empty

# what enters a prediction
INPUTS = {
    "id": "name of the row",
    "family": "stack that ran it, as `--stack help` lists them; others: generic facts; empty: of the year, or the "
    "default of `plan`",
    "year": "of the run: tells how old a stack is that nobody knows or names (2024)",
    "gpu": "accelerator, as the catalogue or a data sheet names it",
    "num_gpus": "GPUs in all (nodes x GPUs of one; tp x pp x cp x dp)",
    "nodes": "nodes, in place of num_gpus or gpus_per_node",
    "gpus_per_node": "GPUs of a node (that of the catalogue)",
    "inter_node_Gbps_per_node": "rate of all NICs of a node, per direction, Gb/s (that of the catalogue)",
    "model_name": "model of the catalogue, where `config` and `hidden` are empty",
    "config": "path of a config.json, relative to the table or absolute",
    "layers": "layers; of a model by its name: this number of its first ones",
    "dense_layers": "first layers without experts (those of the model; 0)",
    "hidden": "width of the residual stream",
    "heads": "query heads",
    "kv_heads": "key-value heads (as many as heads)",
    "ffn_hidden": "width inside the network (4 x hidden)",
    "vocab": "rows of the embedding (51200)",
    "gated_mlp": "1: three matrices in the network, 0: two (0; 1 where ffn_hidden is said and not 4 x hidden)",
    "tied": "1: the output uses the embedding's weight (1 without gate, 0 with one)",
    "experts": "experts of a layer",
    "top_k": "experts of a token",
    "expert_ffn": "width inside an expert",
    "seq_len": "tokens of a sequence",
    "global_batch_sequences": "sequences of a step",
    "global_batch_tokens": "tokens of a step, in place of global_batch_sequences",
    "accumulation_steps": "micro-batches of a step on one rank of dp: with micro_batch the batch, where none is stated",
    "micro_batch": "sequences of a micro-batch (1)",
    "layout": "as `--layout` takes it, in place of the columns of its keys: tp=4,pp=2,fsdp=8, or TP4 PP2 DP8",
    "tp": "tensor parallelism (1)",
    "pp": "pipeline stages (1)",
    "dp": "data parallelism (what is left of the GPUs)",
    "vpp": "virtual stages of a pipeline rank (1)",
    "cp": "context parallelism (1)",
    "ep": "expert parallelism (1)",
    "etp": "tensor parallelism inside an expert (tp; 1 where ep takes its ranks)",
    "order": "axes from the innermost out (tp-cp-dp-pp)",
    "schedule": "gpipe, 1f1b, interleaved, zb (interleaved with vpp, else 1f1b)",
    "zero_stage_fsdp": "0 to 3, ddp, distributed optimizer, fsdp, fsdp=N, hsdp; or FSDP of 0 and 1, or ranks",
    "replicas": "copies of a model that is sharded (1)",
    "seq_parallel": "1: sequence parallelism beside tensor parallelism (what the stack does)",
    "recompute": "none, selective, full (what the stack does)",
    "activations_away": "kept in the hosts' memory: input (of a recomputed layer), and of results kept by name (none)",
    "recompute_modules": "what selective computes again: core_attn, layernorm, mla_up_proj, moe_act, mlp, moe, ...",
    "offload": "what lives in the memory of the GPUs' hosts: none, optimizer, parameters (none)",
    "precision": "of the products: bf16, fp16, fp8, fp8-row, fp8-block, mxfp8, nvfp4, fp32 (bf16)",
    "optimizer": "adamw, adamw-fused, -fp32, -bf16, adam8bit, lion, muon, adafactor, sgd-momentum, sgd (adamw)",
    "weights": "held as fp32, as bf16 without a master copy, frozen as nf4, nf4-nested, int4, int8 (as by the stack)",
    "loss": "logits: whole, compiled, half, chunked in 8 parts, fused with the output (what the stack does)",
    "overlap": "what computation hides: none, or some of tp, dp, pp, ep, as tp+dp (what the stack does)",
    "mtp_layers": "modules that predict further tokens, trained beside the layers (0)",
    "lora_rank": "rank of adapters on all matrices but those of routed experts; the rest is frozen (0: none)",
    "source": "where the row is from; read, with notes, for traits of a stack's releases",
    "notes": "what sets the run apart; read for dispatchers, graphs of the whole iteration and overlaps that are off",
}
# what is compared with a prediction, and what is carried along
MEASURED = {
    "step_time_s": "measured seconds of a step",
    "tokens_per_s_per_gpu": "measured tokens a second of one GPU, from which the step is where that is empty",
    "tokens_per_s": "measured tokens a second of all GPUs, in place of those of one",
    "samples_per_s": "measured sequences a second of all GPUs, from which the step is where both are empty",
    "peak_memory_bytes_per_gpu": "measured peak of the fullest GPU",
}
WHOLE = frozenset(  # columns of whole numbers
    [
        *("num_gpus", "nodes", "gpus_per_node", "layers", "dense_layers", "hidden", "heads", "kv_heads", "ffn_hidden"),
        *("vocab", "experts", "top_k", "expert_ffn", "seq_len", "global_batch_sequences", "global_batch_tokens"),
        *("micro_batch", "accumulation_steps", "tp", "pp", "dp", "vpp", "cp", "ep", "etp", "replicas", "mtp_layers"),
        "lora_rank",
    ]
)
CARRIED = frozenset(
    [
        "intra_node",
        "params_B",
        "reported_metric",
        "reported_value",
        "tflops_per_gpu_model",
        "mfu",
        "step_spread_share",
        "repeats",
        "peak_allocated_GiB",
        "peak_reserved_GiB",
        "allocated_GiB_by_rank",
    ]
)
SCHEDULE_WORDS = {
    **{"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved", "interleaved1f1b": "interleaved"},
    **{"zb": "zb", "zerobubble": "zb", "interleavedzerobubble": "zb", "zbvzerobubble": "zb"},
}
LOOPED = re.compile(r"interleaved|^zbv")  # schedules that give a rank two or more stages
ZERO_1 = re.compile(r"(?<![a-z])zero[\s_-]*1(?!\d)")
_FSDP = r"fsdp(?:v?[12])?"  # PyTorch's, of either version
_SHARDS = re.compile(r"\bshard (\d+)|(?<![a-z])fsdp\s*=\s*(\d+)|(?<![a-z])fsdp[\s_-]*([3-9]\b|\d\d+)")  # 1, 2: versions
_DISTRIBUTED_OPTIMIZER = r"distributed[ _-]optimi[sz]er|dist[a-z]*[ _-]opt[a-z]*"  # Megatron-LM's
_ANY_SHARDING = rf"{_FSDP}|hsdp|(?:zero|stage)(?:[\s_-]*[1-3])?|sharding|{_DISTRIBUTED_OPTIMIZER}"

OVERLAP_OFF = re.compile(r"((?:\b[a-z0-9]+[\s/+,]+)+)overlap(?:ping)? (?:is |was )?off\b", re.IGNORECASE)
OVERLAP_WORDS = {
    **{"tp": "tp", "tensor": "tp", "pp": "pp", "p2p": "pp", "pipeline": "pp"},
    **dict.fromkeys(("dp", "grad", "grads", "gradient", "gradients", "param", "params"), "dp"),
}


def unread(names: Iterable[str]) -> dict[str, str]:
    """Return the columns that nothing reads, each with a hint at the one that may be meant, "" where none is close."""
    known = [*INPUTS, *MEASURED]
    found = {}
    for name in names:
        if name and name not in known and name not in CARRIED:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            found[name] = f"did you mean {close[0]}?" if close else ""
    return found


def without_fsdp(text: str) -> bool:
    """Return whether a cell says that FSDP does not shard, and no more: what its stack does then is not said."""
    return not is_empty(text) and not re.search(r"[a-z0-9]", _undenied(text.lower(), _FSDP))


def zero_stage(text: str, ranks: int, node: int) -> tuple[int, int] | None:
    """Return the stage that a cell names and the ranks that share one copy; None for one that names none.

    `ranks` hold the same parameters, `node` of them in one node. InputError for words that are not known.
    """
    plain = re.sub(r"\bassumed\b", "", text.lower()).strip()
    if is_empty(plain) or without_fsdp(plain):
        return None
    left = _undenied(plain, _ANY_SHARDING)
    if not re.search(r"[a-z0-9]", left):
        return 0, ranks
    part = _SHARDS.search(left)
    if part and int(part[part.lastindex or 0]) > 0:
        return 1 if ZERO_1.search(left) else 3, _shards(int(part[part.lastindex or 0]), ranks, text)
    stage = re.fullmatch(r"([0-3])(?:\.0*)?", left)
    stages = {stage[1]} if stage else set(re.findall(r"(?<![a-z])(?:zero|stage|z)[\s_-]*([0-3])(?!\d)", left))
    copies = re.search(r"(?<![a-z])(?:hsdp|hybrid)(?![a-z])", left) is not None
    number = int(stages.pop()) if len(stages) == 1 else None if stages or part else _named_stage(left, copies)
    if number is None:
        raise InputError(f"zero_stage_fsdp: {text!r}: expected 0 to 3, zero1, ddp, distributed optimizer, fsdp or hsdp")
    return number, min(node, ranks) if copies else ranks


def _shards(number: int, ranks: int, text: str) -> int:
    if ranks % number:
        raise InputError(f"zero_stage_fsdp: {text!r}: {number} does not divide dp x cp = {ranks}")
    return number


def _undenied(plain: str, name: str) -> str:
    """Return a cell without the names that it says are not used: "no fsdp", "zero1 off", "sharding: none"."""
    before = r"(?<![a-z])(?:no|non|not|without)[\s_-]*"
    behind = r"[\s:=]*(?:is |was )?(?:off|no|none|false|disabled|not used)"
    left = re.sub(rf"{before}(?:{name})(?![a-z0-9_])|(?<![a-z])(?:{name}){behind}(?![a-z0-9_])", "", plain)
    return re.sub(r"\(\s*\)", "", left).strip(" ,;/+")


def _named_stage(plain: str, copies: bool) -> int | None:
    if re.search(rf"(?<![a-z])(?:{_DISTRIBUTED_OPTIMIZER})(?![a-z])", plain):
        return 1
    if re.search(r"(?<![a-z])(?:shard_grad_op(?![a-z])|not reshard)", plain):
        return 2
    if re.search(r"(?<![a-z])no_shard(?![a-z])", plain):
        return 0
    if copies or re.search(rf"(?<![a-z])(?:{_FSDP}|full[_ ]shard|fully[_ -]sharded)(?![a-z0-9])", plain):
        return 3
    return 0 if re.fullmatch(r"(none|no|off|false|ddp|dp|none \(dp\))", plain.strip()) else None


def recomputation(text: str) -> str | None:
    """Return what a cell says of recomputation; None for an empty cell, InputError for words that are not known."""
    plain = text.lower()
    if is_empty(plain):
        return None
    if says_only_that(text):
        return "full"
    left = _undenied(plain, "full|selective")  # what is not done says not what is
    known = [("full", r"\bfull"), ("selective", r"\bselective"), ("none", r"^(none|no|off|false|0)\b")]
    found = [word for word, pattern in known if re.search(pattern, left)]
    if len(found) != 1:
        raise InputError(f"recompute: {text!r}: expected none, selective or full")
    return found[0]


def says_only_that(text: str) -> bool:
    """Return whether a cell says that something is done, and not how: "True" under "Activation Checkpointing"."""
    return FLAGS.get(text.strip().lower()) == 1 or text.strip().lower() == "custom"  # MaxText's, of further keys


def schedule_word(text: str) -> str | None:
    """Return the schedule that a cell names; None for an empty cell, InputError for one that is not known."""
    if is_empty(text):
        return None
    plain = re.sub(r"[\s_-]|schedule", "", text.lower())
    if plain not in SCHEDULE_WORDS:
        raise InputError(f"schedule: {text!r}: expected gpipe, 1f1b, interleaved or zb")
    return SCHEDULE_WORDS[plain]


def is_looped(text: str) -> bool:
    """Return whether the schedule that a cell names gives a rank two or more stages."""
    return LOOPED.search(re.sub(r"[\s_-]", "", text.lower())) is not None


def overlap_off(notes: str) -> frozenset[str]:
    """Return the axes of which notes say that nothing hides their communication: "tp/grad/param overlap off"."""
    found: set[str] = set()
    for said in OVERLAP_OFF.finditer(notes):
        nearest_first = reversed(re.findall(r"[a-z0-9]+", said.group(1).lower()))
        found |= {OVERLAP_WORDS[word] for word in itertools.takewhile(OVERLAP_WORDS.__contains__, nearest_first)}
    return frozenset(found)


def overlapped(text: str) -> frozenset[str] | None:
    """Return the axes whose communication a cell says computation hides; None for an empty cell."""
    plain = text.lower()
    if is_empty(plain):
        return None
    words = frozenset(filter(None, re.split(r"[\s+,;/]+", plain))) - {"none", "no"}
    if not words <= {"tp", "dp", "pp", "ep"}:
        raise InputError(f"overlap: {text!r}: expected none, or some of tp, dp, pp, ep, such as tp+dp")
    return words
