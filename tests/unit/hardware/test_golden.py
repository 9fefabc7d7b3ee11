"""Every figure and trap of sections 1 to 3 of the reference notes, typed in here once more as the oracle."""

import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.hardware import load_catalogue
from meshwright.hardware.arithmetic import (
    duplex_trap,
    gpu_link,
    infiniband_bytes_per_s,
    intra_node_ratio_needed,
    node_network_bytes_per_s,
    sparsity_trap,
)

GB = 1e9
CATALOGUE = load_catalogue()

# name: GB/s per lane, lanes, links, GB/s per direction, GB/s duplex
INTERCONNECTS = {
    "pcie-3": (1.0, 16, 1, 16, 32),
    "pcie-4": (2.0, 16, 1, 31, 62),
    "pcie-5": (4.0, 16, 1, 63, 126),
    "pcie-6": (7.5, 16, 1, 121, 241),
    "pcie-7": (15.0, 16, 1, 242, 484),
    "nvlink-1": (None, None, 4, 80, 160),
    "nvlink-2": (3.125, 8, 6, 150, 300),
    "nvlink-3": (6.25, 4, 12, 300, 600),
    "nvlink-3-cut": (6.25, 4, 8, 200, 400),
    "nvlink-4": (12.5, 2, 18, 450, 900),
    "nvlink-4-cut": (12.5, 2, 8, 200, 400),
    "nvlink-5": (25, 2, 18, 900, 1800),
    "xgmi-mi250x": (None, None, 7, 350, 700),
    "xgmi-mi300x": (None, None, 7, 448, 896),
    "gaudi2": (None, None, 21, 262.5, 525),
}


@pytest.mark.parametrize("name", INTERCONNECTS)
def test_links_inside_a_node(name):
    lane, lanes, links, rate, duplex = INTERCONNECTS[name]
    link = CATALOGUE.interconnect(name)

    assert link.rate_bytes_per_s == rate * GB
    assert link.duplex_bytes_per_s == pytest.approx(duplex * GB, rel=0.005)  # 241 is printed for 2 x 121
    assert link.links.number == links
    assert (link.lanes and link.lanes.number) == lanes
    assert (link.lane_rate and link.lane_rate.number) == (lane and lane * GB)


@pytest.mark.parametrize("name", INTERCONNECTS)
def test_lanes_times_links_give_the_rate(name):
    link = CATALOGUE.interconnect(name)

    assert link.links.number * link.link_bytes_per_s == pytest.approx(link.rate_bytes_per_s)
    if link.kind == "nvlink" and link.lanes and link.lane_rate:
        assert link.lanes.number * link.lane_rate.number == link.link_bytes_per_s


def test_what_stays_from_nvlink_2_to_4_is_the_rate_of_a_link_not_its_lanes():
    links = [CATALOGUE.interconnect(f"nvlink-{n}") for n in (2, 3, 4)]

    assert {link.link_bytes_per_s for link in links} == {25 * GB}
    assert [link.lanes.number for link in links] == [8, 4, 2]


@pytest.mark.parametrize(
    ("name", "rate", "gpus", "per_node", "reduces"),
    [
        ("nvswitch-1", 150, 16, None, False),
        ("nvswitch-2", 300, 16, 6, False),
        ("nvswitch-3", 450, 8, 4, True),
    ],
)
def test_switches(name, rate, gpus, per_node, reduces):
    switch = CATALOGUE.switches[name]

    assert (switch.rate.number, switch.max_gpus.number) == (rate * GB, gpus)
    assert (switch.per_node and switch.per_node.number) == per_node
    assert (switch.reduction_share is not None) == reduces


def test_the_superpod_of_h100_moves_terabytes_not_gigabytes():
    outward = CATALOGUE.switches["nvswitch-3"].outward_rate.number  # per direction, of one node

    assert 2 * outward == 72 * 2 * CATALOGUE.interconnect("nvlink-4").link_bytes_per_s == 3.6e12
    assert 32 * 2 * outward / 2 == 57.6e12


