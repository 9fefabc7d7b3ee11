"""Mesh axes on a torus: rings along the dimensions that they cover, all-to-alls by the cut."""

import numpy as np
import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.torus import on_torus
from meshwright.plan.clusters.nccl import nccl_price

CATALOGUE = load_catalogue()
LINKS = 6.0  # of a node of a torus of three dimensions


@pytest.mark.parametrize(
    ("ranks", "step", "links", "hops"),
    [
        (16, 1, 2, 15),  # one whole dimension: a ring each way
        (4, 1, 1, 3),  # a part of it: a line, there and back
        (256, 1, 4, 30),  # two dimensions at once
        (4096, 1, 6, 45),  # all links
        (16, 16, 2, 15),  # the second dimension
        (8, 2, 1, 7),  # every other chip: two such rings share the links
        (256, 16, 4, 30),
    ],
)
def test_a_ring_has_the_links_along_its_dimensions(ranks, step, links, hops):
    found = on_torus((16, 16, 16), float(ranks), float(step))

    assert float(found.share) == pytest.approx(links / LINKS)
    assert float(found.hops) == hops


@pytest.mark.parametrize(("ranks", "seconds"), [(16, 16 / 8), (256, 16 / 8), (4, 4 / 4)])
def test_an_all_to_all_is_bound_by_the_cut(ranks, seconds):
    """On a ring of n with links of 1 GB/s a rank's GB takes n/8 s; on a line, which has half of the links, n/4."""
    assert float(on_torus((16, 16, 16), float(ranks), 1.0).cut) / LINKS == pytest.approx(seconds)


def test_a_ring_of_two_has_one_link():
    assert float(on_torus((2, 2), 2.0, 1.0).share) == pytest.approx(1 / 4)


def test_layouts_are_priced_as_arrays():
    found = on_torus((16, 16), np.array([16.0, 256.0]), np.array([1.0, 1.0]))

    assert found.share.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("name", ["tpu-v4", "tpu-v5p", "tpu-v6e"])
def test_more_chips_of_a_torus_take_no_less_time_for_an_all_to_all(name):
    cluster = catalogue_cluster(CATALOGUE, name, gpus=256)

    times = [nccl_price(cluster, "all_to_all", 2**28, ranks).time_s for ranks in (2, 4, 16, 64, 256)]

    assert times == sorted(times)


def test_a_whole_slice_has_the_links_that_a_part_lacks():
    cluster = catalogue_cluster(CATALOGUE, "tpu-v5p", gpus=512)

    row, whole = (nccl_price(cluster, "all_reduce", 2**30, ranks) for ranks in (8, 512))

    assert row.busbw_bytes_per_s == pytest.approx(whole.busbw_bytes_per_s / 3, rel=0.2)
