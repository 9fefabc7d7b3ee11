"""SLURM's lists of hosts: "a[0-2,5],b" is a0, a1, a2, a5, b; also with ranges of single letters, "a[B-D]"."""

import itertools
import re

from ...errors import InputError

MAX_NAMES = 100_000


def expand_hosts(text: str, where: str) -> list[str]:
    """Return the names of a SLURM host list: "a[0-2,5],b" gives a0, a1, a2, a5, b."""
    names: list[str] = []
    for part in _top_level_parts(text, where):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        choices = [[piece] if i % 2 == 0 else _range(piece, where) for i, piece in enumerate(pieces)]
        total = 1
        for choice in choices:
            total *= len(choice)
        if total + len(names) > MAX_NAMES:
            raise InputError(f"{where}: host list of more than {MAX_NAMES} names")
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def _top_level_parts(text: str, where: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in {0, 1}:
            raise InputError(f"{where}: host list {text[:40]!r}: brackets do not match")
        if character == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += character
    if depth:
        raise InputError(f"{where}: host list {text[:40]!r}: brackets do not match")
    return [part for part in (*parts, current) if part]


def _range(text: str, where: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        if re.fullmatch(r"[a-z]-[a-z]|[A-Z]-[A-Z]", part.strip()) and part.strip()[0] <= part.strip()[2]:
            first, last = part.strip().split("-")
            numbers += [chr(code) for code in range(ord(first), ord(last) + 1)]
            continue
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if match is None:
            raise InputError(f"{where}: {part[:30]!r}: expected a range such as 0-15")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low) or int(high) - int(low) >= MAX_NAMES:
            raise InputError(f"{where}: range {part[:30]}: expected a rising one of {MAX_NAMES} names at most")
        numbers += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return numbers
