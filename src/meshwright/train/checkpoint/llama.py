"""Llama of Hugging Face as this decoder sees it: its names, its configuration, and which folders and checkpoints fit.

All is looked at before anything is converted, and nothing here imports torch, which takes seconds: what is refused does
not wait for it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...files import convert, parse_json, read_text
from ...workload.transformer import ModelConfig, parameter_shapes
from .manifest import FILE_NAME, Manifest, StoredTensor
from .weights import WEIGHT_TYPES, HeaderEntry, check_finite, weights_header

INDEX = "model.safetensors.index.json"
ARCHITECTURE = "LlamaForCausalLM"
LOOK_BYTES = 64 * 2**20  # weights up to this size are read and checked first; larger ones as they are converted
PLAIN = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
OUTPUT = ("output.weight", "lm_head.weight")
# Keys of a config.json that change what a model computes, and the values under which Llama computes what ours does.
PLAIN_VALUES: dict[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "qkv_bias": (None, False),
    "hidden_act": (None, "silu"),
    "partial_rotary_factor": (None, 1, 1.0),
    "rotary_pct": (None, 1, 1.0),
    "sliding_window": (None,),
    "use_sliding_window": (None, False),
    "attention_chunk_size": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "logits_scaling": (None, 1, 1.0),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "use_qk_norm": (None, False),
    "qk_norm": (None, False),
    "quantization_config": (None,),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "no_rope_layers": (None, []),
}
LAYER = {  # ours: theirs, joined row by row in this order
    "attention_norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


OURS = {theirs: ours for ours, theirs in PLAIN.items()} | {OUTPUT[1]: OUTPUT[0]}
OF_A_LAYER = {theirs for parts in LAYER.values() for theirs in parts}


@dataclass(frozen=True, slots=True)
class LlamaFolder:
    """A folder of `save_pretrained` that fits this decoder."""

    source: Path
    model: ModelConfig
    where: Mapping[str, Path]  # the file of each tensor
    are_finite: bool  # the weights have been looked at: they are finite numbers


def look_at_folder(source: Path, target: Path) -> LlamaFolder:
    """Return what a folder of `save_pretrained` holds, without converting anything.

    Raises InputError where it is another model, a tensor is missing, left over or of another shape, or `target` exists;
    and at weights that are no finite numbers, where all weights are at most `LOOK_BYTES`.
    """
    check_new(target)
    model = read_config(source / "config.json")
    where = _locate(source)
    _check_names(source, model, where)
    headers = {path: weights_header(path) for path in dict.fromkeys(where.values())}
    for name, shape in zip(names_of(model), parameter_shapes(model), strict=True):
        entries = [_entry(headers, where[theirs], theirs) for theirs in theirs_of(name)]
        shapes = [entry.shape for entry in entries]
        if len({part[1:] for part in shapes}) > 1 or not all(shapes):
            texts = ", ".join(str(list(part)) for part in shapes)
            raise InputError(f"{source}: {name} is made of {texts}, which do not fit each other")
        found = (sum(part[0] for part in shapes), *shapes[0][1:])
        if found != shape:
            raise InputError(f"{source}: {name} is {list(found)}, config.json asks for {list(shape)}")
    parts = [(where[theirs], theirs) for name in names_of(model) for theirs in theirs_of(name)]
    few = sum(headers[path][name].size_bytes for path, name in parts) <= LOOK_BYTES
    for path, name in parts if few else ():
        check_finite(path, name, headers[path])
    return LlamaFolder(source, model, where, are_finite=few)


def look_at_checkpoint(manifest: Manifest, source: Path, target: Path) -> ModelConfig:
    """Return the decoder of a checkpoint of ours that is to be exported, without converting anything.

    Raises InputError where it is not a decoder's, a weight is missing or of another type or shape, or `target` exists.
    """
    check_new(target)
    model = model_of_checkpoint(manifest, source)
    for name in names_of(model):
        if name not in manifest.tensors:
            raise InputError(f"{source}: lacks {name}")
    for name, shape in zip(names_of(model), parameter_shapes(model), strict=True):
        stored: StoredTensor = manifest.tensors[name]
        if stored.dtype not in WEIGHT_TYPES or stored.shape != shape:
            text = f"{name} is {stored.dtype}{list(stored.shape)}, its model asks for {list(shape)}"
            raise InputError(f"{source}: {text} as {', '.join(WEIGHT_TYPES)}")
    return model


def check_new(target: Path) -> None:
    """Raise InputError where there is something of that name already."""
    if target.exists() or target.is_symlink():
        raise InputError(f"{target}: is there already; name a new folder")


def names_of(model: ModelConfig) -> Iterator[str]:
    """Return the name of each parameter of a decoder, in its order; a tied output counts once."""
    yield "embedding.weight"
    for layer in range(model.num_hidden_layers):
        for part in LAYER:
            yield f"layers.{layer}.{part}.weight"
    yield "norm.weight"
    if not model.tie_word_embeddings:
        yield OUTPUT[0]


def theirs_of(name: str) -> tuple[str, ...]:
    """Return the names that Llama has for a tensor of ours, in the order of its rows."""
    if name in PLAIN:
        return (PLAIN[name],)
    if name == OUTPUT[0]:
        return (OUTPUT[1],)
    match = re.fullmatch(r"layers\.(\d+)\.(.+)\.weight", name)
    assert match is not None, name
    return tuple(f"model.layers.{match[1]}.{part}.weight" for part in LAYER[match[2]])


def rows_of(name: str, model: ModelConfig) -> list[int]:
    """Return how many rows of a tensor of ours belong to each of `theirs_of` it; [] where it is one."""
    if name.endswith("attention.qkv.weight"):
        kv = model.num_key_value_heads * model.head_dim
        return [model.hidden_size, kv, kv]
    return [model.intermediate_size] * 2 if name.endswith("gate_up.weight") else []


def model_of_checkpoint(manifest: Manifest, where: Path) -> ModelConfig:
    """Return the decoder whose state a checkpoint holds."""
    if not manifest.facts.model:
        raise InputError(f"{where}: does not say which model it is of; expected a checkpoint of the built-in decoder")
    model = convert(manifest.facts.model, ModelConfig, where=f"{where}: model")
    if model.num_local_experts:
        raise InputError(f"{where}: has experts, which {ARCHITECTURE} has not")
    return model


def read_config(path: Path) -> ModelConfig:
    """Return the decoder of a config.json; InputError where it asks for what the decoder does not have."""
    data = parse_json(read_text(path, max_bytes=2**20), where=str(path))
    names = (data.get("architectures") or [ARCHITECTURE]) if isinstance(data, dict) else []
    if not isinstance(names, list) or ARCHITECTURE not in names:
        raise InputError(f"{path}: expected the architecture {ARCHITECTURE}")
    rope, scaling = data.get("rope_parameters") or {}, data.get("rope_scaling") or data.get("rope_parameters") or {}
    for key, found in (("rope_parameters", rope), ("rope_scaling", scaling)):
        if not isinstance(found, dict):
            raise InputError(f"{path}: {key}: expected a table, got {found!r}")
    theta = rope.get("rope_theta", data.get("rope_theta"))
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise InputError(f"{path}: rope_scaling: {scaling}: the decoder has plain rotary positions")
    _refuse_what_is_not_there(data | {key: rope[key] for key in PLAIN_VALUES.keys() & rope.keys()}, path)
    known = {key: data[key] for key in ModelConfig.__struct_fields__ if key in data}
    known |= {"rope_theta": theta} if theta is not None else {}
    known.setdefault("num_key_value_heads", data.get("num_attention_heads"))
    known.setdefault("tie_word_embeddings", False)  # Llama's default
    model = convert(known, ModelConfig, where=str(path))
    if model.num_local_experts:
        raise InputError(f"{path}: num_local_experts: has experts, which {ARCHITECTURE} has not")
    if data.get("head_dim") not in (None, model.head_dim):
        raise InputError(f"{path}: head_dim: expected hidden_size / num_attention_heads = {model.head_dim}")
    return model


def _refuse_what_is_not_there(data: dict[str, Any], path: Path) -> None:
    """Raise InputError at the first key by which the model computes what this decoder cannot."""
    windows = "sliding_window" in data and data.get("use_sliding_window") is False  # then it is not used
    for key, plain in PLAIN_VALUES.items():
        value = data.get(key)
        if any(value is same or (value == same and type(value) is type(same)) for same in plain):
            continue
        if not (key == "sliding_window" and windows):
            raise InputError(
                f"{path}: {key}: {value!r}: the decoder has no biases, silu, plain rotary positions on all of a head, "
                "and attention over all that came before"
            )


def _check_names(source: Path, model: ModelConfig, where: Mapping[str, Path]) -> None:
    """Raise InputError at the first tensor that is missing or left over; takes no longer for a model of many layers."""
    known = [name for name in where if _is_expected(name, model)]
    parts = 2 + len(OF_A_LAYER) * model.num_hidden_layers + (not model.tie_word_embeddings)
    tied = OUTPUT[1] in where and model.tie_word_embeddings
    missing, surplus = parts - len(known), len(where) - len(known) - tied
    if missing:
        first = next(part for name in names_of(model) for part in theirs_of(name) if part not in where)
        what = f"lacks {first}"
    elif surplus:
        left = min(where.keys() - set(known) - ({OUTPUT[1]} if tied else set()))
        what = f"has {left}, which this decoder has not"
    else:
        return
    raise InputError(f"{source}: {what} ({missing} missing, {surplus} left over)")


def _is_expected(theirs: str, model: ModelConfig) -> bool:
    if theirs in OURS:
        return OURS[theirs] != OUTPUT[0] or not model.tie_word_embeddings
    match = re.fullmatch(r"model\.layers\.(0|[1-9][0-9]{0,8})\.(.+)\.weight", theirs)
    return match is not None and int(match[1]) < model.num_hidden_layers and match[2] in OF_A_LAYER


def _locate(source: Path) -> dict[str, Path]:
    """Return which file of a folder holds each tensor."""
    if (source / INDEX).exists():
        data = parse_json(read_text(source / INDEX, max_bytes=64 * 2**20), where=str(source / INDEX))
        weight_map = data.get("weight_map") if isinstance(data, dict) else None
        if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
            raise InputError(f"{source / INDEX}: weight_map: expected names of tensors and their files")
        for file in set(weight_map.values()):
            if not re.fullmatch(FILE_NAME, file):
                raise InputError(f"{source / INDEX}: weight_map: {file!r} is not the name of a safetensors file")
        return {name: source / file for name, file in weight_map.items()}
    path = source / "model.safetensors"
    return dict.fromkeys(weights_header(path), path)


def _entry(headers: Mapping[Path, Mapping[str, HeaderEntry]], path: Path, name: str) -> HeaderEntry:
    """Return what the header of a file says of a tensor; InputError unless it is one of floating-point numbers."""
    entry = headers[path].get(name)
    if entry is None:
        raise InputError(f"{path}: lacks {name}, which the index says is there")
    if entry.dtype not in WEIGHT_TYPES:
        expected = ", ".join(WEIGHT_TYPES)
        raise InputError(
            f"{path}: {name} is {entry.dtype}, expected weights as {expected} (quantised ones are not read)"
        )
    return entry
