"""Streams of iperf 2: the rate over the whole run, of all streams of a direction together, by what the receiver reports
where it does.
"""

import re
from collections import Counter
from collections.abc import Mapping

from ...errors import InputError
from .columns import half_digit
from .prefixes import clean_lines
from .tables import ONE_STREAM, PACED_UDP, Rate, ReadTable, lost_datagrams

_CONNECTED = re.compile(
    r"\[ *(?P<id>\d+)\] local (?P<own>[^\s%]+)\S* port (?P<port>\d+) connected with (?P<other>\S+) port (?P<far>\d+)"
)
_ROW = re.compile(
    r"\[ *(?P<id>\d+|SUM)\]\s+(?P<begin>\d{1,9}\.\d+) ?- ?(?P<end>\d{1,9}\.\d+) ?sec\s+(?P<size>\d{1,9}(?:\.\d+)?) "
    r"(?P<size_unit>[KMGT]?)Bytes\s+(?P<rate>\d{1,9}(?:\.\d+)?) (?P<unit>[KMGT]?)bits/sec(?P<rest>.*)$"
)
_RUN = re.compile(r"^(?:Client connecting to|Server listening on) .*?\b(?P<protocol>TCP|UDP) port (?P<port>\d+)")
_LOST = re.compile(r"\bms\s+(?P<lost>\d{1,15})\s*/\s*(?P<sent>\d{1,15})\s+\(")  # of UDP, by the receiver
_POWERS = ("", "K", "M", "G", "T")
_SLACK = 0.02
_WHOLE = 0.9  # of the longest line: the receiver begins a little later
# seconds of the longest line of a stream, its bytes per second, and datagrams lost and sent
_Streams = dict[str, tuple[float, float, tuple[int, int]]]


def read_iperf2(text: str, where: str) -> list[ReadTable]:
    """Return a table for each direction of each run; InputError where a line's bytes and seconds say another rate."""
    tables: list[ReadTable] = []
    protocol, listening = "TCP", ""
    ends: dict[str, tuple[str, str]] = {}  # of a stream: who sends, who receives
    streams: _Streams = {}
    last_s = 0.0
    lines = clean_lines(text) if "bits/sec" in text else []
    for number, line in [*lines, (0, "Server listening on TCP port 0")]:
        if (run := _RUN.match(line)) is not None:
            if streams:
                tables += _tables(protocol, ends, streams, last_s, where)
                ends, streams, last_s = {}, {}, 0.0
            protocol, listening = run["protocol"], run["port"]
        elif found := _CONNECTED.search(line):
            here, there = found["own"], found["other"]
            ends[found["id"]] = (there, here) if found["port"] == listening else (here, there)
        elif row := _ROW.search(line):
            last_s = max(last_s, float(row["end"]))
            span_s, rate = _rate(row, f"{where}:{number}")
            lost = _LOST.search(row["rest"])
            counts = (int(lost["lost"]), int(lost["sent"])) if lost else (0, 0)
            if row["id"] not in streams or span_s >= _WHOLE * streams[row["id"]][0]:  # the later is the receiver's
                streams[row["id"]] = span_s, rate, counts
    return tables


def _rate(row: re.Match[str], at: str) -> tuple[float, float]:
    """Return the seconds that a line spans, and its rate in bytes per second."""
    span_s = float(row["end"]) - float(row["begin"])
    rate = float(row["rate"]) * 1000.0 ** _POWERS.index(row["unit"]) / 8
    size = float(row["size"]) * 1024.0 ** _POWERS.index(row["size_unit"])
    if span_s <= 0:
        raise InputError(f"{at}: expected an interval of more than 0 s")
    slack = _SLACK + half_digit(row["end"]) * 2 / span_s
    slack += sum(half_digit(row[key]) / max(float(row[key]), half_digit(row[key])) for key in ("size", "rate"))
    if abs(size / span_s - rate) > slack * max(rate, size / span_s):
        raise InputError(
            f"{at}: {row['size']} {row['size_unit']}Bytes in {span_s:g} s are not {row['rate']} {row['unit']}bits/sec"
        )
    return span_s, rate


def _tables(
    protocol: str, ends: Mapping[str, tuple[str, str]], streams: _Streams, last_s: float, where: str
) -> list[ReadTable]:
    """Return a table for each direction; streams of one direction alone are summed by the tool."""
    if max(span_s for span_s, *_ in streams.values()) < last_s - 1:
        raise InputError(f"{where}: iperf 2: the lines of the whole run (0.0-{last_s:g} sec) are missing")
    ways: dict[tuple[str, str], float] = {}
    lost: dict[tuple[str, str], tuple[int, int]] = {}
    for name, (_, rate, counts) in streams.items():
        if name in ends:
            ways[ends[name]] = ways.get(ends[name], 0.0) + rate
            before = lost.get(ends[name], (0, 0))
            lost[ends[name]] = before[0] + counts[0], before[1] + counts[1]
    if not ends:
        return [_of_nameless(protocol, streams)]
    count = Counter(ends[name] for name in streams if name in ends)
    if "SUM" in streams and len(ways) == 1:
        ways = dict.fromkeys(ways, streams["SUM"][1])
    return [
        ReadTable(
            name=f"{src} to {dst}", tool="iperf 2",
            rates=(Rate(what=f"{protocol} streams", rate_bytes_per_s=rate, src=src, dst=dst),),
            notes=lost_datagrams(*lost[src, dst]),
            bounds=PACED_UDP if protocol == "UDP" and not lost[src, dst][0] else "",
            may_bound=ONE_STREAM if protocol == "TCP" and count[src, dst] == 1 else "",
        )
        for (src, dst), rate in ways.items()
    ]  # fmt: skip


def _of_nameless(protocol: str, streams: _Streams) -> ReadTable:
    """Return the table of lines without the names of both ends: the tool's sum, else that of the streams."""
    alone = {name: stream for name, stream in streams.items() if name != "SUM"}
    _, rate, counts = streams["SUM"] if "SUM" in streams else (0.0, sum(rate for _, rate, _ in alone.values()), (0, 0))
    lost = counts if "SUM" in streams else tuple(map(sum, zip(*(each for *_, each in alone.values()), strict=True)))
    is_one = len(alone) == 1 and "SUM" not in streams
    return ReadTable(
        name="client to server", tool="iperf 2",
        rates=(Rate(what=f"{protocol} streams", rate_bytes_per_s=rate),),
        notes=lost_datagrams(lost[0], lost[1]),
        bounds=PACED_UDP if protocol == "UDP" and not lost[0] else "",
        may_bound=ONE_STREAM if protocol == "TCP" and is_one else "",
    )  # fmt: skip
