"""Rates of a rank's connections, from the kernel: bytes acknowledged, over the time it was busy sending.

A connection is busy while it holds bytes that the other side has not acknowledged, so the rate of a link that waits for
somebody's computation does not fall; that of one whose cable or NIC is slow does. The time in which the receiver's
window was closed is taken off: that is a slow reader, not a slow link.
"""

import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

_BYTES_ACKED, _BUSY_US = 120, 168  # places in struct tcp_info of linux/tcp.h; the window's time follows the busy time
_INFO_BYTES = 192


class Carried(NamedTuple):
    """The bytes that one connection has carried, and in which time."""

    size_bytes: int
    busy_s: float


class LinkRates:
    """The connections of one rank to ranks of other hosts."""

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._connections = connections
        self._before = {peer: _read(connection) for peer, connection in connections.items()}

    def take(self) -> dict[int, Carried]:
        """Return, by rank, what its connection has carried since the last call."""
        taken = {}
        for peer, connection in self._connections.items():
            now, before = _read(connection), self._before.get(peer, Carried(0, 0.0))
            taken[peer] = Carried(now.size_bytes - before.size_bytes, now.busy_s - before.busy_s)
            self._before[peer] = now
        return taken


def _read(connection: socket.socket) -> Carried:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _BUSY_US + 16:
        return Carried(0, 0.0)  # a kernel before 4.10 does not say
    (acked,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
    busy_us, closed_us = struct.unpack_from("=QQ", info, _BUSY_US)
    return Carried(acked, max(busy_us - closed_us, 0) * 1e-6)
