"""Ranks that stand together on the axes of a layout."""

import pytest

from meshwright import mesh
from meshwright.layout import Layout
from meshwright.mesh import crossings, ranks_by_place


def groups(layout, axis):
    return mesh.groups(layout, axis).tolist()


LAYOUT = Layout(tp=2, cp=1, dp=2, pp=2)


def test_tensor_parallel_ranks_are_neighbours_unless_the_order_says_otherwise():
    assert groups(LAYOUT, "tp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(LAYOUT, "pp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    forced = Layout(tp=2, dp=2, pp=2, order="pp-dp-cp-tp")
    assert groups(forced, "tp") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_tensor_parallelism_stays_inside_hosts_and_the_others_cross():
    hosts = [(0, 1, 2, 3), (4, 5, 6, 7)]

    assert crossings(LAYOUT, "tp", hosts) == 0
    assert crossings(LAYOUT, "pp", hosts) == 4


def test_ranks_that_a_launcher_deals_out_in_turn_are_put_together_by_host():
    hosts = [(0, 2, 4, 6), (1, 3, 5, 7)]

    assert ranks_by_place(hosts) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert crossings(LAYOUT, "tp", hosts) == 0


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "dp-cp-tp-pp", "pp-dp-cp-tp"])
def test_shards_and_replicas_of_hsdp_divide_the_data_ranks(order):
    layout = Layout(tp=2, dp=2, cp=2, zero=3, replicas=2, order=order)

    for data in groups(layout, "data"):
        shards = [group for group in groups(layout, "shard") if set(group) <= set(data)]
        assert sorted(rank for group in shards for rank in group) == sorted(data)
        assert [len(group) for group in shards] == [2, 2]
    assert all(len(set(group)) == 2 for group in groups(layout, "replica"))


def test_experts_are_shared_by_neighbours_in_the_data_ranks():
    layout = Layout(dp=4, ep=2)

    assert groups(layout, "ep") == [[0, 1], [2, 3]]
    assert groups(layout, "edp") == [[0, 2], [1, 3]]
