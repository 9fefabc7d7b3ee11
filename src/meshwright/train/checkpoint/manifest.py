"""The manifest of a checkpoint: what it holds, which bytes of which file, and a checksum of each of them.

A checkpoint is a folder `step-N` with `manifest.json` and one safetensors file a rank. A tensor is stored as pieces,
boxes that tile it; a piece lies at a byte offset of a file. The header of each file and every piece have a checksum
here, and the manifest has one of itself in its last line, so that no byte of a checkpoint is unguarded and a reader
reads no more than the pieces that it wants. Nothing here is trusted: `check` refuses what does not add up before
anything is allocated.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import xxhash

from ...errors import InputError
from ...files import convert, parse_json, read_text, write_atomic

MANIFEST = "manifest.json"
SCHEMA = "meshwright.checkpoint/2"
MAX_DIMS = 8
MAX_BOXES = 4096  # of one tensor that is cut in several dimensions: they are compared in pairs
MAX_BYTES = 128 * 2**20  # of the manifest itself
ITEM_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1},
}  # the type names of safetensors
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.safetensors"  # no separator, no leading dot: never leaves the folder
STEP_DIGITS = 8  # of a step in the name of its checkpoint, at least
_CHECKSUM_LINE = re.compile(rb'  "xxh3_128": "([0-9a-f]{32})"\n}\n\Z')

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Sizes = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_DIMS)]
Checksum = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
FileName = Annotated[str, msgspec.Meta(pattern=f"^{FILE_NAME}$")]


class Damaged(InputError):
    """A checkpoint is not as it was written, or not all there: another one may be whole."""


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size of one file, and size and checksum of its safetensors header; its pieces have their own."""

    size_bytes: Count
    header_bytes: Count
    header_xxh3_128: Checksum


class StoredPiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A box of a tensor: where it starts and how large it is in each dimension, and which bytes hold it."""

    offset: Sizes
    shape: Sizes
    file: FileName
    byte_offset: Count
    xxh3_128: Checksum


class StoredTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of the unsplit model, and the pieces that tile it."""

    dtype: str
    shape: Sizes
    pieces: tuple[StoredPiece, ...]


class CheckpointFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of a run beside its tensors: enough to go on as if nothing had happened."""

    step: Count  # optimiser steps that are done
    seed: int = 0  # of the data order
    next_sequence: Count = 0  # index of the first sequence that no step has seen
    data_order: str = "meshwright.sampler/1"  # which rule turns seed and index into a sequence
    schedule: dict[str, Any] = {}  # the learning-rate schedule, by the keys of the configuration
    steps: Count = 0  # that the schedule spans
    layout: str = ""  # how the step was split
    ranks: Count = 1  # that wrote it
    model: dict[str, Any] = {}  # by the keys of a Hugging Face config.json
    optimizer: str = ""  # its kind
    seq_len: Count = 0  # tokens of a sequence, in which `next_sequence` counts; 0: not said
    corpus: str = ""  # checksum of its tokens
    precision: str = ""  # of its products, as `train.precision` names it, "auto" as what that was; "": not said


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a checkpoint; written last."""

    facts: CheckpointFacts
    files: dict[FileName, StoredFile]
    tensors: dict[str, StoredTensor]
    schema: Literal["meshwright.checkpoint/2"] = "meshwright.checkpoint/2"


