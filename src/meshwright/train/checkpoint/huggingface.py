"""The decoder to and from the folder that `save_pretrained` of Hugging Face writes for `LlamaForCausalLM`.

config.json, and safetensors files with an index where there are several. Our query, key and value projection is one
matrix of their rows (q, k, v), and so are gate and up; Llama has them apart. Rotary positions pair the same elements in
both, so that no row is permuted.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import InputError
from ...files import convert, opened, parse_json, read_text, write_atomic
from ...workload.transformer import ModelConfig
from ..decoder import Decoder
from .folder import sync_folder
from .manifest import FILE_NAME, CheckpointFacts, Manifest, write_manifest
from .pieces import DTYPE_NAMES, Piece, merge_tables, read_whole, write_file

INDEX = "model.safetensors.index.json"
ARCHITECTURE = "LlamaForCausalLM"
FILE_BYTES = 4 * 2**30  # a file of an export is not larger, unless one tensor is
PLAIN = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
OUTPUT = ("output.weight", "lm_head.weight")
WEIGHT_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
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
T = TypeVar("T")
LAYER = {  # ours: theirs, joined row by row in this order
    "attention_norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


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


def shapes_of(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of each parameter of a decoder, in its order; a tied output counts once."""
    with torch.device("meta"):
        return {name: tuple(parameter.shape) for name, parameter in Decoder(model).named_parameters()}


def export(source: Path, manifest: Manifest, target: Path) -> list[str]:
    """Write the weights of a checkpoint of ours as `save_pretrained` would; return the names of the files.

    Raises InputError where it is not a decoder's, or `target` is there already or cannot be written.
    """
    model = model_of_checkpoint(manifest, source)
    names = list(shapes_of(model))
    for name in names:
        if name not in manifest.tensors:
            raise InputError(f"{source}: lacks {name}")

    def write(folder: Path) -> list[str]:
        pieces = (
            Piece(theirs, tuple(part.shape), (0,) * part.dim(), part)
            for name, tensor in read_whole(source, manifest, names)
            for theirs, part in _apart(name, tensor, model)
        )
        files = _write_model(folder, pieces)
        dtype = str(next(iter(_dtypes(manifest, names)))).removeprefix("torch.")
        write_atomic(folder / "config.json", json.dumps(_config(model, dtype), indent=2).encode() + b"\n")
        return ["config.json", *files]

    return _into_new_folder(target, write)


def import_model(source: Path, target: Path) -> Manifest:
    """Write a checkpoint of ours, at step 0 and without optimiser state, from a folder of `save_pretrained`.

    Raises InputError where it is another model, a tensor is missing, left over or of another shape, or `target` exists.
    """
    model = read_config(source / "config.json")
    where = _locate(source)
    shapes = shapes_of(model)
    expected = {theirs for name in shapes for theirs in theirs_of(name)}
    surplus = where.keys() - expected - ({OUTPUT[1]} if model.tie_word_embeddings else set())
    missing = expected - where.keys()
    if missing or surplus:
        what = f"lacks {min(missing)}" if missing else f"has {min(surplus)}, which this decoder has not"
        raise InputError(f"{source}: {what} ({len(missing)} missing, {len(surplus)} left over)")

    def write(folder: Path) -> Manifest:
        pieces = []
        for name, shape in shapes.items():
            parts = [_read_weight(where[theirs], theirs) for theirs in theirs_of(name)]
            if len({part.shape[1:] for part in parts}) > 1 or not all(part.dim() for part in parts):
                shapes_there = ", ".join(str(list(part.shape)) for part in parts)
                raise InputError(f"{source}: {name} is made of {shapes_there}, which do not fit each other")
            tensor = torch.cat(parts)
            if tuple(tensor.shape) != shape:
                raise InputError(f"{source}: {name} is {list(tensor.shape)}, config.json asks for {list(shape)}")
            pieces.append(Piece(name, shape, (0,) * tensor.dim(), tensor.float()))  # training keeps weights in float32
        file, table = write_file(folder / "rank-00000.safetensors", pieces)
        manifest = Manifest(
            facts=CheckpointFacts(step=0, model=msgspec.to_builtins(model)),
            files={"rank-00000.safetensors": file},
            tensors=merge_tables([table], where=str(target)),
        )
        write_manifest(folder, manifest)
        return manifest

    return _into_new_folder(target, write)


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


def _config(model: ModelConfig, dtype: str) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        **msgspec.to_builtins(model),
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": dtype,
    }


def _dtypes(manifest: Manifest, names: Iterable[str]) -> set[str]:
    by_name = {text: dtype for dtype, text in DTYPE_NAMES.items()}
    return {str(by_name[manifest.tensors[name].dtype]) for name in names}


def _apart(name: str, tensor: Tensor, model: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    rows = rows_of(name, model) or [tensor.shape[0]]
    yield from zip(theirs_of(name), torch.split(tensor, rows), strict=True)


def _write_model(folder: Path, pieces: Iterable[Piece]) -> list[str]:
    """Write tensors into files of at most `FILE_BYTES`, and an index where there are several."""
    groups: list[list[str]] = []
    held: list[Piece] = []

    def flush() -> None:
        write_file(folder / f"part-{len(groups):05d}.safetensors", held)
        groups.append([piece.name for piece in held])
        held.clear()

    total = 0
    for piece in pieces:
        if held and sum(p.tensor.nbytes for p in held) + piece.tensor.nbytes > FILE_BYTES:
            flush()
        held.append(piece)
        total += piece.tensor.nbytes
    flush()
    count = len(groups)
    names = (
        [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)] if count > 1 else ["model.safetensors"]
    )
    for index, name in enumerate(names):
        (folder / f"part-{index:05d}.safetensors").rename(folder / name)
    if count == 1:
        return names
    weight_map = {tensor: name for name, group in zip(names, groups, strict=True) for tensor in group}
    index_data = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_atomic(folder / INDEX, json.dumps(index_data, indent=2).encode() + b"\n")
    return [*names, INDEX]


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
    return dict.fromkeys(_open(path, lambda file: list(file.keys())), path)


def _read_weight(path: Path, name: str) -> Tensor:
    """Return a tensor of a file; InputError unless it is one of finite floating-point numbers."""
    tensor: Tensor = _open(path, lambda file: file.get_tensor(name))
    if tensor.dtype not in WEIGHT_DTYPES:
        kind = DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype))
        expected = ", ".join(DTYPE_NAMES[dtype] for dtype in WEIGHT_DTYPES)
        raise InputError(f"{path}: {name} is {kind}, expected weights as {expected} (quantised ones are not read)")
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise InputError(f"{path}: {name}: {bad} of {tensor.numel()} weights are NaN or infinite")
    return tensor


def _open(path: Path, read: Callable[[Any], Any]) -> Any:
    opened(path).close()  # no pipe is waited for
    if path.is_symlink() and path.resolve().parent != path.parent.resolve():
        raise InputError(f"{path}: leads out of its folder, refused")
    try:
        with safe_open(str(path), "pt") as file:
            return read(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: {error}") from None


def _into_new_folder(target: Path, write: Callable[[Path], T]) -> T:
    """Run `write` on a hidden folder beside `target` and rename it to that; InputError where that cannot be."""
    if target.exists():
        raise InputError(f"{target}: is there already; name a new folder")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        result = write(partial)
        sync_folder(partial)
        partial.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"{target}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return result
