"""The drawing of a machine: who stands together, what is in colour, and that no box covers another."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from meshwright.cluster.drawing.arrangement import arranged_hosts, sick
from meshwright.cluster.drawing.svg import cluster_svg
from meshwright.cluster.graph import Cluster, Device, Link, Placement

BOX = re.compile(
    r'<g><title>(\S+) .*?</title><rect x="(-?\d+)" y="(-?\d+)" width="(\d+)" height="(\d+)" \S+ class="([^"]+)"'
)


def device(name, kind, numa=None, **facts):
    return Device(id=name, kind=kind, node="host", numa=numa, **facts)


def node(gpus=4, *, kind="NV18", nics=True):
    """Two NUMA nodes, a NIC beside each GPU behind one PCIe switch, every pair of GPUs joined."""
    half = gpus // 2
    devices = [device(f"GPU{i}", "gpu", i // half) for i in range(gpus)]
    devices += [device(f"NIC{i}", "nic", i // half) for i in range(gpus if nics else 0)]
    devices += [device(f"CPU{i}", "cpu", i) for i in range(2)]
    links = [Link(a=f"GPU{a}", b=f"GPU{b}", kind=kind, bandwidth_bytes_per_s=450e9)
             for a, b in itertools.combinations(range(gpus), 2)]  # fmt: skip
    links += [
        Link(a=f"GPU{i}", b=f"NIC{i}", kind="PIX", bandwidth_bytes_per_s=63e9) for i in range(gpus if nics else 0)
    ]
    links += [Link(a=f"GPU{i}", b=f"CPU{i // half}", kind="PCIe", bandwidth_bytes_per_s=63e9) for i in range(gpus)]
    links.append(Link(a="CPU0", b="CPU1", kind="SYS", bandwidth_bytes_per_s=None))
    return Cluster(name="box", devices=tuple(devices), links=tuple(links))


def boxes(picture):
    return {m[1]: (*map(int, m.groups()[1:5]), m[6]) for m in BOX.finditer(picture)}


def without(cluster, *pairs):
    """Return the cluster without the links of these pairs."""
    gone = [set(pair) for pair in pairs]
    links = tuple(link for link in cluster.links if {link.a, link.b} not in gone)
    return Cluster(name=cluster.name, devices=cluster.devices, links=links)


def test_a_gpu_stands_above_the_nic_of_its_pcie_switch_in_the_frame_of_its_numa_node():
    (machine,), _ = arranged_hosts(node(), 400)

    assert [[tuple(d.id for d in (*g.gpus, *g.nics)) for g in numa.groups] for numa in machine.numas] == [
        [("GPU0", "NIC0"), ("GPU1", "NIC1")],
        [("GPU2", "NIC2"), ("GPU3", "NIC3")],
    ]
    drawn = boxes(cluster_svg(node()))
    assert all(
        drawn[f"GPU{i}"][0] == drawn[f"NIC{i}"][0] and drawn[f"GPU{i}"][1] < drawn[f"NIC{i}"][1] for i in range(4)
    )
    assert drawn["CPU0"][1] == drawn["CPU1"][1]


def test_a_name_that_is_too_long_is_cut_and_never_a_figure():
    gpus = (device("GPU0", "gpu", 0, model="a100-40g", memory_bytes=40 * 2**30),
            device("GPU1", "gpu", 0, model="rtx-pro-6000-blackwell-server", memory_bytes=96 * 2**30))  # fmt: skip
    drawn = cluster_svg(Cluster(name="box", devices=gpus, links=()))

    assert ">a100-40g, 40 GiB<" in drawn
    assert re.search(r">rtx-pro\S*…, 96 GiB<", drawn)


@pytest.mark.parametrize("gpus", [2, 4, 8, 16])
@pytest.mark.parametrize("nics", [True, False])
def test_no_box_covers_another(gpus, nics):
    drawn = boxes(cluster_svg(node(gpus, nics=nics)))

    assert len(drawn) == gpus * (2 if nics else 1) + 2
    for (ax, ay, aw, ah, _), (bx, by, bw, bh, _) in itertools.combinations(drawn.values(), 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_a_switch_is_one_box_with_a_line_to_each_gpu_and_nothing_sound_is_coloured():
    picture = cluster_svg(node(8))

    assert picture.count('class="switch"') == 1
    assert "NVSwitch: NV18, 450 GB/s" in picture
    assert picture.count('class="own"') == 8
    assert 'class="slow"' not in picture
    assert "sick" not in picture.replace(".sick{", "")


def test_a_gpu_with_fewer_links_than_its_peers_is_red_and_says_so():
    whole = node(8)
    links = tuple(
        Link(a=k.a, b=k.b, kind="NV16", bandwidth_bytes_per_s=400e9) if "GPU3" in (k.a, k.b) and k.kind == "NV18" else k
        for k in whole.links
    )
    picture = cluster_svg(Cluster(name="box", devices=whole.devices, links=links))

    assert "16 of 18 links" in picture
    assert [name for name, (*_, kind) in boxes(picture).items() if "sick" in kind] == ["GPU3"]
    assert picture.count('class="sick"') == 1


def test_a_gpu_that_no_link_joins_to_the_others_is_red():
    cluster = without(node(4), *[("GPU2", f"GPU{i}") for i in (0, 1, 3)])

    assert sick(arranged_hosts(cluster, 400)[0][0]) == {"GPU2": "no link to any peer"}


def test_a_mesh_of_another_shape_is_drawn_pair_by_pair_and_is_not_sick():
    square = without(node(4, kind="NV2"), ("GPU0", "GPU2"), ("GPU1", "GPU3"))
    picture = cluster_svg(square)

    assert picture.count("<path ") == 4
    assert sick(arranged_hosts(square, 400)[0][0]) == {}


def test_of_more_devices_than_are_drawn_whole_hosts_are_left_out_and_counted():
    devices = tuple(Device(id=f"n{h}/GPU{i}", kind="gpu", node=f"n{h}") for h in range(60) for i in range(8))
    shown, left_out = arranged_hosts(Cluster(name="big", devices=devices), 400)

    assert (len(shown), left_out) == (50, 80)
    assert "80 more devices are not drawn" in cluster_svg(Cluster(name="big", devices=devices))


def test_nodes_under_switches_are_drawn_where_no_devices_are_known():
    places = (
        Placement("a<1>", ("leaf0", "spine"), "rack1"),
        *(Placement(f"n{i}", ("leaf1", "spine")) for i in range(5)),
    )
    text = cluster_svg(Cluster(name="fabric", placements=places))

    assert ElementTree.fromstring(text) is not None
    assert "spine &gt; leaf0" in text
    assert "a&lt;1&gt;, block rack1" in text
    assert text.count('class="frame"') == 2
    assert text.count('class="cpu"') == 6


def test_a_picture_says_how_many_nodes_it_leaves_out():
    places = tuple(Placement(f"n{i}", ("leaf0",)) for i in range(500))

    assert "(100 more nodes are not drawn)" in cluster_svg(Cluster(name="fabric", placements=places))
