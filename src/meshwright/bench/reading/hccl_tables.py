"""The two tools that are both called after HCCL: Ascend's hccl_test, and hccl_demo of Habana's Gaudi."""

import re
from collections.abc import Sequence

from ...errors import InputError
from ..table import Row
from .columns import WIDTHS, Parsed
from .identify import NAMES, WHOLE, Named, identify, processes_of
from .nccl_text import table_row
from .tables import BINARY_UNIT, ReadTable

_TEST_HEAD = re.compile(r"data_size\(Bytes\):?\s*\|\s*ave?g_time\(us\):?\s*\|\s*alg_bandwidth\(GB/s\)")  # aveg_time too
_TEST_ROW = re.compile(r"^\s*(\d{1,15})\s*\|\s*(\d+\.?\d*)\s*\|\s*(\d+\.?\d*)\s*\|\s*(\w+)")
_TEST_COMMAND = re.compile(r"(?P<head>.*)\b(?P<what>[a-z_]+)_test(?P<options>\s.*|$)")
_TYPE, _OPERATOR = re.compile(r"\s-d\s+(\w+)"), re.compile(r"\s-o\s+(\w+)")  # of its command; else its defaults
_UNCHECKED = "results were not checked: whether they are right is unknown"
_DEMO = re.compile(
    r"\[BENCHMARK\]\s+hccl(?P<what>[A-Z]\w+)\((?P<said>[^()]{1,300})\)\s+"
    r"\[BENCHMARK\]\s+NW Bandwidth\s*:\s*(?P<bus>\d+\.?\d*) (?P<bus_unit>[GM])B/s\s+"
    r"\[BENCHMARK\]\s+Algo Bandwidth\s*:\s*(?P<algo>\d+\.?\d*) (?P<algo_unit>[GM])B/s"
)
_RESULTS = {"success": 0, "failed": 1}  # wrong ones; NULL of a row that was not checked
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")
_UNITS = {"G": 1.0, "M": 1e-3}  # to GB/s
_ROUNDED = 0.01  # of what is printed: times have two decimals


def read_hccl_test(text: str, where: str) -> list[ReadTable]:
    """Return the tables of hccl_test. Bandwidths follow from size and time: it prints GiB/s or GB/s by its version.

    What a size counts is known where every rank has the whole payload; of others the collective stays open, as of a
    table without its command.
    """
    tables: list[ReadTable] = []
    what, ranks, options = "", None, ""
    rows: list[Row] | None = None
    notes: dict[str, None] = {}
    for number, line in enumerate([*text.splitlines(), ""], start=1) if _TEST_HEAD.search(text) else ():
        if rows is not None and (match := _TEST_ROW.match(line)):
            if _is_binary(match, f"{where}:{number}"):
                notes[BINARY_UNIT] = None
            if match[4].lower() not in _RESULTS:
                notes[_UNCHECKED] = None
            rows.append(_test_row(match, what, ranks, options))
            continue
        if rows:
            if what and what not in WHOLE:
                notes[f"what a size of {what} counts in hccl_test is not known"] = None
            tables.append(
                ReadTable(
                    name=what or "table", tool="hccl_test", collective=rows[0].collective, ranks=ranks,
                    rows=tuple(row for row in rows if row.bytes), wrong=sum(row.wrong or 0 for row in rows),
                    notes=tuple(notes),
                )
            )  # fmt: skip
        rows, notes = [] if _TEST_HEAD.search(line) else None, {}
        command = _TEST_COMMAND.match(line)
        if command and command["what"] in NAMES:
            what, ranks, options = NAMES[command["what"]], processes_of(command["head"]), command["options"]
    return tables


def _test_row(match: re.Match[str], what: str, ranks: int | None, options: str) -> Row:
    kind, operator = _TYPE.search(options), _OPERATOR.search(options)
    dtype = (kind[1] if kind else "fp32").replace("bfp16", "bfloat16")
    redop = operator[1] if operator else "sum"
    return Row(
        collective=what if what in WHOLE else None, backend="hccl", ranks=ranks, bytes=int(match[1]),
        time_s=float(match[2]) * 1e-6, dtype=dtype, element_bytes=WIDTHS.get(dtype, 4),
        redop=redop if what in _REDUCES else "none", wrong=_RESULTS.get(match[4].lower()),
    )  # fmt: skip


def _is_binary(match: re.Match[str], at: str) -> bool:
    """Return whether the bandwidth of a row is in GiB/s; InputError where it is of neither unit."""
    size, time_us, printed = int(match[1]), float(match[2]), match[3]
    if time_us <= 0:
        raise InputError(f"{at}: expected a time above 0")
    said = size / time_us / 1e3
    slack = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    if abs(float(printed) - said) <= slack + _ROUNDED * said:
        return False
    if abs(float(printed) - said * 1e9 / 2**30) <= slack + _ROUNDED * said:
        return True
    raise InputError(f"{at}: alg_bandwidth {printed} GB/s x time is not the size {size} B")


def read_hccl_demo(text: str, where: str) -> list[ReadTable]:
    """Return a table for each collective of hccl_demo; the time of a call is its size over the algorithm's bandwidth.

    The bandwidth of the network is that of the bus; a gather counts the share of one rank.
    """
    found: dict[str, list[Parsed]] = {}
    for match in _DEMO.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        what = NAMES.get(match["what"].lower(), "")
        if what not in {"all_reduce", "all_gather"}:
            raise InputError(f"{where}:{number}: hccl{match['what']}: expected AllReduce or AllGather of hccl_demo")
        found.setdefault(what, []).append(_demo_row(match, what, f"{where}:{number}", number))
    return [_demo_table(what, rows, where) for what, rows in found.items()]


def _demo_row(match: re.Match[str], what: str, at: str, number: int) -> Parsed:
    said = dict(re.findall(r"(\w+)=(\w+)", match["said"]))
    width, count = WIDTHS.get(said.get("dtype", "float")), said.get("count", "")
    algo, bus = (float(match[key]) * _UNITS[match[f"{key}_unit"]] for key in ("algo", "bus"))
    if width is None or not count.isdecimal() or not 0 < int(count) < 10**15 or algo <= 0 or bus < 0:
        raise InputError(f"{at}: expected a count, a known dtype and bandwidths above 0")
    size = int(count) * width
    ranks = round(bus / algo) + 1 if what == "all_gather" else 1
    return Parsed(
        line=number, lead="", bytes=size * ranks, count=int(count), type=said.get("dtype", "float"),
        redop="sum" if what == "all_reduce" else "none", root=None, time_s=size / (algo * 1e9),
        algbw=f"{algo * ranks:.6f}", busbw=f"{bus:.6f}", wrong=None, in_place_checked=None,
    )  # fmt: skip


def _demo_table(what: str, rows: Sequence[Parsed], where: str) -> ReadTable:
    known = identify(rows, Named(what, sure=True), None, None, where)
    return ReadTable(
        name=what, tool="hccl_demo", collective=known.collective, ranks=known.ranks, ranks_range=known.ranks_range,
        rows=tuple(table_row(row, known, "hccl") for row in rows), notes=known.notes,
    )  # fmt: skip
