"""Bytes, rates, times and counts: parse what a person writes, print what a person reads.

Inside Meshwright everything is SI: bytes, bytes per second, seconds. A rate is per direction.
"""

import math
import re
from collections.abc import Iterable, Sequence

from .errors import InputError
from .quantities import MOST_BYTES, MOST_COUNT, MOST_RATE, MOST_TIME_S

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*)?$")
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
YEAR_DAYS = 365.25
_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))  # as they are printed
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DAYS = {
    **dict.fromkeys(("", "d", "day", "days"), 1.0),
    **dict.fromkeys(("w", "week", "weeks"), 7.0),
    **dict.fromkeys(("h", "hour", "hours"), 1 / 24),
}


def parse_bytes(text: str) -> int:
    """Return the bytes that `text` names: "25 MiB", "64K" and "1M" (binary, as nccl-tests), "1GB" (decimal), "512"."""
    value, unit = _split(text, "a size such as 25MiB, 1GB or 64K")
    if unit in _BINARY or unit.rstrip("B") in _BINARY:
        scale = _BINARY[unit.rstrip("B")]
    elif unit and unit[:-1] in _PREFIX and unit.endswith("B"):
        scale = _PREFIX[unit[:-1]]
    elif unit.upper() in {"K", "M", "G", "T"}:
        scale = _BINARY[unit.upper() + "i"]
    elif unit in {"", "B"}:
        scale = 1
    else:
        raise InputError(f"{_short_text(text)}: unknown unit {unit!r}; expected a size such as 25MiB, 1GB or 64K")
    if value < 0:
        raise InputError(f"{_short_text(text)}: a size cannot be negative")
    return round(_at_most(value * scale, MOST_BYTES, text, "1 EiB"))


def parse_rate(text: str) -> float:
    """Return the bytes per second that `text` names: "400Gbps" and "400Gb/s" are bits, "50GB/s" is bytes."""
    hint = "a rate such as 400Gbps or 50GB/s"
    value, unit = _split(text, hint)
    if link := re.fullmatch(r"([mgt])(?:be|bit)", unit, re.I):  # a kind of link: 25GbE
        unit = f"{link[1].upper()}bps"
    match = re.fullmatch(r"([kKMGT]?i?)(b|B|bit)(?:ps|/s)", unit)
    if not unit:
        raise InputError(f"{_short_text(text)}: expected a rate with its unit, such as 400Gbps or 50GB/s")
    if match is None:
        raise InputError(f"{_short_text(text)}: unknown unit {unit!r}; expected {hint}")
    prefix, kind = match.groups()
    scale = _BINARY.get(prefix) or _PREFIX.get(prefix)
    if scale is None:
        raise InputError(f"{_short_text(text)}: unknown prefix {prefix!r}; expected {hint}")
    if value <= 0:
        raise InputError(f"{_short_text(text)}: a rate must be positive")
    return _at_most(value * scale / (1 if kind == "B" else 8), MOST_RATE, text, "1e20 bytes a second")


def parse_time(text: str) -> float:
    """Return the seconds that `text` names: "1.5us", "20 ms", "3h"; a bare number is seconds."""
    value, unit = _split(text, "a time such as 20ms or 1.5us")
    if unit and unit not in _TIME:
        raise InputError(f"{_short_text(text)}: unknown unit {unit!r}; expected one of {', '.join(_TIME)}")
    if value < 0:
        raise InputError(f"{_short_text(text)}: a time cannot be negative")
    return _at_most(value * _TIME.get(unit, 1.0), MOST_TIME_S, text, "1e10 seconds")


def parse_share(text: str) -> float:
    """Return the share that `text` names: "0.4", "40%" and "40 %" are one; a comma may stand for the point."""
    value, unit = _split(re.sub(r"(?<=\d),(?=\d)", ".", str(text)), "a share such as 0.4 or 40%")
    if unit not in {"", "%"}:
        raise InputError(f"{_short_text(text)}: unknown unit {unit!r}; expected a share such as 0.4 or 40%")
    return value / 100 if unit else value