def test_a_mesh_gives_one_peer_its_share():
    assert CATALOGUE.interconnect("xgmi-mi250x").peer_bytes_per_s(7, switched=False) == 50 * GB
    assert CATALOGUE.interconnect("xgmi-mi300x").peer_bytes_per_s(7, switched=False) == 64 * GB
    assert CATALOGUE.interconnect("gaudi2").peer_bytes_per_s(7, switched=False) == 37.5 * GB
    h100 = CATALOGUE.interconnect("nvlink-4")
    assert 2 * h100.peer_bytes_per_s(7, switched=False) == pytest.approx(128 * GB, rel=0.01)
    assert h100.peer_bytes_per_s(7, switched=True) == 450 * GB


@pytest.mark.parametrize(("name", "duplex"), [("pcie-5", 126), ("pcie-4", 62), ("nvlink-3", 600), ("nvlink-4", 900)])
def test_a_duplex_figure_given_as_per_direction_is_called_out(name, duplex):
    link = CATALOGUE.interconnect(name)

    assert "duplex" in duplex_trap(duplex * GB, link)
    assert duplex_trap(duplex / 2 * GB, link) is None


@pytest.mark.parametrize(("name", "rounded"), [("pcie-4", 32), ("pcie-5", 64), ("pcie-6", 128)])
def test_rounded_pcie_figures_are_per_direction_not_bidirectional(name, rounded):
    assert CATALOGUE.interconnect(name).rate_bytes_per_s == pytest.approx(rounded * GB, rel=0.06)


def test_235_measured_on_a100_is_78_percent_not_40():
    assert 100 * 235 * GB / CATALOGUE.interconnect("nvlink-3").rate_bytes_per_s == pytest.approx(78, abs=0.5)


def test_mi250x_ranks_above_nvlink_3():
    assert CATALOGUE.interconnect("xgmi-mi250x").rate_bytes_per_s > CATALOGUE.interconnect("nvlink-3").rate_bytes_per_s


@pytest.mark.parametrize(("generation", "lane"), [("EDR", 25), ("HDR", 50), ("NDR", 100), ("XDR", 200), ("GDR", 400)])
def test_infiniband_lanes(generation, lane):
    assert infiniband_bytes_per_s(generation, 1) * 8 == lane * 1e9


@pytest.mark.parametrize(
    ("generation", "lanes", "gbps"),
    [("HDR", 4, 200), ("NDR", 4, 400), ("XDR", 4, 800), ("XDR", 8, 1600), ("GDR", 8, 3200)],
)
def test_infiniband_widths(generation, lanes, gbps):
    assert infiniband_bytes_per_s(generation, lanes) * 8 == gbps * 1e9


@pytest.mark.parametrize(("name", "gigabytes"), [("ndr-400", 50), ("ndr-200", 25), ("xdr-800", 100)])
def test_what_an_ndr_and_xdr_port_carries(name, gigabytes):
    assert CATALOGUE.network(name).rate_bytes_per_s == gigabytes * GB


def test_infiniband_latencies():
    assert CATALOGUE.network("edr-100").latency.number == pytest.approx(0.5e-6)
    assert CATALOGUE.network("hdr-200").latency.number == pytest.approx(0.6e-6)


@pytest.mark.parametrize(
    ("node", "gbps"),
    [
        ("aws-p4d", 400),
        ("aws-p5", 3200),
        ("gaudi2-8", 2400),
        ("gcp-a3", 800),
        ("dgx-a100-80g", 1600),  # "8 x 200 Gb/s = 1.6 Gb/s" should read 1.6 Tb/s
        ("dgx-h100", 3200),  # "6.4 Tb/s" is duplex
        ("mi250x-8", 1600),
        ("mi300x-8", 3200),
    ],
)
def test_network_of_a_node_per_direction(node, gbps):
    assert node_network_bytes_per_s(CATALOGUE, CATALOGUE.node(node)) * 8 == gbps * 1e9


