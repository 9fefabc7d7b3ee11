"""Topology: the directed links of a network with their rates, and the way of each message through them."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ..collectives.pricing.network import Network, RankCosts, Route
from ..errors import InputError
from .arrays import Floats, Ints, Lists, ints, starts

NOWHERE = -1  # fills up the rows of a table of ways


class Routes(NamedTuple):
    """The way of each of some messages: its links in their order, and the seconds before its first byte arrives."""

    links: Lists
    latency_s: Floats


class Topology(Protocol):
    """`ranks` ranks, and links that each carry one direction."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    def capacity_bytes_per_s(self) -> Floats:
        """Rate of each link; 0 for one that is cut."""

    def ways(self, src: Ints, dst: Ints, capacity: Floats) -> Routes:
        """Return the way of each message between two different ranks; those of one call are under way together.

        capacity: (links,) what is left of each link; routing goes round one that is cut where it can.
        """

    def name(self, link: int) -> str:
        """Return a link as "A>B"."""

    @property
    def domain_of(self) -> Ints:
        """Of each rank, the domain (node, or several that one switch joins) whose ranks meet on links of their own."""

    @property
    def links_join_pairs(self) -> bool:
        """Whether a rank has a link to each of others of its domain, and only all of them carry what it can send."""

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """Parts of the network that no figure is known for."""


@dataclass(frozen=True, eq=False)
class LinkBlocks:
    """Blocks of directed links, numbered through: what fabrics are put together from."""

    capacity: list[Floats] = field(default_factory=list)
    latency: list[Floats] = field(default_factory=list)
    blocks: list[tuple[int, Callable[[int], str]]] = field(default_factory=list)  # end of the block, name of its i-th

    @property
    def count(self) -> int:
        """Links so far."""
        return self.blocks[-1][0] if self.blocks else 0

    def add(self, capacity: Floats, latency_s: float | None, name: Callable[[int], str]) -> int:
        """Add a block of links; return the number of its first. A latency of None counts as 0."""
        first = self.count
        self.capacity.append(np.asarray(capacity, dtype=np.float64))
        self.latency.append(np.full(len(capacity), latency_s or 0.0))
        self.blocks.append((first + len(capacity), name))
        return first

    def name(self, link: int) -> str:
        """Return the name of a link, "A>B"."""
        first = 0
        for end, name in self.blocks:
            if link < end:
                return name(link - first)
            first = end
        raise IndexError(link)


def packed(table: Ints, latency_s: Floats) -> Routes:
    """Return the ways that are the rows of a table, padded with NOWHERE; latency_s: of each link."""
    there = table != NOWHERE
    row = np.nonzero(there)[0]
    items = table[there]
    return Routes(
        Lists(starts(row, len(table)), items), np.bincount(row, latency_s[items], minlength=len(table)).astype(float)
    )


@dataclass(frozen=True, eq=False)
class PricedNetwork:
    """A Network as prices see it, as a topology: its resources are the links."""

    network: Network

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.network.ranks

    @property
    def capacity_bytes_per_s(self) -> Floats:
        """Rate of each resource."""
        return np.array(self.network.capacities, dtype=np.float64)

    def ways(self, src: Ints, dst: Ints, capacity: Floats) -> Routes:
        """Return the routes of the network."""
        routes = [self.network.route(a, b) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
        count = ints([len(route.resources) for route in routes])
        items = ints([resource for route in routes for resource in route.resources])
        return Routes(
            Lists(np.concatenate([[0], np.cumsum(count)]).astype(np.int64), items),
            np.array([route.latency_s for route in routes], dtype=np.float64),
        )

    def name(self, link: int) -> str:
        """Return the ends of a link, where the network has them."""
        links = getattr(self.network, "links", None)
        if links is None:
            return f"resource{link}"
        edge = links[link // 2]
        return f"{edge.b}>{edge.a}" if link % 2 else f"{edge.a}>{edge.b}"

    @property
    def domain_of(self) -> Ints:
        """The hosts of a HostsNetwork; elsewhere each rank is one."""
        return np.arange(self.ranks) // int(getattr(self.network, "ranks_per_host", 1))

    @property
    def links_join_pairs(self) -> bool:
        """Nobody knows of a network that lists what its messages share."""
        return False

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """Nothing: a network without a figure is refused."""
        return ()


@dataclass(frozen=True, eq=False)
class TopologyNetwork(RankCosts):
    """A topology as a Network, so that prices take the ways that simulations take; its links are the resources."""

    topology: Topology
    latency_s: float | None = None  # of every message; None: what its links say
    _routes: dict[tuple[int, int], Route] = field(init=False, default_factory=dict, repr=False)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.topology.ranks

    @cached_property
    def capacities(self) -> Sequence[float]:
        """Each link."""
        rates: list[float] = self.topology.capacity_bytes_per_s.tolist()
        return rates

    def route(self, src: int, dst: int) -> Route:
        """Return the way of a message."""
        if (src, dst) not in self._routes:
            one = self.topology.ways(ints([src]), ints([dst]), self.topology.capacity_bytes_per_s)
            latency_s = float(one.latency_s[0]) if self.latency_s is None else self.latency_s
            self._routes[src, dst] = Route(latency_s, tuple(one.links.items.tolist()))
        return self._routes[src, dst]


def find_links(topology: Topology, names: Sequence[str]) -> dict[str, Ints]:
    """Return the links that each name means: "A>B" one direction, "A-B" both; InputError for one that is not there."""
    known = {topology.name(link): link for link in range(len(topology.capacity_bytes_per_s))}
    found = {}
    for name in names:
        links = [known[way] for way in _directions(name) if way in known]
        if not links:
            raise InputError(f"link {name!r}: no such link ({_near(name, known)})")
        found[name] = ints(links)
    return found


def _directions(name: str) -> list[str]:
    if ">" in name:
        return [name]
    parts = name.split("-")
    halves = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    return [way for a, b in halves for way in (f"{a}>{b}", f"{b}>{a}")]


MOST_COMPARED = 5000  # names with one that is not there


def _near(name: str, known: dict[str, int]) -> str:
    """Return a hint that stays short on large networks: the links that are written most like a name."""
    meant = name if ">" in name else name.replace("-", ">")
    places = {end.partition("/")[0] for end in meant.split(">")}  # nodes, or what stands by itself
    between = {link: {end.partition("/")[0] for end in link.split(">")} for link in known}
    around = [link for link in known if between[link] == places] or [link for link in known if between[link] & places]
    close = difflib.get_close_matches(meant, (around or [*known])[:MOST_COMPARED], n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"such as {', '.join([*known][:3])}"
