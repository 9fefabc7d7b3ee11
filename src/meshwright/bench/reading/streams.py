"""Rates between two ends that are no message sizes' : TransferBench's copies, iperf3's streams."""

import re

from ...errors import InputError
from .tables import Rate, ReadTable

_SEPARATOR = r"\s*[|\u2502]\s*"
_TRANSFER = re.compile(
    rf"\bTransfer\s+\d+{_SEPARATOR}(?P<rate>\d+\.?\d*) GB/s{_SEPARATOR}\d+\.?\d* ms{_SEPARATOR}(?P<bytes>\d+) bytes"
    rf"{_SEPARATOR}(?P<src>\S+) -> (?P<executor>\S+?)(?::\d+)? -> (?P<dst>\S+)"
)
_PEERS = re.compile(r"\b(Uni|Bi)directional copy peak bandwidth GB/s \[[^\]]*\].*")
_DEVICES = re.compile(r"(?:CPU|GPU) +\d+")
_PEER_ROW = re.compile(r"^(?P<src>(?:CPU|GPU) +\d+)\s+(?P<way><->|->|<-)\s+(?P<cells>\S.*)$")
_TEST = re.compile(r"^Test (?P<number>\d+)\b")
_CONNECTED = re.compile(r"\[ *\d+\] local (?P<src>\S+) port \d+ connected to (?P<dst>\S+) port \d+")
_STREAM = re.compile(
    r"\[ *(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X)-[CS]\])?\s+(?P<begin>[\d.]+) *- *(?P<end>[\d.]+)\s+sec\s+"
    r"\S+ \S*Bytes\s+(?P<rate>[\d.]+) (?P<unit>[KMGT]?)(?P<word>bits|Bytes)/sec"
    r"(?:\s+\d+|\s+[\d.]+ ms\s+\d+/\d+ \([^()]*\))?"
    r"\s+(?P<side>sender|receiver)"
)
UNHEARD = "the receiver's figure is missing: this is what was sent"


def read_transferbench(text: str, where: str) -> list[ReadTable]:
    """Return a table for each test of TransferBench, with a rate for each of its transfers."""
    tests: dict[str, list[Rate]] = {}
    test = "transfers"
    for line in text.splitlines():
        if heading := _TEST.match(line.strip()):
            test = f"test {heading['number']}"
        if found := _TRANSFER.search(line):
            tests.setdefault(test, []).append(
                Rate(
                    what=f"copy by {found['executor']}",
                    rate_bytes_per_s=float(found["rate"]) * 1e9,
                    bytes=int(found["bytes"]),
                    src=found["src"],
                    dst=found["dst"],
                )
            )
    return [ReadTable(name=name, tool="TransferBench", rates=tuple(rates)) for name, rates in tests.items()]


def read_peers(text: str, where: str) -> list[ReadTable]:
    """Return the matrices of TransferBench's peer-to-peer preset: each way, and both together where it adds them."""
    found: dict[str, list[Rate]] = {}
    title, columns = "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if heading := _PEERS.search(words):
            title, columns = heading.group(), []
        elif title and words.startswith(("SRC+EXE\\DST", "SRC\\DST")):
            columns = ["".join(device.split()) for device in _DEVICES.findall(words)]
        elif columns and (row := _PEER_ROW.match(words)) and row["way"] != "<-":
            cells, src = row["cells"].split(), "".join(row["src"].split())
            if len(cells) != len(columns):
                raise InputError(f"{where}:{number}: expected {len(columns)} figures, one for each device")
            name = f"{title}, both ways together" if row["way"] == "<->" else title
            found.setdefault(name, []).extend(
                Rate(what=name, rate_bytes_per_s=float(cell) * 1e9, src=src, dst=dst)
                for cell, dst in zip(cells, columns, strict=True)
                if re.fullmatch(r"\d+\.?\d*", cell)
            )
    return [
        ReadTable(name=name, tool="TransferBench", rates=tuple(rates), both_ways=name.endswith("both ways together"))
        for name, rates in found.items()
        if rates
    ]


def read_iperf(text: str, where: str) -> list[ReadTable]:
    """Return the rates that the receivers of iperf3 saw over the whole run: of all streams together where it sums.

    A run both ways (--bidir) is two tables; in one that is reversed (-R) the server sends. What the server printed
    names its own end first.
    """
    tables: list[ReadTable] = []
    ends, reverse = ("client", "server"), False
    found: dict[str, dict[str, float]] = {}  # by role
    sent: dict[str, dict[str, float]] = {}
    for line in [*text.splitlines(), "Connecting to host"]:
        if line.startswith(("Connecting to host", "Accepted connection from")):
            heard = {role: (rates, "") for role, rates in found.items()}
            heard |= {role: (rates, UNHEARD) for role, rates in sent.items() if role not in heard}
            tables += [_iperf_table(ends, reverse != (role == "RX"), *rates) for role, rates in heard.items()]
            found, sent, reverse = {}, {}, line.startswith("Accepted")
        elif line.startswith("Reverse mode"):
            reverse = True
        elif connected := _CONNECTED.search(line):
            ends = (connected["src"], connected["dst"])
        elif stream := _STREAM.search(line):
            rates = (found if stream["side"] == "receiver" else sent).setdefault(stream["role"] or "", {})
            power = "KMGT".find(stream["unit"] or " ") + 1
            unit = 1024.0**power if stream["word"] == "Bytes" else 1e3**power / 8  # as iperf3 scales them (-f)
            rates[stream["id"]] = float(stream["rate"]) * unit
    return tables


def _iperf_table(ends: tuple[str, str], is_reversed: bool, rates: dict[str, float], note: str) -> ReadTable:
    src, dst = reversed(ends) if is_reversed else ends
    pair = Rate(what="TCP streams", rate_bytes_per_s=rates.get("SUM", sum(rates.values())), src=src, dst=dst)
    return ReadTable(name=f"{src} to {dst}", tool="iperf3", rates=(pair,), notes=(note,) if note else ())
