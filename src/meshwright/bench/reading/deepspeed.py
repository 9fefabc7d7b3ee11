"""Tables of DeepSpeed: ds_bench (also the EleutherAI cookbook's copy), and the summary of its communication logger.

Its throughput counts an all-reduce twice, and the size of a gather or reduce-scatter is the share of one rank or the
whole, by version: the throughput tells which. Sizes in words are multiples of 1024.
"""

import math
import re
from collections.abc import Sequence

from ...collectives.pricing.figures import bus_factor
from ...errors import InputError
from ..table import COUNTED, Row
from .columns import half_digit
from .identify import NAMES, SHARED, ranks_of_ratio
from .tables import ReadTable

_TITLE = re.compile(r"-- Performance of (?P<what>\w+) on (?P<ranks>\d{1,6}) devices -")
_COLUMNS = re.compile(
    r"Size \(Bytes\)\s+Description\s+Duration(?: \((?P<time>us|ms|s)\))?\s+Throughput \((?P<rate>G[bB]ps)\)\s+BusBW"
)
_SIZE = r"(?P<size>\d+(?:\.\d+)?)(?: ?(?P<unit>[KMGTP]?B))?"
_ROW = re.compile(
    rf"^\s*{_SIZE}\s+(?P<count>\d{{1,15}})x(?P<width>\d{{1,2}})\s+(?P<time>\d+(?:\.\d+)?)(?: ?(?P<time_unit>us|ms|s))?"
    r"\s+(?P<tput>\d+(?:\.\d+)?)\s+(?P<busbw>\d+(?:\.\d+)?)\s*$"
)
_LOGGED = re.compile(
    r"Comm\. Op\s+Message Size\s+Count\s+.*Avg Latency\(ms\)\s+tput_avg \((?P<rate>G[bB]ps)\)\s+busbw_avg"
)
_IN_STEPS = "calls of training steps: their times hold the wait of ranks for each other"
_OPERATION = re.compile(r"^\s*(?P<what>[a-z]\w{3,40})\s*(?:\| \[Caller Func: [\w.<>]+\]\s*)?$")
_LOG_ROW = re.compile(
    rf"^\s*{_SIZE}\s+\d+\s+\d+(?:\.\d+)?\s+(?P<time>\d+(?:\.\d+)?)\s+(?P<tput>\d+(?:\.\d+)?)\s+"
    r"(?P<busbw>\d+(?:\.\d+)?)\s*$"
)
_CALLS = {
    "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter", "pt2pt": "sendrecv",
    "all_gather_base": "all_gather", "reduce_scatter_base": "reduce_scatter", "allgather_fn": "all_gather",
    "reduce_scatter_fn": "reduce_scatter", "all_to_all_single": "all_to_all", "all_reduce_coalesced": "all_reduce",
    "inference_all_reduce": "all_reduce",
}  # fmt: skip
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES_PER_S = {"Gbps": 1e9 / 8, "GBps": 1e9}
_FLOAT = 4  # bytes: what the type of elements is taken for, which is not printed
_SLACK = 0.01  # of figures of one row against each other


def read_deepspeed_tables(text: str, where: str) -> list[ReadTable]:
    """Return the tables of ds_bench and of log_summary; [] where there is none."""
    return [*_benchmarks(text, where), *_logged(text)] if " Size" in text or "Size (B" in text else []


def _collective(what: str) -> str | None:
    return _CALLS.get(what, NAMES.get(what))


def _benchmarks(text: str, where: str) -> list[ReadTable]:
    tables: list[ReadTable] = []
    what, ranks, rate, seconds = "", 0, 0.0, "us"
    rows: list[Row] = []
    for number, line in enumerate([*text.splitlines(), "-- Performance of none on 0 devices -"], start=1):
        if title := _TITLE.search(line):
            if rows:
                name = f"{what} of {ranks}"
                tables.append(
                    ReadTable(name=name, tool="DeepSpeed", collective=_collective(what), ranks=ranks, rows=tuple(rows))
                )
            what, ranks, rate, rows = title["what"], int(title["ranks"]), 0.0, []
        elif columns := _COLUMNS.search(line):
            rate, seconds = _BYTES_PER_S[columns["rate"]], columns["time"] or "us"
        elif rate and ranks and (row := _ROW.match(line)):
            time_s = float(row["time"]) * _SECONDS[row["time_unit"] or seconds]
            size = int(row["count"]) * int(row["width"])
            if size and time_s > 0:
                rows.append(_row(row, _collective(what), ranks, size, time_s, rate, f"{where}:{number}"))
    return tables


