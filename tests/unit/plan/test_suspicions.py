"""Suspicions of a node that a file describes, beside the catalogue's figures of its accelerator."""

import pytest
from msgspec.structs import replace

from meshwright.cluster.builders import catalogue_cluster
from meshwright.hardware import load_catalogue
from meshwright.plan.clusters.suspicions import suspicions_of

CATALOGUE = load_catalogue()
NODES = [key for key, node in CATALOGUE.nodes.items() if node.network]


def node(name: str = "dgx-h200", **changes):
    return replace(catalogue_cluster(CATALOGUE, name, gpus=16).groups[0], **changes)


def card(**changes):
    return replace(node().gpu, **changes)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpu_bandwidth_bytes_per_s": 900e9}, "gpu_bandwidth_bytes_per_s: 900 GB/s is the duplex figure"),
        ({"peer_bandwidth_bytes_per_s": 900e9}, "peer_bandwidth_bytes_per_s: 900 GB/s is the duplex figure"),
        ({"nic_bandwidth_bytes_per_s": 400e9}, "have up to 400 Gb/s: is it in bits?"),
        ({"gpu": card(peak_flops_per_s={"fp8": 3958e12})}, "fp8 peak with sparsity; dense it is 1979"),
        ({"gpu": card(memory_bytes=141)}, "141 B, and h200 has 140 GiB: is it in bytes?"),
    ],
    ids=["duplex", "peer", "bits", "sparse", "gigabytes"],
)
def test_a_figure_off_a_datasheet_that_means_something_else_is_named_with_its_key(changed, said):
    (found,) = suspicions_of(node(**changed), CATALOGUE)

    assert said in found


@pytest.mark.parametrize("name", NODES)
def test_no_node_of_the_catalogue_looks_wrong(name):
    assert suspicions_of(catalogue_cluster(CATALOGUE, name).groups[0], CATALOGUE) == []


def test_slow_networks_parts_of_a_card_and_strange_accelerators_are_nobodys_slip():
    slow = node(nic_bandwidth_bytes_per_s=1.25e8, gpu=card(memory_bytes=18 * 2**30))
    strange = node(gpu=card(model="abacus-9000", memory_bytes=80), nic_bandwidth_bytes_per_s=400e9)

    assert suspicions_of(slow, CATALOGUE) == suspicions_of(strange, CATALOGUE) == []


def test_many_gpus_that_one_file_calls_a_node_have_the_nics_of_as_many_nodes():
    rack = node(gpus=64, nics=64)

    assert suspicions_of(rack, CATALOGUE) == []
