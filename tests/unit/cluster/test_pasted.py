"""The traces that pasting leaves in a dump change nothing; damage is one line, no machine is silently empty."""

import random
import re
import time
from pathlib import Path

import pytest

from meshwright.cluster.compact import compact
from meshwright.cluster.dumps.detect import load_dumps, parse_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from tests.unit.cluster.machines import as_amd_smi, as_hwloc, as_matrix, as_nccl, as_rocm, as_sysfs, machine
from tests.unit.cluster.test_matrix import damaged, outcome

CATALOGUE = load_catalogue()
DATA = Path(__file__).parent / "data" / "topologies"
MATRICES = {name: as_matrix(machine(name)) for name in ("dgx-a100-80g", "dgx-h100", "dgx-1-v100")}
TEXTS = {
    **{path.name: path.read_text() for path in sorted(DATA.glob("*")) if path.suffix != ".gz"},
    **{f"{name} matrix": text for name, text in MATRICES.items()},
    **{f"h100 {write.__name__}": write(machine("dgx-h100")) for write in (as_nccl, as_hwloc)},
    **{f"mi300x {write.__name__}": write(machine("mi300x-8")) for write in (as_rocm, as_amd_smi, as_nccl, as_hwloc)},
}


def graph(cluster: Cluster) -> tuple[object, ...]:
    devices = [(d.id, d.kind, d.numa, d.cpu_affinity, d.model) for d in cluster.devices]
    return devices, [(k.a, k.b, k.kind, k.bandwidth_bytes_per_s) for k in cluster.links]


def markdown(text: str) -> str:
    rows = [line.split("\t") for line in text.splitlines() if line.startswith(("\t", "GPU0", "GPU1", "mlx"))]
    rows += [
        line.split("\t") for line in text.splitlines() if line[:4] in {f"GPU{i}" for i in range(2, 8)} and "\t" in line
    ]
    names = rows[0]
    ordered = [names, *sorted((r for r in rows[1:] if len(r) > 2), key=lambda r: names.index(r[0]))]
    lines = ["| " + " | ".join(cell.strip() for cell in row if cell or row is names) + " |" for row in ordered]
    return "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]])


PASTED = {
    "quoted": lambda t: "\n".join("> " + line for line in t.splitlines()),
    "quoted twice": lambda t: "\n".join("> > " + line for line in t.splitlines()),
    "host's name before each line": lambda t: "\n".join("node01: " + line for line in t.splitlines()),
    "time before each line": lambda t: "\n".join("2026-03-01 12:00:01,123 " + line for line in t.splitlines()),
    "time and level": lambda t: "\n".join("[2026-03-01T12:00:01Z] INFO: " + line for line in t.splitlines()),
    "rank before each line": lambda t: "\n".join("0: " + line for line in t.splitlines()),
    "fenced": lambda t: "My node:\n```\n" + t.split("\nLegend")[0].rstrip() + "\n```\nWhat is wrong with it?\n",
    "inside details": lambda t: "<details>\n<summary>topology</summary>\n\n```\n" + t + "\n```\n</details>\n",
    "a prompt above and below": lambda t: (
        "root@gpu:~# nvidia-smi topo -m\n" + t.split("\nLegend")[0] + "root@gpu:~# exit\n"
    ),
    "prose right below": lambda t: t.split("\nLegend")[0].rstrip() + "\nAs you can see, NVLink works.\n",
    "columns of blanks": lambda t: t.replace("\t", "    "),
    "an empty line after each": lambda t: t.replace("\n", "\n\n"),
    "indented": lambda t: "\n".join("        " + line for line in t.splitlines()),
}


@pytest.mark.parametrize("way", PASTED)
@pytest.mark.parametrize("name", MATRICES)
def test_what_pasting_adds_to_a_matrix_changes_nothing(name, way):
    right = graph(parse_dump(MATRICES[name], "d", CATALOGUE))
    found = parse_dump(PASTED[way](MATRICES[name]), "d", CATALOGUE)

    if way == "host's name before each line":  # one host: its name is no part of the ids
        assert {d.node for d in found.devices} == {""}
    assert graph(found) == right


def test_a_matrix_as_a_table_of_markdown_is_read():
    text = MATRICES["dgx-h100"]
    found = parse_dump(markdown(text), "d", CATALOGUE, "h100")

    assert [d.id for d in found.devices] == [d.id for d in parse_dump(text, "d", CATALOGUE).devices]
    assert [(k.a, k.b, k.kind) for k in found.links] == [
        (k.a, k.b, k.kind) for k in parse_dump(text, "d", CATALOGUE).links
    ]


