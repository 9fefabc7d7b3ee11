"""Tables of perftest: bandwidth of ib_write_bw, ib_read_bw and ib_send_bw, times of messages of ib_write_lat and kin.

Its MB are MiB. A time of a write or a send is half a round trip; that of a read or an atomic is a whole one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...errors import InputError
from ..table import Row
from .tables import BETWEEN_TWO, Rate, ReadTable, message

_TITLE = re.compile(
    r"\b(?P<what>RDMA_\w+|Send|Atomic)(?P<both> Bidirectional)?(?: Post List)?(?: \w+)? (?P<kind>BW|Latency) Test"
)
_PLACE = re.compile(r"\bDual-port\s*:\s*(?P<dual>ON|OFF)\b.*\bDevice\s*:\s*(?P<device>\S+)")
_COLUMN = re.compile(r"#\w+|(?:BW )?[\w.]+(?:% percentile)?\[[^\]]*\]|tps average")
_ROW = re.compile(r"^\s*(?P<figures>\d+\s+\d+(?:\s+-?\d+(?:\.\d*)?)*)(?P<remark>\s+[^\s\d.-].*)?\s*$")
# what is said above a test of buffers in a GPU's memory (--use_cuda, --use_rocm)
_OF_GPU = re.compile(r"\bcuMemAlloc\b|allocated GPU buffer|creating CUDA Ctx|Use CUDA memory|hipMalloc")
_DOUBT = re.compile(r"Test integrity may be harmed|measured timestamp frequency [\d.]+ differs from nominal")
# between figures of two decimals that fill their columns: "2465.901216.65"
_GLUED = re.compile(r"(?<=\.\d\d)(?=\d+\.\d)")
# of the average in a heading, also as people shorten it
_UNIT = re.compile(r"BW average\[(Gb|[MG]i?B)/s(?:ec)?\]")
BYTES_PER_S = {"Gb": 1e9 / 8, "MB": 2.0**20, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30}
_TIMES = ("t_typical[usec]", "t_avg[usec]")  # the first that a heading has: runs of a set time have the average alone
_ROUND_TRIPS = ("RDMA_Read", "Atomic")


class Tested(NamedTuple):
    """A test, by the lines above a heading."""

    what: str = "RDMA"
    both_ways: bool = False
    device: str = ""
    both_ports: bool = False
    doubts_clock: bool = False
    of_gpu: bool = False  # its buffers lie in a GPU's memory


class _Columns(NamedTuple):
    """The place of the figure of interest in a row, and what one of it is: bytes per second or seconds."""

    place: int = 0
    unit: float = 0.0
    is_time: bool = False


class Found(msgspec.Struct):
    """The rows below a heading."""

    rates: list[Rate] = []
    messages: list[Row] = []


def read_perftest(text: str, where: str) -> list[ReadTable]:
    """Return a table for each heading with rows; InputError for a row without its figures."""
    tables: list[ReadTable] = []
    test, columns, found, of_gpu = Tested(), _Columns(), Found(), False
    for number, line in enumerate([*text.splitlines(), "#bytes"], start=1):
        title, is_head = _TITLE.search(line), "#bytes" in line
        if (title or is_head) and (found.rates or found.messages):  # what stands above the rows is of them
            tables.append(table_of_test(test, found, tables))
            columns, found = _Columns(), Found()
        if title:
            test = Tested(what=title["what"], both_ways=title["both"] is not None, of_gpu=of_gpu)
            of_gpu = False
        elif _OF_GPU.search(line):
            of_gpu = True
        elif place := _PLACE.search(line):
            test = test._replace(device=place["device"], both_ports=place["dual"] == "ON")
        elif _DOUBT.search(line):
            test = test._replace(doubts_clock=True)
        if is_head:
            columns = _columns(line)
        elif columns.unit and (row := _ROW.match(_GLUED.sub(" ", line))):
            _take(row, test, columns, found, f"{where}:{number}")
    return tables


def _columns(heading: str) -> _Columns:
    names = _COLUMN.findall(heading)
    if unit := _UNIT.search(heading):
        place = next((i for i, name in enumerate(names) if name.startswith("BW average")), 3)
        return _Columns(place, BYTES_PER_S[unit[1]])
    place = next((names.index(name) for name in _TIMES if name in names), 0)
    return _Columns(place, 1e-6, is_time=True) if place and "#iterations" in names else _Columns()


def _take(row: re.Match[str], test: Tested, columns: _Columns, found: Found, at: str) -> None:
    words = row["figures"].split()
    if len(words) <= columns.place:
        if row["remark"]:
            return  # prose that begins with numbers
        wanted = "bytes, iterations and times" if columns.is_time else "bytes, iterations, peak and average bandwidth"
        raise InputError(f"{at}: expected {wanted}")
    figure, size = words[columns.place], int(words[0])
    if figure.startswith("-"):
        raise InputError(f"{at}: {'time' if columns.is_time else 'average bandwidth'} {figure}: expected 0 or more")
    if not columns.is_time:
        rate = float(figure) * columns.unit
        found.rates.append(Rate(what=f"{test.what} bandwidth", rate_bytes_per_s=rate, bytes=size))
    elif size and float(figure) > 0:
        found.messages.append(message("verbs", size, float(figure) * columns.unit))


def table_of_test(test: Tested, found: Found, before: Sequence[ReadTable], side: str = "") -> ReadTable:
    """Return the table of what a test measured, with a name that none before it has; `side` is local or remote."""
    name = f"{test.what}{' bidirectional' if test.both_ways else ''} {'latency' if found.messages else 'bandwidth'}"
    name += f" of {test.device}" if test.device else ""
    name += ", of GPU memory" if test.of_gpu else ""
    name += f", {side}" if side else ""
    name += f" ({len(before) + 1})" if any(table.name == name for table in before) else ""
    notes = ["both ports of the device together (Dual-port: ON)"] if test.both_ports else []
    if test.doubts_clock:
        notes.append("perftest doubts the clock that it times with (CPU frequency): the figures may be off")
    if found.messages and test.what.startswith(_ROUND_TRIPS):
        notes.append(f"a time of {test.what} is that of a round trip")
    return ReadTable(
        name=name, tool="perftest", rates=tuple(found.rates), rows=tuple(found.messages), both_ways=test.both_ways,
        notes=tuple(notes), unjudged=BETWEEN_TWO if found.messages else "", device=test.device,
        buffers="device to device" if test.of_gpu else "",
    )  # fmt: skip