def _logged(text: str) -> list[ReadTable]:
    found: dict[str, list[re.Match[str]]] = {}
    rate, what = 0.0, ""
    for line in text.splitlines():
        if head := _LOGGED.search(line):
            rate = _BYTES_PER_S[head["rate"]]
        elif rate and (operation := _OPERATION.match(line)):
            what = operation["what"]
        elif rate and what and (row := _LOG_ROW.match(line)):
            if _bytes(row) and float(row["time"]) > 0:
                found.setdefault(what, []).append(row)
        elif rate and line.strip(" `-"):
            rate, what = 0.0, ""
    ranks = _logged_ranks([row for rows in found.values() for row in rows])
    head = _LOGGED.search(text)
    rate = _BYTES_PER_S[head["rate"]] if head else 0.0
    return [_log_table(what, rows, ranks, rate) for what, rows in found.items()]


def _log_table(what: str, found: Sequence[re.Match[str]], ranks: int | None, rate: float) -> ReadTable:
    collective = _collective(what)
    rows = [_log_row(row, collective, ranks, rate) for row in found]
    return ReadTable(
        name=f"{what} of the log",
        tool="DeepSpeed",
        collective=collective,
        ranks=ranks,
        rows=tuple(rows),
        unjudged=_IN_STEPS,
    )


def _log_row(row: re.Match[str], collective: str | None, ranks: int | None, rate: float) -> Row:
    """Return a row of the summary; its means over calls that differ, and rates of old versions, contradict nothing."""
    size, time_s = _bytes(row), float(row["time"]) * 1e-3
    moved = float(row["tput"]) * rate * time_s
    is_share = collective in SHARED and ranks is not None and moved > size * math.sqrt(ranks)
    payload = size * ranks if is_share and ranks else size
    return Row(collective=collective, backend="nccl", ranks=ranks, bytes=payload, time_s=time_s)


def _logged_ranks(rows: Sequence[re.Match[str]]) -> int | None:
    """Return the ranks n that busbw over throughput, (n-1)/n, allows alone; all calls count the whole job."""
    low, high = 0.0, 1.0
    for row in rows:
        tput, busbw = float(row["tput"]), float(row["busbw"])
        if 0 < busbw < tput:
            low = max(low, (busbw - half_digit(row["busbw"])) / (tput + half_digit(row["tput"])))
            high = min(high, (busbw + half_digit(row["busbw"])) / max(tput - half_digit(row["tput"]), 1e-9))
    allowed = ranks_of_ratio("all_gather", (low, high)) if 0 < low <= high < 1 else None
    return allowed[0] if allowed and allowed[0] == allowed[1] else None


def _bytes(row: re.Match[str]) -> int:
    return round(float(row["size"]) * (1 << 10 * "BKMGTP".index((row["unit"] or "B")[0])))


def _row(
    row: re.Match[str], collective: str | None, ranks: int | None, size: int, time_s: float, rate: float, at: str,
) -> Row:  # fmt: skip
    """Return a row with the whole payload; InputError where size, time and throughput contradict each other."""
    tput, busbw = float(row["tput"]) * rate, float(row["busbw"]) * rate
    moved = tput * time_s / (2 if collective == "all_reduce" else 1)
    shares = max(1, round(moved / size))
    rounding = _SLACK + 0.5 / max(1.0, tput / rate / half_digit(row["tput"]))
    if tput and (abs(moved / (shares * size) - 1) > rounding or shares not in {1, ranks or shares}):
        raise InputError(f"{at}: throughput {row['tput']} x time is not the size {row['size']}{row['unit'] or ''}")
    expected = None if ranks is None or collective not in COUNTED else bus_factor(collective, ranks) * moved / time_s
    if expected and abs(busbw - expected) > (_SLACK * expected + rate * half_digit(row["busbw"]) * 3):
        raise InputError(f"{at}: busbw {row['busbw']} is not that of {collective} of {ranks} ranks")
    width = int(row["width"])
    return Row(
        collective=collective, backend="nccl", ranks=ranks, bytes=size * shares, time_s=time_s,
        dtype="float" if width == _FLOAT else f"{width}-byte", element_bytes=width,
        stated_busbw_bytes_per_s=busbw or None,
    )  # fmt: skip
