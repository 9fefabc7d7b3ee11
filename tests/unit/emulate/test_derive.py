import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.emulation import EmulationSpec
from meshwright.cluster.emulation.derive import derived, measure_carry
from meshwright.cluster.emulation.spec import cluster_of
from meshwright.cluster.expand import expanded
from meshwright.cluster.graph import Cluster, Device, Link
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CARRY = 3.6e9


def dgx_a100(nodes, *, leaf=None, uplink=None):
    """DGX A100 nodes: 8 GPUs with 300 GB/s into a switch, 8 NICs of 25 GB/s, on one switch or on leaves of `leaf`."""
    devices, links = [], []
    for node in (f"node{n}" for n in range(nodes)):
        devices.append(Device(id=f"{node}/NVSwitch", kind="switch", node=node))
        switch = "switch" if leaf is None else f"leaf{int(node[4:]) // leaf}"
        for i in range(8):
            devices += [Device(id=f"{node}/{k}{i}", kind=k.lower(), node=node) for k in ("GPU", "NIC")]
            links += [
                Link(a=f"{node}/GPU{i}", b=f"{node}/NVSwitch", kind="NV12", bandwidth_bytes_per_s=300e9),
                Link(a=f"{node}/GPU{i}", b=f"{node}/NIC{i}", kind="PIX", bandwidth_bytes_per_s=31e9),
                Link(a=f"{node}/NIC{i}", b=switch, kind="ib", bandwidth_bytes_per_s=25e9),
            ]
    switches = dict.fromkeys(link.b for link in links if link.kind == "ib")
    if leaf is not None:
        links += [Link(a=name, b="spine", kind="uplink", bandwidth_bytes_per_s=uplink) for name in switches]
        switches["spine"] = None
    devices += [Device(id=name, kind="switch") for name in switches]
    return Cluster(name="dgx", devices=tuple(devices), links=tuple(links))


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_dgx_a100_keeps_its_twelve_to_one(nodes):
    found = derived(dgx_a100(nodes), carry_bytes_per_s=CARRY)

    assert (found.nodes, found.ranks_per_node, found.topology) == (nodes, 8, "star")
    assert found.intra_bytes_per_s == pytest.approx(CARRY / nodes)
    assert found.intra_bytes_per_s / found.nic_bytes_per_s == pytest.approx(300 / 25)


def test_a_fat_tree_keeps_its_leaves_and_its_oversubscription():
    found = derived(dgx_a100(4, leaf=2, uplink=2 * 8 * 25e9 / 4), carry_bytes_per_s=CARRY)

    assert (found.topology, found.nodes_per_leaf, found.oversubscription) == ("fat-tree", 2, 4.0)


@pytest.mark.parametrize(("node_type", "ratio"), [("dgx-a100-80g", 300 / 25), ("dgx-h100", 450 / 50)])
def test_clusters_of_the_catalogue_keep_the_ratio_of_their_links(node_type, ratio):
    flat = catalogue_cluster(load_catalogue(), node_type, nodes=2)
    tree = catalogue_cluster(
        load_catalogue(), node_type, nodes=4, fabric="fat-tree", nodes_per_leaf=2, oversubscription=2
    )

    for cluster in (flat, tree):
        found = derived(expanded(cluster), carry_bytes_per_s=CARRY)
        assert found.intra_bytes_per_s / found.nic_bytes_per_s == pytest.approx(ratio)
    assert (found.topology, found.nodes_per_leaf, found.oversubscription) == ("fat-tree", 2, 2.0)


def test_fewer_nodes_and_ranks_can_be_taken():
    found = derived(dgx_a100(4), carry_bytes_per_s=CARRY, nodes=2, ranks=1)

    assert (found.nodes, found.ranks_per_node) == (2, 1)


@pytest.mark.parametrize("topology", ["star", "fat-tree"])
def test_the_cluster_of_an_emulation_derives_the_same_emulation(topology):
    over = 2.0 if topology == "fat-tree" else 1.0
    first = EmulationSpec(nodes=4, nic_bytes_per_s=1e8, intra_bytes_per_s=1e9, topology=topology, oversubscription=over)

    again = derived(cluster_of(first, cores=2, memory_bytes=1), carry_bytes_per_s=1e12)

    assert again == first


def test_a_mesh_of_accelerators_counts_both_ends_of_each_cable():
    gpus = [Device(id=f"n/GPU{i}", kind="gpu", node="n") for i in range(3)]
    links = [
        Link(a=f"n/GPU{a}", b=f"n/GPU{b}", kind="xGMI", bandwidth_bytes_per_s=1e6) for a, b in ((0, 1), (0, 2), (1, 2))
    ]

    found = derived(Cluster(name="mesh", devices=tuple(gpus), links=tuple(links)), carry_bytes_per_s=1e9)

    assert found.intra_bytes_per_s == 6e6  # three accelerators that send 2 MB/s each


def test_what_cannot_be_emulated_is_refused():
    torus = (*dgx_a100(2).links, Link(a="switch", b="node0/NIC0", kind="ib", bandwidth_bytes_per_s=1.0))
    unlike = Cluster(name="unlike", devices=dgx_a100(2).devices, links=torus)
    cases = [
        (Cluster(name="empty"), None, "no devices"),
        (dgx_a100(2), 3, "--nodes 3"),
        (unlike, None, "differ"),
        (dgx_a100(4, leaf=2, uplink=None), None, "neither a star nor a fat-tree"),
        (Cluster(name="x", devices=dgx_a100(1).devices, links=dgx_a100(2).links), None, "no such device"),
    ]
    for cluster, nodes, expected in cases:
        with pytest.raises(InputError, match=expected):
            derived(cluster, carry_bytes_per_s=CARRY, nodes=nodes)


def test_the_machine_moves_something():
    assert measure_carry() > 1e7
