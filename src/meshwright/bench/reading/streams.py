"""Rates between two ends that are no message sizes' : TransferBench's copies, iperf3's streams."""

import re

import msgspec

from ...errors import InputError
from .tables import ONE_STREAM, PACED_UDP, Rate, ReadTable, busy_core, lost_datagrams, shared_thread

_SEPARATOR = r"\s*[|\u2502]\s*"
_TRANSFER = re.compile(
    rf"\bTransfer\s+\d+{_SEPARATOR}(?P<rate>\d+\.?\d*) GB/s{_SEPARATOR}\d+\.?\d* ms{_SEPARATOR}(?P<bytes>\d+) bytes"
    rf"{_SEPARATOR}(?P<src>\S+) -> (?P<executor>\S+?)(?::\d+)? -> (?P<dst>\S+)"
)
_PEERS = re.compile(r"\b(Uni|Bi)directional copy peak bandwidth GB/s \[[^\]]*\].*")
_DEVICES = re.compile(r"(?:CPU|GPU) +\d+")
_PEER_ROW = re.compile(r"^(?P<src>(?:CPU|GPU) +\d+)\s+(?P<way><->|->|<-)\s+(?P<cells>\S.*)$")
_ALL_TO_ALL = re.compile(r"^(?P<title>\S+ All-To-All benchmark)\b")
_EACH = re.compile(r"\[(?P<bytes>\d{1,15}) bytes per Transfer\]")
_ROW_OF = re.compile(r"^(?P<src>(?:CPU|GPU) +\d+)\s+(?P<cells>\S.*)$")
_TEST = re.compile(r"^Test (?P<number>\d+)\b")
_CONNECTED = re.compile(r"\[ *\d+\] local (?P<src>\S+) port \d+ connected to (?P<dst>\S+) port \d+")
_STREAM = re.compile(
    r"\[ *(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X)-[CS]\])?\s+(?P<begin>[\d.]+) *- *(?P<end>[\d.]+)\s+sec\s+"
    r"\S+ \S*Bytes\s+(?P<rate>[\d.]+) (?P<unit>[KMGT]?)(?P<word>bits|Bytes)/sec"
    r"(?:\s+(?P<again>\d+)|\s+[\d.]+ ms\s+(?P<lost>\d+)/(?P<datagrams>\d+) \([^()]*\))?"
    r"\s+(?P<side>sender|receiver)"
)
UNHEARD = "the receiver's figure is missing: this is what was sent"
_BUSY = re.compile(
    r"^CPU Utilization: local/\w+ (?P<here>\d{1,4}(?:\.\d+)?)% .*remote/\w+ (?P<there>\d{1,4}(?:\.\d+)?)%"
)
SHORTEST_SENT_S = 1.0  # below this what was sent may lie in the sender's socket buffer, unless the receiver counted it


def only_buffered(where: str, sent_s: float) -> InputError:
    """Return the error of a run too short for what was sent to say anything of the network."""
    return InputError(
        f"{where}: iperf3 measured nothing: the receiver counted 0 bytes, and what {sent_s:g} s put into the sender's "
        "socket is no rate of the network; expected a run of 10 s or more (-t 10)"
    )


class _Streams(msgspec.Struct):
    """Streams of iperf3 over a whole run as one side reports them, each by its number and all together as SUM."""

    rates: dict[str, float] = {}  # bytes per second
    datagrams: dict[str, tuple[int, int]] = {}  # lost and sent, if it sent those
    again: dict[str, int] = {}  # segments of TCP that a sender sent once more
    note: str = ""
    lasted_s: float = 0.0

    @property
    def rate_bytes_per_s(self) -> float:
        """What all streams carried together."""
        return self.rates.get("SUM", sum(self.rates.values()))

    def take(self, stream: re.Match[str]) -> None:
        """Take a line of the streams."""
        power = "KMGT".find(stream["unit"] or " ") + 1
        unit = 1024.0**power if stream["word"] == "Bytes" else 1e3**power / 8  # as iperf3 scales them (-f)
        self.rates[stream["id"]] = float(stream["rate"]) * unit
        self.lasted_s = max(self.lasted_s, float(stream["end"]) - float(stream["begin"]))
        if stream["again"]:
            self.again[stream["id"]] = int(stream["again"])
        if stream["datagrams"]:
            self.datagrams[stream["id"]] = int(stream["lost"]), int(stream["datagrams"])

    def notes(self) -> tuple[str, ...]:
        """Return what is odd about the figures."""
        counts = [self.datagrams["SUM"]] if "SUM" in self.datagrams else [*self.datagrams.values()]
        lost = lost_datagrams(sum(each[0] for each in counts), sum(each[1] for each in counts))
        again = self.again.get("SUM", sum(self.again.values()))
        twice = (f"{again:,} segments were sent again: lost or late on the way",) if again else ()
        return (*((self.note,) if self.note else ()), *lost, *twice)


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