def test_p4d_reaches_340_of_its_400():
    efa = CATALOGUE.network("efa-v1")

    assert 4 * efa.rate_bytes_per_s * efa.attainable.number * 8 == pytest.approx(340e9)


def test_a_superpod_of_32_dgx_h100_has_25_6_terabytes_per_second_duplex():
    node = node_network_bytes_per_s(CATALOGUE, CATALOGUE.node("dgx-h100"))

    assert 2 * node == 0.8e12
    assert 32 * 2 * node == 25.6e12


@pytest.mark.parametrize(
    "name", ["slingshot-200", "opa-100", "opa-200", "opa-400", "roce-25", "roce-800", "tcp-1", "tcp-400"]
)
def test_other_networks_run_at_what_their_name_says(name):
    assert CATALOGUE.network(name).rate_bytes_per_s * 8 == float(name.split("-")[1]) * 1e9


# name: bf16 or fp16, TF32, FP32, FP64 in TFLOP/s, memory in GB, HBM in GB/s
ACCELERATORS = {
    "v100-16g": (125, None, 15.7, 7.8, 16, 900),
    "v100-32g": (125, None, 15.7, 7.8, 32, 900),
    "a100-40g": (312, 156, 19.5, 9.7, 40, 1555),
    "a100-80g": (312, 156, 19.5, 9.7, 80, 2039),
    "a100-80g-pcie": (312, 156, 19.5, 9.7, 80, 1935),
    "a800": (312, 156, 19.5, 9.7, 80, 2039),
    "h100": (989, 495, 67, 34, 80, 3350),
    "h100-96g": (989, 495, 67, 34, 96, 2400),
    "h200": (989, 495, 67, 34, 141, 4800),
    "b200": (2250, 1125, 80, 40, 180, 8000),
    "gb200": (2500, 1250, 80, 40, 186, 8000),
    "gb300": (2500, 1250, 80, 1.25, 288, 8000),  # FP64 is cut: 8 GPUs of an HGX B300 have 10 TFLOP/s
}


@pytest.mark.parametrize("name", ACCELERATORS)
def test_dense_peaks_and_memory(name):
    half, tf32, fp32, fp64, memory, rate = ACCELERATORS[name]
    accelerator = CATALOGUE.accelerator(name)
    peak = accelerator.peak_flops_per_s

    assert peak["fp16"] == half * 1e12
    assert [peak.get(p) for p in ("tf32", "fp32", "fp64")] == [x and x * 1e12 for x in (tf32, fp32, fp64)]
    assert accelerator.memory.number == memory * GB
    assert accelerator.memory_rate.number == rate * GB


@pytest.mark.parametrize(
    ("name", "bf16", "memory", "rate"),
    [("mi250x", 383, 128, 3277), ("mi300x", 1307, 192, 5300), ("gaudi2", 432, 96, 2450)],
)
def test_accelerators_of_other_makers(name, bf16, memory, rate):
    accelerator = CATALOGUE.accelerator(name)

    assert accelerator.peak_flops_per_s["bf16"] == bf16 * 1e12
    assert (accelerator.memory.number, accelerator.memory_rate.number) == (memory * GB, rate * GB)


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        *(("h100", p, x) for p, x in (("fp8", 1979), ("int8", 1979), ("fp64-tensor", 67))),
        *(("a100-80g", p, x) for p, x in (("int8", 624), ("fp64-tensor", 19.5))),
        ("gaudi2", "fp8", 865),
        ("h200", "fp8", 1979),
        ("b200", "fp8", 4500),
        ("gb200", "fp8", 5000),
        ("gb300", "fp8", 5000),
        ("mi300x", "fp8", 2615),
        ("b200", "fp4", 9000),
        ("gb200", "fp4", 10000),
        ("b300", "fp4", 1.5 * 9000),
        ("gb300", "fp4", 1.5 * 10000),
    ],
)
def test_narrow_and_tensor_peaks(name, precision, tflops):
    assert CATALOGUE.accelerator(name).peak_flops_per_s[precision] == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("h100", 81559), ("a100-40g", 40536), ("h200", 143771), ("b200", 183359), ("gb200", 189471), ("b300", 275040)],
)
def test_the_capacity_is_what_the_driver_shows(name, mebibytes):
    accelerator = CATALOGUE.accelerator(name)

    assert accelerator.memory_bytes == mebibytes * 2**20
    assert accelerator.capacity.source == "driver-logs"


