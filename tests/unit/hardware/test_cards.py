"""Machines that are told by their cards alone."""

import pytest

from meshwright.cluster.builders import node_group
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.cards import cards_assumed, gpus_told, machine_meant, with_cards
from meshwright.plan.clusters.machines import cluster_by_name


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue()


@pytest.mark.parametrize(
    ("name", "key", "count"),
    [
        *(("4xRTX4090", "rtx-4090", 4), ("2 x A6000", "a6000", 2), ("rtx-3090x8", "rtx-3090", 8)),
        *(("8*l40s", "l40s", 8), ("8xH100", "h100", 8), ("4090x2", "rtx-4090", 2), ("2x3090", "rtx-3090", 2)),
        *(("4xMI300X", "mi300x", 4), ("2 x MI300X OAM", "mi300x", 2), ("8xA100-80", "a100-80g", 8)),
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
        "4xTrainium2",
        "12xH100",
        "12xl40s",
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


def test_fewer_than_a_listed_node_has_are_a_part_of_it_which_is_said_to_be_assumed(catalogue):
    told, listed = (cluster_by_name(catalogue, name, None).groups[0] for name in ("4xH100", "dgx-h100"))

    assert (told.gpus, told.switched) == (4, True)
    assert told.gpu_bandwidth_bytes_per_s == listed.gpu_bandwidth_bytes_per_s
    assert (
        "of which these are 4; on a board of its own they are linked directly" in cards_assumed(catalogue, "4xH100")[0]
    )


@pytest.mark.parametrize("name", ["64xH100", "64xRTX4090"])
def test_more_than_one_machine_has_are_several_of_them_over_a_network_to_be_said(catalogue, name):
    joined = cluster_by_name(catalogue, name, gpus_told(catalogue, name), inter_bytes_per_s=50e9)

    assert (joined.num_gpus, joined.num_nodes) == (64, 8)
    assert "8 machines of 8; " in cards_assumed(catalogue, name)[0]
    with pytest.raises(InputError, match="8 nodes: the network between such machines is not known"):
        cluster_by_name(catalogue, name, gpus_told(catalogue, name))


def test_a_single_machine_tells_no_number_of_gpus_beside_its_own(catalogue):
    assert [gpus_told(catalogue, name) for name in ("8xH100", "4xRTX4090", "dgx-h100")] == [None, None, None]


def test_a_number_of_cards_that_no_node_type_joins_is_a_number_of_gpus(catalogue):
    with pytest.raises(InputError, match="`--gpus 4` says how many"):
        cluster_by_name(catalogue, "4xTrainium2", None)


@pytest.mark.parametrize(
    ("name", "gpus", "meant"),
    [
        ("rtx3090", 2, "2xrtx3090"), ("L40S", 1, "1xL40S"), ("h200", 8, "8xh200"), ("a100-40g", 8, "8xa100-40g"),
        ("RTX A6000", 1, "1xRTX A6000"), ("h100-pcie", 4, "4xh100-pcie"),
    ],
)  # fmt: skip
def test_an_accelerator_and_a_number_of_gpus_are_a_machine_with_that_many_cards(catalogue, name, gpus, meant):
    told = machine_meant(catalogue, name, gpus)

    assert (told.name, told.gpus) == (meant, gpus)
    assert f"{name} is read as {meant}" in told.told
    assert with_cards(catalogue, meant) is not catalogue


@pytest.mark.parametrize(("name", "key"), [("gaudi2", "gaudi2-8"), ("MI325X", "mi325x-8"), ("h800", "hgx-h800")])
def test_an_accelerator_of_one_node_type_means_that_type_which_is_said(catalogue, name, key):
    told = machine_meant(catalogue, name, 16)

    assert (told.name, told.gpus) == (key, 16)
    assert f"{key}, the one node type that has it: 8 GPUs" in told.told


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("h100", 64), ("h100", None), ("rtx3090", None), ("a100", 8), ("mi250x", 8), ("dgx-h100", 8), ("8xh100", 8),
     ("gh200", 1), ("p5.48xlarge", 8), ("nothing", 8)],
)  # fmt: skip
def test_a_name_that_leaves_the_machine_open_or_is_a_node_type_stays_as_it_is(catalogue, name, gpus):
    assert machine_meant(catalogue, name, gpus) == (name, gpus, "")


