"""The signature of a collective: three numbers that are equal on all ranks of a correct program.

The first holds the collective, the element type, the operator, the root, and how many calls were refused before it; the
second its bytes; the third is 0 where all parts are alike, else a number made of all their sizes. `calls.c` makes the
same numbers.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...units import format_bytes

COLLECTIVES = (
    *("nothing", "all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter"),
    *("all_to_all", "barrier", "all_reduce of a sparse tensor", "all_reduce_coalesced", "all_gather_coalesced"),
    *("reduce_scatter_coalesced", "comparison of calls"),
)  # a number each, some of which calls.c knows
OPERATORS = ("", "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
# Element types by code and bits of DLPack (github.com/dmlc/dlpack), which C reads out of a tensor; from 128 on our own.
_CODES = {
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.uint16: (1, 16),
    torch.uint32: (1, 32),
    torch.uint64: (1, 64),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
    torch.bool: (6, 8),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e4m3fnuz: (11, 8),
    torch.float8_e5m2: (12, 8),
    torch.float8_e5m2fnuz: (13, 8),
    torch.float8_e8m0fnu: (14, 8),
}
_TYPES = {code << 8 | bits: str(dtype).removeprefix("torch.") for dtype, (code, bits) in _CODES.items()}
_OTHER_TYPE = 255 << 8
_ROOT_MOST, _REFUSED_AT, _REFUSED_MOST = 2**24 - 1, 56, 255
_MASK, _MIX = 2**64 - 1, 0x9E3779B97F4A7C15  # odd, so that no two numbers become one; 2^64 by the golden ratio


class Signature(NamedTuple):
    """The three numbers; `str` says what they mean."""

    what: int
    size_bytes: int
    sizes: int

    def __str__(self) -> str:
        collective, dtype = self.what & 0xFF, self.what >> 8 & 0xFFFF
        operator, root = self.what >> 24 & 0xFF, self.what >> 32 & _ROOT_MOST
        refused = self.what >> _REFUSED_AT
        parts = [dtype_name(dtype), OPERATORS[operator] if operator < len(OPERATORS) else "?"]
        inside = ", ".join(part for part in (parts[0] if dtype else "", parts[1]) if part)
        text = COLLECTIVES[collective] if collective < len(COLLECTIVES) else "a collective of another version"
        if self.size_bytes:
            text += f" of {self.size_bytes} B" if self.size_bytes < 1024 else f" of {format_bytes(self.size_bytes)}"
            text += " each" if collective in _PER_RANK and not self.sizes else ""
        sizes = "shaped" if collective == _SPARSE else "in uneven parts"
        text += f" {sizes} #{self.sizes & 0xFFFF:04x}" if self.sizes else ""  # other sizes, another number
        text += f" ({inside})" if inside else ""
        text += f" with root {root - 1}" if root else ""
        return text + (f" after {'a call' if refused == 1 else f'{refused} calls'} that it refused" if refused else "")

    def after(self, refused: int) -> "Signature":
        """Return the signature of the same call after `refused` refused ones."""
        return self._replace(what=self.what | min(refused, _REFUSED_MOST) << _REFUSED_AT)


_SPARSE = COLLECTIVES.index("all_reduce of a sparse tensor")
_PER_RANK = {COLLECTIVES.index(name) for name in ("reduce_scatter", "all_gather")}
NOTHING = Signature(0, 0, 0)
COMPARISON = Signature(COLLECTIVES.index("comparison of calls"), 0, 0)
BARRIER = Signature(COLLECTIVES.index("barrier"), 0, 0)


def dtype_number(dtype: torch.dtype) -> int:
    """Return the number of an element type; types that no code knows have one in common."""
    code, bits = _CODES.get(dtype, (_OTHER_TYPE >> 8, 0))
    return code << 8 | bits


def dtype_name(number: int) -> str:
    """Return the name of an element type by its number."""
    return _TYPES.get(number, "of another type")


@functools.cache
def _what(collective: str, dtype: torch.dtype | None, operator: str, root: int | None) -> int:
    of_type = dtype_number(dtype) if dtype is not None else 0
    number = COLLECTIVES.index(collective) | of_type << 8 | OPERATORS.index(operator) << 24
    return number | (root + 1 << 32 if root is not None else 0)


def signature(
    collective: str,
    dtype: torch.dtype | None,
    sizes_bytes: int | Sequence[int],
    *,
    operator: str = "",
    root: int | None = None,
) -> Signature:
    """Return the signature of a collective; `sizes_bytes` is of its tensor, or of the part of each rank or tensor."""
    what = _what(collective, dtype, operator, root)
    if isinstance(sizes_bytes, int):
        return Signature(what, sizes_bytes, 0)
    first = sizes_bytes[0] if sizes_bytes else 0
    if all(size == first for size in sizes_bytes):
        return Signature(what, first, 0)
    number = 0
    for size in sizes_bytes:
        number = mix(number, size)
    return Signature(what, sum(sizes_bytes) & _MASK, number or 1)


def mix(number: int, other: int) -> int:
    """Return a number of 64 bits made of two, as helper.c does."""
    number = (number ^ other) * _MIX & _MASK
    return number ^ number >> 32
