"""`ibstat` and `ibstatus`: the adapters of a host with the state and the rate of each port; also of several hosts.

`ibv_devinfo` says the same, its rates with -v only. `ibdev2netdev` has a line for each port, with the state of its
interface and no rate; so has `rdma link`, with its own.

It says nothing of GPUs: beside a matrix it gives the NICs their rates. The rate of a port that is not active says only
what it fell back to.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ...units import counted, format_rate
from ..graph import Cluster, Device
from .nvidia import joined_hosts, on_node
from .pasted import ANSI, QUOTE, PlainLine, plain_lines

_CARD = re.compile(r"^\s*CA '(?P<name>[\w.-]{1,64})'\s*$")
_PREFIXED = re.compile(r"^\s*[\w.-]+: +(?:CA '|Infiniband device ')", re.M)
_FIELD = re.compile(
    r"^\s*(?P<key>CA type|System image GUID|Port (?P<number>\d{1,3})|State|Physical state|Rate|Link layer):"
    r"\s*(?P<value>.*?)\s*$"
)
# ibstatus: a heading for each port, then its facts, states with their numbers and rates with their lanes
_PORT_STATUS = re.compile(r"^\s*Infiniband device '(?P<name>[\w.-]{1,64})' port (?P<number>\d{1,3}) status:\s*$", re.M)
_STATUS_FIELD = re.compile(r"^\s*(?P<key>state|phys state|rate|link_layer):\s*(?:\d: )?(?P<value>.*?)\s*$")
_SIGNAL = re.compile(r"Gb/sec \((?P<signal>\d{1,2}X [A-Z]{3,4}\d*)\)")  # lanes and the rate of each
_STATUS_KEYS = {"state": "State", "phys state": "Physical state", "rate": "Rate", "link_layer": "Link layer"}
# ibdev2netdev: "mlx5_0 port 1 ==> ens1np0 (Up)"
_PORT_LINE = re.compile(
    r"^\s*(?P<name>[\w.-]{1,64}) port (?P<number>\d{1,3}) ==> (?P<interface>\S{1,64}) \((?P<state>Up|Down)\)", re.M
)
# ibv_devinfo: a heading for each adapter, below it its ports with their facts
_HCA = re.compile(r"^\s*hca_id:\s*(?P<name>[\w.-]{1,64})\s*$", re.M)
_HCA_FIELD = re.compile(
    r"^\s*(?P<key>sys_image_guid|port|state|phys_state|link_layer|active_width|active_speed):\s*(?:PORT_)?(?P<value>[\w.:]+)"
)
# rdma link: "link mlx5_0/1 lid 33 ... state ACTIVE physical_state LINK_UP netdev bond0", before 2020
# "0/1: mlx5_0/1: subnet_prefix ... lid 33 ... state ACTIVE physical_state LINK_UP"
_RDMA_LINK = re.compile(
    r"^\s*(?:(?:\d+: )?link|\d{1,3}/\d{1,3}:) (?P<name>[\w.-]{1,64})/(?P<number>\d{1,3}):? (?P<facts>.{0,200}?)"
    r"\bstate (?P<state>[A-Z]\w{1,20}) physical_state (?P<physical>[A-Z]\w{1,20})",
    re.M,
)
# the kernel's names of RDMA devices by their place: rocep1s0f0, roceP2p1s0f1 (PCI domain 2), ibp23s0
_BUS_NAME = re.compile(r"^(?:ib|roce|iw|opa)(?P<bus>(?:P\d{1,5})?p\d{1,5}s\d{1,3})(?:f(?P<function>\d{1,2}))?$")
_FAILED = re.compile(r"stat of IB device '(?P<name>[\w.-]{1,64})' failed: (?P<why>.{1,80})")
_RATE = re.compile(r"\d{1,5}(?:\.\d{1,3})?")
_NO_RATES = "this says which ports are up, and no rates: give the output of ibstat as well"
PORTS_ALONE = "states of ports show no GPUs: give the output of nvidia-smi topo -m or lstopo's XML as well"


@dataclass(slots=True)
class _Port:
    number: str
    state: str = ""
    physical: str = ""
    layer: str = ""
    gigabits: float | None = None
    signal: str = ""  # "4X HDR", where the output says it

    @property
    def speed(self) -> str:
        """Its rate as people say it."""
        return f"{self.gigabits:g} Gb/s" + (f" ({self.signal})" if self.signal else "")

    @property
    def is_active(self) -> bool:
        return self.state == "Active" and self.gigabits is not None

    @property
    def is_up(self) -> bool:
        """Return whether the two ends of the link have agreed on a rate."""
        return self.is_active or (self.physical == "LinkUp" and self.state != "Down" and self.gigabits is not None)


@dataclass(slots=True)
class _Card:
    name: str
    type: str = ""
    image: str = ""  # System image GUID: adapters with the same are functions of one card
    ports: list[_Port] = field(default_factory=list)


def looks_like_ibstat(text: str) -> bool:
    """Return whether a text holds an adapter and the state of a port of it."""
    if _PORT_LINE.search(text) or _RDMA_LINK.search(text):
        return True
    if _HCA.search(text):
        return re.search(r"^\s*state:\s*PORT_[A-Z]", text, re.M) is not None
    if _PORT_STATUS.search(text):
        return re.search(r"^\s*state:\s*\d: [A-Z]", text, re.M) is not None
    return bool(re.search(r"CA '[\w.-]+'\s*$", text, re.M) and re.search(r"\bPort \d+:\s*$", text, re.M)) and (
        re.search(r"\bState: \w", text) is not None
    )


def from_ibstat(text: str, where: str) -> Cluster:
    """Return the adapters of a host, or of each host that stands before the lines; states and rates are said."""
    lines = _lines(text)
    heads = (_CARD, _HCA, _PORT_STATUS, _PORT_LINE, _RDMA_LINK)
    hosts = list(dict.fromkeys(line.host for line in lines if any(head.match(line.text) for head in heads)))
    parts = [(host, _of_host([line.text for line in lines if line.host == host], where)) for host in hosts]
    if len(parts) == 1:
        return parts[0][1]
    return joined_hosts(where, [on_node(host or where, part) for host, part in parts])


def _lines(text: str) -> list[PlainLine]:
    """Return the lines without what pasting added; its own "State:" is no host's name."""
    if _PREFIXED.search(text):
        return plain_lines(text)
    return [PlainLine(n, QUOTE.sub("", ANSI.sub("", line))) for n, line in enumerate(text.splitlines(), start=1)]


