"""The network of cloud instances against what their clouds publish, in Gb/s of one instance."""

import pytest

from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
PUBLISHED = {
    # AWS, bandwidth that its API gives for each type
    "p3.16xlarge": 25,
    "p3dn.24xlarge": 100,
    "p4d.24xlarge": 400,
    "p4de.24xlarge": 400,
    "p5.4xlarge": 100,
    "p5.48xlarge": 3200,
    "p5e.48xlarge": 3200,
    "p5en.48xlarge": 3200,
    "p6-b200.48xlarge": 3200,
    "p6-b300.48xlarge": 6400,
    "p6e-gb200.36xlarge": 1600,  # 28.8 Tb/s over 18 trays
    "g4dn.12xlarge": 50,
    "g4dn.metal": 100,
    "g5.12xlarge": 40,
    "g5.24xlarge": 50,
    "g5.48xlarge": 100,
    "g6.12xlarge": 40,
    "g6.24xlarge": 50,
    "g6.48xlarge": 100,
    "g6e.12xlarge": 100,
    "g6e.24xlarge": 200,
    "g6e.48xlarge": 400,
    "g7e.48xlarge": 1600,
    "trn1.32xlarge": 800,
    "trn1n.32xlarge": 1600,
    "trn2.48xlarge": 3200,
    # Azure, its tables of sizes: InfiniBand of all GPUs, Ethernet where there is none
    "ND40rs_v2": 100,
    "ND96asr_v4": 1600,
    "ND96amsr_A100_v4": 1600,
    "ND96isr_H100_v5": 3200,
    "ND96isr_H200_v5": 3200,
    "ND96isr_MI300X_v5": 3200,
    "ND128isr_NDR_GB200_v6": 1600,
    "ND128isr_GB300_v6": 3200,
    "NC24ads_A100_v4": 20,
    "NC48ads_A100_v4": 40,
    "NC96ads_A100_v4": 80,
    "NC40ads_H100_v5": 40,
    "NC80adis_H100_v5": 80,
    # Google Cloud, without the card of the host where GPUs have their own
    "a2-highgpu-4g": 50,
    "a2-highgpu-8g": 100,
    "a2-megagpu-16g": 100,
    "a2-ultragpu-4g": 50,
    "a2-ultragpu-8g": 100,
    "a3-highgpu-1g": 25,
    "a3-highgpu-2g": 50,
    "a3-highgpu-4g": 100,
    "a3-highgpu-8g": 800,
    "a3-megagpu-8g": 1600,
    "a3-ultragpu-8g": 3200,
    "a4-highgpu-8g": 3200,
    "a4x-highgpu-4g": 1600,
    "a4x-maxgpu-4g-metal": 3200,
    "g2-standard-48": 50,
    "g2-standard-96": 100,
    "g4-standard-384": 400,
    # OCI, its table of shapes: RDMA of all ports
    "BM.GPU3.8": 50,
    "BM.GPU4.8": 1600,
    "BM.GPU.A100-v2.8": 1600,
    "BM.GPU.A10.4": 100,
    "BM.GPU.L40S.4": 800,
    "BM.GPU.H100.8": 3200,
    "BM.GPU.H200.8": 3200,
    "BM.GPU.B200.8": 3200,
    "BM.GPU.B300.8": 6400,
    "BM.GPU.MI300X.8": 3200,
    "BM.GPU.MI355X.8": 3200,
    "BM.GPU.GB200.4": 1600,
    "BM.GPU.GB200-v3.4": 3200,
    "BM.GPU.GB300.4": 3200,
}


@pytest.mark.parametrize("instance", PUBLISHED)
def test_an_instance_has_the_network_that_its_cloud_publishes(instance):
    node = CATALOGUE.node(instance)

    assert node.network is not None
    network = CATALOGUE.networks[node.network]
    assert node.ports * network.rate.number * 8 / 1e9 == pytest.approx(PUBLISHED[instance])


@pytest.mark.parametrize("key", ["aws-p6e-gb300", "aws-trn3"])
def test_a_network_that_no_cloud_publishes_is_marked_as_assumed(key):
    nics = CATALOGUE.nodes[key].nics

    assert nics is not None
    assert nics.source == "assumed"


@pytest.mark.parametrize(
    ("instance", "gib"),
    [("p4d.24xlarge", 1152), ("p5.48xlarge", 2048), ("ND96isr_H100_v5", 1900), ("a3-megagpu-8g", 1872e9 / 2**30)],
)
def test_the_memory_of_a_cloud_instance_holds_what_leaves_its_gpus(instance, gib):
    assert CATALOGUE.node(instance).host_memory.number == pytest.approx(gib * 2**30)
