"""Dumps behind signs of comments, in Markdown, with empty nodes, and machines with odd links."""

import re
from collections import Counter

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

from .machines import as_matrix, as_rocm, as_sysfs, machine

CATALOGUE = load_catalogue()
COMMENTED = """nvidia-smi topo -m
#        GPU0   GPU1   GPU2   GPU3   NIC0   NIC1
# GPU0    X     NV18   NV18   NV18   PIX    SYS
# GPU1   NV18    X     NV18   NV18   PXB    SYS
# GPU2   NV18   NV18    X     NV18   SYS    PIX
# GPU3   NV18   NV18   NV18    X     SYS    PXB
"""
TREE = r"""lspci -tv
# -+-[0000:c0]-+-01.1-[c1-c4]----00.0-[c2-c4]--+-00.0-[c3]----00.0  NVIDIA Corporation GH100 [H100 SXM5 80GB]
#  |           |                               \-01.0-[c4]----00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
#  \-[0000:00]-+-01.1-[01]----00.0  Samsung Electronics Co Ltd NVMe SSD Controller
#              \-03.1-[02]----00.0  Intel Corporation Ethernet Controller X710 for 10GBASE-T
"""
SELF_LINKED = """<cpu numaid="{n}" affinity="000000ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
<pci busid="000{n}:00:00.0" class="0x030200" vendor="0x10de" device="0x20b5" link_speed="" link_width="0">
<gpu dev="{n}" sm="80" rank="{n}" gdr="1">
<nvlink target="000{n}:00:00.0" count="12" tclass="0x030200"/></gpu></pci></cpu>
"""


def read(text: str, gpu: str | None = None) -> Cluster:
    return parse_dump(text, "note.txt", CATALOGUE, gpu)


def between_gpus(cluster: Cluster) -> Counter[str]:
    gpus = {gpu.id for gpu in cluster.of_kind("gpu")}
    return Counter(link.kind for link in cluster.links if {link.a, link.b} <= gpus)


def test_a_matrix_behind_signs_of_comments_is_read():
    cluster = read(COMMENTED)

    assert between_gpus(cluster) == {"NV18": 6}
    assert {(k.a, k.b): k.kind for k in cluster.links}["GPU1", "NIC0"] == "PXB"


def test_a_tree_of_lspci_behind_signs_of_comments_is_read():
    cluster = read(TREE)

    assert [gpu.model for gpu in cluster.of_kind("gpu")] == ["h100"]
    assert len(cluster.of_kind("nic")) == 2


def test_lines_of_a_configuration_that_are_comments_stay_comments():
    cluster = read("# BlockName=old Nodes=n[01-99]\n# a rack\nBlockName=b1 Nodes=n[01-04]\nBlockSizes=4\n")

    assert len(cluster.placements) == 4


def test_tables_of_rocm_smi_in_markdown_are_read():
    def table(title: str, cell: str) -> str:
        names = [f"GPU{i}" for i in range(4)]
        rows = [f"| **{a}** | " + " | ".join("0" if a == b else cell for b in names) + " |" for a in names]
        return "\n".join([title, "| | " + " | ".join(names) + " |", "| :--- |" + " :--: |" * 4, *rows, ""])

    cluster = read(table("## Weight Between Two GPUs", "15") + table("**Link Type between two GPUs**", "XGMI"), "mi210")

    assert between_gpus(cluster) == {"xGMI": 6}
    assert analyse(cluster).bisection_bytes_per_s == pytest.approx(4 * 50e9)


def test_titles_of_rocm_smi_stand_in_capitals_too():
    plain = as_rocm(machine("mi300x-8"))
    shouted = re.sub("link type between two gpus", "LINK TYPE BETWEEN TWO GPUS", plain, flags=re.I)

    assert shouted != plain
    assert read(shouted).links == read(plain).links


def test_nodes_of_numactl_without_cpus_and_memory_are_not_shown():
    text = "node 0 cpus: 0 1 2 3\nnode 0 size: 4096 MB\nnode 1 cpus:\nnode 1 size: 1024 MB\n"
    text += "".join(f"node {n} cpus:\nnode {n} size: 0 MB\n" for n in range(2, 9))

    assert [device.id for device in read(text).devices] == ["CPU0", "MEM1"]
    with pytest.raises(InputError, match="a node stands twice"):
        read(text + "node 8 cpus:\n")


def test_a_pair_that_a_switch_does_not_join_is_named():
    lines = as_matrix(machine("dgx-a100-80g")).split("\n")
    header = next(line for line in lines if "CPU Affinity" in line)
    first, second = (header.split("\t").index(name) for name in ("GPU0", "GPU1"))
    for number, line in enumerate(lines):
        cells = line.split("\t")
        if cells[0] in {"GPU0", "GPU1"}:
            cells[second if cells[0] == "GPU0" else first] = "SYS"
            lines[number] = "\t".join(cells)
    sick, healthy = analyse(read("\n".join(lines))), analyse(read(as_matrix(machine("dgx-a100-80g"))))

    assert sick.verdicts == (
        "GPU0-GPU1 has no NVLink, although both reach the switch of the others: it is off between the two",
    )
    assert (sick.bisection_bytes_per_s or 0) <= (healthy.bisection_bytes_per_s or 0)


def test_links_of_a_gpu_to_itself_join_no_pair():
    cluster = read('<system version="1">' + "".join(SELF_LINKED.format(n=n) for n in range(4)) + "</system>")

    assert between_gpus(cluster) == {"SYS": 6}
    assert [gpu.numa for gpu in cluster.of_kind("gpu")] == [0, 1, 2, 3]
    assert {gpu.model for gpu in cluster.of_kind("gpu")} == {"a100-80g-pcie"}