def _of_host(lines: Sequence[str], where: str) -> Cluster:
    cards = {card.name: card for card in [*_cards(lines), *_cards_of_devinfo(lines), *_cards_by_port(lines)]}
    rates = () if any(port.gigabits for card in cards.values() for port in card.ports) else (_NO_RATES,)
    cards = cards or {card.name: card for card in _cards_by_line(lines)}
    shown = {card.name: len(same) for same in _shown_again(cards.values()) for card in same}
    devices = [_device(card, shown.get(card.name, 1)) for card in cards.values()]
    failed = [f"{m['name']}: ibstat failed on it: {m['why'].strip()}" for m in map(_FAILED.search, lines) if m]
    of_ports = [line for say in (_down, _slow, _roce, _together, _of_one_card) for line in say(cards.values())]
    said = (*failed, *of_ports, *rates, PORTS_ALONE)
    return Cluster(name=where, devices=tuple(devices), warnings=said)


def _cards(lines: Sequence[str]) -> Iterator[_Card]:
    card: _Card | None = None
    for line in lines:
        if match := _CARD.match(line):
            if card:
                yield card
            card = _Card(match["name"])
        elif card and (match := _FIELD.match(line)):
            _take(card, match)
    if card:
        yield card


def _cards_by_port(lines: Sequence[str]) -> list[_Card]:
    """Return the adapters of ibstatus, which says port after port."""
    cards: dict[str, _Card] = {}
    card: _Card | None = None
    for line in lines:
        if match := _PORT_STATUS.match(line):
            card = cards.setdefault(match["name"], _Card(match["name"]))
            card.ports.append(_Port(match["number"]))
        elif card and (match := _STATUS_FIELD.match(line)):
            value = match["value"].partition(" Gb/sec")[0]
            if signal := _SIGNAL.search(match["value"]):
                card.ports[-1].signal = signal["signal"]
            _set(card.ports[-1], _STATUS_KEYS[match["key"]], value.capitalize() if match["key"] == "state" else value)
    return list(cards.values())


