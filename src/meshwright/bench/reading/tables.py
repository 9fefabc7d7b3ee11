"""The contents of a file of measurements: tables of collectives, and matrices or lists of plain rates."""

import re
from collections.abc import Iterable

import msgspec

from ...quantities import Bytes, Count, Number, PerSecond
from ...units import format_rate
from ..table import Row
from .nccl_log import LoggedPath

MOST_ROWS = 2_000  # of a table: fits compare each with each
BINARY_UNIT = "the title GB/s stands over GiB/s: rates follow from sizes and times"
BETWEEN_TWO = "times of messages between two ends, and of no collective: nothing is held against them"
SEVERAL_PAIRS = "times of messages of several pairs at once, and of no collective: nothing is held against them"


ONE_STREAM = "one TCP stream, which one core or its window may bound: measure with several at once (iperf3 -P 8)"
BUSY_PERCENT = 90.0  # of the cores of the threads that move the bytes
_KEPT = 0.9  # of the rate that a test was told to send at
PACED_UDP = "UDP sends as fast as it is told (-b; iperf's default is 1 Mbit/s), and no datagram was lost"


def shared_thread(version: str, streams: int | None) -> str:
    """Return that one thread may have moved several streams of TCP, in words, "" from iperf3 3.16 on or for one.

    None is several of which the number is not known.
    """
    if (streams is not None and streams < 2) or _has_threads(version):
        return ""
    unsaid = "" if re.search(r"\d", version) else ", which the file does not exclude (iperf3 --version)"
    number = streams or "several"
    return f"{number} TCP streams by one thread, as iperf3 before 3.16 moves them{unsaid}: one core may bound them"


def _has_threads(version: str) -> bool:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (3, 16)


def busy_core(percent: float, version: str, streams: int) -> str:
    """Return that iperf3 kept its cores busy at one end, in words, "" where it did not.

    It has one thread for all streams, from 3.16 on one for each (its release notes).
    """
    threads = max(1, streams) if _has_threads(version) else 1
    if percent < BUSY_PERCENT * threads:
        return ""
    cores = "a core" if threads == 1 else f"{threads} cores"
    return f"iperf3 kept {cores} busy at one end ({percent:.3g} %), which may be what bounds it"


def kept_to_target(rate_bytes_per_s: float, target_bytes_per_s: float) -> str:
    """Return that a test sent no faster than it was told to, in words, "" where it was told nothing or did not."""
    if not 0 < target_bytes_per_s * _KEPT <= rate_bytes_per_s:
        return ""
    return f"it was told to send {format_rate(target_bytes_per_s)} (-b), and did"


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """One measured rate that is no collective's: of a pair of devices, or of one message size."""

    what: str  # as the tool calls it
    rate_bytes_per_s: PerSecond
    bytes: Bytes | None = None
    src: str | None = None
    dst: str | None = None


def message(backend: str, size_bytes: int, time_s: float) -> Row:
    """Return the row of a message of bytes from one end to the other, for tables that are `BETWEEN_TWO`."""
    return Row(
        collective=None, backend=backend, ranks=None, bytes=size_bytes, time_s=time_s, dtype="char", element_bytes=1
    )


def unrepeatable(different_bits: Iterable[int | None]) -> tuple[str, ...]:
    """Return that repeated calls gave other bits, as newer nccl-tests compare (#bitdiff), () where they did not."""
    most = max((bits or 0 for bits in different_bits), default=0)
    return (f"the same call gives other results when repeated ({most:,} bits differ at most)",) if most else ()


def lost_datagrams(lost: float, sent: float) -> tuple[str, ...]:
    """Return the note on datagrams of UDP that did not arrive, () where all did or none were counted."""
    return (f"{lost:,.0f} of {sent:,.0f} datagrams were lost ({100 * lost / sent:.2g} %)",) if sent > 0 < lost else ()


class ReadTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a file; what the file does not say is None or empty."""

    name: str
    tool: str  # that wrote it
    collective: str | None = None
    ranks: Count | None = None
    ranks_range: tuple[Count, Count] | None = None  # that the two bandwidths allow, where they allow several
    candidates: tuple[str, ...] = ()  # collectives that the columns allow, where no name is given
    rows: tuple[Row, ...] = ()
    rates: tuple[Rate, ...] = ()
    hosts: tuple[str, ...] = ()  # of each rank
    devices: tuple[str, ...] = ()  # of each rank
    wrong: Number = 0  # results out of bounds, by the rows or by the footer
    alone: Number = 0  # processes that each took themselves for the only one
    slow: tuple[str, ...] = ()  # processes that were slower than the others, in words
    failed: tuple[str, ...] = ()  # checks of the tool's own, in words
    doubled: tuple[str, ...] = ()  # GPUs that several ranks share, in words
    unjudged: str = ""  # why its times are held against nothing, and fitted by nothing, in words
    notes: tuple[str, ...] = ()  # what was odd about the file
    instances: tuple[str, ...] = ()  # instance types of clouds that the text around it names, in small letters
    settings: tuple[tuple[str, str], ...] = ()  # of NCCL, by the command
    path: LoggedPath = LoggedPath()  # by NCCL's log
    peers: bool = False  # the rates are those of GPUs that reach each other directly, and of nothing else
    host: bool = False  # the rates are those of copies between one GPU and its host
    both_ways: bool = False  # the rates count both directions of a link together
    bounds: str = ""  # what besides the link bounded the rates by what the file says, in words
    may_bound: str = ""  # what besides the link may have, in words
    sharing: Count | None = None  # GPUs of a host that send at once, each at the rates of the table
    device: str = ""  # the NIC that the test was of
    buffers: str = ""  # where what is sent lies, and where it goes: "host to host", "device to device"

    @property
    def by_sockets(self) -> bool:
        """Whether the rates are those of TCP or UDP, as the tools of sockets call them."""
        return bool(self.rates) and all(rate.what.upper().startswith(("TCP", "UDP")) for rate in self.rates)

    @property
    def by_verbs(self) -> bool:
        """Whether the rates are those of RDMA with no library above it."""
        return bool(self.rates) and self.tool == "perftest"

    @property
    def is_one_stream(self) -> bool:
        """Whether the rates are those of a single TCP stream."""
        return self.may_bound == ONE_STREAM

    @property
    def is_on_ec2(self) -> bool:
        """Whether the text around it names an instance type of Amazon's."""
        return any(name.endswith("xlarge") for name in self.instances)

    @property
    def subject(self) -> str:
        """The NIC, or the two ends of a connection, that the rates are of; "" where they are of several or unnamed."""
        if self.device or not self.by_sockets or len(self.rates) > 1:
            return self.device
        return f"{self.rates[0].src} to {self.rates[0].dst}" if self.rates[0].src else ""

    @property
    def nodes(self) -> int | None:
        """Hosts of the ranks; None where they are not known."""
        return len(set(self.hosts)) or None

    @property
    def ranks_per_node(self) -> int | None:
        """Ranks on each host; None where they are not known or differ."""
        counts = {self.hosts.count(host) for host in set(self.hosts)}
        return counts.pop() if len(counts) == 1 else None
