import itertools
import json
import random

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.builders import bisection_bytes_per_s, catalogue_cluster
from meshwright.cluster.cuts import balanced_cut
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.cluster.expand import expanded
from meshwright.cluster.graph import Cluster
from meshwright.cluster.proximity import hops, nearest_nodes, nearest_order, placement_advice
from meshwright.errors import InputError
from meshwright.files import convert, to_json
from meshwright.hardware import load_catalogue
from testkit.topology_dumps import layouts, references

CATALOGUE = load_catalogue()
SLURM = """SwitchName=leaf0 Nodes=a[0-1]
SwitchName=leaf1 Nodes=a[2-3]
SwitchName=leaf2 Nodes=b[0-1]
SwitchName=spine0 Switches=leaf[0-1]
SwitchName=spine1 Switches=leaf2
SwitchName=core Switches=spine[0-1]
"""


def cut_between(cluster: Cluster, first_half: set[str]) -> float:
    """The maximum flow from the NICs of one half of the nodes to those of the other (an independent oracle)."""
    import networkx

    graph = networkx.DiGraph()
    for link in cluster.links:
        if "GPU" not in link.a and "GPU" not in link.b:
            for a, b in ((link.a, link.b), (link.b, link.a)):
                before = graph.get_edge_data(a, b, {"capacity": 0.0})["capacity"]
                graph.add_edge(a, b, capacity=before + link.bandwidth_bytes_per_s)
    for device in cluster.of_kind("nic"):
        inside = device.node in first_half
        graph.add_edge(*(("source", device.id) if inside else (device.id, "sink")))  # no capacity: unbounded
    return networkx.maximum_flow_value(graph, "source", "sink")


@pytest.mark.parametrize("fabric", ["flat", "fat-tree", "rail-optimised"])
@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_bisection_of_a_fabric_is_what_a_maximum_flow_through_its_graph_carries(fabric, oversubscription):
    changes = {} if fabric == "flat" else {"nodes_per_leaf": 4, "oversubscription": oversubscription}
    cluster = catalogue_cluster(CATALOGUE, "dgx-h100", nodes=8, fabric=fabric, **changes)
    flow = cut_between(expanded(cluster), {f"node{i}" for i in range(4)})

    assert bisection_bytes_per_s(cluster) == pytest.approx(flow)
    assert flow == pytest.approx(4 * 400e9 / (1 if fabric == "flat" else oversubscription))


def test_a_torus_bisects_at_its_longest_side():
    cluster = catalogue_cluster(CATALOGUE, "gaudi2-8", nodes=32, fabric="torus")
    first = {f"node{i}" for i in range(16)}

    assert cluster.fabric.sides == (4, 4, 2)
    assert bisection_bytes_per_s(cluster) == pytest.approx(cut_between(expanded(cluster), first))


def test_a_dragonfly_joins_every_pair_of_nodes():
    cluster = expanded(
        catalogue_cluster(CATALOGUE, "mi250x-8", nodes=12, fabric="dragonfly", nodes_per_leaf=2, leaves_per_group=2)
    )

    groups = {d.id.split("/")[0] for d in cluster.of_kind("switch")}
    assert groups == {"group0", "group1", "group2"}
    assert cut_between(cluster, {"node0"}) == pytest.approx(8 * 25e9)


def test_sixteen_thousand_gpus_stay_compact_and_a_hundred_thousand_too():
    cluster = catalogue_cluster(CATALOGUE, "dgx-h100", gpus=16_384, fabric="superpod")
    larger = catalogue_cluster(CATALOGUE, "dgx-h100", nodes=12_500)

    assert (cluster.num_nodes, cluster.num_gpus) == (2048, 16_384)
    assert larger.num_gpus == 100_000
    assert len(to_json(larger)) < 4000
    assert convert(json.loads(to_json(larger)), Cluster, where="x") == larger


def test_a_graph_of_a_hundred_thousand_devices_has_every_one_of_them():
    cluster = expanded(catalogue_cluster(CATALOGUE, "dgx-h100", nodes=6250, fabric="fat-tree"))

    assert len(cluster.of_kind("gpu")) == 50_000
    assert len(cluster.of_kind("nic")) == 50_000


def test_expanding_the_cube_mesh_gives_every_v100_six_links():
    cluster = expanded(catalogue_cluster(CATALOGUE, "dgx-1-v100"))
    rates = dict.fromkeys((d.id for d in cluster.of_kind("gpu")), 0.0)
    for link in cluster.links:
        for end in {link.a, link.b} & set(rates):
            rates[end] += link.bandwidth_bytes_per_s if link.kind in {"NV1", "NV2"} else 0

    assert set(rates.values()) == {150e9}


