"""NVSHMEM's perftests between two PEs (shmem_put_bw and kin): bandwidth, or times of messages.

A figure is the third of a row; statistics of repetitions may follow it. With NVSHMEM_MACHINE_READABLE_OUTPUT each is a
line of its own ("&&&& PERF ..."). Older versions print a table in a box: test and scope, below them "size (Bytes)" and
the figure's name, then sizes and figures. GB are 1e9 bytes; tests named _bidi add both directions; rates of messages
are left out. Where more than two PEs run, the mean comes first and then a table for each pair, which are one here.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InputError
from ...units import counted
from ..table import Row
from .columns import is_plain
from .prefixes import clean_lines
from .tables import BETWEEN_TWO, Rate, ReadTable, message

_TITLE = re.compile(r"\s*#\s*([a-z]\w*)\s*$")
_UNIT = r"GB/sec|us|ns|MMPS"
_HEAD = re.compile(rf"\s*size\(B\)\s+scope\s+(?P<what>\w+) ?\((?P<unit>{_UNIT})\)")
_LINE = re.compile(
    r"\s*&&&& PERF(?:_STATS)? (?P<name>shmem_\w+?)___(?P<scope>\S+?)___size__(?P<size>\d{1,15})___(?P<what>\w+) "
    rf"(?:(?P<value>[\d.]+) [+-](?P<unit>{_UNIT})|[+-](?P<unit_of_mean>{_UNIT}) mean=(?P<mean>[\d.]+)\b.*)\s*$"
)
# the word mype before it looks like the tag of a host, which is taken off
_PE = re.compile(r"\b(\d{1,6}) mype_node: (\d{1,6}) device name: (\S.*?) bus id:")
_OPTIONS = re.compile(r"\bnumber of ctas: (\d{1,7})\b.*?\bthreadgroup_scope: (\w+)")
_PAIR = re.compile(r"(PE\d+)_to_(PE\d+)")
_BOXED = re.compile(r"\s*\|\s*(?P<left>\S[^|]*?)\s*\|\s*(?P<right>\S[^|]*?)\s*\|\s*$")
_BOX_HEAD = re.compile(rf"(?P<what>\w+)\s+(?P<unit>{_UNIT})$")
_UNITS = {"GB/sec": 1e9, "us": 1e-6, "ns": 1e-9, "MMPS": 0.0}  # of rates of messages none is read
_WHOLE = re.compile(r"shmem_(?:put|get)(?:_signal)?(?:_nbi)?_bw(?:_(?:uni|bidi))?(?:_on_stream)?$")
FULL_CTAS = 32  # thread blocks that the tests start by themselves; fewer may not fill NVLink


class _Heading(NamedTuple):
    """The test of the rows below it, the name of their figures, and bytes per second or seconds in one."""

    test: str = ""
    what: str = ""
    unit: float = 0.0  # 0 where rows are not read

    @property
    def is_time(self) -> bool:
        return self.what.lower().startswith("lat")


class _Figure(NamedTuple):
    heading: _Heading
    scope: str
    size: int
    value: float


def read_nvshmem_pairs(text: str, where: str) -> list[ReadTable]:
    """Return a table for each test and scope; InputError for a row without its figures."""
    if "size(B)" not in text and "&&&& PERF" not in text and "size (Bytes)" not in text:
        return []
    runs: list[list[_Figure]] = []
    heading, on = _Heading(), False
    pes: dict[int, tuple[int, str]] = {}
    slow = ""
    for number, line in _without_boxes(clean_lines(text)):
        at = f"{where}:{number}"
        if pe := _PE.search(line):
            pes[int(pe[1])] = int(pe[2]), pe[3]
        elif options := _OPTIONS.search(line):
            slow = fills_no_link(int(options[1]), options[2])
        elif match := _LINE.match(line):
            figure = _of_line(match, at)
            runs = [*runs, []] if not on or heading != figure.heading or not runs else runs
            heading, on = figure.heading, True
            runs[-1].append(figure)
        elif title := _TITLE.match(line):
            heading, on = _Heading(title[1]), False
        elif head := _HEAD.match(line):
            heading, on = heading._replace(what=head["what"], unit=_UNITS[head["unit"]]), True
            runs.append([])
        elif on and re.match(r"\s*\d+\s", line):
            runs[-1].append(_of_row(line.split(), heading, at))
        elif line.strip():
            on = False
    return _tables([run for run in runs if run and run[0].heading.unit], pes, slow)


def _without_boxes(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the lines, those of a table in a box as later versions print them; other boxes stay as they are."""
    found, scope = list[tuple[int, str]](), ""
    for number, line in lines:
        box = _BOXED.match(line)
        if scope and re.match(r"\s*\+-+\+-+\+\s*$", line):
            continue
        if box and re.fullmatch(r"shmem_\w+", box["left"]):
            scope = box["right"].replace(" ", "_")
            line = f"#{box['left']}"
        elif box and scope and box["left"] == "size (Bytes)" and (head := _BOX_HEAD.match(box["right"])):
            line = f"size(B) scope {head['what']} ({head['unit']})"
        elif box and scope and box["left"].isdecimal():
            line = f"{box['left']} {scope} {box['right']}"
        elif line.strip():
            scope = ""
        found.append((number, line))
    return found