def parse_days(text: str) -> float:
    """Return the days that `text` names: "60", "60d", "8 weeks", "36h"."""
    value, unit = _split(text, "days such as 60 or 60d")
    scale = _DAYS.get(unit.lower())
    if scale is None:
        raise InputError(f"{_short_text(text)}: unknown unit {unit!r}; expected days such as 60, 60d, 8 weeks or 36h")
    return value * scale


def parse_latency(text: str) -> float:
    """Return the seconds of a message's delay, as `parse_time` does, but of a number without a unit only 0.

    5 is meant in microseconds, and as seconds it would price every message a million times too dear.
    """
    value = parse_time(text)
    if value and text.strip()[-1:] in "0123456789.":
        raise InputError(f"{_short_text(text)}: expected a latency with its unit, such as 5us or 300ns")
    return value


def parse_count(text: str) -> int:
    """Return the number that `text` names: "2B", "1.8T", "350M", "4096"."""
    value, unit = _split(text, "a count such as 2B or 350M")
    scale = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}.get(unit.lower())
    if scale is None or value < 0:
        raise InputError(f"{_short_text(text)}: expected a count such as 2B, 350M or 13T")
    return round(_at_most(value * scale, MOST_COUNT, text, "1e18"))


def format_bytes(size_bytes: float) -> str:
    """Print bytes in binary units: 26214400 is "25 MiB"."""
    for prefix, scale in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if abs(size_bytes) >= scale:
            return f"{_short(size_bytes / scale)} {prefix}B"
    return f"{_short(size_bytes)} B"


def format_rate(bytes_per_s: float) -> str:
    """Print a rate inside a node, in GB/s per direction."""
    return f"{_short(bytes_per_s / 1e9)} GB/s"


def format_network_rate(bytes_per_s: float) -> str:
    """Print a rate between nodes, in Gb/s per direction."""
    return f"{_short(bytes_per_s * 8 / 1e9)} Gb/s"


def time_unit(time_s: float) -> tuple[str, float]:
    """Return the unit that keeps one to three digits before the point, and its seconds."""
    # what rounds to 1000 of a unit is 1 of the next
    return next((found for found in _TIMES if abs(time_s) >= 0.9995 * found[1]), _TIMES[-1])


def format_time(time_s: float) -> str:
    """Print seconds in the unit that keeps one to three digits before the point."""
    unit, scale = time_unit(time_s)
    return f"{_short(time_s / scale)} {unit}" if time_s else "0 s"


def format_days(days: float) -> str:
    """Print days, as years from two of them on."""
    years = days / YEAR_DAYS
    shown, unit = (days, "days") if years < 2 else (years, "years")
    return f"{shown:,.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"


def counted(number: float | None, noun: str, plural: str = "") -> str:
    """Print a number with its noun, in the singular for one: "1 GPU", "16,384 GPUs", "2 copies"; None is unknown."""
    several = plural or noun + ("es" if noun.endswith(("s", "ch", "x")) else "s")
    shown = "?" if number is None else f"{number:,}".removesuffix(".0")
    return f"{shown} {noun if number == 1 else several}"


def first_few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Print up to `most` names, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers in ascending order, consecutive ones together: [[0, 1, 2], [5]]."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def shortened(ranks: Sequence[int]) -> str:
    """Print ranks, from three consecutive ones on as 3-7."""
    runs = consecutive(ranks)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Print "rank 3" of one rank, "ranks 3-5, 8" of several."""
    return f"rank{'s' * (len(ranks) > 1)} {shortened(ranks)}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _NUMBER.match(str(text))
    if match is None:
        raise InputError(f"{_short_text(text)}: expected {expected}")
    return float(match.group(1)), (match.group(2) or "").strip()


def _at_most(value: float, most: float, text: str, words: str) -> float:
    """Return a value that is finite and no more than `most`; InputError for what is only a slip of a unit."""
    if not math.isfinite(value) or value > most:
        raise InputError(f"{_short_text(text)}: expected at most {words}")
    return value


def _short_text(text: str) -> str:
    return repr(text) if len(str(text)) <= 40 else f"{str(text)[:40]!r}..."