def rocm_tables(count: int) -> str:
    names = [f"GPU{i}" for i in range(count)]
    rows = [f"{a} " + " ".join("0" if a == b else "XGMI" for b in names) for a in names]
    return "\n".join(["====== Link Type between two GPUs ======", " ".join(names), *rows, ""])


@pytest.mark.parametrize(("gpu", "count"), [("mi300x", 64), (None, 64), ("mi300x", 16)])
def test_partitions_of_cards_are_not_taken_for_cards(gpu, count):
    cluster = read(rocm_tables(count), gpu)

    assert len(cluster.of_kind("gpu")) == count
    assert {device.model for device in cluster.devices} == {""}
    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {None}
    assert "they are partitions of cards (DPX, CPX)" in cluster.warnings[0]


@pytest.mark.parametrize(("gpu", "count"), [("mi300x", 8), ("mi250x", 8), (None, 8)])
def test_whole_cards_and_halves_of_cards_are_no_partitions(gpu, count):
    assert not any("partitions" in warning for warning in read(rocm_tables(count), gpu).warnings)


def test_a_line_of_a_topology_conf_goes_on_behind_a_backslash():
    text = "SwitchName=s1 Nodes=a[1-4] # first\nSwitchName=s2 \\\n  Nodes=b[1-4]\nSwitchName=top \\\n Switches=s[1-2]\n"

    assert [(place.node, place.switches) for place in read(text).placements][::4] == [
        ("a1", ("s1", "top")),
        ("b1", ("s2", "top")),
    ]


def test_a_card_whose_ports_are_down_has_no_rate_and_is_named(tmp_path):
    as_sysfs(machine("mi300x-8"), tmp_path)
    port = next(tmp_path.glob("**/class/infiniband/mlx5_3/ports/1"))
    (port / "rate").write_text("10 Gb/sec (4X SDR)\n")
    (port / "state").write_text("1: DOWN\n")

    cluster = load_dump(tmp_path, CATALOGUE)

    assert {nic.id for nic in cluster.of_kind("nic") if nic.network_bandwidth_bytes_per_s is None} == {"mlx5_3"}
    assert "mlx5_3: no port has a link, other cards have one: unused, or a cable or switch is dead" in cluster.warnings


SMI = """=== Weight between two GPUs ===
       GPU0  GPU1  GPU2
GPU0   0     15    {there}
GPU1   15    0     15
GPU2   15    15    0
=== Link Type between two GPUs ===
       GPU0  GPU1  GPU2
GPU0   0     XGMI  XGMI
GPU1   XGMI  0     XGMI
GPU2   XGMI  XGMI  0
=== Numa Nodes ===
GPU[0] : (Topology) Numa Node: 1
GPU[1] : (Topology) Numa Node: 2
GPU[1] : (Topology) Numa Node: {again}
"""


def test_a_gpu_that_is_said_to_be_on_two_numa_nodes_is_on_none():
    cluster = parse_dump(SMI.format(there=15, again=3), "t", CATALOGUE)

    assert [gpu.numa for gpu in cluster.of_kind("gpu")] == [1, None, None]
    assert "GPU1 is said to be on NUMA nodes 2 and 3: which is right is not known" in cluster.warnings
    assert [g.numa for g in parse_dump(SMI.format(there=15, again=2), "t", CATALOGUE).of_kind("gpu")] == [1, 2, None]


def test_weights_that_differ_there_and_back_are_said_and_the_larger_counts():
    cluster = parse_dump(SMI.format(there=30, again=2), "t", CATALOGUE, "mi300x")
    rates = {(link.a, link.b): link.bandwidth_bytes_per_s for link in cluster.links}

    assert rates["GPU0", "GPU2"] is None
    assert rates["GPU0", "GPU1"]
    assert any("(GPU0-GPU2: 30 and 15)" in warning for warning in cluster.warnings)


@pytest.mark.parametrize("tag", ["worker-0  | ", "[pod/bench-worker-0/main] ", "[1,0]<stdout>:", "[1,0]<stdout>: "])
def test_tags_of_launchers_before_each_line_of_a_matrix_are_taken_off(tag):
    rows = (
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity",
        "GPU0\t X \tNV4\tPIX\t0-7",
        "GPU1\tNV4\t X \tSYS\t8-15",
        "NIC0\tPIX\tSYS\t X ",
    )
    cluster = parse_dump("".join(f"{tag}{row}\n" for row in rows), "dump", CATALOGUE)

    assert [device.cpu_affinity for device in cluster.devices] == ["0-7", "8-15", None]
    assert {link.kind for link in cluster.links} == {"NV4", "PIX", "SYS"}


def test_blanks_of_a_web_page_are_blanks():
    text = "    GPU0    GPU1\nGPU0     X      PHB\nGPU1    PHB      X\n".replace(" ", "&nbsp;")

    assert [link.kind for link in parse_dump(text, "dump", CATALOGUE).links] == ["PHB"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((4096, 4096, 4096), []),
        ((4096, 0, 4096), ["no memory on NUMA node 1 (2 CPUs), and on others there is"]),
        ((4096, 0, 0), ["no memory on NUMA nodes 1 (2 CPUs), 2 (2 CPUs), and on others there is"]),
        ((0, 0, 0), []),
    ],
)
def test_a_node_whose_cpus_have_no_memory_is_named_where_others_have_some(sizes, said):
    lines = [f"node {n} cpus: {2 * n} {2 * n + 1}\nnode {n} size: {size} MB\n" for n, size in enumerate(sizes)]
    warnings = read("".join(lines)).warnings

    assert [words.partition(":")[0] for words in warnings if "no memory" in words] == said