def read_all_to_all(text: str, where: str) -> list[ReadTable]:
    """Return the matrix of TransferBench's all-to-all preset: what each pair has while all send at once.

    Behind the pairs of a row stand sums (STotal, Actual), which are of no pair.
    """
    rates: list[Rate] = []
    title, columns, size = "", list[str](), None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if heading := _ALL_TO_ALL.match(words):
            title = heading["title"]
        elif each := _EACH.search(words):
            size = int(each["bytes"])
        elif title and words.startswith("SRC\\DST"):
            columns = ["".join(device.split()) for device in _DEVICES.findall(words)]
        elif columns and (row := _ROW_OF.match(words)):
            cells, src = row["cells"].split(), "".join(row["src"].split())
            if len(cells) < len(columns):
                raise InputError(f"{where}:{number}: expected {len(columns)} figures, one for each device")
            rates += [
                Rate(what=title, rate_bytes_per_s=float(cell) * 1e9, bytes=size, src=src, dst=dst)
                for cell, dst in zip(cells, columns, strict=False)
                if re.fullmatch(r"\d+\.?\d*", cell) and src != dst
            ]
    return [ReadTable(name=title, tool="TransferBench", rates=tuple(rates))] if rates else []


def read_iperf(text: str, where: str) -> list[ReadTable]:
    """Return the rates that the receivers of iperf3 saw over the whole run: of all streams together where it sums.

    A run both ways (--bidir) is two tables; in one that is reversed (-R) the server sends. What the server printed
    names its own end first.
    """
    tables: list[ReadTable] = []
    ends, reverse, busy_percent, version = ("client", "server"), False, 0.0, ""
    found: dict[str, _Streams] = {}  # by role
    sent: dict[str, _Streams] = {}
    for line in [*text.splitlines(), "Connecting to host"]:
        if line.startswith(("Connecting to host", "Accepted connection from")):
            heard = {role: streams for role, streams in found.items() if streams.rate_bytes_per_s or role not in sent}
            for role, streams in {**sent, **heard}.items():
                streams.note = "" if role in heard else UNHEARD
                if role not in heard and streams.lasted_s < SHORTEST_SENT_S:
                    raise only_buffered(where, streams.lasted_s)
                streams.again = sent[role].again if role in sent else {}
                tables.append(_iperf_table(ends, reverse != (role == "RX"), streams, (busy_percent, version)))
            found, sent, reverse, busy_percent = {}, {}, line.startswith("Accepted"), 0.0
        elif line.startswith("iperf 3."):
            version = line
        elif busy := _BUSY.match(line):
            busy_percent = max(float(busy["here"]), float(busy["there"]))
        elif line.startswith("Reverse mode"):
            reverse = True
        elif connected := _CONNECTED.search(line):
            ends = (connected["src"], connected["dst"])
        elif stream := _STREAM.search(line):
            (found if stream["side"] == "receiver" else sent).setdefault(stream["role"] or "", _Streams()).take(stream)
    return tables


def _iperf_table(ends: tuple[str, str], is_reversed: bool, streams: _Streams, busy: tuple[float, str]) -> ReadTable:
    src, dst = reversed(ends) if is_reversed else ends
    what = f"{'UDP' if streams.datagrams else 'TCP'} streams"
    pair = Rate(what=what, rate_bytes_per_s=streams.rate_bytes_per_s, src=src, dst=dst)
    count = len(streams.rates.keys() - {"SUM"})
    said = count or None if "SUM" in streams.rates else count  # a sum is of several, whose lines may be left out
    may_bound = "" if streams.datagrams else ONE_STREAM if count == 1 else shared_thread(busy[1], said)
    unlost = streams.datagrams and not any(lost for lost, _ in streams.datagrams.values())
    return ReadTable(
        name=f"{src} to {dst}", tool="iperf3", rates=(pair,), notes=streams.notes(),
        bounds=PACED_UDP if unlost else busy_core(*busy, count), may_bound=may_bound,
    )  # fmt: skip
