"""MaxText: YAML over base.yml with `key=value` overrides; the mesh is dcn (between slices) times ici (inside them)."""

import math
import re
from pathlib import PurePath

import msgspec

from ...quantities import MOST_SEQUENCES
from ...units import counted
from ...workload.recomputed import INPUT
from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import assignments_of
from ..models import catalogue_name
from ..optimizers import OF_TWO_TYPES, read_optimizer
from ..options import JobOptions
from ..outside import slices_of
from ..savings import HALF, SINGLE_MOMENTS, dtype_of
from ..shell.marks import shown
from ..sources import Sources, plain_value

HARMLESS = (
    r"(?:run_name|base_config|hardware|steps|enable_checkpointing|async_checkpointing|dataset.*|base_output.*|profil.*)",
    r"(?:tokenizer.*|hf_.*|eval.*|save_config.*|log.*|metrics.*|gcs.*|tensorboard.*|checkpoint.*|load.*|learning.*|enable_goodput.*)",
    r"(?:init_weights_seed|data_shuffle_seed|model_name|vocab_size|reuse_example_batch|skip_first.*|upload.*|monitor.*|adam.*)",
    r"(?:rope.*|normalization_layer_epsilon|mlp_activations|decoder_block|enable_dropout|dropout_rate|logits_via.*|attention_type)",
    r"(?:compiled_trainstep.*|compile_topology.*|jax_cache.*|mesh_axes|logical_axis_rules|data_sharding|override_model_config)",
    r"(?:mtp_loss_scaling_factor|mtp_eval_target_module|warmup.*|cosine.*|gradient_clipping.*|packing|max_prefill.*|decode.*|autoregressive.*|prompt|sft|use_dpo)",
)
AXES = {
    "data": "data",
    "pipeline": "pp",
    "fsdp": "shard",
    "fsdp_transpose": "shard",
    "sequence": "cp",
    "context": "cp",
    "tensor": "tp",
    "tensor_transpose": "tp",
    "tensor_sequence": "tp",
    "expert": "ep",
    "autoregressive": "tp",
}
# Policies of base.yml that keep the results of most products, and policies that keep some of `recomputed.RESULTS` alone
# (AI-Hypercomputer/maxtext:src/maxtext/layers/decoders.py, get_remat_policy)
SELECTIVE = frozenset({"minimal", "minimal_with_context", "minimal_flash", "minimal_offloaded"})
MINIMAL = ("qkv_proj", "out_proj", "mlpwi", "mlpwo")  # experts' products have the names of a network's
KEEPS = {
    "save_qkv_proj": ("qkv_proj",),
    "qkv_proj_offloaded": ("qkv_proj",),
    "save_out_proj": ("out_proj",),
    "save_dot_except_mlp": ("qkv_proj", "out_proj"),
    "save_dot_with_context_except_mlp": ("qkv_proj", "context", "out_proj"),
    "save_dot_except_mlpwi": ("qkv_proj", "out_proj", "mlpwo"),
}
# tensors of the policy custom, each on the device, on the host, or computed again; a cut tensor has several keys
TENSORS = {
    "qkv_proj": ("qkv_proj", "query_proj", "key_proj", "value_proj"),
    "context": ("context",),
    "out_proj": ("out_proj",),
    "mlpwi": ("mlpwi", "mlpwi_0", "mlpwi_1"),
    "mlpwo": ("mlpwo",),
}
CUSTOM = "remat_policy custom"
LAYER_INPUT = "decoder_layer_input"  # which is always kept, on the device or the host
SIZES = {
    "num_hidden_layers": "base_num_decoder_layers",
    "hidden_size": "base_emb_dim",
    "intermediate_size": "base_mlp_dim",
    "num_attention_heads": "base_num_query_heads",
    "num_key_value_heads": "base_num_kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "num_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "moe_intermediate_size": "base_moe_mlp_dim",
}

