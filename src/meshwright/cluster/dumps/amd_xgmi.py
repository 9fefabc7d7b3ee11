"""`amd-smi xgmi`, as tables or JSON, into a Cluster: GPUs that count bytes towards each other, what a link carries.

`max_bandwidth` is one link's in one direction (512 Gb/s are 64 GB/s). A pair with counters has a link; one without has
none of its own, and what joins it instead only `amd-smi topology` says. States of links are of pairs in newer versions
and of ports in older ones.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...hardware import Catalogue
from ...units import counted
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from .names import card_names
from .pasted import plain_lines
from .rocm import MAX_GPUS, MOST_LINKS

TITLE = re.compile(r"^\s*(LINK METRIC TABLE|XGMI LINK STATUS|GPU LINK PORT STATUS|[A-Z][A-Z /-]+ TABLE):\s*$")
_BUS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d"
_GPU = re.compile(rf"^\s*GPU(?P<number>\d{{1,4}})\s+(?P<bus>{_BUS})\b\s*(?P<rest>.*)$", re.I)
_RATES = re.compile(r"(?:\d+ Gb/s|N/A)\s*(?:(?P<most>\d+) Gb/s|N/A)\s*(?P<kind>XGMI|PCIE|UNKNOWN|N/A)\s*$")
_COUNTERS = re.compile(r"^\s*(?:Read|Write)\s+(?P<cells>\S.*)$")
_CELL = re.compile(r"N/A|\d+(?:\.\d+)? ?[KMGTPE]?B\b")
_STATE = re.compile(r"(?:[UDX](?:/[UDX])*|SELF|N/A)")
NEEDED = "expected amd-smi topology, which says what joins them"
UNSUPPORTED = 2**32 - 1  # what versions before 2026 print where there is no link


@dataclass(slots=True)
class _Card:
    """A GPU in them."""

    bus: str = ""
    most_gbits: int | None = None  # of a link, in one direction
    peers: set[int] = field(default_factory=set)  # by place among the cards
    states: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Read:
    """The GPUs of the tables by number."""

    cards: dict[int, _Card] = field(default_factory=dict)  # by number
    of_pairs: bool = False  # states are one a card, not one a port

    def card(self, number: int, bus: str) -> _Card:
        found = self.cards.setdefault(number, _Card())
        found.bus = found.bus or bus
        return found


def looks_like_xgmi(text: str) -> bool:
    """Return whether a text holds the table of what xGMI links carry."""
    return "LINK METRIC TABLE" in text and "max_bandwidth" in text


def from_xgmi(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of saved tables; `gpu` names the device."""
    lines = [line.text for line in plain_lines(text)]
    read, title, last = _Read(), "", _Card()
    columns = 0
    for number, line in enumerate(lines, start=1):
        if heading := TITLE.match(line):
            title, columns = heading[1], 0
        elif title == "LINK METRIC TABLE" and "link_type" in line:
            columns = len(line.split("link_type", 1)[1].split())
        elif title.startswith(("XGMI LINK", "GPU LINK")) and line.split()[:1] == ["bdf"]:
            read.of_pairs = read.of_pairs or "GPU0" in line
            columns = len(line.split()) - 1 if "GPU0" in line else 0
        elif (row := _GPU.match(line)) and title == "LINK METRIC TABLE":
            last = read.card(int(row["number"]), row["bus"])
            last.most_gbits = _most(row["rest"], f"{where}:{number}")
        elif (row := _GPU.match(line)) and title in {"XGMI LINK STATUS", "GPU LINK PORT STATUS"}:
            if title == "XGMI LINK STATUS" or not read.of_pairs:
                states = _states(row["rest"], columns, f"{where}:{number}")
                read.card(int(row["number"]), row["bus"]).states = states
        elif title == "LINK METRIC TABLE" and (counters := _COUNTERS.match(line)):
            cells = _CELL.findall(counters["cells"])
            if len(cells) != columns or _CELL.sub("", counters["cells"]).strip():
                raise InputError(f"{where}:{number}: expected {counted(columns, 'counter')} such as 2 KB or N/A")
            last.peers |= {place for place, cell in enumerate(cells) if cell != "N/A"}
    known = {name: key for name in card_names(lines).values() if (key := catalogue.driver_key(name))}
    keys = set(known.values())
    return _cluster(read, where, catalogue, gpu or (keys.pop() if len(keys) == 1 else None))


def _most(words: str, at: str) -> int | None:
    found = _RATES.fullmatch(words.strip())
    if found is None:
        raise InputError(f"{at}: expected bit_rate and max_bandwidth in Gb/s and a link_type")
    most = int(found["most"] or 0)
    return most if 0 < most < UNSUPPORTED and found["kind"] == "XGMI" else None


def _states(words: str, columns: int, at: str) -> list[str]:
    cells = words.split()
    if not all(_STATE.fullmatch(cell) for cell in cells) or (columns and len(cells) != columns):
        raise InputError(f"{at}: expected a state of each link: U, D, X or N/A")
    return cells