def _cards_of_devinfo(lines: Sequence[str]) -> Iterator[_Card]:
    """Yield the adapters of ibv_devinfo; the rate is that of the lanes (-v), of which each has the active speed."""
    card: _Card | None = None
    lanes = 0.0
    for line in lines:
        if match := _HCA.match(line):
            if card:
                yield card
            card = _Card(match["name"])
        elif card and (match := _HCA_FIELD.match(line)):
            key, value = match["key"], match["value"]
            if key == "sys_image_guid":
                card.image = value
            elif key == "port":
                card.ports.append(_Port(value))
                lanes = 0.0
            elif not card.ports:
                continue
            elif key == "state":
                card.ports[-1].state = value.capitalize()
            elif key == "phys_state":
                card.ports[-1].physical = "LinkUp" if value == "LINK_UP" else value.capitalize()
            elif key == "link_layer":
                card.ports[-1].layer = value
            elif key == "active_width":
                lanes = float(value[:-1]) if re.fullmatch(r"\d{1,2}X", value) else 0.0
            elif _RATE.fullmatch(value) and lanes:
                card.ports[-1].gigabits = lanes * float(value)
    if card:
        yield card


def _cards_by_line(lines: Sequence[str]) -> list[_Card]:
    """Return the adapters of ibdev2netdev and of rdma link.

    Of the first an interface that is up may still have no link of RDMA; in the second InfiniBand has an LID.
    """
    cards: dict[str, _Card] = {}
    for match in filter(None, map(_PORT_LINE.match, lines)):
        state = "Down" if match["state"] == "Down" else ""
        cards.setdefault(match["name"], _Card(match["name"])).ports.append(_Port(match["number"], state))
    for match in filter(None, map(_RDMA_LINK.match, lines)):
        physical = "LinkUp" if match["physical"] == "LINK_UP" else match["physical"].capitalize()
        layer = "InfiniBand" if re.search(r"\blid \d", match["facts"]) else ""
        port = _Port(match["number"], match["state"].capitalize(), physical, layer)
        cards.setdefault(match["name"], _Card(match["name"])).ports.append(port)
    return list(cards.values())


def _take(card: _Card, match: re.Match[str]) -> None:
    key, value = match["key"], match["value"]
    if match["number"]:
        card.ports.append(_Port(match["number"]))
    elif key == "CA type":
        card.type = value if re.search(r"\w", value) else ""
    elif key == "System image GUID":
        card.image = value
    elif card.ports:
        _set(card.ports[-1], key, value)


def _set(port: _Port, key: str, value: str) -> None:
    if key == "State":
        port.state = value
    elif key == "Physical state":
        port.physical = value
    elif key == "Link layer":
        port.layer = value
    elif _RATE.fullmatch(value):
        port.gigabits = float(value)


def _device(card: _Card, times: int) -> Device:
    """Return an adapter with the rate of its active ports; of a port that is shown several times its share."""
    rate = sum(port.gigabits or 0.0 for port in card.ports if port.is_active)
    return Device(id=card.name, kind="nic", network_bandwidth_bytes_per_s=rate * 1e9 / 8 / times or None)


def _named(card: _Card, port: _Port) -> str:
    return f"port {port.number} of {card.name}" if len(card.ports) > 1 else card.name


def _down(cards: Collection[_Card]) -> list[str]:
    """Name the ports that carry nothing, and why where the states tell."""
    found = []
    for card in cards:
        for port in card.ports:
            if port.state in {"", "Active"}:
                continue
            up = ": the link is up, no subnet manager made the port active"
            up = up if port.physical == "LinkUp" and port.layer == "InfiniBand" else ""
            states = " and ".join(filter(None, (port.state, port.physical)))
            found.append(f"{_named(card, port)} carries nothing ({states}){up}")
    return found


def _roce(cards: Collection[_Card]) -> list[str]:
    """Name the adapters whose ports are Ethernet: "4X EDR" there is but the name of a rate."""
    names = [card.name for card in cards if any(port.is_active and port.layer == "Ethernet" for port in card.ports)]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return [f"{shown}: Ethernet (RoCE), no InfiniBand"] if names else []


