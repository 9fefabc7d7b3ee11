"""The communication of a training step on a topology: collectives along the axes of a layout, and sends.

All groups of an axis communicate at once, as they do in training, so that they share what they share of the network.
"""

from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..layout import Layout
from ..mesh import Axis, coordinates, groups
from ..units import counted
from ..workload.program import Comm
from .arrays import Floats, Ints, ints
from .collective import simulate_collective
from .problem import Costs, Disturbance
from .topology import Topology
from .traffic import Pattern, Traffic, named_traffic, placed_traffic

FOLD_ABOVE = 20_000  # transfers; fewer are simulated faster than folded
INSIDE = {"all_reduce": "partitioned", "all_gather": "direct", "reduce_scatter": "direct"}  # over links of pairs
JOINT: frozenset[Axis] = frozenset({"dp", "ep", "edp", "data", "shard", "replica"})  # axes that join pipelines


class AxisPrices:
    """Seconds of communication on a topology; each is simulated once."""

    def __init__(
        self, layout: Layout, topology: Topology, costs: Costs, disturbance: Disturbance,
        host_bytes_per_s: float | None = None,
    ) -> None:  # fmt: skip
        if layout.world_size > topology.ranks:
            raise InputError(
                f"layout {layout}: needs {counted(layout.world_size, 'rank')}, the cluster has {topology.ranks}"
            )
        self._layout, self._topology = layout, topology
        self._costs, self._host_bytes_per_s = costs, host_bytes_per_s
        self._disturbance = Disturbance(
            slow=disturbance.slow, cut=disturbance.cut, slow_share=disturbance.slow_share,
            slow_to=disturbance.slow_to, seed=disturbance.seed,
        )  # fmt: skip
        self._known: dict[Comm | tuple[int, int, int], float] = {}

    def comm_s(self, comm: Comm) -> float:
        """Return the seconds of a collective along an axis, all groups at once; of a copy, each over its own link."""
        if comm.axis == "host":
            if not self._host_bytes_per_s:
                raise InputError(f"{self._layout}: the rate between a device and its host is not known")
            return float(comm.bytes / self._host_bytes_per_s)
        if comm not in self._known:
            table = groups(self._layout, comm.axis)
            if table.shape[1] == 1:
                return 0.0
            one = named_traffic(comm.collective, self._algorithm(comm, table), table.shape[1])
            traffic = placed_traffic(one, list(table))
            traffic = traffic if comm.leaving == 1.0 else self._thinned(traffic, float(comm.leaving))
            self._known[comm] = self._seconds(traffic, comm.size_bytes)
        return self._known[comm]

    def _thinned(self, traffic: Traffic, leaving: float) -> Traffic:
        """Return the traffic with so small a share of what leaves its node: rows that several ranks there want."""
        domain_of = self._topology.domain_of
        patterns = tuple(
            replace(p, share=p.share * np.where(domain_of[p.src] != domain_of[p.dst], leaving, 1.0))
            for p in traffic.patterns
        )
        return replace(traffic, patterns=patterns)

    def _algorithm(self, comm: Comm, table: Ints) -> str:
        """Return the algorithm of a collective: hierarchical where a group has several ranks in each of its nodes.

        Libraries do so: every rank's NIC then carries its share. They post the messages of an all-to-all at once. Where
        links join pairs of a node's GPUs, they use all of them: each rank then sends to all others of its node at once,
        where one ring would use one link of each.
        """
        first = self._topology.domain_of[table[0]]
        inside = int((first == first[0]).sum())
        regular = table.shape[1] % inside == 0 and bool((first == np.repeat(first[::inside], inside)).all())
        if comm.algorithm != "auto":
            return comm.algorithm
        if comm.collective == "all_to_all":
            return "linear"
        inner = INSIDE.get(comm.collective, "ring") if self._topology.links_join_pairs else "ring"
        if inside == table.shape[1]:
            return inner
        return f"hierarchical:{inner}/ring:{inside}" if inside > 1 and regular else "ring"

    def send_s(self, src: int, dst: int, size_bytes: int) -> float:
        """Return the seconds until all ranks of one pipeline rank have sent so much to those of another."""
        key = (src, dst, size_bytes)
        if key not in self._known:
            place = coordinates(self._layout)["pp"]
            a, b = np.flatnonzero(place == src), np.flatnonzero(place == dst)
            ones: Floats = np.ones(len(a))
            pattern = Pattern(src=a, dst=b, share=ones, reduces=np.zeros(len(a), dtype=np.bool_))
            traffic = Traffic("send", "direct", self._layout.world_size, (pattern,), ints([0]))
            self._known[key] = self._seconds(traffic, size_bytes)
        return self._known[key]

    def crosses(self, axis: Axis) -> bool:
        """Return whether the groups of an axis leave the nodes."""
        table = groups(self._layout, axis)
        if table.shape[1] == 1:
            return False
        return self.between_nodes(table[:, :-1].ravel(), table[:, 1:].ravel())

    def between_nodes(self, src: Ints, dst: Ints) -> bool:
        """Return whether any of these messages leaves its node."""
        domain_of = self._topology.domain_of
        return bool((domain_of[src] != domain_of[dst]).any())

    def _seconds(self, traffic: Traffic, size_bytes: int) -> float:
        run = simulate_collective(
            traffic, self._topology, size_bytes, costs=self._costs, disturbance=self._disturbance,
            folding=traffic.transfers > FOLD_ABOVE,
        )  # fmt: skip
        return run.result.time_s
