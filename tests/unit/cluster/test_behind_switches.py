"""GPUs whose links end in a switch, in dumps that say so and count no links; and what NCCL's own rates stand for."""

import pytest

from meshwright.cluster.analysis import analyse, mesh_rates
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
BEFORE = "box:1:2 [0] NCCL INFO "


def picture(rate="370.8", pcie="48.0", gpus=8):
    """Return NCCL's picture of a node: all GPUs below one CPU, each joined to a switch, and a NIC called NET/5."""
    lines = [f"=== System : maxBw {rate} totalBw {rate} ===", "CPU/0 (1/1/2)"]
    for gpu in range(gpus):
        lines += [f"+ PCI[{pcie}] - GPU/{gpu + 1}000 ({gpu})", f"              + NVL[{rate}] - NVS/0"]
    lines += [f"+ PCI[{pcie}] - NIC/F1000", "              + NET[50.0] - NET/5 (5/0/50.000000)"]
    return "\n".join(BEFORE + line for line in [*lines, "=========="])


def paths(hops, rate="240.0", gpus=4):
    """Return NCCL's lists of paths between GPUs that NVLinks join directly or through a switch."""
    lines = []
    for a in range(gpus):
        ways = [f"GPU/0-{b}000 ({hops}/{rate}/NVL)" if a != b else f"GPU/0-{b}000 (0/5000.0/LOC)" for b in range(gpus)]
        lines.append(f"{BEFORE}GPU/{a}000 :{' '.join(ways)} CPU/0-0 (1/24.0/PHB)")
    return "\n".join(lines)


def hwloc(to, gpus=3):
    """Return hwloc's XML of GPUs without names whose NVLinks end in a switch or in each other."""
    devices = [
        f'<object type="PCIDev" gp_index="{10 + i}" pci_busid="0000:0{i + 1}:00.0" pci_type="0302 [10de:ffff]">'
        f'<object type="OSDev" gp_index="{20 + i}" name="cuda{i}" subtype="CUDA" osdev_type="5"/></object>'
        for i in range(gpus)
    ]
    switch = '<object type="PCIDev" gp_index="19" pci_busid="0000:0f:00.0" pci_type="0680 [10de:1af1]"/>'
    ends = [*range(20, 20 + gpus), 19]
    value = {(a, b): 300000 if a != b and ((19 in (a, b)) == (to == "switch")) else 0 for a in ends for b in ends}
    values = " ".join(str(value[a, b]) for a in ends for b in ends)
    kinds = " ".join(f"{'PCIDev' if end == 19 else 'OSDev'}:{end}" for end in ends)
    return (
        '<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x3" gp_index="1">'
        '<object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1" gp_index="2" local_memory="1024"/>'
        f"{''.join(devices)}{switch}</object>"
        f'<distances2hetero nbobjs="{len(ends)}" kind="25" name="NVLinkBandwidth"><indexes>{kinds}</indexes>'
        f"<u64values>{values}</u64values></distances2hetero></topology>"
    )


@pytest.mark.parametrize("gpu", [None, "h100"])
def test_gpus_behind_one_switch_of_nccl_s_picture_bring_their_rate_once(gpu):
    cluster = parse_dump(picture(), "t", CATALOGUE, gpu)

    assert mesh_rates(cluster) == []
    assert analyse(cluster).bisection_bytes_per_s == 4 * 370.8e9
    assert analyse(cluster).verdicts == ()


@pytest.mark.parametrize(("hops", "bisection"), [(2, 2 * 240e9), (1, 4 * 240e9)])
def test_two_links_between_gpus_in_nccl_s_lists_are_a_switch_and_one_is_a_mesh(hops, bisection):
    assert analyse(parse_dump(paths(hops), "t", CATALOGUE)).bisection_bytes_per_s == bisection


def test_switches_of_hwloc_count_once_where_it_does_not_know_the_gpus():
    switched, mesh = (parse_dump(hwloc(to), "t", CATALOGUE) for to in ("switch", "gpu"))

    assert mesh_rates(switched) == []
    assert mesh_rates(mesh) == [600e9] * 3


@pytest.mark.parametrize(
    ("rate", "gpu", "words"),
    [
        ("370.8", "h100", "for 18 NVLinks, all that H100 SXM 80 GB has (450 GB/s per direction by the datasheet)"),
        ("360.0", "h100", "for 18 NVLinks, all that"),
        ("350.2", "h100", "for 17 NVLinks, of 18 that H100 SXM 80 GB has (425 GB/s per direction by the datasheet): 1"),
        ("240.0", "a100-80g", "for 12 NVLinks, all that"),
        ("721.8", "b200", "for 18 NVLinks, all that"),
        ("333.3", "h100", ""),
    ],
)
def test_a_rate_of_nccl_s_is_said_as_nvlinks(rate, gpu, words):
    said = [line for line in parse_dump(picture(rate), "t", CATALOGUE, gpu).warnings if "NCCL counts for" in line]

    assert [words in line for line in said] == ([True] if words else [])


@pytest.mark.parametrize(
    ("pcie", "gpu", "is_slow"), [("24.0", "h100", 1), ("48.0", "h100", 0), ("24.0", "a100-80g", 0)]
)
def test_a_pcie_link_below_what_the_gpu_was_built_with_is_named(pcie, gpu, is_slow):
    said = [line for line in parse_dump(picture(pcie=pcie), "t", CATALOGUE, gpu).warnings if "to PCIe" in line]

    assert len(said) == is_slow
    assert all("24 GB/s to PCIe, which is PCIe 4 x16" in line and "48 GB/s" in line for line in said)


def test_nics_of_nccl_s_picture_keep_the_name_that_it_gives_them():
    (nic,) = parse_dump(picture(), "t", CATALOGUE).of_kind("nic")

    assert (nic.id, nic.model) == ("NIC0", "NET/5")
