"""The interface of a fabric: the places of the NICs in, the links between two of them out."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Ports:
    """The NICs of all nodes, numbered through."""

    node: Ints  # (NICs,)
    place: Ints  # (NICs,) number of the NIC in its node
    rate_bytes_per_s: Floats  # (NICs,)
    nodes: int

    @property
    def node_rate_bytes_per_s(self) -> Floats:
        """Rate of all NICs of each node together."""
        return np.bincount(self.node, self.rate_bytes_per_s, minlength=self.nodes).astype(np.float64)


class SwitchFabric(Protocol):
    """The switches between NICs."""

    def between(self, src: Ints, dst: Ints, capacity: Floats) -> Ints:
        """Return (messages, hops): the links from NIC to NIC, padded with NOWHERE; `capacity` shows what is cut."""


def mixed(seed: int, *values: Ints) -> Ints:
    """Return a hash of whole numbers, 0 to 2^62: splitmix64, as hardware hashes the fields of a packet's header."""
    state = np.full(np.broadcast(*values).shape, seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            state = state + value.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(2)).astype(np.int64)
