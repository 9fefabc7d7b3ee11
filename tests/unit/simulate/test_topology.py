"""Ways through fabrics: whole, as short as the graph of the cluster allows, and chosen as the routing says."""

import itertools
from collections import Counter

import numpy as np
import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.expand import expanded
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.pricing.network import network_of
from meshwright.collectives.pricing.price import price_schedule
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.cards import with_cards
from meshwright.simulate.nodes import ROUTINGS, NodesTopology
from meshwright.simulate.topology import TopologyNetwork

from .networks import nodes

FABRICS = {
    "flat": {},
    "fat-tree": {"nodes_per_leaf": 3, "oversubscription": 2.0},
    "rail-optimised": {"nodes_per_leaf": 4, "oversubscription": 2.0},
    "dragonfly": {"nodes_per_leaf": 2, "leaves_per_group": 2, "oversubscription": 2.0},
    "torus": {"sides": (3, 4)},
}


def names_of_ways(topology, src, dst):
    """Return the names of the links of each way."""
    src, dst = np.array(src), np.array(dst)
    links = topology.ways(src, dst, topology.capacity_bytes_per_s).links
    return [
        [topology.name(link) for link in links.items[links.start[i] : links.start[i + 1]].tolist()]
        for i in range(len(src))
    ]


def all_pairs(ranks):
    src, dst = np.divmod(np.arange(ranks * ranks), ranks)
    return src[src != dst], dst[src != dst]


@pytest.mark.parametrize(("fabric", "routing"), [(f, r) for f, routings in ROUTINGS.items() for r in routings])
def test_every_way_is_whole(fabric, routing):
    topology = NodesTopology(nodes(12, gpus=2, nics=2, kind=fabric, **FABRICS[fabric]), 24, routing=routing)

    src, dst = all_pairs(24)
    for a, b, way in zip(src, dst, names_of_ways(topology, src, dst), strict=True):
        ends = [link.split(">") for link in way]
        assert ends[0][0] == f"node{a // 2}/GPU{a % 2}"
        assert ends[-1][1] == f"node{b // 2}/GPU{b % 2}"
        switches = [end for end in ends if "fabric" not in end and "host" not in end]
        for left, right in itertools.pairwise(switches):
            assert left[1] == right[0] or "node" in left[0] + right[1], way


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_cards_on_one_pcie_link_each_share_it_between_their_peers(gpus):
    catalogue = with_cards(load_catalogue(), f"{gpus}xL40S")
    topology = NodesTopology(catalogue_cluster(catalogue, f"{gpus}xL40S"), gpus)
    size, pcie = 2**30, 31e9
    every = [build_schedule("all_reduce", name, gpus) for name in algorithm_names("all_reduce")]

    fastest_s = min(price_schedule(schedule, TopologyNetwork(topology, 0.0), size).time_s for schedule in every)

    assert fastest_s == pytest.approx(2 * (gpus - 1) / gpus * size / pcie, rel=0.02)


def test_cards_whose_links_join_pairs_use_all_of_them_at_once():
    topology = NodesTopology(catalogue_cluster(load_catalogue(), "mi300x-8"), 8)
    size, links = 2**30, 448e9

    whole = price_schedule(build_schedule("all_reduce", "partitioned", 8), TopologyNetwork(topology, 0.0), size)

    assert whole.time_s == pytest.approx(2 * 7 / 8 * size / links, rel=0.01)


@pytest.mark.parametrize("fabric", FABRICS)
def test_rates_of_ideal_ways_are_those_of_the_graph(fabric):
    cluster = nodes(12, gpus=2, nics=2, kind=fabric, **FABRICS[fabric])
    topology = NodesTopology(cluster, 24)
    network = network_of(expanded(cluster), 24, latency_s=0.0)
    capacity = topology.capacity_bytes_per_s

    src, dst = all_pairs(24)
    links = topology.ways(src, dst, capacity).links
    as_short = 0
    for i, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        mine = sorted(capacity[links.items[links.start[i] : links.start[i + 1]]])
        theirs = sorted(network.capacities[r] for r in network.route(a, b).resources)
        assert len(mine) >= len(theirs)
        if len(mine) == len(theirs):
            as_short += 1
            assert mine == pytest.approx(theirs)
    assert as_short > 0.8 * len(src)  # in a dragonfly, the graph has short cuts through third groups


def test_a_torus_is_crossed_dimension_by_dimension_the_shorter_way_round():
    topology = NodesTopology(nodes(35, kind="torus", sides=(5, 7)), 35)

    (way,) = names_of_ways(topology, [0], [4 * 7 + 5])

    assert way[2:-2] == [
        "node0/router>node28/router", "node28/router>node34/router", "node34/router>node33/router",
    ]  # fmt: skip


