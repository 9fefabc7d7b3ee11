"""Rows of nccl-tests by the header above them, whatever version wrote it, and checked against themselves.

A row has size, count and type, an operator and a root where the version prints them, then one or two sets of time,
algbw, busbw and errors (out of place, in place), with further columns (per-iteration times, a timestamp) as the header
says. Without a header the layout is the one in which algbw x time = size holds.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...errors import InputError
from ...quantities import MOST_TIME_S

SHORTEST_S = 1e-12  # of a call: nothing is done in less
WIDTHS = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8e4m3": 1,
    "fp8e5m2": 1,
    "half": 2, "float16": 2, "fp16": 2, "bfloat16": 2, "bf16": 2, "int16": 2, "uint16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "float32": 4, "fp32": 4,
    "int64": 8, "uint64": 8, "double": 8, "float64": 8, "fp64": 8,
}  # fmt: skip
_NAMES = {
    "size": "size", "bytes": "size", "count": "count", "n": "count", "type": "type", "redop": "redop", "op": "redop",
    "root": "root", "time": "time", "cputime": "cputime", "algbw": "algbw", "busbw": "busbw", "#wrong": "wrong",
    "wrong": "wrong", "error": "error", "res": "error", "#bitdiff": "bitdiff",
}  # fmt: skip
_UNITS = {"(us)": 1e-6, "(ms)": 1e-3, "(s)": 1.0}
_ROW = re.compile(
    r"(?P<lead>.*?)(?:^|(?<=[\s\]:#|]))(?P<size>\d[\d,]*(?:\.\d+)? ?(?:[KMGT]i?B?|B)?)\s+(?P<count>\d[\d,]*)\s+"
    rf"(?P<type>{'|'.join(sorted(WIDTHS, key=len, reverse=True))})\b(?P<rest>.*)$"
)
_PLAIN = re.compile(r"\d{1,15}(?:\.\d{1,30})?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)|N/A|-", re.I)


class Header(msgspec.Struct, frozen=True):
    """The columns of a table: before the size, between type and times, and the sets from the first time on."""

    lead: tuple[str, ...]
    middle: tuple[str, ...]
    tail: tuple[str, ...]
    time_unit_s: float | None = None

    @property
    def is_cpu_time(self) -> bool:
        """Whether the time is what the host spent, not how long the transfer took."""
        return "cputime" in self.tail


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """One row as it stands."""

    line: int
    lead: str
    bytes: int
    count: int
    type: str
    redop: str
    root: int | None
    time_s: float
    algbw: str | None  # as printed, GB/s
    busbw: str | None
    wrong: int | None
    in_place_checked: bool | None  # None where there is no such column
    different_bits: int | None = None  # between repeated calls, None where these were not compared

    @property
    def shares(self) -> int | None:
        """Size over count x width: how many ranks share the payload, 1 where each has all; None without elements."""
        return self.bytes // (self.count * WIDTHS[self.type]) if self.count else None


def parse_header(line: str) -> Header | None:
    """Return the columns that a line names, None where it is no header."""
    # what stands before the mark of a comment is no column
    words = line.rpartition("# ")[2].replace("|", " ").strip().lstrip("#").lower().split()
    names = [_NAMES.get(word, word) for word in words]
    if "size" not in names or "count" not in names or not {"time", "cputime"} & set(names):
        return None
    first, times = names.index("size"), [i for i, name in enumerate(names) if name in {"time", "cputime"}]
    if names[first : first + 3] != ["size", "count", "type"] or times[0] < first + 3:
        return None
    unit = 1e-3 if words[first] == "bytes" else None  # until 2018 they counted milliseconds and named no unit
    return Header(tuple(words[:first]), tuple(names[first + 3 : times[0]]), tuple(names[times[0] :]), unit)


def parse_units(line: str) -> float | None:
    """Return the unit of the times in the line below a header, None where it is no such line."""
    words = line.replace("|", " ").strip().lstrip("#").lower().split()
    if "(elements)" not in words and "(b)" not in words:
        return None
    return next((_UNITS[word] for word in words if word in _UNITS), None)


def looks_like_row(line: str) -> bool:
    """Return whether a line has a size, a count and an element type."""
    return _ROW.match(line.strip().lstrip("#")) is not None


def is_figure(word: str) -> bool:
    """Return whether a word is a number as tools print them, or stands for one that was not measured."""
    return _NUMBER.fullmatch(word) is not None


def is_plain(word: str) -> bool:
    """Return whether a word is a number of 0 or more without an exponent, as most tools print them."""
    return _PLAIN.fullmatch(word) is not None


def _root(word: str, at: str) -> int:
    if not re.fullmatch(r"-?\d{1,6}", word):
        raise InputError(f"{at}: root {word}: expected a rank, or -1")
    return int(word)


class _Figures(NamedTuple):
    time_s: float
    algbw: str | None
    busbw: str | None
    wrong: int | None
    in_place_checked: bool | None
    different_bits: int | None


class CutRow(Exception):
    """A row that ends too early; in the last line of a file that is no contradiction."""


def parse_row(line: str, header: Header | None, where: str, number: int) -> Parsed:
    """Return the row of a line; Cut where it ends too early, InputError where it contradicts itself."""
    at = f"{where}:{number}"
    match = _ROW.match(line.strip().lstrip("#"))
    if match is None:
        raise InputError(f"{at}: expected size, count, type, redop, time, algbw and busbw")
    type_ = match["type"]
    count = int(match["count"].replace(",", ""))
    size = _size(match["size"], count * WIDTHS[type_], at)
    tokens, lead = match["rest"].split(), match["lead"].split()
    redop = tokens.pop(0) if tokens and not is_figure(tokens[0]) else "none"
    numbers = _leading_numbers(_without_words(tokens, header))
    layouts = _layouts(len(numbers)) if header is None else [_layout(header, len(numbers), redop != "none")]
    for has_root, tail in [layout for layout in layouts if layout is not None]:
        values = numbers[has_root:]
        figures = _figures(values, tail, header, at)
        parsed = Parsed(
            line=number, lead=lead[-1] if lead else "", bytes=size, count=count, type=type_, redop=redop,
            root=_root(numbers[0], at) if has_root else None, time_s=figures.time_s, algbw=figures.algbw,
            busbw=figures.busbw, wrong=figures.wrong, in_place_checked=figures.in_place_checked,
            different_bits=figures.different_bits,
        )  # fmt: skip
        fault = _contradiction(parsed, tail, values)
        if fault is None:
            return parsed
        if header is not None:
            raise InputError(f"{at}: {fault}")
    raise CutRow(f"{at}: expected size, count, type, redop, time, algbw and busbw, {len(numbers)} figures do not do")


def _without_words(tokens: Sequence[str], header: Header | None) -> Sequence[str]:
    """Return what stands behind the operator without columns that are none of ours (algorithm, protocol, channels)."""
    if header is None or not any(map(_is_strange, header.tail)):
        return tokens
    first = "root" in header.middle
    tail = [name for name in header.tail if name != "timestamp"]  # the last, of one word or two
    whole = len(header.tail) == len(tail)
    if len(tokens) < first + len(tail) or (whole and len(tokens) > first + len(tail)):
        return tokens
    known = [word for word, name in zip(tokens[first:], tail, strict=False) if not _is_strange(name)]
    return [*tokens[:first], *known]


def _is_strange(column: str) -> bool:
    return column not in _NAMES.values() and column != "timestamp"


def _leading_numbers(tokens: Sequence[str]) -> list[str]:
    found: list[str] = []
    for token in tokens:
        if not is_figure(token):
            break
        found.append(token)
    return found


def _layout(header: Header, figures: int, has_redop: bool) -> tuple[bool, tuple[str, ...]] | None:
    """Return whether a root comes first, and the columns from the time on; None where the row does not fill them."""
    has_root = "root" in header.middle
    timed = tuple(name for name in header.tail if name != "timestamp" and not _is_strange(name))
    if figures == len(timed) + has_root:
        return has_root, timed
    return (has_root, timed) if figures > len(timed) + has_root and "timestamp" in header.tail else None


def _layouts(figures: int) -> list[tuple[bool, tuple[str, ...]]]:
    """Return the layouts of that number of figures that versions of nccl-tests print."""
    sets = [("time", "algbw", "busbw", "wrong"), ("time", "algbw", "busbw")]
    return [
        (has_root, one * times)
        for one in sets
        for times in (2, 1)
        for has_root in (False, True)
        if len(one) * times + has_root == figures
    ]


def _figures(values: Sequence[str], tail: Sequence[str], header: Header | None, at: str) -> _Figures:
    """Return time, bandwidths and errors of the first set with a time: out of place, else in place."""
    starts = [i for i, name in enumerate(tail) if name in {"time", "cputime"}]
    sets = [dict(zip(tail[i:j], values[i:j], strict=False)) for i, j in zip(starts, [*starts[1:], None], strict=True)]
    times = [_number(one.get("time", one.get("cputime"))) for one in sets]
    chosen = next((i for i, time in enumerate(times) if time), None)
    if chosen is None:
        raise InputError(f"{at}: expected a time above 0")
    one, time = sets[chosen], times[chosen]
    assert time is not None
    time_s = time * ((header.time_unit_s if header else None) or 1e-6)
    if not SHORTEST_S <= time_s <= MOST_TIME_S:
        raise InputError(f"{at}: a time of {time_s:g} s: expected one between {SHORTEST_S:g} and {MOST_TIME_S:g}")
    wrong = [_number(each["wrong"]) for each in sets if "wrong" in each]
    checked = [w for w in wrong if w is not None]
    return _Figures(
        time_s=time_s,
        algbw=one["algbw"] if _number(one.get("algbw")) is not None else None,
        busbw=one["busbw"] if _number(one.get("busbw")) is not None else None,
        wrong=int(max(checked)) if checked else None,
        in_place_checked=_right_in_place(sets, wrong),
        different_bits=max((int(b) for each in sets if (b := _number(each.get("bitdiff"))) is not None), default=None),
    )


def _right_in_place(sets: Sequence[dict[str, str]], wrong: Sequence[float | None]) -> bool | None:
    """Return whether the results in place were checked; the old column of errors shows whether they were right."""
    if len(wrong) == 2:
        return wrong[1] is not None
    errors = [_number(each.get("error")) for each in sets]
    return len(errors) == 2 and errors[1] is not None and errors[1] < 0.1


def _number(word: str | None) -> float | None:
    if word is None or word in {"-"} or word.upper() == "N/A":
        return None
    number = float(word)
    return number if math.isfinite(number) else None


def half_digit(printed: str) -> float:
    """Return half a unit of the last digit of a printed number."""
    mantissa, _, power = printed.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(power or 0) - digits)


def _size(text: str, elements_bytes: int, at: str) -> int:
    """Return the size in bytes; of a rounded one such as 1.5G the multiple of the counted bytes next to it."""
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?) ?([KMGT])?(i?B)?", text.strip())
    if match is None:
        raise InputError(f"{at}: size {text!r}: expected bytes, or K, M, G")
    number = float(match[1].replace(",", ""))
    if not match[2]:
        return int(number)
    size = number * 1024 ** (1 + "KMGT".index(match[2]))
    nearest = elements_bytes * max(1, round(size / elements_bytes)) if elements_bytes else 0
    if not elements_bytes or abs(nearest / size - 1) <= 0.05:
        return nearest or int(size)
    raise InputError(f"{at}: size {text} is not the count times the width of the type")


def _contradiction(row: Parsed, tail: Sequence[str], values: Sequence[str]) -> str | None:
    """Return how a row contradicts itself: size against count, and size against time and bandwidth."""
    element = row.count * WIDTHS[row.type]
    if row.bytes and (not element or row.bytes % element):
        return f"size {row.bytes} is no multiple of {row.count} elements of {row.type}"
    algbw = _number(row.algbw)
    if algbw is None or not row.bytes:
        return None
    assert row.algbw is not None
    printed = next(v for name, v in zip(tail, values, strict=False) if name in {"time", "cputime"} and _number(v))
    said = row.bytes / row.time_s / 1e9
    slack = half_digit(row.algbw) + said * (0.01 + half_digit(printed) / float(printed))
    fits = [said] + ([said * (1 - 1 / row.shares)] if row.shares and row.shares > 1 else [])  # hypercube's counts so
    if any(abs(algbw - one) <= slack for one in fits):
        return None
    return (
        f"algbw {row.algbw} GB/s x time is not the size: {row.bytes} B in {row.time_s * 1e6:g} us are {said:.4g} GB/s"
    )
