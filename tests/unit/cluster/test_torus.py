"""Slices of TPUs and instances of Trainium: tori, whose bisection counts the links that a cut crosses."""

import pytest

from meshwright.cluster.builders import bisection_bytes_per_s, catalogue_cluster
from meshwright.cluster.expand import expanded
from meshwright.cluster.proximity import hops
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("name", "chips", "sides", "links"),
    [
        ("tpu-v4", 4096, (16, 16, 16), 2 * 256), ("tpu-v5p", 512, (8, 8, 8), 2 * 64), ("tpu-v7", 64, (4, 4, 4), 2 * 16),
        ("tpu-v6e", 256, (16, 16), 2 * 16), ("tpu-v5e", 64, (8, 8), 2 * 8),
    ],
)  # fmt: skip
def test_a_slice_is_a_torus_whose_worst_cut_crosses_two_planes(name, chips, sides, links):
    cluster = catalogue_cluster(CATALOGUE, name, gpus=chips)
    rate = CATALOGUE.network(CATALOGUE.nodes[name].network).rate_bytes_per_s

    assert cluster.fabric is not None
    assert (cluster.fabric.kind, cluster.fabric.sides) == ("torus", sides)
    assert bisection_bytes_per_s(cluster) == pytest.approx(links * rate)


@pytest.mark.parametrize("name", ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7"])
def test_all_links_of_a_chip_are_those_of_its_interconnect(name):
    (group,) = catalogue_cluster(CATALOGUE, name, gpus=16).groups

    assert group.gpu_bandwidth_bytes_per_s == group.node_bandwidth_bytes_per_s == group.nic_path_bytes_per_s


def test_more_chips_than_a_slice_has_lie_in_slices_all_alike():
    cluster = catalogue_cluster(CATALOGUE, "tpu-v6e", gpus=512)

    assert cluster.fabric is not None
    assert (cluster.fabric.slices, cluster.fabric.sides) == (2, (16, 16))
    assert bisection_bytes_per_s(cluster) == pytest.approx(256 * 12.5e9)


def test_slices_that_are_not_alike_are_refused():
    with pytest.raises(InputError, match="up to 256, .* or a multiple of 2: 2 slices, all alike"):
        catalogue_cluster(CATALOGUE, "tpu-v6e", gpus=257)


def test_chips_beyond_a_slice_are_refused_where_nothing_is_known_to_join_slices():
    with pytest.raises(InputError, match="4096, as many as one slice joins: the network between slices"):
        catalogue_cluster(CATALOGUE, "tpu-v4", gpus=8192)


def test_slices_are_not_laid_out_link_by_link():
    cluster = catalogue_cluster(CATALOGUE, "tpu-v6e", gpus=512)

    with pytest.raises(InputError, match="2 slices, which meet over the network of their hosts"):
        expanded(cluster)
    assert hops(cluster, "node0", "node17") == 2
    with pytest.raises(InputError, match="node0 and node256 are of different slices"):
        hops(cluster, "node0", "node256")


@pytest.mark.parametrize(("name", "rate"), [("trn1.32xlarge", 48e9), ("trn2.48xlarge", 128e9)])
def test_an_instance_of_trainium_is_a_torus_of_four_by_four(name, rate):
    cluster = catalogue_cluster(CATALOGUE, name, nodes=1)
    (group,) = cluster.groups
    degree = [sum(i in (a, b) for a, b, _ in group.mesh) for i in range(16)]

    assert degree == [4] * 16
    assert bisection_bytes_per_s(cluster) == pytest.approx(8 * rate)


def test_trainium3_is_switched_over_its_sleds():
    cluster = catalogue_cluster(CATALOGUE, "trn3", gpus=144)

    assert cluster.groups[0].switched
    assert bisection_bytes_per_s(cluster) == pytest.approx(72 * 1.28e12)


def test_the_four_instances_of_an_ultraserver_are_a_torus_with_half_as_fast_links_between_them():
    cluster = catalogue_cluster(CATALOGUE, "trn2-ultraserver", nodes=1)
    (group,) = cluster.groups
    of = {i: [rate for a, b, rate in group.mesh if i in (a, b)] for i in range(64)}

    assert all(sorted(rates) == [64e9] * 2 + [128e9] * 4 for rates in of.values())
    assert group.gpu_bandwidth_bytes_per_s == 640e9
    assert bisection_bytes_per_s(cluster) == pytest.approx(2 * 16 * 64e9)


@pytest.mark.parametrize(
    ("name", "chips", "rate"),
    [("tpu-v5p", 6144, 50), ("tpu-v5e", 256, 25), ("tpu-v6e", 256, 100), ("tpu-v7", 9216, 100)],
)
def test_slices_meet_at_what_their_hosts_have_for_each_chip(name, chips, rate):
    one, two = (catalogue_cluster(CATALOGUE, name, gpus=slices * chips).fabric for slices in (1, 2))

    assert one is not None
    assert two is not None
    assert (one.slices, one.slice_bytes_per_s) == (1, None)
    assert (two.slices, two.sides) == (2, one.sides)
    assert two.slice_bytes_per_s == pytest.approx(rate * 1e9 / 8)