def test_both_ways_round_a_torus_of_even_sides_carry_as_much():
    topology = NodesTopology(nodes(16, kind="torus", sides=(4, 4)), 16)

    carried = Counter(link for way in names_of_ways(topology, *all_pairs(16)) for link in way[2:-2])

    assert len(carried) == 64
    assert set(carried.values()) == {8}


def test_nics_that_serve_one_gpu_carry_its_messages_together():
    topology = NodesTopology(nodes(2, gpus=2, nics=8), 4)

    (way,) = names_of_ways(topology, [1], [2])
    links = topology.ways(np.array([1]), np.array([2]), topology.capacity_bytes_per_s).links.items

    assert way[1:-1] == ["node0/NIC4-7>fabric", "fabric>node1/NIC0-3"]
    assert topology.capacity_bytes_per_s[links].min() == 4 * 12.5e9


def test_a_dragonfly_goes_through_a_third_group_only_under_valiant():
    cluster = nodes(24, kind="dragonfly", nodes_per_leaf=2, leaves_per_group=3)
    between = {
        routing: names_of_ways(NodesTopology(cluster, 24, routing=routing), [0] * 12, range(6, 18))
        for routing in ("minimal", "valiant")
    }

    def groups(way):
        return list(dict.fromkeys(end.split("/")[0] for link in way for end in link.split(">") if "group" in end))

    assert {len(groups(way)) for way in between["minimal"]} == {2}
    assert {len(groups(way)) for way in between["valiant"]} == {3}


def test_ecmp_takes_the_same_way_for_the_same_pair_and_spreads_pairs():
    tree = nodes(16, gpus=8, nics=8, kind="fat-tree", nodes_per_leaf=4)
    topology = NodesTopology(tree, 128, routing="ecmp")

    ways = names_of_ways(topology, [0] * 96, range(32, 128))
    again = names_of_ways(topology, [0] * 96, range(32, 128))

    assert ways == again
    assert len({way[2] for way in ways}) > 15  # of 32 uplinks of the leaf


def test_adaptive_routing_loads_no_uplink_twice_while_another_is_free():
    tree = nodes(8, gpus=4, nics=4, kind="fat-tree", nodes_per_leaf=4)
    topology = NodesTopology(tree, 32, routing="adaptive")

    ways = names_of_ways(topology, range(16), range(16, 32))

    assert len({way[2] for way in ways}) == 16
    assert len({way[3] for way in ways}) == 16


def test_three_levels_climb_only_as_far_as_they_must():
    tree = nodes(16, kind="fat-tree", nodes_per_leaf=2, leaves_per_group=2)
    topology = NodesTopology(tree, 16, routing="ecmp")

    lengths = [len(way) - 4 for way in names_of_ways(topology, [0, 0, 0], [1, 2, 4])]

    assert lengths == [0, 2, 4]


def test_a_mesh_joins_only_the_pairs_that_it_has():
    topology = NodesTopology(catalogue_cluster(load_catalogue(), "dgx-1-v100", nodes=2), 16)

    near, far = names_of_ways(topology, [0, 0], [1, 5])

    assert near == ["node0/GPU0>node0/GPU1"]
    assert far == ["node0/GPU0>host", "host>node0/GPU5"]


def test_a_ring_through_nodes_of_an_open_mesh_is_as_slow_as_their_nics_and_no_slower():
    topology = NodesTopology(catalogue_cluster(load_catalogue(), "dgx-1-v100", nodes=2), 16)
    ring = np.arange(16)
    ways = names_of_ways(topology, ring, np.roll(ring, -1))

    through_nics = [i for i, way in enumerate(ways) if any("NIC" in link for link in way)]

    assert through_nics == [7, 15]  # from the last GPU of each node to the first of the other


def test_chips_whose_links_are_their_network_meet_over_it():
    assert not catalogue_cluster(load_catalogue(), "tpu-v4", gpus=8).groups[0].meets_through_host


def test_an_nvl72_domain_spans_nodes():
    topology = NodesTopology(catalogue_cluster(load_catalogue(), "gb200-nvl72", gpus=144), 144)

    same, other = names_of_ways(topology, [0, 0], [71, 72])

    assert same == ["node0/GPU0>node0/NVSwitch", "node0/NVSwitch>node17/GPU3"]
    assert "NIC" in other[1]


def test_a_routing_that_the_fabric_has_not_is_refused():
    with pytest.raises(InputError, match="expected ideal or ecmp or adaptive"):
        NodesTopology(nodes(4, kind="fat-tree"), 4, routing="valiant")


def test_more_ranks_than_devices_are_refused():
    with pytest.raises(InputError, match="has 4 devices"):
        NodesTopology(nodes(4), 5)
