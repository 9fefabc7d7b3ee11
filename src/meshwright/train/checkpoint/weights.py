"""A foreign safetensors file as its header describes it, and its weights as numbers that are finite; without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open

from ...errors import InputError
from ...files import convert, opened, parse_json

BLOCK_BYTES = 8 * 2**20  # of one read
HEADER_BYTES = 100 * 2**20  # at most, as the format has it
# Types of weights, and for each the words that its numbers are read as and the bits that all are 1 in NaN and infinity.
WEIGHT_TYPES = {
    "F32": ("<u4", 0x7F80_0000),
    "BF16": ("<u2", 0x7F80),
    "F16": ("<u2", 0x7C00),
    "F64": ("<u8", 0x7FF0_0000_0000_0000),
}
Extent = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class HeaderEntry(msgspec.Struct, frozen=True):
    """A tensor as the header of its file has it; `data_offsets` are of its bytes, from the end of the header on."""

    dtype: str
    shape: tuple[Extent, ...]
    data_offsets: tuple[Extent, Extent]

    @property
    def size_bytes(self) -> int:
        """The bytes of the tensor in its file."""
        return self.data_offsets[1] - self.data_offsets[0]


def weights_header(path: Path) -> dict[str, HeaderEntry]:
    """Return the tensors of a safetensors file; InputError if it is not one, or is a link out of its folder."""
    opened(path).close()  # no pipe is waited for
    if path.is_symlink() and path.resolve().parent != path.parent.resolve():
        raise InputError(f"{path}: leads out of its folder, refused")
    try:
        with safe_open(str(path), "np"):  # which checks that the tensors tile the file
            pass
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: {error}") from None
    with opened(path) as file:
        size_bytes = int.from_bytes(file.read(8), "little")
        text = file.read(min(size_bytes, HEADER_BYTES))
    data = parse_json(text.decode("utf-8", "replace"), where=str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path}: header: expected names of tensors")
    data.pop("__metadata__", None)
    return convert(data, dict[str, HeaderEntry], where=str(path))


def check_finite(path: Path, name: str, header: Mapping[str, HeaderEntry]) -> None:
    """Raise InputError where a tensor of one of the `WEIGHT_TYPES` holds NaN or infinity; reads all of it."""
    entry = header[name]
    word, special = WEIGHT_TYPES[entry.dtype]
    bad = total = 0
    with opened(path) as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        file.seek(start + entry.data_offsets[0])
        left_bytes = entry.size_bytes
        while left_bytes > 0:
            block = file.read(min(BLOCK_BYTES, left_bytes))
            if not block:
                raise InputError(f"{path}: {name}: the file ends early")
            left_bytes -= len(block)
            words = np.frombuffer(block[: len(block) // np.dtype(word).itemsize * np.dtype(word).itemsize], dtype=word)
            bad += int(((words & special) == special).sum())
            total += len(words)
    refuse_not_finite(path, name, bad, total)


def refuse_not_finite(path: Path, name: str, bad: int, total: int) -> None:
    """Raise InputError where `bad` of the `total` weights of a tensor are no finite numbers."""
    if bad:
        raise InputError(f"{path}: {name}: {bad} of {total} weights are NaN or infinite")
