"""Bandwidths of qperf, of what the receiver got; its latencies are of single messages and are left out with a note."""

import re

from msgspec.structs import replace

from ...errors import InputError
from .prefixes import clean_lines
from .tables import BUSY_PERCENT, ONE_STREAM, Rate, ReadTable

_TEST = re.compile(r"^\s*(?P<what>(?:tcp|udp|sctp|sdp|rc|uc|ud|xrc|rds|ver)_\w+):\s*$")
_VALUE = re.compile(
    r"^\s+(?P<key>bw|recv_bw|send_bw|latency|msg_rate)\s+=\s+(?P<number>[\d,]+(?:\.\d+)?)\s+(?P<unit>\S+)\s*$"
)
_CPUS = re.compile(r"^\s+(?P<end>send|recv)_cpus_used\s+=\s+(?P<percent>\d{1,6}(?:\.\d+)?) % cpus\s*$")
_UNITS = {
    f"{prefix}{ending}/sec": 1000.0**power * scale
    for power, prefix in enumerate(("", "K", "M", "G", "T"))
    for ending, scale in (("B", 1.0), ("bytes", 1.0), ("b", 1 / 8), ("bits", 1 / 8))
}


def read_qperf(text: str, where: str) -> list[ReadTable]:
    """Return a table for each bandwidth test; InputError for an unknown unit, or where there are latencies alone."""
    tables: list[ReadTable] = []
    latencies: list[str] = []
    what = ""
    for number, line in clean_lines(text):
        if test := _TEST.match(line):
            what = test["what"]
        elif what and (value := _VALUE.match(line)):
            if value["key"] == "latency":
                latencies.append(what)
            elif value["key"] in {"bw", "recv_bw"}:
                tables.append(_table(what, value, f"{where}:{number}"))
        elif what.startswith("tcp") and tables and tables[-1].name == what and (used := _CPUS.match(line)):
            tables[-1] = _with_busy_core(tables[-1], used["end"], float(used["percent"]))
    if latencies and not tables:
        raise InputError(
            f"{where}: latency tests of qperf ({', '.join(latencies)}): expected its bandwidth tests (*_bw)"
        )
    if latencies:
        tables[-1] = replace(tables[-1], notes=(f"{', '.join(latencies)}: latency, left out",))
    return tables


def _with_busy_core(table: ReadTable, end: str, percent: float) -> ReadTable:
    """Return a table with what bounded its one stream: a core that the test kept busy at one end."""
    if percent < BUSY_PERCENT or table.bounds:
        return table
    ends = {"send": "the sending end", "recv": "the receiving end"}
    return replace(table, bounds=f"one TCP stream kept a core busy at {ends[end]} ({percent:.3g} % cpus)")


def _table(what: str, value: re.Match[str], at: str) -> ReadTable:
    scale = _UNITS.get(value["unit"])
    if scale is None:
        raise InputError(f"{at}: {value['unit']}: expected a bandwidth such as GB/sec")
    rate = Rate(what=what, rate_bytes_per_s=float(value["number"].replace(",", "")) * scale)
    return ReadTable(
        name=what, tool="qperf", rates=(rate,), both_ways="_bi_" in what,
        may_bound=ONE_STREAM if what.startswith("tcp") else "",
    )  # fmt: skip
