"""Masks of CPUs in hexadecimal, as hwloc and NCCL print them."""

import re

from ..errors import InputError

MAX_CPU = 65_536


def mask_cpus(mask: str) -> list[int]:
    """Return the CPUs of a mask of 32-bit words, the highest first: "0x00000001,0x0000000f" or "ff,ffffffff"."""
    value = 0
    for word in mask.strip().split(","):
        if word.strip() in {"0xf...f", "f...f"}:  # hwloc: all further bits set
            continue
        match = re.fullmatch(r"\s*(?:0x)?([0-9a-fA-F]{0,8})\s*", word)
        if match is None:
            raise InputError(f"CPU mask {mask[:60]!r}: {word[:20]!r}: expected words of up to 8 hexadecimal digits")
        value = (value << 32) | int(match.group(1) or "0", 16)
        if value.bit_length() > MAX_CPU:
            raise InputError(f"CPU mask of more than {MAX_CPU} CPUs")
    return [cpu for cpu in range(value.bit_length()) if value >> cpu & 1]