def test_hosts_whose_lines_are_mixed_are_told_apart_by_their_prefix():
    lines = MATRICES["dgx-a100-80g"].splitlines()
    mixed = "\n".join(f"{host}: {line}" for line in lines for host in ("n1", "n2"))
    found = parse_dump(mixed, "d", CATALOGUE)

    assert {d.node for d in found.devices} == {"n1", "n2"}
    assert len(found.of_kind("gpu")) == 16


def test_cells_that_ran_together_are_told_apart():
    text = MATRICES["dgx-a100-80g"].replace("NV12\tNV12", "NV12NV12")

    assert graph(parse_dump(text, "d", CATALOGUE)) == graph(parse_dump(MATRICES["dgx-a100-80g"], "d", CATALOGUE))


@pytest.mark.parametrize("seed", range(500))
def test_damage_gives_one_line_or_a_machine_and_no_silence(seed):
    rng = random.Random(seed)
    name = rng.choice(sorted(TEXTS))
    cluster = outcome(damaged(TEXTS[name], rng))
    if isinstance(cluster, str):
        assert cluster.startswith("dump")
        assert "\n" not in cluster
        return
    ids = [device.id for device in cluster.devices]
    assert len(set(ids)) == len(ids)
    assert {end for link in cluster.links for end in (link.a, link.b)} <= set(ids)
    assert cluster.of_kind("gpu") or cluster.placements or cluster.warnings, name


def test_dumps_of_one_machine_complete_each_other_and_contradictions_are_named(tmp_path):
    m = machine("dgx-h100")
    without_names = "\n".join(line for line in as_matrix(m).splitlines() if "UUID" not in line)
    status = "".join(
        f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
        for i in range(8)
    )
    for name, text in {"m.txt": without_names, "s.txt": status, "t.xml": as_nccl(m)}.items():
        (tmp_path / name).write_text(text)
    both = load_dumps([tmp_path / "m.txt", tmp_path / "s.txt"], CATALOGUE)
    three = load_dumps([tmp_path / "m.txt", tmp_path / "s.txt", tmp_path / "t.xml"], CATALOGUE)

    assert {k.bandwidth_bytes_per_s for k in both.links if k.kind == "NV18"} == {450e9}
    assert {d.model for d in both.of_kind("gpu")} == {"h100"}
    assert [d.network_bandwidth_bytes_per_s for d in three.of_kind("nic")] == [50e9] * 8
    assert len(three.links) > len(both.links)  # those to the CPUs

    (tmp_path / "other.txt").write_text(without_names.replace("NV18", "NV17"))
    odd = load_dumps([tmp_path / "m.txt", tmp_path / "other.txt"], CATALOGUE, "h100")
    assert any("NV18 in the first dump and NV17 in" in warning for warning in odd.warnings)


