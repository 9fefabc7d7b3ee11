"""Reports that hold more than a matrix, and listings of devices, of which none may be lost or mixed up."""

import json

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
CARDS = """21:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16
22:00.0 Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16
23:00.0 Something new
\tNUMA node: 3
a1:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tNUMA node: 1
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
"""
TREE = """-[0000:40]-+-00.0  Intel Corporation Device 09a2
           \\-01.0-[41-44]----00.0-[42-44]--+-00.0-[43]----00.0  NVIDIA Corporation GH100 [H100 PCIe]
{blanks}\\-04.0-[44]----00.0  NVIDIA Corporation GH100 [H100 PCIe]
"""
PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-15\nGPU1\tNV12\t X \t0-15\n"
SPLIT = """==============NVSMI LOG==============
Attached GPUs                             : 2
GPU 00000000:0B:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        FB Memory Usage
            Total                         : 9856 MiB
    FB Memory Usage
        Total                             : 81920 MiB
GPU 00000000:0C:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Disabled
    FB Memory Usage
        Total                             : 81920 MiB
"""
TABLE = """|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                   On |
| N/A   31C    P0              45W / 400W |      0MiB / 81920MiB |     N/A      Default |
|                                         |                      |              Enabled |
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0C:00.0 Off |                    0 |
| N/A   30C    P0              44W / 400W |      0MiB / 81920MiB |      0%      Default |
|                                         |                      |             Disabled |
"""


def links_of(gpu, dead=()):
    rows = (f"\t Link {n}: {'<inactive>' if n in dead else '25 GB/s'}\n" for n in range(12))
    return f"GPU {gpu}: NVIDIA A100-SXM4-80GB (UUID: GPU-{gpu})\n" + "".join(rows)


def test_a_listing_without_numbers_has_the_accelerators_of_class_3d_controller():
    cluster = parse_dump(CARDS, "l", CATALOGUE)

    assert [(d.id, d.model, d.numa) for d in cluster.of_kind("gpu")] == [
        ("GPU0", "a100-80g-pcie", 0), ("GPU1", "a100-80g-pcie", 1)
    ]  # fmt: skip
    assert [w for w in cluster.warnings if "lanes" in w] == ["GPU1 has 8 of 16 PCIe lanes trained"]


def test_what_a_listing_says_below_a_function_of_unknown_form_is_of_no_other():
    (nic,) = parse_dump(CARDS, "l", CATALOGUE).of_kind("nic")

    assert nic.numa == 0


def test_a_tree_with_a_branch_out_of_its_column_is_refused_with_its_line():
    whole = parse_dump(TREE.format(blanks=" " * 43), "t", CATALOGUE)

    assert len(whole.of_kind("gpu")) == 2
    with pytest.raises(InputError, match="t:3: this branch"):
        parse_dump(TREE.format(blanks=" " * 44), "t", CATALOGUE)


def test_dead_nvlinks_listed_below_a_matrix_are_said():
    cluster = parse_dump(PAIR + "\n" + links_of(0) + links_of(1, dead={4, 9}), "m", CATALOGUE)

    assert "GPU1 has 10 of 12 NVLinks up: 2 down (links 4, 9)" in cluster.warnings


def test_memory_of_a_gpu_that_mig_splits_is_that_of_the_whole_card():
    cluster = parse_dump(SPLIT, "q", CATALOGUE)

    assert {gpu.memory_bytes for gpu in cluster.of_kind("gpu")} == {80 * 2**30}


@pytest.mark.parametrize("report", [SPLIT, TABLE, TABLE + PAIR])
def test_a_gpu_that_mig_splits_is_said_by_every_report_that_shows_it(report):
    said = [w for w in parse_dump(report, "q", CATALOGUE).warnings if "MIG" in w]

    assert said == ["GPU0 is split by MIG: its instances have no NVLink and no peer-to-peer"]


def test_json_of_a_tool_is_read_below_its_command_whatever_the_file_is_called(tmp_path):
    data = {"system": {"(Topology) Weight between DRM devices 0 and 1": "15",
                       "(Topology) Hops between DRM devices 0 and 1": "1",
                       "(Topology) Link type between DRM devices 0 and 1": "XGMI"}}  # fmt: skip
    (tmp_path / "topo.log").write_text("[me@host ~]$ rocm-smi --showtopo --json\n" + json.dumps(data) + "\n")

    assert len(load_dump(tmp_path / "topo.log", CATALOGUE).of_kind("gpu")) == 2


def test_a_pair_without_peer_access_is_not_said_to_have_no_links():
    names = [f"0000:{bus}:00.0" for bus in ("05", "26", "46", "65")]

    def table(title, cell):
        rows = (f"{a} " + " ".join(cell(i, j) for j in range(4)) for i, a in enumerate(names))
        return f"{title} TABLE:\n             {' '.join(names)}\n" + "\n".join(rows) + "\n\n"

    text = (
        table("ACCESS", lambda i, j: "DISABLED" if {i, j} == {2, 3} else "ENABLED")
        + table("LINK TYPE", lambda i, j: "SELF" if i == j else "XGMI")
        + table("NUMA BW", lambda i, j: "N/A" if i == j else "50000-64000")
    )

    assert any("in use" in said for said in analyse(parse_dump(text, "a", CATALOGUE)).verdicts)


@pytest.mark.parametrize(
    "above",
    [
        "name, memory.total [MiB]\nNVIDIA A100-SXM4-40GB, 40960 MiB\nNVIDIA A100-SXM4-40GB, 40960 MiB\n",
        "NVIDIA A100-SXM4-40GB\nNVIDIA A100-SXM4-40GB\n",
        "NVIDIA Topology:\nNVIDIA A100-SXM4-40GB\n",
        "0b:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)\n"
        "0c:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 40GB] [10de:20b0] (rev a1)\n",
    ],
)
def test_names_without_numbers_above_a_matrix_say_which_gpus_they_are(above):
    cluster = parse_dump(above + PAIR, "m", CATALOGUE)

    assert {gpu.model for gpu in cluster.of_kind("gpu")} == {"a100-40g"}


def test_names_of_other_things_and_fewer_names_than_gpus_say_nothing():
    other = "NVIDIA ConnectX-7\nNVIDIA Driver 550\nNVIDIA A100-SXM4-40GB\nNVIDIA H100 80GB HBM3\nNVIDIA L40S\n"

    assert {gpu.model for gpu in parse_dump(other + PAIR, "m", CATALOGUE).of_kind("gpu")} == {""}


def test_gpus_near_several_numa_nodes_are_said_with_their_own_nodes():
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-7\t0-1\nGPU1\tSYS\t X \t8-15\t2-3\n"
    said = [w.partition(":")[0] + w[w.index("(") : w.index(")")] for w in parse_dump(text, "m", CATALOGUE).warnings[:2]]

    assert said == ["GPU0(0-1", "GPU1(2-3"]
