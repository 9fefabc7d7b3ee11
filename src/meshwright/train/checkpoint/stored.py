"""The files of a checkpoint as bytes, each piece checked against its checksum; without torch."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import xxhash

from .manifest import Damaged, Manifest, StoredPiece, all_pieces, piece_bytes


def verify_pieces(folder: Path, manifest: Manifest, *, only: str = "") -> int:
    """Read a whole checkpoint and return its bytes; Damaged naming the first file that is damaged or missing.

    `only`: read the headers of all files, but no more than the tensors whose names begin so.
    """
    with StoredFiles(folder, manifest) as files:
        for name in manifest.files:
            files.open(name)
        for name, tensor, piece in all_pieces(manifest):
            if name.startswith(only):
                files.read(piece, piece_bytes(tensor, piece), name)
    return sum(file.size_bytes for file in manifest.files.values())


def verify_tensors(folder: Path, manifest: Manifest, names: Iterable[str], *, most_bytes: int) -> None:
    """Read these tensors of a checkpoint; Damaged naming the first file of them that is damaged or missing.

    Where they are more than `most_bytes`, only the sizes and headers of their files are looked at: who reads the
    tensors later checks them then.
    """
    pieces = [(name, tensor, piece) for name in names for tensor in [manifest.tensors[name]] for piece in tensor.pieces]
    few = sum(piece_bytes(tensor, piece) for _, tensor, piece in pieces) <= most_bytes
    with StoredFiles(folder, manifest) as files:
        for name, tensor, piece in pieces:
            if few:
                files.read(piece, piece_bytes(tensor, piece), name)
            else:
                files.open(piece.file)


class StoredFiles:
    """The open files of a checkpoint: each of the size that the manifest says, none of them a link."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._open: dict[str, int] = {}

    def __enter__(self) -> "StoredFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def open(self, name: str) -> int:
        """Return the descriptor of a file whose size and header are those of the manifest."""
        if name in self._open:
            return self._open[name]
        path, expected = self._folder / name, self._manifest.files[name]
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror or error}") from None
        self._open[name] = descriptor
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Damaged(f"{path}: is not a plain file, refused")
        if found.st_size != expected.size_bytes:
            raise Damaged(
                f"{path}: {found.st_size} bytes, expected {expected.size_bytes} (truncated or damaged); "
                "use an older checkpoint"
            )
        if xxhash.xxh3_128_hexdigest(self._read(name, 0, expected.header_bytes)) != expected.header_xxh3_128:
            raise Damaged(f"{path}: its header differs from its checksum (damaged); use an older checkpoint")
        return descriptor

    def read(self, piece: StoredPiece, size_bytes: int, name: str) -> bytearray:
        """Return the bytes of a piece, checked; they are known to lie within the file."""
        self.open(piece.file)
        data = self._read(piece.file, piece.byte_offset, size_bytes)
        if xxhash.xxh3_128_hexdigest(data) != piece.xxh3_128:
            path = self._folder / piece.file
            raise Damaged(f"{path}: {name} differs from its checksum (damaged); use an older checkpoint")
        return data

    def _read(self, name: str, at: int, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        view = memoryview(data)
        try:
            while view:
                count = os.preadv(self._open[name], [view], at)
                if not count:
                    raise Damaged(f"{self._folder / name}: ends early (truncated); use an older checkpoint")
                view, at = view[count:], at + count
        except OSError as error:
            raise Damaged(f"{self._folder / name}: {error.strerror or error}") from None
        return data
