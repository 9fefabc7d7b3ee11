"""Machines that are told by their cards alone."""

import pytest

from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.cards import cards_assumed, with_cards
from meshwright.plan.clusters.machines import cluster_by_name


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue()


@pytest.mark.parametrize(
    ("name", "key", "count"),
    [
        *(("4xRTX4090", "rtx-4090", 4), ("2 x A6000", "a6000", 2), ("rtx-3090x8", "rtx-3090", 8)),
        *(("8*l40s", "l40s", 8), ("8xH100", "h100", 8)),
        *(("8xA100-80GB", "a100-80g", 8), ("8xA100-40GB", "a100-40g", 8), ("1xA100-SXM4-80GB", "a100-80g", 1)),
        *(("8xH100-96GB", "h100-96g", 8), ("8xh20-3e", "h20-3e", 8)),
    ],
)
def test_a_number_of_cards_is_a_machine_with_them(catalogue, name, key, count):
    node = with_cards(catalogue, name).listed_node(name)

    assert (node.accelerator, node.gpus.number) == (key, count)


@pytest.mark.parametrize(
    "name",
    [
        "dgx-h100",
        "4xH100",
        "8xA100",
        "8xV100",
        "8xmi250x-gcd",
        "0xrtx4090",
        "4x",
        "rtx4090",
        "4xnothing",
        "lambda-2x-a6000",
    ],
)
def test_other_names_leave_the_catalogue_as_it_is(catalogue, name):
    assert with_cards(catalogue, name) is catalogue


def test_the_cards_meet_over_the_pcie_of_their_data_sheet_which_is_said_to_be_assumed(catalogue):
    group = cluster_by_name(catalogue, "2xa6000", 2).groups[0]

    assert group.gpu_link == "PCIe"
    assert group.gpu_bandwidth_bytes_per_s == catalogue.interconnect("pcie-4").rate_bytes_per_s
    assert "PCIe 4 x16 to itself, none of them bridged" in cards_assumed(catalogue, "2xa6000")[0]
    assert cards_assumed(catalogue, "dgx-h100") == cards_assumed(catalogue, "1xa6000") == ()


def test_as_many_as_a_listed_node_has_are_joined_as_in_it(catalogue):
    told, listed = (cluster_by_name(catalogue, name, 8).groups[0] for name in ("8xH200", "dgx-h200"))

    assert (told.switched, told.gpu_bandwidth_bytes_per_s) == (True, listed.gpu_bandwidth_bytes_per_s)
    assert told.nics == 0
    assert "joined by NVSwitch" in cards_assumed(catalogue, "8xH200")[0]


@pytest.mark.parametrize("name", ["2xa6000", "lambda-2x-a6000"])
def test_several_machines_without_a_known_network_need_the_rate_of_one(catalogue, name):
    joined = cluster_by_name(catalogue, name, 4, inter_bytes_per_s=25e9 / 8)

    assert joined.groups[0].node_bandwidth_bytes_per_s == 25e9 / 8
    with pytest.raises(InputError, match="2 nodes: "):
        cluster_by_name(catalogue, name, 4)


@pytest.mark.parametrize("name", ["2xA100-80GB", "16xH100"])
def test_fewer_or_more_than_a_listed_node_has_are_a_number_of_gpus(catalogue, name):
    with pytest.raises(InputError, match=f"`--gpus {name.partition('x')[0]}` says how many"):
        cluster_by_name(catalogue, name, None)