# what a command must say itself where the YAML that it names is not here
PRICED = frozenset({"model_name", "per_device_batch_size", "max_target_length", "remat_policy"})
# what base.yml has (AI-Hypercomputer/maxtext 0.2.5)
BASE_SIZES = {
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 7168,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "vocab_size": 32_000,
}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a MaxText configuration."""
    draft = Draft("maxtext", sources.names, question)
    keys = _keys(sources)
    slices = None if sources.launch is None else slices_of(sources.launch)
    if slices is not None:
        sources.machine_type = sources.machine_type or slices[0]
    _mesh(draft, keys, slices)
    _model(draft, keys)
    _batch(draft, keys)
    _pipeline(draft, keys)
    _recompute(draft, keys)
    _precision(draft, keys)
    _held(draft, keys)
    if keys.switch("optimizer_memory_host_offload", default=False):
        draft.offload("optimizer")
    if keys.switch("parameter_memory_host_offload", default=False):
        draft.offload("parameters")
    return _minimal(draft.conclude(sources, keys, HARMLESS), keys)


def _keys(sources: Sources) -> Keys:
    launch = sources.launch
    given = assignments_of(launch.arguments) if launch is not None else {}
    if launch is not None:
        for word in launch.arguments:
            own = word.endswith((".yml", ".yaml")) and "=" not in word and not word.endswith("base.yml")
            if own and sources.document(word) is None:
                if not given.keys() >= PRICED or not any(key.startswith(("ici_", "dcn_")) for key in given):
                    raise sources.absent(word)
                absent = PurePath(shown(word)).name
                sources.assumed.append(f"{absent} is not here: the rest, precision too, is taken as in base.yml")
    values, origin = sources.settings()
    for key, text in given.items():
        values[key], origin[key] = plain_value(text), launch.where if launch is not None else ""
    return sources.overridden(values, origin, sources.names[0])


def _mesh(draft: Draft, keys: Keys, asked: tuple[str, int, int] | None) -> None:
    """Set the degrees: each is dcn times ici; one axis of each may be -1, what is left of the devices.

    `asked` are the slices of TPUs that what starts the job asks for: their kind, their number, the chips of one.
    """
    slices = _axes(keys, "dcn", "data")
    inside = _axes(keys, "ici", "fsdp")
    fixed_slices = math.prod(value for value in slices.values() if value > 0)
    auto_slices = [axis for axis, value in slices.items() if value < 0]
    auto_inside = [axis for axis, value in inside.items() if value < 0]
    world, per_slice = draft.question.gpus, None
    if world is None and asked is not None:
        _, count, per_slice = asked
        world = count * per_slice
        if fixed_slices == 1 and "dcn_data_parallelism" not in keys:
            slices["data"], auto_slices = count, []
            draft.assume(f"dcn_data_parallelism {count}: xpk starts {counted(count, 'slice')}")
    on_gpus = keys.word("hardware") in {"gpu", "gpu_multiprocess"}
    if auto_slices and "dcn_data_parallelism" not in keys and fixed_slices > 1:
        draft.assume(f"dcn_data_parallelism 1: other dcn axes make {fixed_slices} slices")
        slices[auto_slices[0]], auto_slices = 1, []
    if auto_slices and fixed_slices == 1 and "dcn_data_parallelism" not in keys and not auto_inside and world is None:
        draft.note("the number of slices is in no file (dcn_data_parallelism)")
    if world is not None:
        per_slice = per_slice or (8 if on_gpus else world)
        _fill(draft, slices, inside, auto_slices, auto_inside, world, per_slice)
        auto_slices, auto_inside = [], []
    count = math.prod(max(1, value) for value in slices.values())
    if count > 1 and not on_gpus:
        draft.ignore(f"the network between the {count} slices (dcn): TPUs are priced as the fewest that hold them")
    degrees = dict.fromkeys(set(AXES.values()), 1)
    for axis, name in AXES.items():
        degrees[name] *= max(1, slices[axis]) * max(1, inside[axis])
    for name in ("tp", "pp", "cp", "ep"):
        draft.put(name, degrees[name], f"{name} {degrees[name]} (dcn x ici)")
    shared = degrees["shard"] * degrees["cp"] * degrees["ep"]  # base.yml: embed lies on all of these axes
    draft.zero(3 if shared > 1 or any(axis.startswith("fsdp") for axis in auto_inside) else 0)
    if keys.switch("shard_optimizer_over_data", default=False) and shared == 1:
        draft.zero(1)
    if degrees["data"] > 1 and draft.switches["zero"] == 3:
        draft.put("replicas", degrees["data"], f"data {degrees['data']} (dcn x ici)")
    if auto_slices or auto_inside:
        return  # the ranks are asked for
    dp = degrees["data"] * degrees["shard"] * degrees["ep"]
    draft.put("dp", dp, f"data {degrees['data']} x fsdp {degrees['shard']} x expert {degrees['ep']}")
    product = math.prod(degrees.values())
    told = f"dcn {math.prod(slices.values())} x ici {math.prod(inside.values())} = {product}"
    if asked is not None and draft.question.gpus is None and product != asked[1] * asked[2]:
        raise draft.refused(
            f"{told} contradicts the {counted(asked[1], 'slice')} of {asked[2]} chips that xpk asks for"
        )
    draft.world = (product, f"{told} ({draft.files[0]})")
    draft.gpus_per_node = math.prod(inside.values()) if on_gpus else None


def _axes(keys: Keys, prefix: str, automatic: str) -> dict[str, int]:
    """Return the degrees of dcn or ici; the automatic axis is -1 where no file sets it."""
    found = {}
    for axis in AXES:
        value = keys.whole(f"{prefix}_{axis}_parallelism", least=-1)
        found[axis] = value if value is not None else -1 if axis == automatic else 1
    return found


def _fill(
    draft: Draft,
    slices: dict[str, int],
    inside: dict[str, int],
    first: list[str],
    second: list[str],
    world: int,
    per_slice: int,
) -> None:
    """Set the axes that are -1 from the number of devices; where both are open a node of GPUs, or all TPUs, is a slice.

    MaxText's default is `hardware: tpu`.
    """
    fixed_slices = math.prod(value for value in slices.values() if value > 0)
    fixed_inside = math.prod(value for value in inside.values() if value > 0)
    if first and second:
        size = min(per_slice, world)
        draft.assume(f"slices of {size} devices" if size < world else f"one slice of {size} devices")
        slices[first[0]], inside[second[0]] = max(1, world // size // fixed_slices), max(1, size // fixed_inside)
    elif second:
        inside[second[0]] = max(1, world // fixed_slices // fixed_inside)
    elif first:
        slices[first[0]] = max(1, world // fixed_inside // fixed_slices)


def _model(draft: Draft, keys: Keys) -> None:
    draft.model_name = keys.word("model_name")
    for name, key in SIZES.items():
        value = keys.whole(key)
        if value:
            draft.config[name] = value
    named = catalogue_name(draft.model_name) if draft.model_name else None
    if named is not None:
        if keys.switch("override_model_config", default=False) is not True:
            for name, key in SIZES.items():
                if name in draft.config and name != "vocab_size":
                    draft.note(f"{key}: model_name {draft.model_name} decides it (override_model_config is off)")
            draft.config.clear()
    else:
        _scaled(draft, keys)
    if named is None and "hidden_size" in draft.config:
        config = draft.config
        activations = keys.raw("mlp_activations")
        words = re.findall(r"\w+", str(activations)) if activations is not None else ["silu", "linear"]
        config["gated_mlp"] = len(words) > 1
        config["model_type"] = "llama"
        config["tie_word_embeddings"] = bool(keys.switch("logits_via_embedding", default=False))
        if config.get("num_experts", 1) <= 1:
            for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
                config.pop(name, None)
    draft.further_tokens(keys, "mtp_num_layers")
    draft.seq_len = keys.whole("max_target_length", least=1)
    if draft.seq_len is None:
        draft.seq_len = 2048
        draft.assume("max_target_length 2048 (the default of MaxText)")


def _scaled(draft: Draft, keys: Keys) -> None:
    """Scale the sizes by `global_parameter_scale`: heads and network, width and layers double in turn.

    The rule is that of maxtext:configs/types.py (get_individual_scales); sizes in no file are those of base.yml.
    """
    scale = keys.whole("global_parameter_scale", least=1) or 1
    if scale & (scale - 1):
        raise keys.wrong("global_parameter_scale", "a power of two")
    if scale == 1 and "hidden_size" not in draft.config:
        return
    turns, rest = divmod(scale.bit_length() - 1, 3)
    heads, width = turns + (rest > 0), turns + (rest > 1)
    absent = [name for name in BASE_SIZES if name not in draft.config]
    for name in absent:
        draft.config[name] = BASE_SIZES[name]
    if absent:
        told = [f"{SIZES[name]} {BASE_SIZES[name]}" for name in absent]
        draft.assume(f"{', '.join(told)} as in MaxText's base.yml")
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        draft.config[name] <<= heads
    draft.config["hidden_size"] <<= width
    draft.config["num_hidden_layers"] <<= turns


def _batch(draft: Draft, keys: Keys) -> None:
    """Set the batch: sequences of a device, tensor-parallel ones counted too, in each pass."""
    raw = keys.word("per_device_batch_size")
    if raw is None:
        raw = "12"
        draft.assume("per_device_batch_size 12 (the default of MaxText)")
    try:
        share = float(raw)
    except ValueError:
        share = math.nan
    if not 0 < share <= MOST_SEQUENCES:
        raise keys.wrong("per_device_batch_size", f"a number, more than 0 and at most {MOST_SEQUENCES}")
    steps = keys.whole("gradient_accumulation_steps", least=1) or 1
    draft.batch["steps"] = (steps, f"gradient_accumulation_steps {steps}")
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    dp = draft.degrees.get("dp")
    if world is None or dp is None:
        return
    sequences = share * world / dp[0]
    if sequences < 1 or abs(sequences - round(sequences)) > 1e-6:
        raise draft.refused(f"per_device_batch_size {raw} x {world} devices is no whole number for dp {dp[0]}")
    draft.batch["local"] = (round(sequences), f"per_device_batch_size {raw} x {world} devices / dp {dp[0]}")


def _pipeline(draft: Draft, keys: Keys) -> None:
    if draft.get("pp") == 1:
        return
    repeats = keys.whole("num_pipeline_repeats", least=-1)
    per_stage = keys.whole("num_layers_per_pipeline_stage", least=1)
    model = draft.named_model()
    layers = draft.config.get("num_hidden_layers") or (model.num_hidden_layers if model is not None else None)
    if (repeats is None or repeats < 1) and per_stage is not None and layers is not None:
        repeats = max(1, layers // (per_stage * draft.get("pp")))
    draft.switches["schedule"] = "interleaved" if repeats is not None and repeats > 1 else "gpipe"
    draft.put("vpp", max(1, repeats or 1), "num_pipeline_repeats")
    count = keys.whole("num_pipeline_microbatches", least=-1)
    count = count if count is not None and count > 0 else draft.get("pp")
    if "local" in draft.batch:
        local = draft.batch["local"]
        if local[0] % count:
            raise draft.refused(f"{local[1]} is not a multiple of num_pipeline_microbatches {count}")
        draft.batch["mbs"] = (local[0] // count, f"num_pipeline_microbatches {count}")


def _recompute(draft: Draft, keys: Keys) -> None:
    policy = keys.choice("remat_policy")
    if policy is None:
        policy = "full"
        draft.assume("remat_policy full (the default of MaxText)")
    text = f"remat_policy {policy}"
    if policy in {"full", "none"}:
        draft.recompute("full" if policy == "full" else "none", text)
        return
    draft.recompute("selective", text)
    if policy in KEEPS:
        draft.results = KEEPS[policy]
        draft.away = draft.results if "offload" in policy else ()
    elif policy == "custom":
        draft.results = _kept_tensors(draft, keys)
    if "offload" in policy and not draft.away:
        draft.ignore(f"{text}: what goes to the host is priced as kept on the device, its copies take no time")
    elif policy not in SELECTIVE and draft.results is None:
        draft.ignore(f"{text}: priced as selective recomputation")


def _minimal(job: Job, keys: Keys) -> Job:
    """Return a job of the policy minimal, which keeps all products but not what attention returns between them."""
    if keys.values.get("remat_policy") != "minimal" or job.architecture is None:
        return job
    if job.architecture.experts <= 1:
        return msgspec.structs.replace(job, results=MINIMAL)
    told = "remat_policy minimal: priced as if what attention returns were kept too"
    return msgspec.structs.replace(job, ignored=(*job.ignored, told))


def _kept_tensors(draft: Draft, keys: Keys) -> tuple[str, ...]:
    """Return the results that the policy custom keeps; others are computed again, as base.yml has them."""
    found = []
    places = {name: str(value).strip().lower() for name, value in keys.values.items() if isinstance(value, str)}
    named = {name for names in TENSORS.values() for name in names}
    away = [INPUT] if keys.word(LAYER_INPUT) == "offload" else []
    for name, place in places.items():
        if place in {"device", "offload"} and name not in {*named, LAYER_INPUT}:
            draft.ignore(f"{CUSTOM}: {name} {place}: priced as computed again")
    for result, names in TENSORS.items():
        where = {name: (keys.word(name) or "remat").lower() for name in names}
        kept = {name for name, place in where.items() if place in {"device", "offload"}}
        if kept and names[0] not in kept and not set(names[1:]) <= kept:
            draft.ignore(f"{CUSTOM}: {', '.join(sorted(kept))}: priced as if all of {result} were kept")
        if kept:
            found.append(result)
            away += [result] if "offload" in where.values() and "device" not in where.values() else []
            if "offload" in where.values() and "device" in where.values():
                draft.ignore(f"{CUSTOM}: {', '.join(sorted(kept))}: priced as if all of {result} were on the device")
    draft.away = tuple(away)
    return tuple(found)


def _precision(draft: Draft, keys: Keys) -> None:
    quantization = (keys.word("quantization") or "").lower()
    dtype = (keys.word("dtype") or "bfloat16").lower()
    draft.precision = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}.get(dtype, "bf16")
    if "fp8" in quantization:
        draft.precision = "fp8"
    elif quantization:
        draft.ignore(f"quantization = {quantization}: priced as {draft.precision}")
    if draft.get("tp") > 1:
        draft.switches["sp"] = 1
        draft.assume("activations between layers are cut over the tensor axis (MaxText's sharding rules)")


def _held(draft: Draft, keys: Keys) -> None:
    """Set the types of weights and moments: the first moment has `mu_dtype`, the second the type of the weights.

    Sources: AI-Hypercomputer/maxtext:src/MaxText/optimizers.py (adam_pax has both in the type of the weights),
    google-deepmind/optax:optax/_src/transform.py (scale_by_adam), train.py (gradients in single precision alone are
    cast to `grad_dtype`).
    """
    read_optimizer(draft, keys, "opt_type")
    weights, gradients, first = (dtype_of(keys, f"{name}_dtype") for name in ("weight", "grad", "mu"))
    own = HALF if weights == HALF else "fp32"
    if own == HALF:
        draft.savings.weights = (HALF, keys.told("weight_dtype"))
    elif gradients == HALF:
        draft.ignore(f"{keys.told('grad_dtype')}: gradients are priced in single precision")
    if keys.word("opt_type") != "adam_pax" and first not in {"", own} and not draft.savings.optimizer[0]:
        draft.savings.optimizer = (SINGLE_MOMENTS if own == HALF else "", keys.told("mu_dtype"))
        draft.ignore(f"{keys.told('mu_dtype')}: {OF_TWO_TYPES}")
