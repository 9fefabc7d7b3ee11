"""The ranks that a communication joins, and their hosts: what a span of a run says, read with its layout."""

import re
from collections.abc import Iterable, Mapping
from typing import cast, get_args

from ..cluster.proximity import nearest_hosts
from ..layout import Layout
from ..mesh import Axis, groups, ranks_by_place
from ..timeline import PEER, Span

Joined = Mapping[str, tuple[int, ...]]  # ranks by the host that they run on, "" where that is not known
_GROUP = re.compile(r"(\d{1,9}) ranks of (\w+)")  # the detail of a collective


class Paths:
    """The ranks of a run on their hosts: `hosts` says where each ran, `switches` what is above a host, where known."""

    def __init__(
        self, layout: Layout, hosts: Mapping[int, str], switches: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._layout, self._hosts = layout, hosts
        by_host: dict[str, list[int]] = {}
        for rank in sorted(hosts):
            by_host.setdefault(hosts[rank], []).append(rank)
        near = nearest_hosts((ranks, (switches or {}).get(host, ())) for host, ranks in by_host.items())
        self.ranks = ranks_by_place(near) or list(range(layout.world_size))
        self._all = self._joined(self.ranks)
        self._groups: dict[str, dict[int, Joined]] = {}  # by axis, of each rank

    def host(self, rank: int) -> str:
        """Return the host of a rank, "" where it is not known."""
        return self._hosts.get(rank, "")

    def joined(self, span: Span) -> Joined:
        """Return the ranks that a communication joins, ascending on each host; empty where that is not known.

        What a span without a detail joins is known of synchronous data parallelism alone: all ranks.
        """
        if span.lane != "comm":
            return {}
        if peer := PEER.fullmatch(span.detail):
            return self._joined({span.rank, int(peer["peer"])})
        if group := _GROUP.fullmatch(span.detail):
            return self._group(group[2]).get(span.rank, {})
        layout = self._layout
        plain = not span.detail and layout.mode == "sync" and layout.dp == layout.world_size
        return self._all if plain and layout.dp > 1 else {}

    def hosts(self, span: Span) -> tuple[str, ...]:
        """Return the hosts that a communication joins, in order; () where that is not known."""
        joined = self._all if self.stays(span) else self.joined(span)
        return tuple(sorted(host for host in joined if host))

    def stays(self, span: Span) -> bool:
        """Return whether it is not known whom a communication joins, and where: there is but one host."""
        return span.lane == "comm" and len(self._all) == 1 and not self.joined(span)

    def _joined(self, ranks: Iterable[int]) -> Joined:
        found: dict[str, list[int]] = {}
        for rank in sorted(ranks):
            found.setdefault(self.host(rank), []).append(rank)
        return {host: tuple(members) for host, members in found.items()}

    def _group(self, axis: str) -> dict[int, Joined]:
        """Return the group of each rank along an axis of the mesh."""
        known = axis in get_args(Axis) and len(self.ranks) == self._layout.world_size
        if known and axis not in self._groups:
            self._groups[axis] = {}
            for places in groups(self._layout, cast(Axis, axis)).tolist():
                members = [self.ranks[place] for place in places]
                self._groups[axis] |= dict.fromkeys(members, self._joined(members))
        return self._groups.get(axis, {})
