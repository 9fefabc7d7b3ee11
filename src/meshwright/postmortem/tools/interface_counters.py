"""Counters of network interfaces that show trouble: `ethtool -S`, `ip -s link` and `rdma statistic` of one host.

Names are those of the kernel's tables and of mlx5. Counters count from the start of the driver: each is held against
the packets of the same port, or against the ports beside it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..nouns.network_state import NetworkAlarm
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_OWN = re.compile(r"^(?P<name>[a-z][a-z0-9_]{2,60}): (?P<count>\d{1,20})\s*$")  # of ethtool -S
_OF_ETHTOOL = re.compile(r"\bethtool\b.* -S (?P<name>[\w.@-]+)")
_LINK = re.compile(r"^\d+: (?P<name>[\w.-]+)(?:@\S+)?: <(?P<flags>[A-Z_,-]*)> mtu (?P<mtu>\d{2,6})\b")
_HEAD = re.compile(r"^(?P<way>RX|TX): +(?P<columns>bytes +packets +errors +dropped .*)$")
_RDMA = re.compile(r"^link (?P<port>\w{1,40}/\d{1,3}) (?P<pairs>\w.*)$")
_OF_PRIORITY = re.compile(r"(?P<way>[rt]x)_(?:prio(?P<priority>\d)_pause|pause_ctrl_phy|global_pause)")
_VIRTUAL = re.compile(r"(?:lo|docker\d*|veth\w*|virbr\d*|br-\w*|cni\d*|flannel.*|cali\w*|tun\w*)$")
_PHYSICAL = ("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_crc_errors")
_DROPPED = ("rx_out_of_buffer", "rx_discards_phy", "tx_discards_phy", "rx_missed_errors")
FEW = 100  # errors that may be of the cable's first plugging
MANY = 1_000_000
_PAUSED, _LOST, _MISSED = 1e-4, 1e-6, 1e-4  # shares of the packets
_TIMES = 100  # what a counter of one port is of all others'


def read(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    """Yield the interfaces of one file whose counters show trouble."""
    yield from _of_ethtool(messages)
    yield from _of_links(messages)
    yield from _of_rdma(messages)


def _of_ethtool(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    is_inside, name, asked = False, "", ""
    tables: list[tuple[str, str, LogMessage, dict[str, int]]] = []
    for message in messages:
        text = message.text.strip()
        if command := _OF_ETHTOOL.search(text):
            name, asked = command["name"], asked_host(text)
        elif text == "NIC statistics:":
            is_inside = True
            tables.append((message.host or message.where.host or asked, name, message, {}))
        elif is_inside and (row := _OWN.match(text)):
            tables[-1][3][row["name"]] = int(row["count"])
        elif text:
            is_inside = False
    for host, name, message, counts in tables:
        whose = f"{name or 'the interface'}{f' of {host}' if host else ''}"
        for what in (*_pauses(counts), *_errors(counts)):
            yield NetworkAlarm(host=host, what=f"{whose} {what}", where=message.where)


def _pauses(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield which end holds up the other by pauses, for each priority that tells."""
    ways: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in counts.items():
        if told := _OF_PRIORITY.fullmatch(name):
            ways[told["priority"] or ""][told["way"]] = count
    storms = sum(count for name, count in counts.items() if "pause_storm" in name)
    for priority, both in ways.items():
        sent, got = both.get("tx", 0), both.get("rx", 0)
        which = f" on priority {priority}" if priority else ""
        of = {way: _packets(counts, way, priority) for way in ("rx", "tx")}
        if sent > max(10 * got, FEW) and (sent > _PAUSED * of["rx"] if of["rx"] else sent > MANY or storms):
            stalled = counts.get("outbound_pci_stalled_wr", 0) + counts.get("outbound_pci_stalled_rd", 0)
            why = f", outbound_pci_stalled {stalled:,}: its PCIe slot or memory is slow" if stalled else ""
            yield (
                f"sends the pauses itself ({sent:,} sent{which}, {got:,} received{why}): this host takes data too "
                "slowly and holds up the switch, not the other way round"
            )
        elif got > max(10 * sent, FEW) and (got > _PAUSED * of["tx"] if of["tx"] else got > MANY):
            yield f"is paused by the switch ({got:,} received{which}, {sent:,} sent): congestion beyond this host"


def _packets(counts: Mapping[str, int], way: str, priority: str) -> int:
    return counts.get(f"{way}_prio{priority}_packets", 0) if priority else counts.get(f"{way}_packets", 0)


def _errors(counts: Mapping[str, int]) -> Iterator[str]:
    for names, why in ((_PHYSICAL, "cable, transceiver or port"), (_DROPPED, "buffers overran")):
        found = [f"{name} {counts[name]:,}" for name in names if counts.get(name, 0) > FEW]
        if found:
            yield f"lost packets: {', '.join(found)} ({why})"