def looks_like_xgmi_json(data: Any) -> bool:
    """Return whether JSON is of `amd-smi xgmi`, alone or inside what newer versions put around it."""
    return next(_entries(data, "link_metrics"), None) is not None


def from_xgmi_json(data: Any, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of `amd-smi xgmi --json`."""
    read = _Read()
    try:
        for entry in _entries(data, "link_metrics"):
            metrics = entry["link_metrics"]
            card = read.card(int(entry["gpu"]), str(entry["bdf"]))
            most = metrics["max_bandwidth"]
            value = int(most["value"]) if isinstance(most, Mapping) else 0
            card.most_gbits = value if 0 < value < UNSUPPORTED and metrics["link_type"] == "XGMI" else None
            card.peers = {place for place, link in enumerate(metrics["links"]) if link["read"] != "N/A"}
        for entry in _entries(data, "link_status"):
            states = [str(state) for state in entry["link_status"]]
            read.of_pairs = read.of_pairs or "SELF" in states
            if int(entry["gpu"]) in read.cards and ("SELF" in states or not read.of_pairs):
                read.cards[int(entry["gpu"])].states = states
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: {error!r}: expected the output of amd-smi xgmi --json") from None
    return _cluster(read, where, catalogue, gpu)


def _entries(data: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of GPUs that have a key, at most three lists or objects deep."""
    level = [data] if isinstance(data, Mapping | list) else []
    for _ in range(4):
        yield from (part for part in level if isinstance(part, Mapping) and key in part)
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, Mapping) else part)
            if isinstance(inner, Mapping | list)
        ]


def _cluster(read: _Read, where: str, catalogue: Catalogue, gpu: str | None) -> Cluster:
    numbers = list(read.cards)
    if len(numbers) > MAX_GPUS:
        raise InputError(f"{where}: {len(numbers)} GPUs, expected {MAX_GPUS} at most")
    cards = list(read.cards.values())
    if any(place >= len(cards) for card in cards for place in card.peers):
        raise InputError(f"{where}: the table has more columns than rows: it is truncated")
    devices = [Device(id=f"GPU{number}", kind="gpu") for number in numbers]
    if gpu is not None:
        devices = [with_catalogue(device, gpu, catalogue) for device in devices]
    links, down = [], []
    for i, j in itertools.combinations(range(len(cards)), 2):
        if j in cards[i].peers or i in cards[j].peers:
            pair = f"{devices[i].id}-{devices[j].id}"
            dead = read.of_pairs and any("U" not in state for state in _of_pair(cards, i, j))
            down += [pair] if dead else []
            rate = None if dead else _rate(cards[i], cards[j])
            links.append(Link(a=devices[i].id, b=devices[j].id, kind="xGMI", bandwidth_bytes_per_s=rate))
    if not links:
        raise InputError(f"{where}: amd-smi xgmi shows no xGMI between {counted(len(cards), 'GPU')}; {NEEDED}")
    buses = ", ".join(f"{device.id} is {card.bus}" for device, card in zip(devices, cards, strict=True) if card.bus)
    said = (*_down(read, down), *_open(cards, links), *([buses] if buses else []))
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=said)


def _of_pair(cards: Sequence[_Card], i: int, j: int) -> list[str]:
    """Return the states of a pair's links both ways, as far as they are told."""
    ways = [card.states[place] for card, place in ((cards[i], j), (cards[j], i)) if place < len(card.states)]
    return [state for state in ways if state not in {"N/A", "SELF"}]


def _rate(one: _Card, other: _Card) -> float | None:
    rates = [card.most_gbits for card in (one, other)]
    return None if None in rates else min(rate for rate in rates if rate is not None) * 1e9 / 8


def _down(read: _Read, pairs: Sequence[str]) -> list[str]:
    """Return what the states say: pairs whose link is down, or ports of a GPU."""
    if pairs:
        return [f"xGMI is down between {', '.join(pairs)}: what goes between them takes another way"]
    if read.of_pairs:
        return []
    counts = {number: card.states.count("D") for number, card in read.cards.items()}
    return [
        f"GPU{number}: {count} of its {counted(len(read.cards[number].states), 'xGMI link')} "
        f"{'are' if count > 1 else 'is'} down"
        for number, count in counts.items()
        if count
    ]


def _open(cards: Sequence[_Card], links: Sequence[Link]) -> list[str]:
    """Return what the table leaves open: links of a pair, pairs without counters."""
    found = []
    if min(len(card.peers) for card in cards) < MOST_LINKS:
        found.append("xGMI: the rate is one link's, of which a pair may have several: a lower bound")
    apart = len(cards) * (len(cards) - 1) // 2 - len(links)
    if apart:
        found.append(f"{counted(apart, 'pair')} of GPUs without xGMI of their own: {NEEDED}")
    return found
