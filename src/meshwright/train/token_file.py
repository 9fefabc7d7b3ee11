"""The tokens of a corpus in one file, which says at its end how many there are and their checksum.

Wire form: the tokens, then MAGIC, their number (8 bytes, little endian) and the 16 bytes of their xxh3 checksum.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from ..files import write_atomic

MAGIC = b"MWTOKEN1"
END_BYTES = len(MAGIC) + 8 + 16
BLOCK_BYTES = 16 * 2**20


class TokenFile(msgspec.Struct, frozen=True):
    """Tokens, memory-mapped, and their checksum in hexadecimal."""

    tokens: npt.NDArray[Any]
    checksum: str


def write_tokens(path: Path, parts: Iterable[bytes], dtype: np.dtype[Any]) -> None:
    """Write the tokens of all parts; OSError if the disk refuses."""
    data = b"".join(parts)
    count = len(data) // dtype.itemsize
    write_atomic(path, data + MAGIC + count.to_bytes(8, "little") + xxhash.xxh3_128_digest(data))


def read_tokens(path: Path, dtype: np.dtype[Any]) -> TokenFile | None:
    """Return the tokens of a file, every byte checked; None where it is damaged, OSError where it cannot be read."""
    size = path.stat().st_size - END_BYTES
    if size < 0 or size % dtype.itemsize:
        return None
    with path.open("rb") as file:
        file.seek(size)
        end = file.read(END_BYTES)
    if end[:8] != MAGIC or int.from_bytes(end[8:16], "little") * dtype.itemsize != size:
        return None
    if not size:
        return TokenFile(np.empty(0, dtype), end[16:].hex()) if end[16:] == xxhash.xxh3_128_digest(b"") else None
    tokens = np.memmap(path, dtype=dtype, mode="r", shape=(size // dtype.itemsize,))
    state, data = xxhash.xxh3_128(), tokens.view(np.uint8)
    for start in range(0, size, BLOCK_BYTES):
        state.update(data[start : start + BLOCK_BYTES].data)
    return TokenFile(tokens, state.hexdigest()) if state.digest() == end[16:] else None