def test_every_nic_of_a_node_serves_a_gpu():
    for name in CATALOGUE.nodes:
        node = expanded(catalogue_cluster(CATALOGUE, name, nodes=1))
        ends = {end for link in node.links for end in (link.a, link.b)}
        devices = {d.id for d in node.of_kind("nic")} | {d.id for d in node.of_kind("gpu")}
        assert devices <= ends or len(devices) == 1  # one GPU whose network nobody documents


def test_some_gpus_of_one_node_are_a_smaller_node():
    cluster = catalogue_cluster(CATALOGUE, "dgx-1-v100", gpus=4)

    assert (cluster.num_nodes, cluster.num_gpus) == (1, 4)
    assert len(expanded(cluster).of_kind("gpu")) == 4


@pytest.mark.parametrize(
    "arguments", [{"gpus": 12}, {"nodes": 0}, {"nodes": 2, "fabric": "star"}, {"nodes": 2, "width": 3}]
)
def test_what_cannot_be_built_is_refused(arguments):
    with pytest.raises(InputError):
        catalogue_cluster(CATALOGUE, "dgx-h100", **arguments)


@pytest.mark.parametrize("seed", range(10))
def test_the_smallest_balanced_cut_is_found(seed):
    rng = random.Random(seed)
    count = rng.choice([2, 4, 5, 6, 8])
    rates = {pair: float(rng.randint(0, 9)) for pair in itertools.combinations(range(count), 2)}

    every = [
        sum(rate for (a, b), rate in rates.items() if (a in half) != (b in half))
        for half in map(set, itertools.combinations(range(count), count // 2))
    ]
    assert balanced_cut(count, rates) == min(every)


def test_a_large_cut_is_no_worse_than_the_one_in_order():
    rates = {(i, (i + 1) % 40): 1.0 for i in range(39)} | {(0, 39): 1.0}

    assert balanced_cut(40, rates) == 2.0


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("8_a100", 4 * 300),
        ("a800", 4 * 200),
        ("dgx2", 8 * 150),
        ("two_nv2", 50),
        ("dgx1_v100", 6 * 25),
        ("8_h100", None),
    ],
)
def test_bisection_between_the_gpus_of_a_dump(name, gigabytes):
    sample = next(s for s in (*references(), *layouts()) if s.name == name)
    found = analyse(parse_dump(sample.text, "d", CATALOGUE)).bisection_bytes_per_s

    assert found == (None if gigabytes is None else gigabytes * 1e9)


def test_slow_pairs_are_named_with_the_reason():
    by_name = {s.name: analyse(parse_dump(s.text, "d", CATALOGUE)) for s in (*references(), *layouts())}

    assert by_name["8_a100"].slow == ()
    assert [(g.kind, len(g.pairs)) for g in by_name["two_phb"].slow] == [("PHB", 1)]
    assert [(g.kind, len(g.pairs)) for g in by_name["dgx1_v100"].slow] == [("NV1", 8), ("SYS", 12)]
    assert "sockets" in by_name["dgx1_v100"].slow[1].why
    assert [(g.kind, len(g.pairs)) for g in by_name["pcie_switches"].slow] == [("SYS", 16)]


def test_each_gpu_gets_its_nearest_nic_and_they_share_evenly():
    by_name = {s.name: analyse(parse_dump(s.text, "d", CATALOGUE)) for s in layouts()}

    assert by_name["h100_nic_numbers"].nic_of_gpu == {f"GPU{i}": (f"NIC{i}", "PIX") for i in range(8)}
    shared = by_name["a100_nic_names"].nic_of_gpu
    assert {nic for nic, _ in shared.values()} == {f"mlx5_{i}" for i in range(4)}
    assert shared["GPU2"] == ("mlx5_1", "PIX")


def test_ranks_are_bound_where_the_dump_says():
    assert analyse(parse_dump(references()[2].text, "d", CATALOGUE)).bind["GPU5"] == "24-47"


def test_hops_follow_the_switches_of_slurm():
    cluster = parse_dump(SLURM, "s", CATALOGUE)

    assert [hops(cluster, "a0", other) for other in ("a0", "a1", "a2", "b0")] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [("flat", [0, 1, 1, 1]), ("fat-tree", [0, 1, 2, 2]), ("dragonfly", [0, 1, 2, 3]), ("torus", [0, 1, 1, 3])],
)
def test_hops_follow_the_fabric(fabric, expected):
    changes = {} if fabric in {"flat", "torus"} else {"nodes_per_leaf": 2, "leaves_per_group": 2}
    cluster = catalogue_cluster(CATALOGUE, "dgx-h100", nodes=8, fabric=fabric, **changes)

    assert [hops(cluster, "node0", f"node{i}") for i in (0, 1, 2, 7)] == expected