def _of_row(words: Sequence[str], heading: _Heading, at: str) -> _Figure:
    """Return the figure of a row."""
    if len(words) < 3 or not is_plain(words[0]) or not is_plain(words[2]) or len(words[0]) > 15:
        raise InputError(f"{at}: expected a size, a scope and {heading.what}")
    return _Figure(heading, words[1], int(words[0]), float(words[2]))


def _of_line(match: re.Match[str], at: str) -> _Figure:
    value, unit = match["value"] or match["mean"], match["unit"] or match["unit_of_mean"]
    if not is_plain(value):
        raise InputError(f"{at}: {value!r}: expected a figure")
    heading = _Heading(match["name"], match["what"], _UNITS[unit])
    return _Figure(heading, match["scope"], int(match["size"]), float(value))


def fills_no_link(ctas: int, scope: str) -> str:
    """Return why a run with these options need not fill a link, "" where it should."""
    if scope in {"thread", "warp"}:
        return f"puts of single {scope}s need not fill a link: run it with blocks (-s block)"
    if ctas < FULL_CTAS:
        return f"{counted(ctas, 'thread block')} need not fill a link: run it with {FULL_CTAS} or more (-c)"
    return ""


def _tables(runs: Sequence[Sequence[_Figure]], pes: dict[int, tuple[int, str]], slow: str) -> list[ReadTable]:
    tables: list[ReadTable] = []
    pairs: list[_Figure] = []  # of one test, a table for each
    for run, after in zip(runs, (*runs[1:], ()), strict=False):
        by_scope: dict[str, list[_Figure]] = {}
        for figure in run:
            by_scope.setdefault(figure.scope, []).append(figure)
        for scope, figures in by_scope.items():
            if _PAIR.fullmatch(scope) and not figures[0].heading.is_time:
                pairs += figures
            else:
                tables.append(_table(figures, scope, pes, slow))
        if pairs and not (after and _PAIR.fullmatch(after[0].scope) and after[0].heading == pairs[0].heading):
            tables.append(_table(pairs, "of pairs", pes, slow))
            pairs = []
    return tables


def _table(figures: Sequence[_Figure], scope: str, pes: dict[int, tuple[int, str]], slow: str) -> ReadTable:
    heading = figures[0].heading
    name = " ".join(word for word in (heading.test or "table", scope if scope != "None" else "") if word)
    if heading.is_time:
        rows: tuple[Row, ...] = tuple(
            message("nvshmem", one.size, one.value * heading.unit) for one in figures if one.size and one.value > 0
        )
        return ReadTable(name=name, tool="NVSHMEM perftest", rows=rows, unjudged=BETWEEN_TWO)
    one_host = len(pes) > 1 and len({node for node, _ in pes.values()}) == len(pes)
    return ReadTable(
        name=name, tool="NVSHMEM perftest", rates=tuple(_rate(figure) for figure in figures), peers=one_host,
        both_ways=heading.test.endswith("_bidi"),
        devices=tuple(model for _, (_, model) in sorted(pes.items())),
        unjudged=slow if _WHOLE.match(heading.test) else f"{heading.test}: single elements, which fill no link",
    )  # fmt: skip


def _rate(figure: _Figure) -> Rate:
    ends = _PAIR.fullmatch(figure.scope)
    return Rate(
        what=f"{figure.heading.test} bandwidth", rate_bytes_per_s=figure.value * figure.heading.unit, bytes=figure.size,
        src=ends[1] if ends else None, dst=ends[2] if ends else None,
    )  # fmt: skip