def test_a_slice_of_a_cloud_is_its_chips_and_no_other_number(catalogue):
    assert machine_meant(catalogue, "v4-32", None)[:2] == ("tpu-v4", 16)
    assert machine_meant(catalogue, "v6e-64", 64)[:2] == ("tpu-v6e", 64)
    with pytest.raises(InputError, match="'v4-32' names a slice of 16 chips, but 32 are asked for; expected tpu-v4"):
        machine_meant(catalogue, "v4-32", 32)


def test_two_of_a_board_whose_links_join_pairs_have_the_links_of_that_pair(catalogue):
    group = cluster_by_name(catalogue, "2xMI300X", None).groups[0]

    assert group.group_rates(2) == (448e9, 1 / 7)
    assert cards_assumed(catalogue, "2xMI300X")[0].endswith(", of which these are 2")


ISLANDS = """
[nodes.pairs]
title = "four cards, bridged two by two"
accelerator = "a6000"
gpus = { value = 4, source = "assumed" }
numa_nodes = { value = 1, source = "assumed" }
no_network = "one machine"
mesh = [[0, 1, 4], [2, 3, 4]]
"""


def test_cards_bridged_in_islands_meet_over_pcie_where_a_group_is_larger_than_one(tmp_path):
    file = tmp_path / "pairs.toml"
    file.write_text(ISLANDS)
    group = node_group(load_catalogue(file), "pairs")

    assert group.group_rates(2) == (56.25e9, 1.0)
    assert group.group_rates(4) == (31e9, 1.0)


@pytest.mark.parametrize(
    ("name", "key", "gpus"),
    [
        *(("3xdgx-h100", "dgx-h100", 24), ("dgx-a100-80g x 2", "dgx-a100-80g", 16), ("DGX H100:2", "dgx-h100", 16)),
        *(
            ("2xp5.48xlarge", "aws-p5", 16),
            ("3 nodes of dgx-h200", "dgx-h200", 24),
            ("5 machines with 4 H100", "4xh100", 20),
        ),
        *(("2x8xH100", "8xh100", 16), ("2x h100:4", "4xh100", 8), ("l40s x4 x2", "4xl40s", 8)),
    ],
)
def test_a_number_of_nodes_in_a_name_counts_the_gpus_and_is_said(catalogue, name, key, gpus):
    meant = machine_meant(catalogue, name, None)

    assert meant[:2] == (key, gpus)
    assert f"{name} is read as" in meant.told
    assert meant[:2] == machine_meant(catalogue, name, gpus)[:2]
    with pytest.raises(InputError, match=f"{gpus} GPUs, but 1 are asked for"):
        machine_meant(catalogue, name, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("8xH100x2", 'which counts the nodes\\? expected "8 nodes of 2xh100" or "2 nodes of 8xh100"'),
        ("2xgb200-nvl72", "2 nodes or racks\\? expected gb200-nvl72"),
    ],
)
def test_a_name_with_two_readings_is_asked_about(catalogue, name, said):
    with pytest.raises(InputError, match=said):
        machine_meant(catalogue, name, None)


@pytest.mark.parametrize(("name", "count"), [("h100:8", 8), ("8 H100", 8), ("rtx4090:2", 2)])
def test_cards_are_counted_as_slurm_and_people_write_them(catalogue, name, count):
    assert with_cards(catalogue, name).listed_node(name).gpus.number == count


def test_a_name_of_several_sizes_is_refused_with_all_gpus_that_it_counts(catalogue):
    with pytest.raises(InputError, match="--gpus 32"):
        catalogue.node("4x8xA100")


@pytest.mark.parametrize("name", ["4xdgx-h100", "dgx-h100:4"])
def test_where_one_node_type_is_wanted_a_number_of_them_is_told_how_to_say_it(catalogue, name):
    with pytest.raises(InputError, match="did you mean dgx-h100.*of several of them `--gpus N`"):
        catalogue.node(name)
