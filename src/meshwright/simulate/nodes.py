"""The topology of a cluster in compact form: GPUs in nodes, their NICs, and the fabric between the nodes.

The way of a message between GPUs of one node: out of the one over its links and into the other. Between nodes: out of
the GPU to its NIC, through the fabric, from the NIC of the receiver into the GPU. Where a mesh joins two GPUs of a node
by no link of their own, the message goes through the host, over the PCIe link of each; between chips whose links are
their network too (TPUs) it takes the way between nodes. Where a GPU's peers could together take more than all its links
carry (cards on PCIe have one link to all of them), its messages share that rate too.
"""

from collections.abc import Callable

import numpy as np

from ..cluster.expand import nodes
from ..cluster.graph import Cluster, Fabric, NodeGroup, check_devices
from ..errors import InputError
from .arrays import Floats, Ints, ints
from .dragonfly import Dragonfly
from .fattree import FatTree
from .ports import Ports, SwitchFabric
from .topology import NOWHERE, LinkBlocks, Routes, packed
from .torus import Torus

ROUTINGS = {
    "flat": ("ideal",),
    "fat-tree": ("ideal", "ecmp", "adaptive"),
    "rail-optimised": ("ideal", "ecmp", "adaptive"),
    "dragonfly": ("minimal", "valiant"),
    "torus": ("dimension-order",),
}  # the first is the default


