"""Readers beside the matrix: AMD's JSON, NVIDIA's queries, hwloc's links to switches and CPUs, SLURM's blocks."""

import json
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.cluster.analysis import analyse
from meshwright.cluster.compact import compact
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.dumps.detect import READERS, parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.pci import pci_kind
from tests.unit.cluster.machines import as_matrix, as_rocm, as_xgmi, machine

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("pci_class", "vendor", "device", "kind"),
    [
        ("0x030200", "0x10de", "0x2330", "gpu"),
        ("0300", "10de", "2684", "gpu"),
        ("0x120000", "0x1002", "0x74a1", "gpu"),
        ("0x038000", "0x1002", "0x740c", "gpu"),
        ("0x120000", "0x1da3", "0x1060", "gpu"),
        ("0x038000", "0x8086", "0x0bd5", "gpu"),  # Max 1550
        ("0xff0000", "0x1ae0", "0x0062", "gpu"),  # TPU v5p
        ("0x088000", "0x1d0f", "0x7364", "gpu"),  # Trainium2
        ("0x030000", "0x1002", "0x164e", None),  # graphics of a Ryzen
        ("0x030000", "0x8086", "0x4680", None),  # graphics of a Core
        ("0x030000", "0x1a03", "0x2000", None),  # a console
        ("0x030000", "0x102b", "0x0538", None),
        ("0x040300", "0x10de", "0x22ba", None),  # the sound of a card
        ("0x068000", "0x10de", "0x22a3", None),  # an NVSwitch
        ("0x010802", "0x1ae0", "0x001f", None),
        ("0x020700", "0x15b3", "0x1021", "nic"),
        ("0x020000", "0x1d0f", "0xefa2", "nic"),
    ],
)
def test_one_table_says_what_an_accelerator_is(pci_class, vendor, device, kind):
    assert pci_kind(pci_class, vendor, device) == kind


