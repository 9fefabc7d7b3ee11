"""The network of an emulation, as the kernel has it: bridges, veth pairs, addresses and shaped queues."""

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ...errors import InputError
from . import loss, node, spec

BURST_S = 0.002  # what may pass unshaped: 2 ms of the rate, so that a late timer tick costs nothing
QUEUE_S = 0.1  # what a port holds back before it drops
LARGEST_BYTES = 72 * 1024  # of a packet in a queue: 64 KiB that are not cut up yet, and the headers of their parts
_LOOPBACK = "lo"
_ROOT_HANDLE = 0x1_0000  # "1:"
_DELAY_HANDLE = 0x2_0000  # "2:"


class EmulatedFabric:
    """The links of one emulation: built once, changed by faults. Runs in the switches' network namespace."""

    def __init__(self, wanted: spec.EmulationSpec, nodes: Mapping[str, node.Node], owner_pid: int) -> None:
        self._spec = wanted
        self._wires = {wire.name: wire for wire in spec.wires(wanted)}
        self._bursts: dict[str, int] = {}  # by cable: what may pass unshaped
        self._stack = contextlib.ExitStack()
        self._switch = self._stack.enter_context(contextlib.closing(IPRoute()))
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._stack.callback(os.close, home)
        self._inside: dict[str, IPRoute] = {}
        for name, place in nodes.items():
            with node.in_network(place, home):
                self._inside[name] = self._stack.enter_context(contextlib.closing(IPRoute()))
        with contextlib.suppress(FileNotFoundError):  # no bridge netfilter in this kernel: nothing to switch off
            _write_sysctl("net/bridge/bridge-nf-call-iptables", "0")
        for name in spec.switches(wanted):
            self._switch.link("add", ifname=name, kind="bridge")
            self._switch.link("set", index=self._index(self._switch, name), state="up", mtu=wanted.mtu)
        for wire in self._wires.values():
            self._plug(wire, nodes, owner_pid)

    def close(self) -> None:
        """Close the handles; the links go with their namespaces."""
        self._stack.close()

    @property
    def cables(self) -> tuple[str, ...]:
        """Names of the cables that a fault can name."""
        return tuple(self._wires)

    def cut(self, name: str) -> None:
        """Pull a cable: its switch port goes down, the other end sees the carrier vanish."""
        self._switch.link("set", index=self._index(self._switch, _port(self._wire(name))), state="down")

    def restore(self, name: str) -> None:
        """Plug a cable in again, at its first rate and without loss or delay."""
        wire = self._wire(name)
        self._switch.link("set", index=self._index(self._switch, _port(wire)), state="up")
        self.slow(name, wire.rate_bytes_per_s)
        with contextlib.suppress(NetlinkError):  # nothing was lost
            self._switch.tc("del", "clsact", index=self._index(self._switch, _port(wire)))

    def slow(self, name: str, rate_bytes_per_s: float | None) -> None:
        """Give a cable another rate, both ways."""
        self._bursts[name] = burst_bytes(rate_bytes_per_s, self._spec.mtu, self._bursts.get(name, 0))
        for route, interface in self._ends(self._wire(name)):
            _shape(route, interface, rate_bytes_per_s, self._bursts[name])

    def lose(self, name: str, share: float) -> None:
        """Drop a share of the packets of a cable, each way."""
        index = self._index(self._switch, _port(self._wire(name)))
        with contextlib.suppress(NetlinkError):  # it is there already
            self._switch.tc("add", "clsact", index=index)
        loss.attach(index, share)

    def delay(self, name: str, delay_s: float) -> None:
        """Hold every packet of a cable back, each way; InputError where the kernel has no netem."""
        for route, interface in self._ends(self._wire(name)):
            (index,) = route.link_lookup(ifname=interface)
            shaped = any(queue.get_attr("TCA_KIND") == "tbf" for queue in route.get_qdiscs(index=index))
            place = {"parent": _ROOT_HANDLE + 1} if shaped else {"root": True}
            try:
                route.tc("replace", "netem", index=index, handle=_DELAY_HANDLE, delay=round(delay_s * 1e6), **place)
            except NetlinkError as error:
                if error.code != errno.ENOENT:
                    raise
                raise InputError(
                    "delay: this kernel has no netem queue; expected one with CONFIG_NET_SCH_NETEM (`modprobe"
                    " sch_netem`, on Debian and Ubuntu from the package linux-modules-extra)"
                ) from None

    def _plug(self, wire: spec.Cable, nodes: Mapping[str, node.Node], owner_pid: int) -> None:
        port, far = _port(wire), f"{wire.name}-far"
        peer = {"ifname": far, "mtu": self._spec.mtu}
        self._switch.link("add", ifname=port, kind="veth", mtu=self._spec.mtu, peer=peer)
        upper = self._index(self._switch, wire.upper_switch)
        self._switch.link("set", index=self._index(self._switch, port), master=upper, state="up")
        lower = self._index(self._switch, far)
        if wire.node is None:
            assert wire.lower_switch is not None
            leaf = self._index(self._switch, wire.lower_switch)
            self._switch.link("set", index=lower, master=leaf, state="up")
        else:
            self._switch.link("set", index=lower, net_ns_fd=nodes[wire.name].namespaces["net"])
            self._configure(wire, far, spec.address(owner_pid, wire.node))
        self.slow(wire.name, wire.rate_bytes_per_s)

    def _configure(self, wire: spec.Cable, interface: str, address: str) -> None:
        """Set up a node's two interfaces: eth0 with its address, and the loopback."""
        route = self._inside[wire.name]
        index = self._index(route, interface)
        route.link("set", index=index, ifname=spec.INTERFACE)
        route.link("set", index=index, state="up")
        route.addr("add", index=index, address=address, prefixlen=24)
        loopback = self._index(route, _LOOPBACK)
        route.link("set", index=loopback, state="up")
        if self._spec.intra_bytes_per_s is not None:
            _shape(route, _LOOPBACK, self._spec.intra_bytes_per_s, burst_bytes(self._spec.intra_bytes_per_s, 65536, 0))

    def _ends(self, wire: spec.Cable) -> Iterator[tuple[IPRoute, str]]:
        yield self._switch, _port(wire)
        if wire.node is None:
            yield self._switch, f"{wire.name}-far"
        else:
            yield self._inside[wire.name], spec.INTERFACE

    def _wire(self, name: str) -> spec.Cable:
        if name not in self._wires:
            raise InputError(f"{name}: no such cable (cables: {', '.join(self._wires)})")
        return self._wires[name]

    @staticmethod
    def _index(route: IPRoute, interface: str) -> int:
        found = route.link_lookup(ifname=interface)
        if not found:
            raise InputError(f"{interface}: the interface is gone")
        return int(found[0])


