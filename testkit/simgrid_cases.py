"""Platforms and traffic that our simulator and SimGrid both run; as a module, print them as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from meshwright.cluster.graph import Cluster, Device, Fabric, NodeGroup
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.pricing.network import HostsNetwork, LinkRate, uniform
from meshwright.simulate.nodes import NodesTopology
from meshwright.simulate.problem import Disturbance
from meshwright.simulate.topology import PricedNetwork, Topology
from meshwright.simulate.traffic import Pattern, Traffic, traffic_of

MIB = 2**20
Case = tuple[Topology, Traffic, int, Disturbance]


def nodes(count: int, gpus: int = 1, nics: int = 1, **fabric: Any) -> Cluster:
    group = NodeGroup(
        type="", count=count, gpus=gpus, gpu=Device(id="GPU", kind="gpu"), gpu_link="NV", switched=True,
        gpu_bandwidth_bytes_per_s=100e9, peer_bandwidth_bytes_per_s=100e9, gpu_latency_s=2e-6, nics=nics,
        nic_kind="ib", nic_bandwidth_bytes_per_s=12.5e9, nic_latency_s=3e-6,
    )  # fmt: skip
    return Cluster(name="case", groups=(group,), fabric=Fabric(hop_latency_s=5e-7, **fabric))


def random_messages(ranks: int, count: int, seed: int) -> Traffic:
    """Messages between random ranks, all at once, of sizes that differ."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, ranks, count)
    dst = (src + rng.integers(1, ranks, count)) % ranks
    pattern = Pattern(src=src, dst=dst, share=rng.uniform(0.1, 1.0, count), reduces=np.zeros(count, dtype=bool))
    return Traffic("send", "random", ranks, (pattern, pattern), np.array([0, 1]))


def collective(name: str, ranks: int, kind: str = "all_reduce") -> Traffic:
    return traffic_of(build_schedule(kind, name, ranks))


def cases() -> dict[str, Case]:
    """Return topology, traffic, payload and disturbance of each case."""
    plain, slow = Disturbance(), Disturbance(slow_share=0.1, slow_to=0.3, seed=3)
    tree = nodes(16, kind="fat-tree", nodes_per_leaf=4, oversubscription=2.0)
    deep = nodes(24, kind="fat-tree", nodes_per_leaf=3, leaves_per_group=2, oversubscription=1.5)
    dragonfly = nodes(24, kind="dragonfly", nodes_per_leaf=2, leaves_per_group=3, oversubscription=2.0)
    rails = nodes(4, gpus=4, nics=4, kind="rail-optimised", nodes_per_leaf=2, oversubscription=2.0)
    torus = nodes(27, kind="torus", sides=(3, 3, 3))
    hosts = HostsNetwork(12, 4, LinkRate(1e-6, 20e9), LinkRate(5e-6, 5e9), nics=2, shared_bytes_per_s=50e9)
    made: dict[str, Callable[[], Case]] = {
        "star, incast": lambda: (PricedNetwork(uniform(8, 1e-5, 1e9)), collective("parameter_server", 8), MIB, plain),
        "star, random": lambda: (PricedNetwork(uniform(12, 1e-5, 1e9)), random_messages(12, 80, 1), MIB, plain),
        "star, one shot": lambda: (PricedNetwork(uniform(8, 1e-5, 1e9)), collective("one_shot", 8), MIB, slow),
        "hosts, tree": lambda: (PricedNetwork(hosts), collective("tree", 12), 8 * MIB, plain),
        "hosts, random": lambda: (PricedNetwork(hosts), random_messages(12, 60, 2), MIB, plain),
        "fat-tree ideal, all-to-all": lambda: (
            NodesTopology(tree, 16), collective("linear", 16, "all_to_all"), 16 * MIB, plain,
        ),
        "fat-tree ecmp, random": lambda: (
            NodesTopology(tree, 16, routing="ecmp"), random_messages(16, 120, 3), MIB, plain,
        ),
        "fat-tree adaptive, halving-doubling": lambda: (
            NodesTopology(tree, 16, routing="adaptive"), collective("halving_doubling", 16), 16 * MIB, slow,
        ),
        "fat-tree of 3 levels ecmp, random": lambda: (
            NodesTopology(deep, 24, routing="ecmp"), random_messages(24, 150, 4), MIB, slow,
        ),
        "rails, ring with slow links": lambda: (NodesTopology(rails, 16), collective("ring", 16), 16 * MIB, slow),
        "dragonfly minimal, random": lambda: (NodesTopology(dragonfly, 24), random_messages(24, 150, 5), MIB, plain),
        "dragonfly valiant, pairwise": lambda: (
            NodesTopology(dragonfly, 24, routing="valiant"), collective("pairwise", 24, "all_to_all"), 16 * MIB, plain,
        ),
        "torus, random": lambda: (NodesTopology(torus, 27), random_messages(27, 150, 6), MIB, plain),
        "torus, ring with slow links": lambda: (NodesTopology(torus, 27), collective("ring", 27), 16 * MIB, slow),
    }  # fmt: skip
    return {name: make() for name, make in made.items()}


def described(case: Case) -> dict[str, Any]:
    """Return a case as plain data: links, routes, and the program of each rank."""
    topology, traffic, size_bytes, disturbance = case
    capacity = disturbance.apply(topology)
    routes: dict[tuple[int, int], dict[str, Any]] = {}
    programs: list[list[dict[str, Any]]] = [[] for _ in range(traffic.ranks)]
    for number, o in enumerate(traffic.order.tolist()):
        pattern = traffic.patterns[o]
        ways = topology.ways(pattern.src, pattern.dst, capacity)
        stages: dict[int, dict[str, Any]] = {}
        for i, (src, dst) in enumerate(zip(pattern.src.tolist(), pattern.dst.tolist(), strict=True)):
            links = ways.links.items[ways.links.start[i] : ways.links.start[i + 1]].tolist()
            route = {"src": src, "dst": dst, "links": links}
            if routes.setdefault((src, dst), route) != route:
                raise ValueError(f"two ways from {src} to {dst}")
            for rank in (src, dst):
                stages.setdefault(rank, {"sends": [], "receives": []})
            tag = f"{number} {src} {dst} {i}"
            stages[src]["sends"].append([tag, size_bytes * float(pattern.share[i]), float(ways.latency_s[i])])
            stages[dst]["receives"].append(tag)
        for rank, stage in stages.items():
            programs[rank].append(stage)
    finite = np.where(np.isfinite(capacity), capacity, 1e30)
    return {
        "ranks": traffic.ranks, "links": finite.tolist(), "routes": list(routes.values()), "programs": programs,
    }  # fmt: skip


if __name__ == "__main__":
    json.dump({name: described(case) for name, case in cases().items()}, sys.stdout)