@pytest.mark.parametrize(
    ("name", "gib"), [("mi300x", 191.98), ("mi355x", 287.98), ("mi350x", 287.98), ("h100-96g", 94.99)]
)
def test_the_capacity_of_other_cards_is_what_torch_is_given(name, gib):
    assert CATALOGUE.accelerator(name).memory_bytes / 2**30 == pytest.approx(gib, abs=0.01)


def test_b300_is_a_b200_with_288_gb():
    b200, b300 = CATALOGUE.accelerator("b200"), CATALOGUE.accelerator("b300")

    assert b300.peak_flops_per_s["bf16"] == b200.peak_flops_per_s["bf16"]
    assert b300.memory.number == 288 * GB


def test_b200_is_sold_with_180_to_192():
    memory = CATALOGUE.accelerator("b200").memory

    assert {memory.number, *(other.number for other in memory.others)} == {180 * GB, 192 * GB}


@pytest.mark.parametrize(("name", "sparse"), [("h100", 1979), ("a100-80g", 624)])
def test_a_peak_with_sparsity_is_called_out(name, sparse):
    assert "sparsity" in sparsity_trap(CATALOGUE, name, "bf16", sparse * 1e12)
    assert sparsity_trap(CATALOGUE, name, "bf16", sparse / 2 * 1e12) is None


def test_the_traps_are_all_named():
    words = " ".join(f"{trap.claim} {trap.truth}" for trap in CATALOGUE.traps)

    for fragment in (
        "126",
        "bidirectional",
        "40 %",
        "4 lanes",
        "448",
        "57.6 TB/s",
        "350",
        "NDR200",
        "1.6 Tb/s",
        "6.4 Tb/s",
        "sparsity",
    ):
        assert fragment in words


@pytest.mark.parametrize(
    ("node", "gpus", "rate", "switched"),
    [
        ("dgx-1-p100", 8, 80, False),
        ("dgx-1-v100", 8, 150, False),
        ("dgx-2", 16, 150, True),
        ("dgx-a100-40g", 8, 300, True),
        ("dgx-a800", 8, 200, True),
        ("hgx-h800", 8, 200, True),
        ("dgx-h100", 8, 450, True),
        ("dgx-b200", 8, 900, True),
        ("gb200-nvl72", 4, 900, True),
        ("mi300x-8", 8, 448, False),
    ],
)
def test_nodes_carry_their_links(node, gpus, rate, switched):
    kind = CATALOGUE.node(node)
    group = catalogue_cluster(CATALOGUE, node).groups[0]

    assert gpu_link(CATALOGUE, kind).rate_bytes_per_s == rate * GB
    assert (group.gpus, group.gpu_bandwidth_bytes_per_s, group.switched) == (gpus, rate * GB, switched)


def test_nvlink_of_an_nvl72_spans_72():
    assert catalogue_cluster(CATALOGUE, "gb200-nvl72", gpus=72).groups[0].scale_up_gpus == 72


def test_tensor_by_pipeline_on_two_nodes_needs_1_75_times_the_network():
    assert intra_node_ratio_needed(8) == 1.75
    assert 300 / 160 > 1.75 > 200 / 160
