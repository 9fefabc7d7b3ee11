"""Links of an InfiniBand fabric by the rates that its dumps print: slow ones, and leaves that have too few upwards."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...hardware.arithmetic import INFINIBAND_LANE_GBPS
from ...units import counted, first_few

# [10]    "S-0002c90300fc0010"[1]         # "leaf3" lid 3 4xSDR; of an adapter [1](GUID) "S-..."[6] # lid ... 4xSDR
_LINK = re.compile(
    r'^[ \t]*\[(\d+)\](?:\[[^\]]*\])?(?:\([^)\s]*\))?\s+"[^"]+"\[(\d+)\].*?\s(\d{1,2})x([A-Z]{3}\d*)\s*$'
)
# 1    2[  ] ==( 4X      10.3125 Gbps Active/  LinkUp)==>       4    1[  ] "node02 mlx5_0" ( ): Gb/s of a lane
_INFO = re.compile(
    r"(?:^|\s)(\d{1,5})\[[^\]]*\]\s+==\(\s*(\d{1,2})X\s+(\d{1,4}(?:\.\d{1,6})?) Gbps\s[^)]*(?:Active|LinkUp)"
    r"[^)]*\)==>"
    r"\s*(?:0x[0-9a-f]+\s+)?\d+\s+(\d{1,5})\[[^\]]*\]\s+\"([^\"]+)\"(?: {0,9}\((?P<both>[^()]{0,80})\))?"
)
_COULD = "Could be"  # iblinkinfo's remark on a link of which both ends support more
_CODED, _ROUNDED = 1.07, 1.001  # signals of a lane over its data at most; the figures are rounded
_SHOWN = 4  # links that a warning names

End = tuple[str, int]  # a node's id and the number of its port


class _Link(NamedTuple):
    ends: tuple[End, End]
    gbps: float  # per direction, as the dump counts it: of signals or of data
    speed: str  # the rate in the words of the dump
    data_gbps: float  # per direction, without the coding of signals
    both: str | None = None  # what both ends support beyond it, in iblinkinfo's words, "" for no more, None if unsaid


class FabricRates:
    """The links of a dump as its lines come; where the two ends of one say different rates the lower counts."""

    def __init__(self) -> None:
        self._found: dict[frozenset[End], _Link] = {}

    def take(self, node: str, peer: str, line: str) -> None:
        """Take ibnetdiscover's line of a port of a node towards a peer; lines without a known rate say nothing."""
        match = _LINK.match(line)
        if match is None or match[4] not in INFINIBAND_LANE_GBPS:
            return
        gbps = int(match[3]) * INFINIBAND_LANE_GBPS[match[4]]
        ends = (node, int(match[1])), (peer, int(match[2]))
        self._put(_Link(ends, gbps, f"{match[3]}x{match[4]}", gbps))

    def take_info(self, node: str, line: str) -> None:
        """Take iblinkinfo's line of a port of a node; lines of ports that are down say nothing."""
        if match := _INFO.search(line):
            ends = (node, int(match[1])), (match[5], int(match[4]))
            lanes, lane = int(match[2]), float(match[3])
            both = match["both"] and match["both"].strip()
            speed = f"{match[2]}X {match[3]} Gb/s"
            self._put(_Link(ends, lanes * lane, speed, lanes * _of_data(lane), both))

    def _put(self, link: _Link) -> None:
        known = self._found.setdefault(frozenset(link.ends), link)
        if link.gbps < known.gbps:
            self._found[frozenset(link.ends)] = link

    def ports_bytes_per_s(self, switches: Iterable[str]) -> dict[str, list[float]]:
        """Return what each port of an adapter on a switch carries, per direction, by the adapter's id."""
        known = set(switches)
        found: dict[str, list[float]] = defaultdict(list)
        for link in self._found.values():
            nodes = [node for node, _ in link.ends]
            if len(set(nodes) & known) == 1:
                (adapter,) = set(nodes) - known or {""}
                found[adapter].append(link.data_gbps * 1e9 / 8)
        return found

    def warnings(self, switches: Iterable[str], called: Callable[[str], str]) -> list[str]:
        """Return a warning of the links below the usual rate of a switch at one of their ends, among links alike.

        Alike are those to other switches, and those to adapters; of rates that are as frequent the higher is usual.
        iblinkinfo says beside a link whether both ends support more. `called` has the name of a node's id.
        """
        known = set(switches)
        groups: dict[tuple[str, bool], list[_Link]] = defaultdict(list)
        for link in self._found.values():
            between = all(node in known for node, _ in link.ends)
            for node in {node for node, _ in link.ends} & known:
                groups[node, between].append(link)
        slow: dict[_Link, str] = {}
        for links in groups.values():
            often = Counter(link.gbps for link in links)
            usual = max(links, key=lambda link: (often[link.gbps], link.gbps))
            slow |= {link: usual.speed for link in links if link.gbps < usual.gbps}
        older = {link: usual for link, usual in slow.items() if link.both == ""}
        others = {link: usual for link, usual in slow.items() if link not in older}
        below = [link for link in self._found.values() if _COULD in (link.both or "") and link not in slow]
        return [
            *_said(
                [f"{_ends(link, called)} at {link.speed} of {usual}" for link, usual in others.items()],
                "narrower or slower than others of the same switch",
            ),
            *_said(
                [f"{_ends(link, called)} at {link.speed} of {usual}" for link, usual in older.items()],
                "at less than others of the same switch, and one end supports no more (older, no fault of the link)",
            ),
            *_said(
                [f"{_ends(link, called)} at {link.speed} ({link.both})" for link in below],
                "below what both of its ends support",
            ),
        ]

    def thin_leaves(self, switches: Iterable[str], adapters: Iterable[str], called: Callable[[str], str]) -> list[str]:
        """Return a warning of the switches whose links to other switches carry less than those to adapters.

        Both as the links run; a switch without links to others, as where it is the only one, is not meant.
        """
        known, ends = set(switches), set(adapters)
        up: dict[str, float] = defaultdict(float)
        down: dict[str, float] = defaultdict(float)
        for link in self._found.values():
            nodes = {node for node, _ in link.ends}
            for switch in nodes & known:
                up[switch] += link.gbps if nodes <= known else 0.0
                down[switch] += link.gbps if nodes & ends else 0.0
        thin = [
            f"{called(s)} {100 * up[s] / down[s]:.0f} % ({up[s]:.0f} of {down[s]:.0f} Gb/s)"
            for s in up
            if 0 < up[s] < down[s]
        ]
        if not thin:
            return []
        return [
            "links to other switches carry less than those to adapters, so that nodes share them on the way to nodes "
            f"elsewhere: {first_few(thin, _SHOWN)}"
        ]


def _of_data(lane_gbps: float) -> float:
    """Return the Gb/s of data of a lane by that of its signals, which coding adds 3 to 6 % to: 25.78 is EDR's 25."""
    below = [gbps for gbps in INFINIBAND_LANE_GBPS.values() if gbps <= lane_gbps * _ROUNDED]
    nearest = max(below, default=lane_gbps)
    return nearest if lane_gbps <= _CODED * nearest else lane_gbps


def _ends(link: _Link, called: Callable[[str], str]) -> str:
    return " - ".join(f"{called(node)} [{port}]" for node, port in link.ends)


def _said(shown: Sequence[str], what: str) -> list[str]:
    """Return one warning of links that run as `what` says, [] for none."""
    if not shown:
        return []
    verb = "runs" if len(shown) == 1 else "run"
    return [f"{counted(len(shown), 'link')} {verb} {what}: {first_few(shown, _SHOWN, '; ')}"]
