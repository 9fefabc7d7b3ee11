"""The tokens of a corpus in one file, which says at its end how many there are, their checksum, and of what they are.

Wire form: the tokens, then MAGIC, their number (8 bytes, little endian), the 16 bytes of their xxh3 checksum, and those
of the name of the file, which follows from the corpus and the tokenizer.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from ...files import write_atomic

VERSION = 2  # of the wire form; also in the names of the files, so that versions side by side do not meet
MAGIC = b"MWTOKEN%d" % VERSION
END_BYTES = len(MAGIC) + 8 + 16 + 16
BLOCK_BYTES = 16 * 2**20


class TokenFile(msgspec.Struct, frozen=True):
    """Tokens, memory-mapped, and their checksum in hexadecimal."""

    tokens: npt.NDArray[Any]
    checksum: str


def write_tokens(path: Path, parts: Iterable[bytes], dtype: np.dtype[Any]) -> None:
    """Write the tokens of all parts; OSError if the disk refuses."""
    data = b"".join(parts)
    count = len(data) // dtype.itemsize
    write_atomic(path, data + MAGIC + count.to_bytes(8, "little") + xxhash.xxh3_128_digest(data) + _of(path))


def _of(path: Path) -> bytes:
    return xxhash.xxh3_128_digest(path.name.encode())


def read_tokens(path: Path, dtype: np.dtype[Any]) -> TokenFile | None:
    """Return the tokens of a file, every byte checked; None where it is damaged or another's, OSError if unreadable."""
    size = path.stat().st_size - END_BYTES
    if size < 0 or size % dtype.itemsize:
        return None
    with path.open("rb") as file:
        file.seek(size)
        end = file.read(END_BYTES)
    count, checksum = int.from_bytes(end[8:16], "little"), end[16:32]
    if end[:8] != MAGIC or count * dtype.itemsize != size or end[32:] != _of(path):
        return None
    if not size:
        return TokenFile(np.empty(0, dtype), checksum.hex()) if checksum == xxhash.xxh3_128_digest(b"") else None
    tokens = np.memmap(path, dtype=dtype, mode="r", shape=(size // dtype.itemsize,))
    state, data = xxhash.xxh3_128(), tokens.view(np.uint8)
    for start in range(0, size, BLOCK_BYTES):
        state.update(data[start : start + BLOCK_BYTES].data)
    return TokenFile(tokens, state.hexdigest()) if state.digest() == checksum else None