def rocm_json() -> dict[str, object]:
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    system = {f"(Topology) Weight between DRM devices {i} and {j}": "15" for i, j in pairs}
    system |= {f"(Topology) Hops between DRM devices {i} and {j}": "1" for i, j in pairs}
    system |= {f"(Topology) Link type between DRM devices {i} and {j}": "XGMI" for i, j in pairs}
    cards = {f"card{i}": {"(Topology) Numa Node": str(i // 2), "(Topology) Numa Affinity": "0"} for i in range(4)}
    return {"system": system, **cards}


def amd_json() -> list[dict[str, object]]:
    def link(i: int, j: int) -> dict[str, object]:
        same = i == j
        return {
            "gpu": j,
            "bdf": f"0000:0{j}:00.0",
            "weight": 0 if same else 15,
            "link_type": "SELF" if same else "XGMI",
            "num_hops": 0 if same else 1,
            "bandwidth": "N/A" if same else "64000-64000",
        }

    return [{"gpu": i, "bdf": f"0000:0{i}:00.0", "links": [link(i, j) for j in range(4)]} for i in range(4)]


def test_a_pair_without_access_in_the_json_of_rocm_smi_is_said_and_has_no_rate(tmp_path):
    data = rocm_json()
    access = {(i, j): (i, j) != (1, 3) for i in range(4) for j in range(i + 1, 4)}
    key = "(Topology) Link accessibility between DRM devices {} and {}"
    data["system"] |= {key.format(*pair): str(reached) for pair, reached in access.items()}
    (tmp_path / "dump.json").write_text(json.dumps(data))

    cluster = load_dump(tmp_path / "dump.json", CATALOGUE, "mi300x")

    assert [(k.a, k.b) for k in cluster.links if k.bandwidth_bytes_per_s is None] == [("GPU1", "GPU3")]
    assert any("no peer access between 1 pair of GPUs (GPU1-GPU3)" in warning for warning in cluster.warnings)


@pytest.mark.parametrize("data", [rocm_json(), amd_json()], ids=["rocm-smi", "amd-smi"])
def test_the_json_of_amds_tools_is_read(data, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(data))
    cluster = load_dump(path, CATALOGUE, "mi300x")

    assert {(k.kind, k.bandwidth_bytes_per_s) for k in cluster.links} == {("xGMI", 64e9)}
    assert len(cluster.links) == 6
    if isinstance(data, dict):
        assert [d.numa for d in cluster.devices] == [0, 0, 1, 1]


def test_some_columns_of_rocm_smi_are_the_gpus_that_there_are():
    def table(title: str, cell: str) -> str:
        rows = [f"GPU{a}  " + "  ".join("0" if a == b else cell for b in (1, 3)) for a in (1, 3)]
        return f"{f' {title} ':=^60}\n      GPU1  GPU3\n" + "\n".join(rows) + "\n"

    text = table("Weight between two GPUs", "15") + table("Link Type between two GPUs", "XGMI")
    cluster = parse_dump(text, "d", CATALOGUE, "mi300x")

    assert [(k.a, k.b, k.bandwidth_bytes_per_s) for k in cluster.links] == [("GPU1", "GPU3", 64e9)]


QUERY = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><attached_gpus>2</attached_gpus>{gpus}</nvidia_smi_log>"""
GPU = """<gpu id="00000000:1{n}:00.0"><product_name>NVIDIA GB200</product_name>
<fb_memory_usage><total>189471 MiB</total></fb_memory_usage>
<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>
<current_link_width>{lanes}x</current_link_width></link_widths></pci_gpu_link_info></pci>
<fabric><state>{state}</state><status>Success</status><cliqueId>3</cliqueId><clusterUuid>aa-1</clusterUuid></fabric>
</gpu>"""


def test_the_xml_of_a_query_names_gpus_their_domain_and_their_faults():
    gpus = GPU.format(n=0, lanes=16, state="Completed") + GPU.format(n=1, lanes=8, state="In Progress")
    cluster = parse_dump(QUERY.format(gpus=gpus), "q", CATALOGUE)

    assert [(d.model, d.domain, d.memory_bytes) for d in cluster.devices] == [("gb200", "aa-1.3", 189471 * 2**20)] * 2
    assert "GPU1 is not registered with its NVLink fabric (state In Progress, status Success)" in cluster.warnings
    assert "GPU1 has 8 of 16 PCIe lanes trained" in cluster.warnings


ILL = """<health><summary>{}</summary><bandwidth>{}</bandwidth><route_unhealthy>{}</route_unhealthy>
<incorrect_configuration>None</incorrect_configuration></health></fabric>"""


def test_what_ails_a_gpu_in_its_fabric_is_said_and_of_sound_ones_nothing():
    states = [("Healthy", "Full", "False"), ("Unhealthy", "Degraded", "False"), ("Unhealthy", "N/A", "True")]
    gpus = [
        GPU.format(n=n, lanes=16, state="Completed").replace("</fabric>", ILL.format(*state))
        for n, state in enumerate(states)
    ]
    cluster = parse_dump(QUERY.format(gpus="".join(gpus)), "q", CATALOGUE)

    assert [said for said in cluster.warnings if "sound" in said] == [
        "GPU1 is not sound in its NVLink fabric (Summary: Unhealthy, Bandwidth: Degraded), so that its NVLinks carry "
        "less than their full rate",
        "GPU2 is not sound in its NVLink fabric (Summary: Unhealthy, Route Unhealthy: True)",
    ]


def test_the_text_of_a_query_says_what_ails_a_gpu_as_its_xml_does():
    text = """Attached GPUs                             : 1
GPU 00000009:06:00.0
    Product Name                          : NVIDIA GB300
    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Summary                       : Limited Capacity
            Bandwidth                     : Degraded
            Route Recovery in progress    : True
            Route Unhealthy               : False
"""
    (said, *_) = parse_dump(text, "q", CATALOGUE).warnings

    assert "(Summary: Limited Capacity, Bandwidth: Degraded, Route Recovery in progress: True)" in said


@pytest.mark.parametrize(("up", "is_said"), [(True, True), (False, False)])
def test_a_gpu_of_which_no_link_is_up_is_sick_only_beside_gpus_whose_links_are(up, is_said):
    link = "\t Link 0: 25 GB/s\n" if up else "NVML: unable to retrieve NVLink information as all links are inActive\n"
    text = (
        f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)\n{link}GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)\n"
        "NVML: unable to retrieve NVLink information as all links are inActive\n"
    )
    warnings = parse_dump(text, "s", CATALOGUE).warnings

    assert any("GPU1: all of its NVLinks are inactive" in said for said in warnings) is is_said


def test_links_that_are_inactive_are_counted_as_down():
    text = "".join(
        f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: GPU-{i})\n"
        + "".join(f"\t Link {n}: {'<inactive>' if (i, n) == (1, 4) else '25 GB/s'}\n" for n in range(12))
        for i in range(2)
    )
    cluster = parse_dump(text, "s", CATALOGUE)

    assert [(k.kind, k.bandwidth_bytes_per_s) for k in cluster.links] == [("NV11", 275e9)]
    assert "GPU1 has 11 of 12 NVLinks up: 1 down (link 4)" in cluster.warnings


def hwloc(distances: str) -> str:
    gpus = "".join(
        f'<object type="PCIDev" gp_index="{20 + n}" pci_busid="000{n}:01:00.0" '
        f'pci_type="0302 [10de:{device}] [0:0] a1">'
        f'<object type="OSDev" gp_index="{10 + n}" name="nvml{n}" osdev_type="5"/></object>'
        for n, device in enumerate(["15f9", "15f9", "15f9"])
    )
    switches = "".join(
        f'<object type="PCIDev" gp_index="{40 + n}" pci_busid="001{n}:01:00.0" pci_type="0680 [10de:1ac2] [0:0] a1"/>'
        for n in range(2)
    )
    return (
        '<topology version="2.0"><object type="Machine" nodeset="0x1"><object type="Package" gp_index="3" '
        'cpuset="0x3" nodeset="0x1"><object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1"/>'
        '<object type="PU" os_index="0"/><object type="PU" os_index="1"/>'
        f"{gpus}{switches}</object></object>{distances}</topology>"
    )


def test_links_of_hwloc_to_a_cpu_and_between_gpus_are_kept_apart():
    matrix = (
        '<distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth"><indexes>OSDev:10 OSDev:11 Package:3 </indexes>'
        "<u64values>1000000 40000 40000 40000 1000000 </u64values><u64values>0 40000 0 1000000 </u64values>"
        "</distances2hetero>"
    )
    found = {(k.a, k.b): (k.kind, k.bandwidth_bytes_per_s) for k in parse_dump(hwloc(matrix), "h", CATALOGUE).links}

    assert found["GPU0", "GPU1"] == ("NV2", 40e9)
    assert {found["GPU0", "CPU0"], found["GPU2", "CPU0"]} == {("NV2", 40e9), ("PCIe", None)}
    assert found["GPU0", "GPU2"][0] == "NODE"


def test_gpus_of_hwloc_meet_through_the_switches_that_both_reach():
    indexes = ["OSDev:10", "OSDev:11", "OSDev:12", "PCIDev:40", "PCIDev:41"]
    row = "0 0 0 25000 25000 "
    matrix = (
        f'<distances2hetero nbobjs="5" kind="25" name="NVLinkBandwidth"><indexes>{" ".join(indexes)}</indexes>'
        f"<u64values>{row * 2}0 0 0 25000 0 25000 25000 25000 0 0 25000 25000 0 0 0 </u64values></distances2hetero>"
    )
    found = {(k.a, k.b): k.bandwidth_bytes_per_s for k in parse_dump(hwloc(matrix), "h", CATALOGUE).links}

    assert found["GPU0", "GPU1"] == 50e9
    assert found["GPU1", "GPU2"] == 25e9


def test_a_matrix_of_hwloc_with_missing_values_is_refused():
    with pytest.raises(InputError, match="3 values for 2 objects, expected 4"):
        parse_dump(
            hwloc(
                '<distances2 name="NVLinkBandwidth"><indexes>10 11</indexes><u64values>1 2 3</u64values></distances2>'
            ),
            "h",
            CATALOGUE,
        )


def test_larger_blocks_of_slurm_stand_above_the_small_ones():
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    )
    placements = {p.node: (p.switches, p.block) for p in parse_dump(text, "s", CATALOGUE).placements}

    assert placements["n1"] == (("b1", "b[1-2]"), "b1")
    assert placements["n4"] == (("b2", "b[1-2]"), "b2")


def test_blocks_of_a_topology_yaml_are_read():
    text = """
- topology: racks   # the NVLink domains
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
    - block: b1
      nodes: "n[1-2]"
    - block: b2
      nodes: n[3-4]
"""
    placements = {p.node: p.block for p in parse_dump(text, "y", CATALOGUE).placements}

    assert placements == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- topology: a\n  tree:\n    switches: 3\n", "tree: expected a list switches"),
        ("- topology: a\n  tree: {x: 1}\n", "expected a plain value"),
        ("- topology: a\n   odd: 1\n", "expected key: value|indented unlike"),
        ("- topology: a\n  topology: b\n", "stands twice"),
        ("- topology: a\n", "no nodes below any switch"),
        ("- topology: a\n\ttree:\n", "tab"),
    ],
)
def test_a_broken_topology_yaml_is_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_dump(text, "y", CATALOGUE)

    assert "\n" not in str(caught.value)


def test_the_matrix_of_a_machine_whose_names_are_cut_short_is_settled_by_what_begins_so():
    text = as_matrix(machine("dgx-h200")).split("UUID")[0].split("GPU 0")[0]
    table = (
        "|   0  NVIDIA H200 NV...          On  |   00000000:18:00.0 Off |                    0 |\n"
        "|   1  NVIDIA H200 NV...          On  |   00000000:2A:00.0 Off |                    0 |\n"
    )
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"

    assert not text
    assert {d.model for d in parse_dump(table + matrix, "t", CATALOGUE).devices} == {"h200-nvl"}


def test_a_tray_that_is_planned_for_a_rack_is_asked_for_its_domain(tmp_path, capsys):
    tray = "\t".join(["", *(f"GPU{i}" for i in range(4))]) + "\n"
    tray += "\n".join(f"GPU{i}\t" + "\t".join(" X " if i == j else "NV18" for j in range(4)) for i in range(4))
    (tmp_path / "tray.txt").write_text(tray + "\n")
    job = ["plan", "--model", "llama3-8b", "--gpus", "72", "--global-batch", "144", "--layout", "tp=8,dp=9,mbs=1"]
    read = ["topo", "--from", str(tmp_path / "tray.txt"), "--gpu", "gb200", "--save", str(tmp_path / "tray.json")]

    assert run_command(read) == 0
    assert run_command([*job, "--cluster", str(tmp_path / "tray.json"), "--inter", "1600Gbps"]) == 2
    assert "one tray of an NVLink domain" in capsys.readouterr().err
    assert run_command([*read, "--domain", "18"]) == 0
    assert run_command([*job, "--cluster", str(tmp_path / "tray.json"), "--json"]) == 0


def test_a_c2c_link_prices_what_crosses_to_the_cpu():
    text = (
        '<system version="1"><cpu numaid="0" affinity="ffff" arch="arm64"><pci busid="0009:01:00.0" class="0x030200" '
        'vendor="0x10de" device="0x2342" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" rank="0" '
        'gdr="1"><c2c bw="44712" count="10"/></gpu></pci></cpu></system>'
    )
    cluster = parse_dump(text, "n", CATALOGUE)

    assert cluster.of_kind("gpu")[0].model == "gh200"
    assert compact(cluster, CATALOGUE).groups[0].host_bandwidth_bytes_per_s == pytest.approx(447.12e9)


def test_whether_four_gpus_with_six_links_a_pair_are_behind_a_switch_is_open_until_named():
    matrix = "\t" + "\t".join(f"GPU{i}" for i in range(4)) + "\n"
    matrix += "\n".join(f"GPU{i}\t" + "\t".join(" X " if i == j else "NV6" for j in range(4)) for i in range(4))
    totals = [
        analyse(parse_dump(matrix + "\n", "m", CATALOGUE, gpu)).bisection_bytes_per_s
        for gpu in (None, "v100-32g", "h100", "h200-nvl")
    ]

    assert totals == [None, 2 * 150e9, 4 * 150e9, 4 * 150e9]


LSPCI = """00:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 30) (prog-if 00 [Normal decode])
\tNUMA node: 0
\tBus: primary=00, secondary=10, subordinate=15, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x8 (downgraded)
10:00.0 PCI bridge [0604]: Broadcom / LSI PEX880xx PCIe Gen 4 Switch [1000:c010] (rev b0)
\tBus: primary=10, secondary=11, subordinate=15, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x8
11:00.0 PCI bridge [0604]: Broadcom / LSI PEX880xx PCIe Gen 4 Switch [1000:c010] (rev b0)
\tBus: primary=11, secondary=12, subordinate=12, sec-latency=0
\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x16
11:01.0 PCI bridge [0604]: Broadcom / LSI PEX880xx PCIe Gen 4 Switch [1000:c010] (rev b0)
\tBus: primary=11, secondary=13, subordinate=13, sec-latency=0
12:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)
13:00.0 Infiniband controller [0207]: Mellanox Technologies MT28908 Family [ConnectX-6] [15b3:101b]
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
80:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)
\tNUMA node: 1
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
"""


def test_lspci_gives_the_tree_by_its_buses_and_the_lanes_that_are_trained():
    cluster = parse_dump(LSPCI, "l", CATALOGUE)
    found = {(k.a, k.b): (k.kind, round((k.bandwidth_bytes_per_s or 0) / 1e9, 2)) for k in cluster.links}

    assert [(d.id, d.model, d.numa) for d in cluster.of_kind("gpu")] == [
        ("GPU0", "a100-80g-pcie", 0),
        ("GPU1", "a100-80g-pcie", 1),
    ]
    assert found["GPU0", "NIC0"] == ("PIX", 31.51)
    assert found["GPU0", "GPU1"] == ("SYS", 15.75)
    assert "GPU0: the PCIe link runs below its highest speed" in cluster.warnings[0]
    assert "GPU0 reaches its CPU at 15.8 GB/s" in analyse(cluster).verdicts[0]


PAGE = Path(__file__).parents[3] / "docs" / "topology.md"
DATA = Path(__file__).parent / "data" / "topologies"
# what each command of the page's table writes, and is read as
WRITTEN = {
    "nvidia-smi topo -m": as_matrix(machine("dgx-h100")),
    "nvidia-smi nvlink -s": (DATA / "nvlink_status.txt").read_text(),
    "nvidia-smi -q": QUERY.format(gpus=GPU.format(n=0, lanes=16, state="Completed")),
    "nvidia-smi topo -p2p r": (DATA / "smi_p2p.txt").read_text(),
    "dcgmi topo": (
        "| GPU ID: 0 | Topology Information |\n| CPU Core Affinity | 0 - 3 |\n"
        "| To GPU 1 | Connected via a single PCIe switch |\n"
    ),
    "dcgmi nvlink -s": "GPUs:\n    gpuId 0:\n        U U U D\n",
    "hl-smi topo -c -N": "modID   CPU Affinity   NUMA Affinity\n-----   ----   ----\n0       0-3, 8-11      0\n",
    "rocm-smi --showtopo": (DATA / "rocm_weights.txt").read_text(),
    "amd-smi topology": (DATA / "amdsmi_topology.txt").read_text(),
    "amd-smi xgmi": as_xgmi(4),
    "amd-smi static": "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n    NUMA:\n        NODE: 0\n",
    "lstopo --of xml": (DATA / "hwloc_mi300x.xml").read_text(),
    "lstopo": (DATA / "lstopo_text.txt").read_text(),
    "NCCL_TOPO_DUMP_FILE=FILE": (DATA / "nccl_two_switches.xml").read_text(),
    "NCCL_TOPO_FILE": (DATA / "nccl_topo_file_cloud_a.xml").read_text(),
    "NCCL_DEBUG=INFO": (DATA / "nccl_system_dump.txt").read_text(),
    "lspci -vvnn": LSPCI,
    "npu-smi info -t topo": "       NPU0  NPU1  CPU Affinity\nNPU0   X     HCCS  0-23\nNPU1   HCCS  X     24-47\n",
    "mx-smi topo -m": "      GPU0  GPU1  Node Affinity\nGPU0  X     MX    0\nGPU1  MX    X     0\n",
    "mthreads-gmi topo -m": "      GPU0  GPU1\nGPU0  X     MT2\nGPU1  MT2   X\n",
    "xpu-smi topology -m": "         GPU 0/0  GPU 0/1\nGPU 0/0  S        MDF\nGPU 0/1  MDF      S\n",
    "lspci -tv": "-[0000:00]-+-01.0-[01]----00.0  NVIDIA Corporation GH100 [H100 PCIe]\n",
    "numactl -H": "node 0 cpus: 0 1\nnode 0 size: 10 MB\n",
    "scontrol show topology": (DATA / "slurm_mixed.conf").read_text(),
    "scontrol show node": "NodeName=n0 Arch=x86_64 CoresPerSocket=8\n   Gres=gpu:a100:2\n",
    "topology.yaml": (DATA / "slurm_tree.yaml").read_text(),
    "kubectl get nodes --show-labels": (
        "NAME  STATUS  ROLES  AGE  VERSION  LABELS\nn0  Ready  <none>  1d  v1.31  network.topology.nvidia.com/leaf=l0\n"
    ),
    "aws ec2 describe-instance-topology": '{"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["nn-1", "nn-2"]}]}',
    "gcloud compute instances": (
        "name: a-1\nresourceStatus:\n  physicalHostTopology:\n    block: b\n    cluster: c\n    subblock: s\n"
    ),
    "ibstat": "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n",
    "ethtool": "Settings for ens1np0:\n\tSpeed: 200000Mb/s\n\tLink detected: yes\n",
    "fi_info -v": (
        "    nic:\n        fi_device_attr:\n            name: rdmap1s0\n"
        "        fi_link_attr:\n            mtu: 8760\n            speed: 100000000000\n            state: FI_LINK_UP\n"
    ),
    "lldpctl": (
        "LLDP neighbors:\n----\nInterface:    eth2, via: LLDP, RID: 1\n  Chassis:\n    SysName:      leaf1\n  Port:\n"
        "    PortID:       ifname swp3\n      MAU oper type: 100GbaseCR4 - 100GBASE-R\n"
    ),
    "ibnetdiscover": 'Switch 36 "S-1" # "leaf0"\n[1] "H-1"[1](a1) # "node01 mlx5_0"\nCa 1 "H-1" # "node01 mlx5_0"\n',
}


def commands_of_the_page() -> list[str]:
    part = PAGE.read_text().split("## What is read")[1].split("\n## ")[0]
    return [row.split("|")[1].strip() for row in part.splitlines() if row.startswith("|")][2:]


def test_the_page_names_each_command_that_is_read_and_no_other():
    page = [command.strip("`") for command in commands_of_the_page() if not command.startswith("a copy of")]

    assert page == sorted(WRITTEN, key=page.index)
    assert {reader.command for reader in READERS} <= set(page)
    assert len(commands_of_the_page()) == len(page) + 1  # and a copy of /sys, a folder


@pytest.mark.parametrize("command", WRITTEN)
def test_what_a_command_of_the_page_writes_is_read(command):
    text = WRITTEN[command]
    cluster = parse_dump(text, "d", CATALOGUE)

    assert cluster.devices or cluster.placements
    told = next((reader.command for reader in READERS if reader.looks(text)), None)
    assert told in {command, "rocm-smi --showtopo", None}


@pytest.mark.parametrize(
    ("gcn", "device", "rate", "model"),
    [
        ("906", "66a1", 46, "mi50"),
        ("908", "738c", 46, "mi100"),
        ("910", "7408", 50, "mi250x-gcd"),
        ("940", "74a0", 128, "mi300a"),
        ("gfx942", "74a1", 64, "mi300x"),
        ("gfx950", "75a3", 76.8, "mi355x"),
    ],
)
def test_rccl_names_architectures_by_number_or_by_name(gcn, device, rate, model):
    gpus = "".join(
        f'<pci busid="0000:0{i}:00.0" class="0x038000" vendor="0x1002" device="0x{device}" link_speed="16 GT/s" '
        f'link_width="16"><gpu dev="{i}" sm="90" gcn="{gcn}" rank="{i}" gdr="1">'
        f'<xgmi target="0000:0{1 - i}:00.0" count="1" tclass="0x038000"/></gpu></pci>'
        for i in range(2)
    )
    text = f'<!-- of RCCL --><system version="2"><cpu numaid="0" affinity="ff" arch="x86_64">{gpus}</cpu></system>'
    cluster = parse_dump(text, "x", CATALOGUE)

    assert {d.model for d in cluster.of_kind("gpu")} == {model}
    assert [k.bandwidth_bytes_per_s for k in cluster.links if k.kind == "xGMI"] == [rate * 1e9]


def test_the_speed_of_a_link_that_sleeps_is_no_rate():
    text = (DATA / "hwloc_igpu.xml").read_text().replace("3.938462", "4.000000")
    cluster = parse_dump(text, "h", CATALOGUE)

    assert {k.bandwidth_bytes_per_s for k in cluster.links} == {None}
    assert any("GPU0: the PCIe link was asleep" in warning for warning in cluster.warnings)
    assert compact(cluster, CATALOGUE).groups[0].host_bandwidth_bytes_per_s == 31e9


def test_a_log_of_nccl_with_several_gpus_joins_them_directly_or_through_a_switch():
    start, end = "n:1:2 [0] NCCL INFO === System : maxBw 48.0 totalBw 96.0 ===", "n:1:2 [0] NCCL INFO ====="
    prefix = "n:1:2 [0] NCCL INFO "

    def log(lines: list[str]) -> str:
        return "\n".join([start, *(prefix + line for line in lines), end, "n:9:9 [1] NCCL INFO other"])

    direct = log([
        "CPU/0-0 (1/1/2)",
        "+ PCI[24.0] - GPU/0-1000 (0)",
        "              + NVL[40.0] - GPU/0-2000",
        "+ PCI[24.0] - GPU/0-2000 (1)",
        "              + NVL[40.0] - GPU/0-1000",
    ])  # fmt: skip
    switched = log([
        "CPU/0 (1/1/2)",
        "+ PCI[24.0] - GPU/1000 (0)",
        "              + NVL[240.0] - NVS/0",
        "+ PCI[24.0] - GPU/2000 (1)",
        "              + NVL[200.0] - NVS/0",
    ])  # fmt: skip
    amd = direct.replace("NVL[", "XGMI[")
    found = [
        [(k.kind, k.bandwidth_bytes_per_s) for k in parse_dump(text, "l", CATALOGUE).links if "GPU" in k.b]
        for text in (direct, switched, amd)
    ]

    assert found == [[("NVLink", 40e9)], [("NVLink", 200e9)], [("xGMI", 40e9)]]


def test_pcie_6_is_no_link_that_sleeps():
    text = (DATA / "hwloc_igpu.xml").read_text().replace("3.938462", "121.000000")

    assert 121e9 in {k.bandwidth_bytes_per_s for k in parse_dump(text, "h", CATALOGUE).links}


def test_a_pair_that_rocm_smi_routes_in_a_mesh_is_named():
    text = (
        as_rocm(machine("mi300x-8"))
        .replace(
            "GPU2   15           15           0            15           15           15           15           15",
            "GPU2   15           15           0            15           15           15           30           15",
        )
        .replace(
            "GPU6   15           15           15           15           15           15           0            15",
            "GPU6   15           15           30           15           15           15           0            15",
        )
    )

    assert analyse(parse_dump(text, "r", CATALOGUE)).verdicts == ("GPU2-GPU6 has no own links in use, other pairs 1",)


def listed_links(gpu, name, up, down=()):
    lines = [f"GPU {gpu}: {name} (UUID: GPU-{gpu})"]
    lines += [f"         Link {n}: {'<inactive>' if n in down else '25.781 GB/s'}" for n in range(up)]
    return "\n".join(lines) + "\n"


def test_two_gpus_of_a_list_that_begins_later_are_not_taken_for_all():
    v100 = "Tesla V100-SXM2-32GB"
    cluster = parse_dump("...\n" + listed_links(2, v100, 6) + listed_links(3, v100, 6, down=(3, 5)), "d", CATALOGUE)

    assert not cluster.links
    assert "GPU3 has 4 of 6 NVLinks up: 2 down (links 3, 5)" in cluster.warnings
    assert not any(warning.startswith("GPU2") for warning in cluster.warnings)


def test_links_below_the_cut_of_a_list_are_not_taken_for_missing():
    v100 = "Tesla V100-SXM2-32GB"
    cluster = parse_dump(listed_links(0, v100, 6) + listed_links(1, v100, 2) + "...\n", "d", CATALOGUE)

    assert not cluster.links
    assert "GPU1: 2 of its 6 NVLinks are in the list: it was cut" in cluster.warnings
