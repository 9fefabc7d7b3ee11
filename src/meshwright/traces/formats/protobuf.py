"""The wire format of protocol buffers, as far as Chakra's messages need it: fields of varints, doubles and bytes.

https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Field = tuple[int, int | float | bytes]  # number, value


def varint(value: int) -> bytes:
    """Return a number of 64 bits as 7 bits a byte, the lowest first."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 0x7F:
        found.append(0x80 | value & 0x7F)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; ValueError where the data end within it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7
    raise ValueError("a number without an end")


def field(number: int, value: int | bytes | str) -> bytes:
    """Return one field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(raw)) + raw


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message; ValueError where it is none."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
        if kind == BYTES:
            size, at = read_varint(data, at)
        if number == 0 or size < 0 or at + size > len(data):
            raise ValueError(f"no field of a message at byte {at}")
        raw, at = data[at : at + size], at + size
        if kind == BYTES:
            yield number, raw
        else:
            yield number, float(struct.unpack("<d" if kind == FIXED64 else "<f", raw)[0])


def numbers(value: int | float | bytes) -> list[int]:
    """Return what a repeated field of varints holds, packed or one by one."""
    if not isinstance(value, bytes):
        return [int(value)]
    found, at = [], 0
    while at < len(value):
        one, at = read_varint(value, at)
        found.append(one)
    return found


def signed(value: int) -> int:
    """Return a varint as a signed number of 64 bits."""
    return value - 2**64 if value >= 2**63 else value