def piece_bytes(tensor: StoredTensor, piece: StoredPiece) -> int:
    """Return how many bytes of its file a piece takes."""
    return math.prod(piece.shape) * ITEM_BYTES[tensor.dtype]


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint after `step` steps."""
    return f"step-{step:0{STEP_DIGITS}d}"


def named_step(folder: Path) -> int | None:
    """Return the step that a folder's name says; None where it is not the name of a checkpoint, but of a copy, say."""
    digits = folder.name.removeprefix("step-")
    step = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else -1
    return step if step >= 0 and folder.name == checkpoint_name(step) else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder, its own checksum in the last line; OSError if the disk refuses."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    body = text.removesuffix(b"\n}") + b",\n"
    write_atomic(folder / MANIFEST, body + b'  "xxh3_128": "%s"\n}\n' % xxhash.xxh3_128_hexdigest(body).encode())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint; Damaged naming the file unless it is whole, adds up and is of its step."""
    try:
        manifest = _read(folder / MANIFEST)
    except InputError as error:
        raise Damaged(str(error)) from None
    named = named_step(folder)
    if named not in {None, manifest.facts.step}:
        raise Damaged(f"{folder / MANIFEST}: is of step {manifest.facts.step}, its folder is named after step {named}")
    return manifest


def _read(path: Path) -> Manifest:
    if path.is_symlink():
        raise InputError(f"{path}: is a link, refused")
    raw = read_text(path, max_bytes=MAX_BYTES).encode()
    found = _CHECKSUM_LINE.search(raw)
    if found is None:
        raise InputError(f"{path}: does not end with its checksum (damaged, truncated, or of an older version)")
    if xxhash.xxh3_128_hexdigest(raw[: found.start()]) != found[1].decode():
        raise InputError(f"{path}: differs from its checksum (damaged); use an older checkpoint")
    data = parse_json(raw.decode(), where=str(path))
    data.pop("xxh3_128")
    manifest = convert(data, Manifest, where=str(path))
    check_manifest(manifest, where=str(path))
    return manifest


def check_manifest(manifest: Manifest, *, where: str) -> None:
    """Raise InputError unless pieces tile their tensors, and headers and pieces tile their files."""
    taken: dict[str, list[tuple[int, int]]] = {name: [(0, f.header_bytes)] for name, f in manifest.files.items()}
    for name, tensor in manifest.tensors.items():
        if tensor.dtype not in ITEM_BYTES:
            raise InputError(f"{where}: {name}: dtype {tensor.dtype!r}: expected one of {', '.join(ITEM_BYTES)}")
        problem = _tiling(tensor)
        if problem:
            raise InputError(f"{where}: {name}: {problem}")
        for piece in tensor.pieces:
            if piece.file not in taken:
                raise InputError(f"{where}: {name}: {piece.file} is not among its files")
            taken[piece.file].append((piece.byte_offset, piece.byte_offset + piece_bytes(tensor, piece)))
    for file, ranges in taken.items():
        ends = [0]
        for start, end in sorted(ranges):
            if start != ends[-1]:
                raise InputError(f"{where}: {file}: pieces overlap or leave a hole at byte {min(start, ends[-1])}")
            ends.append(end)
        if ends[-1] != manifest.files[file].size_bytes:
            raise InputError(f"{where}: {file}: {manifest.files[file].size_bytes} bytes, its pieces end at {ends[-1]}")


def all_pieces(manifest: Manifest) -> Iterator[tuple[str, StoredTensor, StoredPiece]]:
    """Return every piece with its tensor and name."""
    for name, tensor in manifest.tensors.items():
        for piece in tensor.pieces:
            yield name, tensor, piece


def _tiling(tensor: StoredTensor) -> str:
    """Return what is wrong with the boxes of a tensor, or "" if they tile it."""
    dims = len(tensor.shape)
    if any(len(p.offset) != dims or len(p.shape) != dims for p in tensor.pieces):
        return f"a piece has another number of dimensions than its shape {list(tensor.shape)}"
    stored, whole = sum(math.prod(p.shape) for p in tensor.pieces), math.prod(tensor.shape)
    if stored != whole:
        return f"its pieces hold {stored} elements, its shape {list(tensor.shape)} has {whole}"
    # Python's integers, which do not wrap; pieces within the shape that are as many and apart from each other tile it
    for p in tensor.pieces:
        if any(o + s > w for o, s, w in zip(p.offset, p.shape, tensor.shape, strict=True)):
            return f"a piece at {list(p.offset)} of {list(p.shape)} leaves its shape {list(tensor.shape)}"
    return _overlap(tensor) if len(tensor.pieces) > 1 else ""


def _overlap(tensor: StoredTensor) -> str:
    """Return where boxes within the shape of a tensor overlap, or ""."""
    starts = np.array([p.offset for p in tensor.pieces], dtype=np.int64)
    ends = starts + np.array([p.shape for p in tensor.pieces], dtype=np.int64)
    cut = np.flatnonzero(((starts != 0) | (ends != np.array(tensor.shape))).any(axis=0))
    if len(cut) == 1:  # slices along one dimension, as most are: in order, each ends where the next starts
        order = np.argsort(starts[:, cut[0]])
        same = starts[order[1:], cut[0]] == ends[order[:-1], cut[0]]
        return "" if same.all() else f"pieces overlap along dimension {cut[0]}"
    if len(starts) > MAX_BOXES:
        return f"{len(starts)} pieces, cut in several dimensions; expected at most {MAX_BOXES}"
    for i in range(len(starts) - 1):
        apart = (starts[i + 1 :] >= ends[i]) | (ends[i + 1 :] <= starts[i])
        if not apart.any(axis=1).all():
            return f"pieces overlap at {starts[i].tolist()}"
    return ""


def manifest_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the facts and sizes of a checkpoint, for print."""
    stored: dict[str, int] = {}
    for name, tensor in manifest.tensors.items():
        kind = name.rpartition("/")[2] if "/" in name and not name.startswith("rng/") else name.partition("/")[0]
        kind = kind if "/" in name else "weights"
        stored[kind] = stored.get(kind, 0) + math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
    return {
        **json.loads(msgspec.json.encode(manifest.facts)),
        "parameters": sum(math.prod(t.shape) for n, t in manifest.tensors.items() if "/" not in n),
        "bytes": stored,
        "files": {name: file.size_bytes for name, file in manifest.files.items()},
    }
