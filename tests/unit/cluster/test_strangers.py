"""Dumps in the forms of issue threads and old versions, and node types by the names of clouds."""

from pathlib import Path

import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.pci import pci_kind

CATALOGUE = load_catalogue()
MATRIX = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPHB\t0-63\t0\t\tN/A
GPU1\tPHB\t X \t0-63\t0\t\tN/A

Legend:

  X    = Self
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
"""
STATES = """
GPU peer-access matrix (topo -p2p rw)

 \tGPU0\tGPU1\t
 GPU0\tX\tGNS\t
 GPU1\tGNS\tX\t

Legend:

  X    = Self
  GNS  = GPU not supported
"""
FOUR = """        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV18    NV18    NV18    0-71    0,3-9
GPU1    NV18     X      NV18    NV18    0-71    0,3-9
GPU2    NV18    NV18     X      NV18    72-143  1,19-25
GPU3    NV18    NV18    NV18     X      72-143  1,19-25
"""
OLD_LOG = """node:26:76 [0] NCCL INFO === System : maxWidth 12.5 totalWidth 72.0 ===
node:26:76 [0] NCCL INFO CPU/0 (1/2/4)
node:26:76 [0] NCCL INFO + SYS[5000.0] - CPU/1
node:26:76 [0] NCCL INFO + PCI[24.0] - PCI/31000 (1000c01010000000)
node:26:76 [0] NCCL INFO               + PCI[24.0] - GPU/47000 (0)
node:26:76 [0] NCCL INFO                             + XGMI[24.0] - GPU/4C000
node:26:76 [0] NCCL INFO               + PCI[24.0] - GPU/4C000 (1)
node:26:76 [0] NCCL INFO                             + XGMI[24.0] - GPU/47000
node:26:76 [0] NCCL INFO ==========================================
"""


def read(folder: Path, text: str, name: str = "dump.txt") -> Cluster:
    (folder / name).write_text(text)
    return load_dump(folder / name, CATALOGUE)


@pytest.mark.parametrize("text", [MATRIX + STATES, STATES + "\n" + MATRIX])
def test_a_matrix_is_not_lost_beside_the_states_of_peer_to_peer(tmp_path, text):
    cluster = read(tmp_path, text)

    assert [(link.a, link.b, link.kind) for link in cluster.links] == [("GPU0", "GPU1", "PHB")]
    assert [d.cpu_affinity for d in cluster.devices] == ["0-63", "0-63"]
    (said,) = [
        warning for warning in cluster.warnings if warning.startswith("no peer-to-peer between 1 pair (GPU0-GPU1)")
    ]
    assert said.endswith("so that copies go through the host's memory, slower than their link")


@pytest.mark.parametrize(
    "line",
    ["GPU 0,1,2,3: NVIDIA GB200", "GPU 0-3: NVIDIA GB200", "GPU: 4 * NVIDIA GB200", "| GPU | 4 x NVIDIA GB200 |"],
)
def test_a_report_that_names_all_gpus_in_one_line_settles_their_links(tmp_path, line):
    cluster = read(tmp_path, f"{line}\nNVIDIA Topology:\n{FOUR}")

    assert {d.model for d in cluster.of_kind("gpu")} == {"gb200"}
    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {900e9}


def test_a_line_about_several_gpus_that_is_no_name_settles_nothing(tmp_path):
    cluster = read(tmp_path, f"GPU 0,1,2,3 Compute Capability: 10.0\n{FOUR}")

    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {None}


def test_the_picture_of_an_old_nccl_says_width_for_bandwidth(tmp_path):
    cluster = read(tmp_path, OLD_LOG)

    between = [link for link in cluster.links if link.kind == "xGMI"]
    assert len(cluster.of_kind("gpu")) == 2
    assert [(link.a, link.b, link.bandwidth_bytes_per_s) for link in between] == [("GPU0", "GPU1", 24e9)]


@pytest.mark.parametrize(
    ("called", "key"),
    [
        ("p5.48xlarge", "aws-p5"),
        ("p6-b300.48xlarge", "aws-p6-b300"),
        ("BM.GPU.H100.8", "oci-h100"),
        ("BM.GPU.B4.8", "oci-gpu4-8"),
        ("p4de.24xlarge", "aws-p4de"),
        ("a3-megagpu-8g", "gcp-a3-mega"),
        ("Standard_ND96isr_H100_v5", "azure-nd-h100-v5"),
        ("Standard_ND96isr_H200_v5", "azure-nd-h200-v5"),
        ("dgx-h100", "dgx-h100"),
    ],
)
def test_a_node_type_goes_by_the_name_that_its_cloud_gives_it(called, key):
    cluster = catalogue_cluster(CATALOGUE, called, gpus=16)

    assert cluster.name == key
    assert [(group.type, group.count) for group in cluster.groups] == [(key, 2)]


@pytest.mark.parametrize("called", ["Standard_ND128isr_GB300_v6", "p6e-gb200.36xlarge", "BM.GPU.GB200.4"])
def test_a_tray_of_a_rack_in_a_cloud_is_one_of_eighteen_of_its_domain(called):
    (group,) = catalogue_cluster(CATALOGUE, called, gpus=144).groups

    assert (group.gpus, group.scale_up_nodes, group.count) == (4, 18, 36)


def test_a_cloud_s_name_that_is_not_known_gets_the_nearest():
    with pytest.raises(InputError, match=r"no node type 'p6-b400.48xlarge' .*did you mean p6-b[23]00.48xlarge\?"):
        CATALOGUE.node("p6-b400.48xlarge")


def test_no_two_node_types_share_a_name():
    names = [name.lower() for key, node in CATALOGUE.nodes.items() for name in (key, *node.aliases)]

    assert len(names) == len(set(names))


def test_of_two_gpus_behind_a_switch_the_one_with_a_link_down_is_named(tmp_path):
    def gpu(number: int, bus: str, last: int) -> str:
        counts = {"05": 4, "06": 5, "07": 5, "08": last}
        links = "".join(f'<nvlink target="0000:{t}:00.0" count="{c}" tclass="0x068000"/>' for t, c in counts.items())
        return (
            f'<pci busid="0000:{bus}:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s" '
            f'link_width="16"><gpu dev="{number}" sm="90" rank="{number}" gdr="1">{links}</gpu></pci>'
        )

    def system(last: int) -> str:
        return (
            '<system version="1"><cpu numaid="0" affinity="ffffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" '
            f'modelid="143">{gpu(0, "18", 4)}{gpu(1, "2a", last)}</cpu></system>'
        )

    whole, sick = read(tmp_path, system(4), "whole.xml"), read(tmp_path, system(3), "sick.xml")

    assert not any("down" in w for w in whole.warnings)
    assert "GPU1 has 17 of 18 NVLinks: 1 is down" in sick.warnings


def test_the_console_of_an_old_server_is_no_accelerator():
    assert pci_kind("0300", "1002", "515e") is None  # ES1000
    assert pci_kind("0300", "1002", "6798") == "gpu"


def test_lstopo_1_may_begin_with_the_one_numa_node_of_a_machine(tmp_path):
    dump = tmp_path / "one.xml"
    dump.write_text(
        '<?xml version="1.0"?>\n<topology>\n'
        '<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="2147074048">\n'
        '<object type="Package" os_index="0" cpuset="0x3"><object type="Core" os_index="0" cpuset="0x3">'
        '<object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>'
        "</object></object></object>\n</topology>\n"
    )

    cluster = load_dump(str(dump), CATALOGUE)

    assert [(d.id, d.cores) for d in cluster.devices] == [("CPU0", 1)]
    assert cluster.hosts[0].memory_bytes == 2147074048


def test_a_copy_of_sys_from_power9_has_the_gpus_that_the_driver_lists(tmp_path):
    # no ids of vendors, affinity as a mask, GPUs whose memory is a NUMA node of its own; a NUL ends a list of CPUs
    for number, (cpus, gpus) in {0: ("0-15", ["0004:05:00.0", "0004:06:00.0"]), 8: ("64-79", ["0035:04:00.0"])}.items():
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_bytes(f"{cpus}\n\0".encode())
        for gpu in gpus:
            function = tmp_path / "sys/bus/pci/devices" / gpu
            function.mkdir(parents=True)
            (function / "class").write_text("0x030000\n")
            (function / "local_cpus").write_text({0: "0000,00000000,0000ffff\n", 8: "ffff,00000000,00000000\n"}[number])
            driver = tmp_path / "proc/driver/nvidia/gpus" / gpu
            driver.mkdir(parents=True)
            (driver / "numa_status").write_text(f"Node:      {250 + int(gpu[6])}\nStatus:    online\n")
            (driver / "information").write_text("Model: \t\t Tesla V100-SXM2-16GB\nIRQ:   \t\t 507\n")

    cluster = load_dump(tmp_path / "sys", CATALOGUE)

    assert [(cpu.numa, cpu.cpu_affinity) for cpu in cluster.of_kind("cpu")] == [(0, "0-15"), (8, "64-79")]
    assert [(gpu.model, gpu.numa, gpu.memory_numa) for gpu in cluster.of_kind("gpu")] == [
        ("v100-16g", 0, 255),
        ("v100-16g", 0, 256),
        ("v100-16g", 8, 254),
    ]
    assert (
        "GPU0, GPU1, GPU2: the bridges above are not in this copy of /sys: no PCIe links are known" in cluster.warnings
    )


@pytest.mark.parametrize(
    ("shown", "key"),
    [
        ("GH100 [H100 SXM5 80GB]", "h100"),
        ("GH100 [H200 SXM 141GB]", "h200"),
        ("GH100 [GH200 120GB / 480GB]", "gh200"),
        ("GA100 [A100 PCIe 80GB]", "a100-80g-pcie"),
        ("GV100GL [Tesla V100 SXM2 32GB]", "v100-32g"),
        ("AD102GL [L40S]", "l40s"),
        ("Aqua Vanjaram [Instinct MI300X]", "mi300x"),
        ("Instinct MI210", "mi210"),
        ("NVIDIA H100", None),  # SXM and PCIe are called so in prose
        ("[Instinct]", None),
    ],
)
def test_an_accelerator_goes_by_the_name_that_lspci_shows(shown, key):
    assert CATALOGUE.driver_key(shown) == key