class NodesTopology:
    """A cluster of NodeGroups on a Fabric, with ranks on its GPUs in their order."""

    def __init__(self, cluster: Cluster, ranks: int, *, routing: str | None = None, seed: int = 0) -> None:
        fabric = cluster.fabric or Fabric()
        known = ROUTINGS[fabric.kind]
        self.routing = routing or known[0]
        if self.routing not in known:
            raise InputError(f"routing {self.routing!r}: expected {' or '.join(known)} on a {fabric.kind} fabric")
        self._links = LinkBlocks()
        named = list(nodes(cluster))
        per_node = ints([group.gpus for _, group in named])
        first = np.concatenate([[0], np.cumsum(per_node)]).astype(np.int64)
        check_devices(cluster, int(first[-1]), ranks)
        self.ranks, self.groups, self.on_torus = ranks, cluster.groups, fabric.kind == "torus"
        self._node = np.repeat(np.arange(len(named)), per_node)[:ranks]
        self._place = np.arange(ranks) - first[self._node]
        self.not_modelled: tuple[str, ...] = ()
        self._inside(cluster.groups)
        self._ports = self._outside(named)
        self._between = _fabric(fabric, self._links, self._ports, self.routing, seed)
        self._latency_s = np.concatenate(self._links.latency)
        self.capacity_bytes_per_s = np.concatenate(self._links.capacity)

    def name(self, link: int) -> str:
        """Return a link as "A>B"."""
        return self._links.name(link)

    @property
    def ranks_per_domain(self) -> int | None:
        """Ranks that meet on links of their own: of a node, or of a rack; None where these hold unlike numbers."""
        return _held_alike(self.domain_of)

    @property
    def ranks_per_node(self) -> int | None:
        """What algorithms take for a node: a domain, or a node where racks are not full; None of unlike numbers."""
        return self.ranks_per_domain or _held_alike(self._node)

    @property
    def links_join_pairs(self) -> bool:
        """Whether GPUs of all nodes have links to their peers, each of which carries a part of what all of them do."""
        return not (self._switched | self._shares).any()

    def ways(self, src: Ints, dst: Ints, capacity: Floats) -> Routes:
        """Return the way of each message."""
        table = np.full((len(src), 3), NOWHERE, dtype=np.int64)
        inside = self.domain_of[src] == self.domain_of[dst]
        switched = inside & self._switched[src]
        table[switched, 0] = self._out + src[switched]
        table[switched, 1] = self._in + dst[switched]
        meshed = np.flatnonzero(inside & ~self._switched[src])
        pair = self._pair_of(src[meshed], dst[meshed])
        table[meshed, 0] = pair
        shared = meshed[(pair != NOWHERE) & self._shares[src[meshed]]]
        table[shared, 1] = self._all_out + src[shared]
        table[shared, 2] = self._all_in + dst[shared]
        apart = meshed[pair == NOWHERE]
        hosted = apart[self._hosted[src[apart]]]
        table[hosted, 0] = self._host_out + src[hosted]
        table[hosted, 1] = self._host_in + dst[hosted]
        across = np.concatenate([np.flatnonzero(~inside), apart[~self._hosted[src[apart]]]])
        if not len(across):
            return packed(table, self._latency_s)
        nic = self._nic
        if (nic[src[across]] == NOWHERE).any() or (nic[dst[across]] == NOWHERE).any():
            raise InputError("cluster: its nodes have no NIC and no link that joins all of their GPUs")
        middle = self._between.between(nic[src[across]], nic[dst[across]], capacity)
        full = np.full((len(src), 4 + middle.shape[1]), NOWHERE, dtype=np.int64)
        full[:, :3] = table
        full[across, 0] = self._host_out + src[across]
        full[across, 1] = self._nic_out + nic[src[across]]
        full[across, 2:-2] = middle
        full[across, -2] = self._nic_in + nic[dst[across]]
        full[across, -1] = self._host_in + dst[across]
        return packed(full, self._latency_s)

    def _gpu(self, rank: int) -> str:
        return f"node{self._node[rank]}/GPU{self._place[rank]}"

    def _inside(self, groups: tuple[NodeGroup, ...]) -> None:
        """Add the links of the GPUs: one each way to the switch of their domain, or one to each peer."""
        of_node = np.repeat(np.arange(len(groups)), [group.count for group in groups])
        first_node = np.concatenate([[0], np.cumsum([group.count for group in groups])])
        group = of_node[self._node]
        values = np.array([g.gpu_bandwidth_bytes_per_s for g in groups])[group]
        self._switched = np.array([g.switched for g in groups])[group]
        span = ints([g.scale_up_nodes if g.switched else 1 for g in groups])[group]
        self.domain_of = first_node[group] + (self._node - first_node[group]) // span * span
        self._missing([g for g in groups if g.gpus > 1 and g.gpu_latency_s is None], "latency of the GPUs' links")
        latency = next((g.gpu_latency_s for g in groups if g.gpu_latency_s is not None), None)
        half = None if latency is None else latency / 2  # a way between two GPUs has two such links
        self._out = self._links.add(values, half, lambda i: f"{self._gpu(i)}>node{self.domain_of[i]}/NVSwitch")
        self._in = self._links.add(values, half, lambda i: f"node{self.domain_of[i]}/NVSwitch>{self._gpu(i)}")
        self._hosted = np.array([g.meets_through_host for g in groups])[group]
        host = np.array([g.nic_path_bytes_per_s or np.inf for g in groups])[group]
        self._host_out = self._links.add(host, None, lambda i: f"{self._gpu(i)}>host")
        self._host_in = self._links.add(host, None, lambda i: f"host>{self._gpu(i)}")
        self._shares = np.array([g.shares_links for g in groups])[group]
        every = values if self._shares.any() else values[:0]
        self._all_out = self._links.add(every, None, lambda i: f"{self._gpu(i)}>peers")
        self._all_in = self._links.add(every, None, lambda i: f"peers>{self._gpu(i)}")
        self._peers(groups, group, latency)

    def _peers(self, groups: tuple[NodeGroup, ...], group: Ints, latency_s: float | None) -> None:
        """Add the links between peers where there is no switch: of rank r, `gpus` links, the j-th to place j."""
        width = ints([0 if g.switched else g.gpus for g in groups])[group]
        self._row = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
        rates: list[Floats] = []
        for g, count in zip(groups, np.bincount(group, minlength=len(groups)), strict=True):
            if g.switched or not count:
                continue
            matrix = np.full((g.gpus, g.gpus), np.nan if g.mesh else g.peer_bandwidth_bytes_per_s)
            for a, b, rate in g.mesh:
                matrix[a, b] = matrix[b, a] = rate
            rates.append(np.tile(matrix.ravel(), -(-count // g.gpus))[: count * g.gpus])
        capacity = np.concatenate(rates) if rates else np.zeros(0)
        self._joined = ~np.isnan(capacity)

        def name(i: int) -> str:
            rank = int(np.searchsorted(self._row, i, side="right")) - 1
            return f"{self._gpu(rank)}>node{self._node[rank]}/GPU{i - self._row[rank]}"

        self._peer = self._links.add(np.nan_to_num(capacity), latency_s, name)

    def _pair_of(self, src: Ints, dst: Ints) -> Ints:
        """Return the link between two GPUs of an unswitched node, NOWHERE where they have none."""
        pair = self._row[src] + self._place[dst]
        return np.where(self._joined[pair], self._peer + pair, NOWHERE) if len(src) else pair

    def _outside(self, named: list[tuple[str, NodeGroup]]) -> Ports:
        """Add the NICs, one port for all NICs of a GPU, and return where they sit."""
        counts = ints([group.nic_ports for _, group in named])
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        node = np.repeat(np.arange(len(named)), counts)
        rate = np.repeat([group.port_bandwidth_bytes_per_s for _, group in named], counts)
        if len(np.unique(self.domain_of)) > 1:
            self._missing([g for _, g in named if g.nic_latency_s is None][:1], "latency of the NICs")
        latency = next((g.nic_latency_s for _, g in named if g.nic_latency_s is not None), None)
        half = None if latency is None else latency / 2

        def name(i: int) -> str:
            return f"node{node[i]}/{named[node[i]][1].port_name(i - int(first[node[i]]))}"

        self._nic_out = self._links.add(rate, half, lambda i: f"{name(i)}>fabric")
        self._nic_in = self._links.add(rate, half, lambda i: f"fabric>{name(i)}")
        gpus = ints([group.gpus for _, group in named])
        mine = first[self._node] + self._place * counts[self._node] // gpus[self._node]
        self._nic = np.where(counts[self._node] > 0, mine, NOWHERE)
        return Ports(node=node, place=np.arange(len(node)) - first[node], rate_bytes_per_s=rate, nodes=len(named))

    def _missing(self, groups: list[NodeGroup], what: str) -> None:
        if groups:
            self.not_modelled += (f"{what} (no figure; taken as 0, --alpha gives one)",)


def _held_alike(places: Ints) -> int | None:
    """Return how many ranks each place holds; None where they are unlike numbers."""
    held = np.unique(np.unique(places, return_counts=True)[1])
    return int(held[0]) if len(held) == 1 else None


def _fabric(fabric: Fabric, links: LinkBlocks, ports: Ports, routing: str, seed: int) -> SwitchFabric:
    make: dict[str, Callable[[], SwitchFabric]] = {
        "flat": lambda: FatTree(fabric, links, ports, "one switch", seed),
        "fat-tree": lambda: FatTree(fabric, links, ports, routing, seed),
        "rail-optimised": lambda: FatTree(fabric, links, ports, routing, seed),
        "dragonfly": lambda: Dragonfly(fabric, links, ports, valiant=routing == "valiant", seed=seed),
        "torus": lambda: Torus(fabric, links, ports),
    }
    return make[fabric.kind]()
