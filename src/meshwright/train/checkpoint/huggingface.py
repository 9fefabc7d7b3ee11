"""The decoder to and from the folder that `save_pretrained` of Hugging Face writes for `LlamaForCausalLM`.

config.json, and safetensors files with an index where there are several. Our query, key and value projection is one
matrix of their rows (q, k, v), and so are gate and up; Llama has them apart. Rotary positions pair the same elements in
both, so that no row is permuted.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import InputError
from ...files import write_atomic
from ...workload.transformer import ModelConfig, parameter_shapes
from .folder import sync_folder
from .llama import (
    ARCHITECTURE,
    INDEX,
    LlamaFolder,
    check_new,
    look_at_checkpoint,
    look_at_folder,
    names_of,
    rows_of,
    theirs_of,
)
from .manifest import CheckpointFacts, Manifest, write_manifest
from .pieces import DTYPE_NAMES, Piece, merge_tables, read_whole, write_file
from .weights import refuse_not_finite

FILE_BYTES = 4 * 2**30  # a file of an export is not larger, unless one tensor is
T = TypeVar("T")


def export(source: Path, manifest: Manifest, target: Path) -> list[str]:
    """Write the weights of a checkpoint of ours as `save_pretrained` would; return the names of the files.

    Raises InputError where it is not a decoder's, or `target` is there already or cannot be written.
    """
    model = look_at_checkpoint(manifest, source, target)
    names = list(names_of(model))

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

    Raises InputError where the folder is not what `look_at_folder` takes, a weight is no finite number, or `target`
    exists.
    """
    return import_folder(look_at_folder(source, target), target)


def import_folder(theirs: LlamaFolder, target: Path) -> Manifest:
    """Write a checkpoint of ours as `import_model` does, from a folder that has been looked at; it is read once."""

    def write(folder: Path) -> Manifest:
        pieces = []
        for name, shape in zip(names_of(theirs.model), parameter_shapes(theirs.model), strict=True):
            parts = [_read_weight(theirs.where[part], part, look=not theirs.are_finite) for part in theirs_of(name)]
            tensor = torch.cat(parts)
            if tuple(tensor.shape) != shape:
                raise InputError(f"{theirs.source}: {name} has changed meanwhile")
            pieces.append(Piece(name, shape, (0,) * tensor.dim(), tensor.float()))  # training keeps weights in float32
        file, table = write_file(folder / "rank-00000.safetensors", pieces)
        manifest = Manifest(
            facts=CheckpointFacts(step=0, model=msgspec.to_builtins(theirs.model)),
            files={"rank-00000.safetensors": file},
            tensors=merge_tables([table], where=str(target)),
        )
        write_manifest(folder, manifest)
        return manifest

    return _into_new_folder(target, write)


def _read_weight(path: Path, name: str, *, look: bool) -> Tensor:
    try:
        with safe_open(str(path), "pt") as file:
            tensor: Tensor = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: {error}") from None
    if look:
        refuse_not_finite(path, name, tensor.numel() - int(tensor.isfinite().sum()), tensor.numel())
    return tensor


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


def _into_new_folder(target: Path, write: Callable[[Path], T]) -> T:
    """Run `write` on a hidden folder beside `target` and rename it to that; InputError where that cannot be."""
    check_new(target)
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