def test_trays_of_one_nvlink_domain_are_joined_by_the_domain_that_they_name(tmp_path):
    header = "\t" + "\t".join(f"GPU{i}" for i in range(4))
    rows = "\n".join(f"GPU{i}\t" + "\t".join(" X " if i == j else "NV18" for j in range(4)) for i in range(4))
    query = "".join(
        f"GPU 0000000{i}:01:00.0\n    Product Name                          : NVIDIA GB200\n    Fabric\n"
        "        State                             : Completed\n        Status                            : Success\n"
        "        CliqueId                          : 3\n        ClusterUUID                       : abcd-1\n"
        for i in range(4)
    )
    for host in ("tray1", "tray2", "tray3"):
        (tmp_path / f"{host}.txt").write_text(f"{query}{header}\n{rows}\n")
    cluster = load_dumps([tmp_path / f"tray{i}.txt" for i in (1, 2, 3)], CATALOGUE, one_machine=False)

    assert {d.domain for d in cluster.of_kind("gpu")} == {"abcd-1.3"}
    assert len([k for k in cluster.links if k.kind == "NV18"]) == 12 * 11 // 2
    assert {k.bandwidth_bytes_per_s for k in cluster.links} == {900e9}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Architecture:  x86_64\nCPU(s):  64\nThread(s) per core: 2\n", "this is lscpu"),
        ("-[0000:00]-+-00.0\n           +-01.0-[01]----00.0\n", "this is lspci -t"),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "this is sinfo"),
        ("eth0: flags=4163<UP>  mtu 1500\n", "this is ifconfig"),
        ("Settings for eth0:\n\tLink detected: yes\n", "this is ethtool without the speed"),
        ("hca_id:\tmlx5_0\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n", "this is ibv_devinfo"),
        ("GPUs:\n    gpuId 0:\n", "this is dcgmi nvlink"),
        ("n1:9:9 [0] NCCL INFO CUDA Dev 0[0], IB NIC distance :  PHB\n", "this is the log of an old NCCL"),
        ("Infiniband device 'mlx5_0' port 1 status:\n\tdefault gid:\t fe80::1\n", "this is ibstatus without the state"),
        ("  | GPU ID: 0         | Topology Information |\n  | CPU Core Affinity | 0 - 11 |\n", "this is dcgmi topo"),
        ("# Port info: Lid 2 port 36\nLinkState:.......................Down\n", "this is ibportstate"),
        (
            "| NEURON | NEURON |  NEURON  | NEURON |  PCI  |\n| DEVICE | CORES  | CORE IDS | MEMORY |  BDF  |\n",
            "this is neuron-ls",
        ),
        ("LLDP neighbors:\n----\nInterface:    eth2, via: LLDP\n", "this is lldpcli"),
        ("| HL-SMI Version:  hl-1.20.0 |\n|   0  HL-325L   N/A  | 0000:19:00.0 |\n", "this is hl-smi"),
        ("GPU: 0\n    BDF: 0000:05:00.0\n    UUID: 4aff74a1\n", "this is amd-smi"),
        ("Operational Info\n----\nState    : Active\nWidth    : 4x\n", "this is mlxlink without the speed"),
        ("2 GPUs found.\n| GPU ID | Device Information    |\n| 0      | Name: NVIDIA L4 |\n", "this is dcgmi"),
        ('<graphs version="1">\n<graph id="0" nchannels="2">\n</graph>\n</graphs>\n', "this is NCCL's choice of"),
    ],
)
def test_what_is_known_and_not_read_is_refused_by_its_name_with_what_is_wanted(text, what):
    with pytest.raises(InputError, match=f"dump: {what}.*; expected "):
        parse_dump(text, "dump", CATALOGUE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"lscpu": [{"field": "CPU(s):", "data": "64"}]}', "this is lscpu -J.*; expected numactl -H"),
        ('{"lldp": {"interface": [{"eth4": {"via": "LLDP"}}]}}', "this is lldpctl -f json.*; expected scontrol show"),
    ],
)
def test_json_that_is_known_and_not_read_is_refused_by_its_name(text, said, tmp_path):
    (tmp_path / "host.json").write_text(text)

    with pytest.raises(InputError, match=said):
        load_dumps([tmp_path / "host.json"], CATALOGUE)


def test_a_machine_of_numactl_has_its_nodes_and_says_what_is_missing():
    text = (
        "available: 3 nodes (0-2)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 1000 MB\nnode 0 free: 10 MB\n"
        "node 1 cpus: 4 5 6 7\nnode 1 size: 1000 MB\nnode 2 cpus:\nnode 2 size: 500 MB\n"
        "node distances:\nnode   0   1   2\n  0:  10  21  30\n"
    )
    cluster = parse_dump(text, "d", CATALOGUE)

    assert [(d.id, d.cpu_affinity) for d in cluster.of_kind("cpu")] == [("CPU0", "0-3"), ("CPU1", "4-7")]
    assert [d.numa for d in cluster.of_kind("memory")] == [2]
    assert "nvidia-smi topo -m" in cluster.warnings[0]


IBNET = """Switch  36 "S-1"  # "MF0;leaf0:MQM8700/U1" enhanced port 0 lid 2 lmc 0
[1]     "H-1"[1](a1)            # "node01 mlx5_0" lid 5 4xHDR
[2]     "H-2"[1](a2)            # "node02 mlx5_0" lid 6 4xHDR
[3]     "S-3"[1]                # "MF0;spine0:MQM8700/U1" lid 1 4xHDR
Switch  36 "S-2"  # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 3 lmc 0
[1]     "H-3"[1](a3)            # "node03 mlx5_0" lid 7 4xHDR
[3]     "S-3"[2]                # "MF0;spine0:MQM8700/U1" lid 1 4xHDR
Switch  36 "S-3"  # "MF0;spine0:MQM8700/U1" enhanced port 0 lid 1 lmc 0
[1]     "S-1"[3]                # "MF0;leaf0:MQM8700/U1" lid 2 4xHDR
[2]     "S-2"[3]                # "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
Ca      1 "H-1"         # "node01 mlx5_0"
[1](a1)         "S-1"[1]                # lid 5 lmc 0 "MF0;leaf0:MQM8700/U1" lid 2 4xHDR
Ca      1 "H-2"         # "node02 mlx5_0"
[1](a2)         "S-1"[2]                # lid 6 lmc 0 "MF0;leaf0:MQM8700/U1" lid 2 4xHDR
Ca      1 "H-3"         # "node03 mlx5_0"
[1](a3)         "S-2"[1]                # lid 7 lmc 0 "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
"""


