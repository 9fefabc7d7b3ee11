"""Traffic of weights and gradients, and when in a step: of a layer, of embedding and output, of a whole stage.

`split` knows what is sent of parameters that the same ranks share. Here a rank's parameters are put together: dense
ones, routed experts, which fewer ranks share, and what lies outside of the layers, which may stay whole from forward to
backward. Engines take the same collectives from here, whatever they know the sizes of parameters from.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ..layout import Layout
from ..mesh import size
from .conventions import Conventions
from .program import Comm, Number, Pass, Unit
from .split import HostTraffic, Sharding, adds_on_host, expert_traffic, host_traffic, sharding

ROOT = "root"


class Crossing(NamedTuple):
    """The traffic between device and host, and whether backward waits for it."""

    traffic: HostTraffic
    waited: bool


class WeightTraffic(NamedTuple):
    """The traffic of some parameters of a rank: between the ranks that share them, and between device and host."""

    shared: tuple[Sharding, ...]  # of the dense ones, and of routed experts, where there are any
    hosts: tuple[Crossing, ...]
    gathers_late: bool  # whether weights are gathered after the update, before any forward

    @classmethod
    def of(
        cls, layout: Layout, c: Conventions, dense: Number, routed: Number = 0, *, staying: Number = 0,
        micro_batches: int = 1,
    ) -> "WeightTraffic":  # fmt: skip
        """Return what is sent of parameters outside of routed experts and in these; `staying` as in `sharding`."""
        shared, hosts = [], []
        copies, cut, offload = layout.replicas, size(layout, "shard"), layout.offloaded
        if dense:
            shared.append(sharding(dense, layout, c, shards=cut, copies=copies, staying=staying))
            hosts.append(host_traffic(dense, layout, c, offload=offload, shards=cut, copies=copies, staying=staying))
        if routed:
            shared.append(sharding(routed, layout, c, shards=size(layout, "edp"), over="edp"))
            hosts.append(expert_traffic(routed, layout, c, offload=offload, shards=size(layout, "edp")))
        waits = (adds_on_host(one.leave, c, offload=offload, micro_batches=micro_batches) for one in hosts)
        crossing = tuple(Crossing(one, bool(waited)) for one, waited in zip(hosts, waits, strict=True))
        return cls(tuple(shared), crossing, bool(layout.zero <= c.gather_waits))

    @property
    def ahead(self) -> tuple[Comm, ...]:
        """The weights of a forward: from the host, and then from the ranks that share them."""
        return () if self.gathers_late else self._gathered

    @property
    def updated(self) -> tuple[Comm, ...]:
        """The weights that are gathered after the update."""
        return self._gathered if self.gathers_late else ()

    @property
    def again(self) -> tuple[Comm, ...]:
        """The weights of a backward."""
        return called(comm for sent, host in self._pairs for comm in (host.traffic.again, sent.again))

    @property
    def behind(self) -> tuple[Comm, ...]:
        """The gradients of a backward, that only the update waits for."""
        return called(
            comm
            for sent, host in self._pairs
            for comm in (sent.scatter, sent.copies, *(() if host.waited else (host.traffic.leave,)))
        )

    @property
    def waiting(self) -> tuple[Comm, ...]:
        """The gradients of a backward that it waits for."""
        return called(host.traffic.leave for host in self.hosts if host.waited)

    @property
    def bucket(self) -> tuple[Comm, ...]:
        """The gradients of a step where they are summed whole, or scattered once (ZeRO 1)."""
        return called(comm for sent in self.shared for comm in (sent.reduce, sent.scatter_once))

    @property
    def leaving(self) -> tuple[Comm, ...]:
        """The gradients that go to the host once a step, after its last backward."""
        return _joined(host.traffic.leave_once for host in self.hosts)

    @property
    def returning(self) -> tuple[Comm, ...]:
        """The weights that come from the host after its update."""
        return _joined(host.traffic.back for host in self.hosts)

    def unit(self, name: str = ROOT) -> Unit:
        """Return a unit that computes nothing and sends this."""
        return Unit(
            name=name,
            forward=Pass(ahead=self.ahead),
            backward=Pass(comms=self.waiting, ahead=self.again, behind=self.behind),
        )

    @property
    def _gathered(self) -> tuple[Comm, ...]:
        return called(comm for sent, host in self._pairs for comm in (host.traffic.fetch, sent.gather, sent.spread))

    @property
    def _pairs(self) -> Iterable[tuple[Sharding, Crossing]]:
        return zip(self.shared, self.hosts, strict=True)


def outside_of_layers(
    layout: Layout, c: Conventions, held: Number, staying: Number, *, micro_batches: int = 1
) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """Return units that gather embedding and output by themselves under ZeRO 2 and 3: before the layers, and behind.

    `held` are the parameters of both on one stage, `staying` those of them that are whole from forward to backward.
    Where all of them stay they are one unit, the root: FSDP2 gathers it at the beginning of forward and scatters its
    gradients at the end of backward. Else there is one of the embedding, and one of an output that stays.
    """
    if not held or layout.zero < 2 or not c.root_stays:
        return (), ()

    def units(some: Number, kept: Number = 0) -> tuple[Unit, ...]:
        found = WeightTraffic.of(layout, c, some, staying=kept, micro_batches=micro_batches).unit()
        return (found,) if any(one.sent for one in found.both) else ()

    lone = held - staying
    if not lone:
        return units(held, staying), ()
    return units(lone), units(staying, staying)


def has_matrix_twice(layout: Layout, *, tied: bool) -> bool:
    """Return whether the stages hold a tied matrix twice: for the embedding, and for the output on another rank.

    Of stages that lie in a V the first and the last are on one rank.
    """
    return tied and layout.pp > 1 and not (layout.schedule == "zb" and layout.vpp > 1)


def called(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return the collectives of one layout that are called at all."""
    return tuple(comm for comm in comms if comm.calls or comm.once)


def _joined(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return copies to or from the host as one."""
    each = called(comms)
    return (replace(each[0], bytes=sum(comm.bytes for comm in each)),) if each else ()
