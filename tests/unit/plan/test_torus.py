"""Mesh axes on a torus: rings along the dimensions that they cover, all-to-alls by the cut."""

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.graph import Cluster
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, performance, price_layouts
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.collective import span
from meshwright.plan.analytic.price import machine_of
from meshwright.plan.analytic.torus import on_torus
from meshwright.plan.clusters.nccl import nccl_price
from meshwright.workload.models import load_model

CATALOGUE = load_catalogue()
LINKS = 6.0  # of a node of a torus of three dimensions


def setting(cluster: Cluster) -> Setting:
    return Setting(
        architecture=load_model("llama3-70b").architecture, cluster=cluster, gpus=cluster.num_gpus,
        global_batch=cluster.num_gpus, seq_len=4096, stack="maxtext",
    )  # fmt: skip


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


def test_what_leaves_a_slice_shares_the_network_of_the_hosts():
    """Two slices of 256 chips: what all of a group's 256 chips in one have to the other, 12.5 GB/s each."""
    cluster = catalogue_cluster(CATALOGUE, "tpu-v6e", gpus=512)
    machine = machine_of(setting(cluster))
    c = replace(coefficients(book(), "", "tpu-v6e", "bf16"), network=1.0)

    whole, across, inside = span(machine, c, 512.0, 1.0), span(machine, c, 2.0, 256.0), span(machine, c, 256.0, 1.0)

    assert float(across.rate) == pytest.approx(12.5e9)
    assert float(whole.rate) == pytest.approx(min(256 * 12.5e9, float(inside.rate)))
    assert float(across.rate) < float(inside.rate)


def test_an_exchange_over_two_slices_sends_half_of_it_over_the_hosts():
    cluster = catalogue_cluster(CATALOGUE, "tpu-v5p", gpus=2 * 6144)

    inside, across = (nccl_price(cluster, "all_to_all", 2**30, ranks).time_s for ranks in (6144, 2 * 6144))

    assert across > 2**30 / 2 / 6.25e9
    assert across > inside


def test_a_plan_over_two_slices_says_what_joins_them():
    one, two = (setting(catalogue_cluster(CATALOGUE, "tpu-v6e", gpus=chips)) for chips in (256, 512))
    alone, joined = Layout(dp=256, zero=3), Layout(dp=512, zero=3, replicas=2)

    less, more = (
        performance(given, price_layouts(given, Grid.of([layout])), 0, layout)
        for given, layout in ((one, alone), (two, joined))
    )

    assert less.step_time_s < more.step_time_s  # as many sequences a chip
    told = "2 slices of 16 x 16: they meet over the network of their hosts, 100 Gb/s a chip: in no measured run"
    assert told in more.not_modelled
    assert told not in less.not_modelled