class _Interface(msgspec.Struct):
    """One interface of `ip -s link` while its lines are read."""

    name: str
    mtu: int
    is_up: bool
    host: str
    message: LogMessage
    counts: dict[str, dict[str, int]] = {}  # by way and column


def _of_links(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    found: list[_Interface] = []
    way, columns = "", list[str]()
    asked = ""
    for message in messages:
        text = message.text.strip()
        if "ip -s" in text or "ip -stat" in text:
            asked = asked_host(text)
        if link := _LINK.match(text):
            host, flags = message.host or message.where.host or asked, link["flags"].split(",")
            found.append(
                _Interface(
                    name=link["name"], mtu=int(link["mtu"]), is_up="LOWER_UP" in flags, host=host, message=message,
                    counts={},
                )
            )  # fmt: skip
        elif found and (head := _HEAD.match(text)):
            way, columns = head["way"], head["columns"].split()
        elif found and columns:
            cells = text.split()
            if len(cells) == len(columns) and all(cell.isdecimal() for cell in cells):
                found[-1].counts[way] = dict(zip(columns, map(int, cells), strict=True))
            columns = []
    real = [one for one in found if one.is_up and one.counts and not _VIRTUAL.match(one.name)]
    for one in real:
        told = [*_lost(one.counts.get("RX", {})), *_smaller(one, real)]
        if told:
            whose = f"{one.name}{f' of {one.host}' if one.host else ''}"
            yield NetworkAlarm(host=one.host, what=f"{whose}: {'; '.join(told)}", where=one.message.where)


def _lost(received: Mapping[str, int]) -> Iterator[str]:
    """Yield what of an interface's packets did not arrive whole; `dropped` may be of unwanted protocols alone."""
    packets, errors = received.get("packets", 0), received.get("errors", 0)
    missed = received.get("missed", received.get("overrun", 0))
    if errors > max(FEW, _LOST * packets):
        yield f"{errors:,} bad frames received (cable, transceiver or port)"
    if missed > max(FEW, _MISSED * packets):
        share = f", {100 * missed / packets:.2g} % of its packets" if packets else ""
        yield f"{missed:,} packets missed{share} (the host did not take them in time)"


def _smaller(one: _Interface, others: Sequence[_Interface]) -> Iterator[str]:
    """Yield that an interface has a smaller MTU than the others whose name differs by numbers alone."""
    alike = [other for other in others if other.host == one.host and _family(other.name) == _family(one.name)]
    larger = [other for other in alike if other.mtu > one.mtu]
    if larger and 2 * len(larger) >= len(alike):
        yield f"MTU {one.mtu} where {larger[0].name} has {larger[0].mtu}"


def _family(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _of_rdma(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    hosts: dict[str, dict[str, tuple[LogMessage, dict[str, int]]]] = defaultdict(dict)
    asked = ""
    for message in messages:
        text = message.text.strip()
        if "rdma" in text and "stat" in text and not text.startswith("link "):
            asked = asked_host(text)
        elif text.startswith("link ") and (row := _RDMA.match(text)):
            words = row["pairs"].split()
            pairs = zip(words[::2], words[1::2], strict=False)
            counts = {name: int(count) for name, count in pairs if count.isdecimal()}
            hosts[message.host or message.where.host or asked][row["port"]] = message, counts
    for host, ports in hosts.items():
        for port, (message, counts) in ports.items():
            others = [other for name, (_, other) in ports.items() if name != port]
            if what := _loses(counts, others):
                whose = f"{port.partition('/')[0]}{f' of {host}' if host else ''}"
                yield NetworkAlarm(host=host, what=f"{whose} {what}", where=message.where)


def _loses(counts: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> str:
    """Return that a port of RDMA loses packets, "" where it does not; CNPs are congestion control at work."""
    names = ("packet_seq_err", "local_ack_timeout_err", "req_cqe_error", "rnr_nak_retry_err", "out_of_buffer")
    requests = counts.get("rx_write_requests", 0) + counts.get("rx_read_requests", 0)
    resent, late = counts.get("packet_seq_err", 0), counts.get("local_ack_timeout_err", 0)
    usual = max((other.get("packet_seq_err", 0) for other in others), default=0)
    many = resent > max(FEW, _PAUSED * requests, _TIMES * usual if others else 0)
    if not many and late <= FEW:
        return ""
    shown = ", ".join(f"{name} {counts[name]:,}" for name in ("out_of_sequence", *names) if counts.get(name))
    return f"loses packets: {shown}{_without_marks(counts, others)}"


def _without_marks(counts: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> str:
    marks = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")
    is_bare = "np_cnp_sent" in counts and not any(counts.get(name) for name in marks)
    if not is_bare or not others or not all(any(other.get(name) for name in marks) for other in others):
        return ""
    return (
        "; it alone has no ECN marks and no CNPs: likely a priority without ECN and PFC on its way (DSCP, `mlnx_qos`)"
    )
