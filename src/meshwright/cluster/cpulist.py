"""Lists of CPUs: "0-3,8" as Linux prints them, hexadecimal masks as hwloc and NCCL do."""

import re

from ..errors import InputError

MAX_CPU = 65_536


def parse_cpus(text: str) -> list[int]:
    """Return the CPUs of "0-3,8", in order; InputError for anything else."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match is None:
            raise InputError(f"CPU list {text!r}: {part!r}: expected a form such as 0-3,8")
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        if low > high or high >= MAX_CPU:
            raise InputError(f"CPU list {text!r}: {part!r}: expected rising numbers under {MAX_CPU}")
        cpus.update(range(low, high + 1))
    return sorted(cpus)


def format_cpus(cpus: list[int] | set[int]) -> str:
    """Return CPUs as "0-3,8"."""
    parts: list[str] = []
    start = last = None
    for cpu in [*sorted(cpus), None]:
        if start is not None and (cpu is None or last is None or cpu != last + 1):
            parts.append(str(start) if start == last else f"{start}-{last}")
            start = None
        if start is None:
            start = cpu
        last = cpu
    return ",".join(parts)


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