def test_ibnetdiscover_places_nodes_under_their_switches():
    placements = {p.node: p.switches for p in parse_dump(IBNET, "d", CATALOGUE).placements}

    assert placements == {
        "node01": ("leaf0", "spine0"),
        "node02": ("leaf0", "spine0"),
        "node03": ("leaf1", "spine0"),
    }


def test_adapters_of_one_description_are_nodes_of_their_own_and_one_word_is_a_host():
    text = IBNET.replace("node01 mlx5_0", "ConnectX by Some Maker").replace("node03 mlx5_0", "ConnectX by Some Maker")
    cluster = parse_dump(text, "d", CATALOGUE)

    assert [p.node for p in cluster.placements] == ["H-1", "H-3", "node02"]
    assert "2 adapters call themselves 'ConnectX by Some Maker', which tells no host" in cluster.warnings[0]
    assert len(parse_dump(re.sub(r"node0[12] mlx5_0", "node01", IBNET), "d", CATALOGUE).placements) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("4xHDR", "4xHDR"), []),
        (
            ('lid 5 lmc 0 "MF0;leaf0:MQM8700/U1" lid 2 4xHDR', "lid 5 2xHDR"),
            ["node01 [1] - leaf0 [1] at 2xHDR of 4xHDR"],
        ),
        (("lid 3 4xHDR", "lid 3 4xEDR"), ["spine0 [2] - leaf1 [3] at 4xEDR of 4xHDR"]),
        (("4xHDR", "4xFDR10"), []),
    ],
)
def test_a_link_below_the_others_of_its_switch_is_said_whichever_end_shows_it(change, said):
    warnings = parse_dump(IBNET.replace(*change), "d", CATALOGUE).warnings

    assert [w.partition(": ")[2] for w in warnings if "narrower or slower" in w] == said


def test_a_matrix_that_was_asked_to_leave_nvlink_out_says_so():
    text = "$ nvidia-smi topo -mp\n\tGPU0\tGPU1\nGPU0\t X \tNODE\nGPU1\tNODE\t X \n"

    assert "leaves NVLink out" in parse_dump(text, "d", CATALOGUE).warnings[0]


def test_a_copy_of_sysfs_completes_a_matrix_and_all_of_it_is_one_node(tmp_path):
    m = machine("dgx-h100")
    (tmp_path / "m.txt").write_text(as_matrix(m))
    cluster = load_dumps([tmp_path / "m.txt", as_sysfs(m, tmp_path / "sys")], CATALOGUE)

    assert cluster.num_nodes == 1
    assert len(cluster.of_kind("cpu")) == 2
    assert {(d.model, d.network_bandwidth_bytes_per_s) for d in cluster.of_kind("nic")} == {("infiniband", 50e9)}
    assert compact(cluster, CATALOGUE).groups[0].nics == 8


@pytest.mark.parametrize(
    "text",
    [
        ',GPU0,GPU1,CPU Affinity,NUMA Affinity\nGPU0,X,NV12,"0-31,64-95",0\nGPU1,NV12,X,"32-63,96-127",1\n',
        '"";"GPU0";"GPU1";"CPU Affinity";"NUMA Affinity"\n'
        '"GPU0";" X ";"NV12";"0-31,64-95";"0"\n"GPU1";"NV12";" X ";"32-63,96-127";"1"\n',
    ],
)
def test_a_matrix_that_a_spreadsheet_exported_is_read(tmp_path, text):
    dump = tmp_path / "topo.csv"
    dump.write_text(text)

    cluster = load_dumps([dump], CATALOGUE)

    gpus = [device for device in cluster.devices if device.kind == "gpu"]
    assert [(gpu.id, gpu.numa, gpu.cpu_affinity) for gpu in gpus] == [
        ("GPU0", 0, "0-31,64-95"),
        ("GPU1", 1, "32-63,96-127"),
    ]
    assert [link.kind for link in cluster.links] == ["NV12"]


@pytest.mark.parametrize("unit", ["<b>", "[", "x", "\t0 "])
def test_a_line_without_end_is_refused_before_every_reader_has_searched_it(unit):
    began = time.process_time()
    with pytest.raises(InputError):
        parse_dump(unit * (24 * 2**20 // len(unit)), "endless.txt", CATALOGUE)
    assert time.process_time() - began < 2.5  # five and more where each searches all of it


@pytest.mark.parametrize("name", MATRICES)
def test_a_dump_above_a_line_without_end_reads_the_same(name):
    alone = parse_dump(MATRICES[name], "dump.txt", CATALOGUE)
    assert graph(parse_dump(MATRICES[name] + "x" * 2_000_000, "dump.txt", CATALOGUE)) == graph(alone)
