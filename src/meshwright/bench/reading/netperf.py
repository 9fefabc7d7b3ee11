"""Streams of netperf, in its tables and as keys with values (-k): what the receiver got where it is said.

Tests that count transactions (TCP_RR and the like) measure latency, and are no bandwidth.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import InputError
from .columns import half_digit
from .prefixes import clean_lines
from .tables import ONE_STREAM, Rate, ReadTable

_TITLE = re.compile(
    r"\b(?P<protocol>TCP|UDP|SCTP|DCCP) (?P<test>STREAM|MAERTS|SENDFILE|REQUEST/RESPONSE|[A-Z/ ]{1,30}?) TEST\b"
    r"(?: from (?P<src>\S+) [^\n]*?)? to (?P<dst>\S+)"
)
_UNITS = {
    **{f"10^{power}bits": 10.0**power / 8 for power in (0, 3, 6, 9, 12)},
    **{f"{prefix}Bytes": 1024.0**power for power, prefix in enumerate(("", "K", "M", "G", "T"))},
}
_UNIT_LINE = re.compile(
    r"^\s*bytes\s+bytes\s+(?:bytes\s+)?secs\.?\s+(?P<counts>#\s+#\s+)?"
    r"(?P<unit>10\^(?:0|3|6|9|12)bits|[KMGT]?Bytes) ?/s(?:ec)?\b"
)
_PER_SECOND = re.compile(r"^\s*bytes\s+bytes\s+bytes\s+bytes\s+secs\.?\s+per sec\b", re.I)
_FIGURES = re.compile(r"^\s*\d{1,15}(?:\s+\d{1,15}(?:\.\d+)?){3,}\s*$")
_PAIR = re.compile(r"^\s*(?P<key>[A-Z][A-Z0-9_]{2,60})=(?P<value>.*?)\s*$")
_OWN_END = {"0.0.0.0", "::", "(null)"}  # as netperf shows the end that it runs on
_SLACK = 0.02


@dataclass
class _Stream:
    """The lines above the rows of one test, and its rows."""

    protocol: str = ""
    src: str | None = None
    dst: str | None = None
    scale: float = 0.0  # bytes per second of the unit
    has_counts: bool = False  # of messages, as tables of UDP have
    rows: list[Rate] = field(default_factory=list)

    def rate(self, bytes_per_s: float) -> Rate:
        """Return the rate of a row between the ends, where the title names them."""
        return Rate(
            what=f"{self.protocol or 'netperf'} stream", rate_bytes_per_s=bytes_per_s, src=self.src, dst=self.dst
        )


def read_netperf(text: str, where: str) -> list[ReadTable]:
    """Return a table for each stream; InputError for counts that contradict a rate, or for transactions alone."""
    if not any(mark in text for mark in ("Throughput", "THROUGHPUT", "per sec")):
        return []
    tables: list[ReadTable] = []
    stream = _Stream()
    has_transactions = False
    lines = clean_lines(text)
    for number, line in lines:
        title, unit = _TITLE.search(line), _UNIT_LINE.match(line)
        if title or unit:
            tables += _closed(stream)
        if title:
            stream = _titled(title)
        elif unit:
            stream.scale, stream.has_counts, stream.rows = _UNITS[unit["unit"]], unit["counts"] is not None, []
        elif _PER_SECOND.match(line):
            has_transactions, stream = True, _Stream()
        elif stream.scale and _FIGURES.match(line):
            _take(stream, line.split(), f"{where}:{number}")
    tables += _closed(stream)
    for at, values in _blocks(lines):
        if values.get("THROUGHPUT_UNITS", "").startswith("Trans"):
            has_transactions = True
        else:
            tables.append(_of_keys(values, f"{where}:{at}"))
    if has_transactions and not tables:
        raise InputError(f"{where}: netperf counted transactions, which is latency: expected a stream (-t TCP_STREAM)")
    return tables


def _titled(title: re.Match[str]) -> _Stream:
    """Return the stream that a title names; MAERTS is a stream that comes to the own end."""
    here, there = ("here" if end is None or end in _OWN_END else end for end in (title["src"], title["dst"]))
    src, dst = (there, here) if title["test"] == "MAERTS" else (here, there)
    return _Stream(protocol=title["protocol"], src=src, dst=dst)


def _take(stream: _Stream, words: list[str], at: str) -> None:
    """Put the rate of a row into its table: of UDP the row of the receiver takes the place of the sender's."""
    if not stream.has_counts:
        if len(words) >= 5:
            stream.rows.append(stream.rate(float(words[4]) * stream.scale))
        return
    is_receiver = len(words) < 6 or "." in words[1]
    time, okay, rate = (words[1], words[2], words[3]) if is_receiver else (words[2], words[3], words[5])
    if not is_receiver and float(time) > 0:
        said = float(okay) * float(words[1]) / float(time) / stream.scale
        if abs(float(rate) - said) > half_digit(rate) + said * (_SLACK + half_digit(time) / float(time)):
            raise InputError(f"{at}: {okay} messages of {words[1]} B in {time} s are {said:.6g}, not {rate}")
    if is_receiver and stream.rows:
        stream.rows.pop()
    stream.rows.append(stream.rate(float(rate) * stream.scale))


def _closed(stream: _Stream) -> list[ReadTable]:
    rows, stream.rows = stream.rows, []
    name = f"{stream.src} to {stream.dst}" if stream.src else "stream"
    alone = ONE_STREAM if stream.protocol == "TCP" else ""  # a netperf is one stream
    return [ReadTable(name=name, tool="netperf", rates=tuple(rows), may_bound=alone)] if rows else []


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield keys with values, each run's for itself, with the line of its throughput."""
    values: dict[str, str] = {}
    at = 0
    for number, line in [*lines, (0, "THROUGHPUT=")]:
        pair = _PAIR.match(line)
        if pair is None:
            continue
        if pair["key"] in values or not number:
            if "THROUGHPUT" in values:
                yield at, values
            values = {}
        values[pair["key"]] = pair["value"]
        at = number if pair["key"] == "THROUGHPUT" else at


def _of_keys(values: Mapping[str, str], at: str) -> ReadTable:
    unit = values.get("THROUGHPUT_UNITS", "").partition("/")[0]
    if unit not in _UNITS:
        raise InputError(f"{at}: expected THROUGHPUT_UNITS beside THROUGHPUT, such as 10^6bits/s")
    try:
        rate = float(values["THROUGHPUT"]) * _UNITS[unit]
    except ValueError:
        raise InputError(f"{at}: THROUGHPUT: expected a number") from None
    direction = values.get("DIRECTION", "Send")
    what = f"{values.get('PROTOCOL', 'netperf')} stream"
    return ReadTable(
        name=what, tool="netperf", both_ways="|" in direction,
        rates=(Rate(what=f"{what}, {direction.lower()}", rate_bytes_per_s=rate),),
        may_bound=ONE_STREAM if values.get("PROTOCOL") == "TCP" else "",
    )  # fmt: skip
