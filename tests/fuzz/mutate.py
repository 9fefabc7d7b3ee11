"""Mutations of a good file: of its bytes, its lines, its numbers and words, and to the structure that it decodes to.

Everything is drawn from one `random.Random`, so that a seed repeats a case.
"""

import json
import random
import re
from typing import Any

import yaml

from tests.faults.hostile.malform import malformed

NUMBERS = (
    *("-1", "0", "-0.0", "1e999", "-1e999", "NaN", "nan", "inf", "-inf", "1e-320", "1e308", "9" * 5000, "9" * 30),
    *(str(2**31), str(2**63), str(2**64), "1e18", "0.5", "-7", "1,000", "٣", "0x10", "1_0", "001"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "-1", [], {}, [1, 2], {"a": 1}, -1, 0, 0.5, -0.5, 1e308, 1e-320, 10**18, -(10**18)),
    *(2**31, 2**63, 2**64, 10**40, float("inf"), float("-inf"), float("nan"), "\ud800", "nan", "9" * 5000, [[[]]]),
)
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_QUOTED = re.compile(rb'"[^"\n]{0,200}"')


def mutated(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done, in words, and the damaged file; one to three damages."""
    said = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        ways = [_bytes, _line, _number, _number, _word]
        if suffix in {".json", ".yaml", ".yml"}:
            ways += [_structure] * 6
        way = rng.choice(ways)
        what, data = way(data, suffix, rng)
        said.append(what)
    return ", ".join(said), data


def _bytes(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    return malformed(data, rng) if data.strip() else ("empty", data)


def _line(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    lines = data.splitlines(keepends=True) or [b""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.choice(("dropped", "moved", "joined", "cut", "repeated"))
    if how == "dropped":
        del lines[one]
    elif how == "moved":
        lines.insert(other, lines.pop(one))
    elif how == "joined":
        lines[one] = lines[one].rstrip(b"\r\n") + lines[other]
    elif how == "cut":
        lines[one] = lines[one][: rng.randrange(len(lines[one]) + 1)] + b"\n"
    else:
        lines[one:one] = [lines[other]] * rng.choice((1, 2, 50))
    return f"line {one + 1} {how}", b"".join(lines)


def _number(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    found = list(_NUMBER.finditer(data))
    if not found:
        return "no number in it", data
    chosen, value = rng.choice(found), rng.choice(NUMBERS)
    said = f"{chosen[0][:20].decode()} at byte {chosen.start()} is {value[:20]}"
    return said, data[: chosen.start()] + value.encode() + data[chosen.end() :]


def _word(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    found = list(_QUOTED.finditer(data))
    if not found:
        return "no word in it", data
    chosen, other = rng.choice(found), rng.choice(found)
    return f"{chosen[0][:30]!r} is {other[0][:30]!r}", data[: chosen.start()] + other[0] + data[chosen.end() :]


def _structure(data: bytes, suffix: str, rng: random.Random) -> tuple[str, bytes]:
    try:
        value = json.loads(data) if suffix == ".json" else yaml.safe_load(data)
    except (ValueError, RecursionError, yaml.YAMLError):
        return "not decoded", data
    places = _places(value)
    if not places:
        return "nothing inside", data
    holder, key = rng.choice(places)
    how = rng.choice(("replaced", "replaced", "replaced", "dropped", "swapped", "wrapped", "copied"))
    if how == "replaced":
        holder[key] = rng.choice(VALUES)
        how = f"is {str(holder[key])[:20]!r}"
    elif how == "dropped":
        del holder[key]
    elif how == "swapped":
        other, place = rng.choice(places)
        holder[key], other[place] = other[place], holder[key]
    elif how == "wrapped":
        holder[key] = rng.choice(([holder[key]], {"value": holder[key]}))
    elif isinstance(holder, list):
        holder += [holder[key]] * rng.choice((1, 3))
    else:
        holder[f"{key}2"] = holder[key]
    try:
        text = json.dumps(value) if suffix == ".json" else yaml.safe_dump(value)
    except (ValueError, RecursionError, yaml.YAMLError):  # a swap put a list into itself
        return "a structure without end", data
    return f"{key!r} {how}", text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) of a decoded file, at most some thousands."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending and len(found) < 5000:
        holder = pending.pop()
        if isinstance(holder, dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            found += [(holder, key) for key in keys]
            pending += [holder[key] for key in keys]
    return found