def test_neighbours_in_the_order_of_ranks_share_a_leaf():
    placements = list(parse_dump(SLURM, "s", CATALOGUE).placements)
    random.Random(1).shuffle(placements)

    assert nearest_order(placements) == ["a0", "a1", "a2", "a3", "b0", "b1"]


def test_spread_nodes_are_told_how_their_cloud_gives_close_ones():
    cluster = parse_dump(SLURM, "s", CATALOGUE)

    assert placement_advice(cluster, ["a0", "a1"]) is None
    assert "placement group" in placement_advice(cluster, ["a0", "b1"], "aws")
    assert "compact placement" in placement_advice(cluster, ["a0", "b1"])


def test_a_spread_cluster_says_so_in_its_analysis():
    assert any("sbatch --switches=1" in line for line in analyse(parse_dump(SLURM, "s", CATALOGUE)).advice)
    assert analyse(catalogue_cluster(CATALOGUE, "dgx-h100", nodes=64)).advice == ()


@pytest.mark.parametrize(
    ("count", "nodes"),
    [(1, ["a0"]), (2, ["a0", "a1"]), (4, ["a0", "a1", "a2", "a3"]), (6, ["a0", "a1", "a2", "a3", "b0", "b1"])],
)
def test_the_nearest_nodes_are_those_under_the_fewest_switches(count, nodes):
    placements = list(parse_dump(SLURM, "s", CATALOGUE).placements)
    random.Random(2).shuffle(placements)

    assert [place.node for place in nearest_nodes(placements, count)] == nodes


def test_a_leaf_that_holds_all_nodes_is_taken_before_an_earlier_smaller_one():
    text = """SwitchName=leaf0 Nodes=a0
SwitchName=leaf1 Nodes=a[1-3]
SwitchName=spine Switches=leaf[0-1]
"""
    chosen = nearest_nodes(parse_dump(text, "s", CATALOGUE).placements, 3)

    assert [place.node for place in chosen] == ["a1", "a2", "a3"]


def test_more_nodes_than_are_described_are_an_error():
    with pytest.raises(InputError, match="7 nodes"):
        nearest_nodes(parse_dump(SLURM, "s", CATALOGUE).placements, 7)


def test_a_node_without_a_place_is_an_error():
    with pytest.raises(InputError, match="no such node zz"):
        hops(parse_dump(SLURM, "s", CATALOGUE), "a0", "zz")


HIDDEN = """   Switch  65 "S-aa00<hidden>"    # "MF0;leaf7:MQM9700/U1" enhanced port 0 lid 1 lmc 0
   [1]     "H-bb00<hidden>"[1](bb00<hidden>)     # "ada mlx5_0" lid 22 2xNDR
   [2]     "H-bb00<hidden>"[1](bb00<hidden>)     # "bea mlx5_0" lid 27 2xNDR
   [3]     "H-bb00<hidden>"[1](bb00<hidden>)     # "cid mlx5_0" lid 29 1xNDR
   [4]     "H-cc00<hidden>"[1](cc00<hidden>)     # "dan mlx5_0" lid 31 2xNDR
"""


def test_adapters_whose_ids_a_note_hides_are_told_apart_by_their_descriptions():
    cluster = parse_dump(HIDDEN, "t", CATALOGUE)

    assert [place.node for place in cluster.placements] == ["ada", "bea", "cid", "dan"]
    assert any("leaf7 [3] - cid [1] at 1xNDR of 2xNDR" in warning for warning in cluster.warnings)


def test_an_adapter_without_a_block_is_named_by_its_switch():
    text = (
        'Switch\t24 "S-0002c902004885b0"\t\t# "leaf0" base port 0 lid 1 lmc 0\n'
        '[24]\t"H-0002c90200267924"[1]\t\t# "eve HCA-1" lid 18\n'
        '[23]\t"H-0002c90200267925"[1]\t\t# "fay HCA-1" lid 17\n'
        'Ca\t1 "H-0002c90200267925"\t\t# "fay HCA-1"\n'
        '[1](2c90200267926)\t"S-0002c902004885b0"[23]\t\t# lid 17 lmc 0 "leaf0" lid 1 4xHDR\n'
    )
    cluster = parse_dump(text, "t", CATALOGUE)

    assert [place.node for place in cluster.placements] == ["eve", "fay"]
