"""Which ranks a communication joins, and on which hosts they are: what a span of a run says, read with its layout."""

import re
from collections.abc import Mapping
from typing import get_args

from ..layout import Layout
from ..parallel.places import Axis, groups, placed
from ..timeline import PEER, Span

_GROUP = re.compile(r"(\d{1,9}) ranks of (\w+)")  # the detail of a collective


class Paths:
    """The ranks of a run on their hosts; `hosts` says where each ran."""

    def __init__(self, layout: Layout, hosts: Mapping[int, str]) -> None:
        self._layout, self._hosts = layout, hosts
        by_host: dict[str, list[int]] = {}
        for rank in sorted(hosts):
            by_host.setdefault(hosts[rank], []).append(rank)
        self._ranks = placed(by_host.values()) or list(range(layout.world_size))
        self._groups: dict[str, dict[int, tuple[int, ...]]] = {}

    def host(self, rank: int) -> str:
        """Return the host of a rank, "" where it is not known."""
        return self._hosts.get(rank, "")

    def members(self, span: Span) -> tuple[int, ...]:
        """Return the ranks that a communication joins, ascending; () where that is not known.

        What a span without a detail joins is known of synchronous data parallelism alone: all ranks.
        """
        if span.lane != "comm":
            return ()
        if peer := PEER.fullmatch(span.detail):
            return tuple(sorted({span.rank, int(peer["peer"])}))
        if group := _GROUP.fullmatch(span.detail):
            return self._group(group[2]).get(span.rank, ())
        layout = self._layout
        plain = not span.detail and layout.mode == "sync" and layout.dp == layout.world_size
        return tuple(sorted(self._ranks)) if plain and layout.dp > 1 else ()

    def hosts(self, span: Span) -> tuple[str, ...]:
        """Return the hosts that a communication joins, in order; () where that is not known."""
        names = {self.host(rank) for rank in self.members(span)}
        if not names and span.lane == "comm" and len(set(self._hosts.values())) == 1:
            names = set(self._hosts.values())  # wherever it goes, it goes there
        return tuple(sorted(names - {""}))

    def _group(self, axis: str) -> dict[int, tuple[int, ...]]:
        """Return the group of each rank along an axis of the mesh."""
        known = axis in get_args(Axis) and len(self._ranks) == self._layout.world_size
        if known and axis not in self._groups:
            found = ([self._ranks[place] for place in places] for places in groups(self._layout, axis))  # type: ignore[arg-type]
            self._groups[axis] = {rank: tuple(sorted(members)) for members in found for rank in members}
        return self._groups.get(axis, {})