def _port(wire: spec.Cable) -> str:
    return f"{wire.name}-port"


def burst_bytes(rate_bytes_per_s: float | None, mtu: int, before: int) -> int:
    """Return what may pass unshaped at a rate, 0 where there is no limit; `before` is what might until now.

    A packet that waits in the queue was let in under what might pass before. Were it larger than what may pass now, it
    would wait for ever, and all that is behind it: a slowed cable would be dead.
    """
    if rate_bytes_per_s is None:
        return 0
    return round(max(3 * mtu, rate_bytes_per_s * BURST_S, min(before, LARGEST_BYTES)))


def _shape(route: IPRoute, interface: str, rate_bytes_per_s: float | None, burst: int) -> None:
    """Limit what leaves through an interface with a token bucket, or lift the limit."""
    (index,) = route.link_lookup(ifname=interface)
    if rate_bytes_per_s is None:
        with contextlib.suppress(NetlinkError):  # there was no limit
            route.tc("del", index=index, root=True)
        return
    queue = round(max(2**20, rate_bytes_per_s * QUEUE_S))
    rate = round(rate_bytes_per_s)
    route.tc("replace", "tbf", index=index, handle=_ROOT_HANDLE, rate=rate, burst=burst, limit=queue)


def _write_sysctl(path: str, value: str) -> None:
    with open(f"/proc/sys/{path}", "w") as file:
        file.write(value)
