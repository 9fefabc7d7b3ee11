"""Pieces of tensors to and from safetensors files: written once with checksums, read back under any other split."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from ...errors import InputError
from .manifest import Manifest, StoredFile, StoredPiece, StoredTensor, piece_bytes
from .stored import StoredFiles

DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
LARGEST_PIECE_BYTES = (
    64 * 2**20
)  # larger ones are cut: a reader checks whole pieces, and need not read more than it wants
BLOCK_BYTES = 8 * 2**20  # of one write


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor of the unsplit model, held by this rank.

    `shape` is of the whole tensor, `offset` where the box starts in it; `tensor` is the box. Of ranks that hold the
    same box one is the `owner`, which writes it.
    """

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    tensor: Tensor
    owner: bool = True


def write_file(path: Path, pieces: Sequence[Piece]) -> tuple[StoredFile, dict[str, StoredTensor]]:
    """Write pieces (CPU tensors) into a new safetensors file and flush it to disk; return what the manifest says of it.

    Raises OSError if the disk refuses.
    """
    parts = [part for piece in pieces for part in _cut(piece)]
    header = _header(parts)
    table: dict[str, StoredTensor] = {}
    at = len(header)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        _write_all(file.fileno(), memoryview(header))
        for part in parts:
            data = _bytes_of(part.tensor)
            _write_all(file.fileno(), data)
            stored = StoredPiece(part.offset, tuple(part.tensor.shape), path.name, at, xxhash.xxh3_128_hexdigest(data))
            known = table.get(part.name)
            before = known.pieces if known else ()
            table[part.name] = StoredTensor(DTYPE_NAMES[part.tensor.dtype], part.shape, (*before, stored))
            at += data.nbytes
        os.fsync(file.fileno())
    return StoredFile(at, len(header), xxhash.xxh3_128_hexdigest(header)), table


def read_pieces(folder: Path, manifest: Manifest, wanted: Iterable[Piece]) -> None:
    """Fill the tensors of `wanted` from a checkpoint, reading and checking the stored pieces that overlap them.

    Raises Damaged naming the file, InputError naming the tensor that is missing or of another shape or type.
    """
    with StoredFiles(folder, manifest) as files:
        for piece in wanted:
            stored = manifest.tensors.get(piece.name)
            if stored is None:
                raise InputError(f"{folder}: lacks {piece.name}")
            if stored.shape != piece.shape:
                shapes = f"{piece.name} is {list(stored.shape)}, expected {list(piece.shape)}"
                raise InputError(f"{folder}: does not fit the model: {shapes}")
            if DTYPES[stored.dtype] != piece.tensor.dtype:
                raise InputError(
                    f"{folder}: {piece.name} is {stored.dtype}, expected {DTYPE_NAMES[piece.tensor.dtype]}"
                )
            with torch.no_grad():
                for source in stored.pieces:
                    _copy_overlap(files, stored, source, piece)


def read_whole(folder: Path, manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Return whole tensors of a checkpoint, one after the other."""
    for name in names:
        stored = manifest.tensors[name]
        tensor = torch.empty(stored.shape, dtype=DTYPES[stored.dtype])
        read_pieces(folder, manifest, [Piece(name, stored.shape, (0,) * tensor.dim(), tensor)])
        yield name, tensor


def _copy_overlap(files: StoredFiles, stored: StoredTensor, source: StoredPiece, target: Piece) -> None:
    """Copy what a stored piece and a wanted one share; reads nothing where that is nothing."""
    here, there = [], []
    for start, size, other_start, other_size in zip(
        source.offset, source.shape, target.offset, target.tensor.shape, strict=True
    ):
        low, high = max(start, other_start), min(start + size, other_start + other_size)
        if low >= high:
            return
        here.append(slice(low - start, high - start))
        there.append(slice(low - other_start, high - other_start))
    data = files.read(source, piece_bytes(stored, source), target.name)
    box = torch.frombuffer(data, dtype=DTYPES[stored.dtype]).view(source.shape)
    target.tensor[tuple(there)].copy_(box[tuple(here)])


def _cut(piece: Piece) -> Iterator[Piece]:
    """Return a piece as pieces of at most `LARGEST_PIECE_BYTES` along its first dimension, empty ones left out."""
    tensor = piece.tensor
    if not tensor.numel():
        return
    if tensor.nbytes <= LARGEST_PIECE_BYTES or not tensor.dim():
        yield piece
        return
    rows = max(1, LARGEST_PIECE_BYTES // (tensor.nbytes // tensor.shape[0]))
    for start in range(0, tensor.shape[0], rows):
        part = tensor.narrow(0, start, min(rows, tensor.shape[0] - start))
        yield Piece(piece.name, piece.shape, (piece.offset[0] + start, *piece.offset[1:]), part)


def _header(parts: Sequence[Piece]) -> bytes:
    """Return length and JSON header of a safetensors file, padded to eight bytes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}  # transformers loads no file without it
    at = 0
    for part in parts:
        whole = tuple(part.tensor.shape) == part.shape
        key = part.name if whole else f"{part.name}@{','.join(map(str, part.offset))}"
        assert key not in entries, f"{key} is written twice"
        entries[key] = {
            "dtype": DTYPE_NAMES[part.tensor.dtype],
            "shape": list(part.tensor.shape),
            "data_offsets": [at, at + part.tensor.nbytes],
        }
        at += part.tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a CPU tensor in row-major order, copied only where they do not lie so."""
    array: Any = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _write_all(descriptor: int, data: memoryview) -> None:
    at = 0
    while at < len(data):
        at += os.write(descriptor, data[at : at + BLOCK_BYTES])


def merge_tables(tables: Iterable[Mapping[str, StoredTensor]], *, where: str) -> dict[str, StoredTensor]:
    """Return the tensors of all ranks, each with the pieces that its owners wrote."""
    merged: dict[str, StoredTensor] = {}
    for table in tables:
        for name, tensor in table.items():
            known = merged.get(name)
            if known is None:
                merged[name] = tensor
            elif (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
                raise InputError(f"{where}: ranks disagree about type or shape of {name}")
            else:
                merged[name] = StoredTensor(known.dtype, known.shape, known.pieces + tensor.pieces)
    return merged
