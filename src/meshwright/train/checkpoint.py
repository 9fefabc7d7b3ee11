"""Checkpoints: one folder each, safetensors and a JSON manifest with sizes and checksums, renamed into place last.

A folder without a manifest, or whose files differ from it, is never loaded. Nothing is pickled.
"""

import os
import shutil
from pathlib import Path
from typing import Literal

import msgspec
import torch
import xxhash
from safetensors.torch import load, save
from torch import Tensor

from ..errors import InputError
from ..files import read_struct, write_atomic, write_struct

MANIFEST = "manifest.json"


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and checksum of one file of a checkpoint."""

    size_bytes: int
    xxh3_128: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a checkpoint holds; written last."""

    step: int  # optimiser steps that are done
    files: dict[str, StoredFile]
    schema: Literal["meshwright.checkpoint/1"] = "meshwright.checkpoint/1"


def save_checkpoint(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    """Write the state after `step` steps to a new folder under `folder` and return it; OSError if the disk refuses."""
    final = folder / f"step-{step:08d}"
    if (final / MANIFEST).exists():
        return final
    partial = folder / f".step-{step:08d}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        files = {}
        for name, tensors in (("model", _model_state(model)), ("optimizer", _optimizer_state(model, optimizer))):
            data = save(tensors)
            write_atomic(partial / f"{name}.safetensors", data)
            files[f"{name}.safetensors"] = StoredFile(len(data), xxhash.xxh3_128_hexdigest(data))
        write_struct(partial / MANIFEST, Manifest(step=step, files=files))
        os.replace(partial, final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint under `folder`, or None."""
    complete = sorted(path.parent for path in folder.glob(f"step-*/{MANIFEST}"))
    return complete[-1] if complete else None


def load_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Put the state of a checkpoint into model and optimiser; return its step.

    Raises InputError naming the file where anything differs from the manifest or does not fit the model.
    """
    manifest = read_struct(path / MANIFEST, Manifest)
    weights = _read(path, "model.safetensors", manifest)
    try:
        model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise InputError(f"{path}: does not fit the model: {' '.join(str(error).split())}") from None
    missing = {name for name, _ in model.named_parameters()} - set(weights)
    if missing:
        raise InputError(f"{path}: lacks {', '.join(sorted(missing))}")
    state = _read(path, "optimizer.safetensors", manifest)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: state[f"{name}/{key}"].to(parameter.device if key != "step" else "cpu")
            for key in ("exp_avg", "exp_avg_sq", "step")
        }
    return manifest.step


def _model_state(model: torch.nn.Module) -> dict[str, Tensor]:
    # named_parameters names a tied tensor once
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _read(path: Path, name: str, manifest: Manifest) -> dict[str, Tensor]:
    try:
        data = (path / name).read_bytes()
    except OSError as error:
        raise InputError(f"{path / name}: {error.strerror or error}") from None
    expected = manifest.files.get(name)
    if expected is None or len(data) != expected.size_bytes or xxhash.xxh3_128_hexdigest(data) != expected.xxh3_128:
        raise InputError(f"{path / name}: differs from the manifest (damaged or truncated); use an older checkpoint")
    return load(data)