def _together(cards: Collection[_Card]) -> list[str]:
    """Return what the active ports carry together, of each layer for itself; [] for a single one.

    A port that a card shows once on each of its PCIe links counts once.
    """
    rates: dict[str, list[float]] = {}
    again = {card.name for same in _shown_again(cards) for card in same[1:]}
    for card in cards:
        for port in card.ports:
            if port.is_active and port.gigabits is not None and card.name not in again:
                rates.setdefault(port.layer, []).append(port.gigabits)
    if sum(map(len, rates.values())) < 2:
        return []
    sums = [
        f"{counted(len(of), f'{layer} port'.strip())} {sum(of):g} Gb/s ({format_rate(sum(of) * 1e9 / 8)})"
        for layer, of in rates.items()
    ]
    return [f"active: {', '.join(sums)} per direction together"]


def _active_by_image(cards: Collection[_Card]) -> list[list[_Card]]:
    """Return the adapters with an active port that are functions of one card, of each card with several."""
    found: dict[str, list[_Card]] = {}
    for card in cards:
        if re.search(r"[1-9a-f]", card.image.lower().removeprefix("0x")) and any(port.is_active for port in card.ports):
            found.setdefault(card.image, []).append(card)
    return [same for same in found.values() if len(same) > 1]


def _shown_again(cards: Collection[_Card]) -> list[list[_Card]]:
    """Return the functions that are one port, which its card shows on each of several PCIe links.

    Such are Socket Direct cards and the two halves of a DGX Spark's: the kernel's names have another place on the bus,
    and the same number of the function, which is the port's.
    """
    found: list[list[_Card]] = []
    for same in _active_by_image(cards):
        by_function: dict[str, dict[str, _Card]] = {}
        for card in same:
            if place := _BUS_NAME.match(card.name):
                by_function.setdefault(place["function"], {}).setdefault(place["bus"], card)
        found += [list(by_bus.values()) for by_bus in by_function.values() if len(by_bus) > 1]
    return found


def _of_one_card(cards: Collection[_Card]) -> list[str]:
    """Say which active adapters are one card's, and that what it carries is less than their sum, or may be."""
    again = _shown_again(cards)
    said = [
        f"{', '.join(card.name for card in same)}: one port, of {same[0].ports[0].speed} together, which its card "
        "shows on each of its PCIe links (the same System image GUID and number of the function): each is given its "
        "share, for one of these links alone may carry no more; a job names all of them (NCCL_IB_HCA)"
        for same in again
    ]
    known = {card.name for same in again for card in same}
    for same in _active_by_image(cards):
        names = [card.name for card in same]
        if not known.issuperset(names):
            said.append(
                f"{', '.join(names)} are functions of one card (the same System image GUID): its PCIe link, or one "
                "port behind several functions, may carry less than their sum; lspci -vv and mlxlink tell"
            )
    return said


def _slow(cards: Collection[_Card]) -> list[str]:
    """Name the active ports that are slower than most of the same kind of adapter, or of all where none has its kind.

    A link that is up has agreed on its rate, whether or not a subnet manager has made the port active.
    """
    typed = any(card.type for card in cards)
    up = [(card, port) for card in cards for port in card.ports if port.is_up and (card.type or not typed)]
    found = []
    for kind in dict.fromkeys((card.type, port.layer) for card, port in up):
        ports = [(card, port) for card, port in up if (card.type, port.layer) == kind]
        usual, count = Counter(port.gigabits for _, port in ports).most_common(1)[0]
        if usual is None or 2 * count <= len(ports):
            continue
        others = f"{count} others" + (f" of its kind ({kind[0]})" if kind[0] else "")
        signals = {port.signal for _, port in ports if port.gigabits == usual and port.signal}
        at = f"{usual:g}" + (f" ({signals.pop()})" if len(signals) == 1 else "")
        found += [
            f"{_named(card, port)} runs at {port.speed}, {others} at {at}"
            for card, port in ports
            if port.is_active and port.gigabits is not None and port.gigabits < usual
        ]
    return found
