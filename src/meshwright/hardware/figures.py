"""A figure of the catalogue: what it says, in SI, where it comes from, and which other sources disagree."""

import re

import msgspec

from ..errors import InputError
from ..units import parse_bytes, parse_rate, parse_time

_FLOPS = re.compile(r"\s*([\d.]+)\s*([GTP])(?:FL)?OP/s$")
_FLOPS_SCALE = {"G": 1e9, "T": 1e12, "P": 1e15}


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statement of one source: a number, or text with its unit ("300GB/s", "312TFLOP/s", "80GB", "0.5us")."""

    value: str | int | float
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        try:
            number = si(self.value)
        except InputError as error:
            raise ValueError(str(error)) from None
        if not 0 < number < 1e20:
            raise ValueError(f"{self.value!r}: expected a positive, finite figure")

    @property
    def number(self) -> float:
        """The value in SI units: bytes, bytes per second, operations per second, seconds, or a bare number."""
        return si(self.value)


class SourcedFigure(Claim, frozen=True, forbid_unknown_fields=True):
    """The claim that is used, and beside it those of sources that disagree."""

    others: tuple[Claim, ...] = ()


def si(value: str | int | float) -> float:
    """Return in SI what a figure says; the unit in the text decides what it is."""
    if not isinstance(value, str):
        try:
            return float(value)
        except OverflowError:
            raise InputError("a number beyond 1e308") from None
    flops = _FLOPS.match(value)
    if flops:
        return float(flops.group(1)) * _FLOPS_SCALE[flops.group(2)]
    if value.endswith(("/s", "ps")):
        return parse_rate(value)
    if value.endswith("B"):
        return float(parse_bytes(value))
    if value.endswith("s"):
        return parse_time(value)
    raise InputError(f"{value!r}: expected a figure with a unit, such as 300GB/s, 312TFLOP/s, 80GB or 0.5us")
