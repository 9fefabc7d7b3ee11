"""Matrices of Ascend, MetaX, Moore Threads and Intel, written after public posts, guides and documentation."""

import json

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def kinds(cluster):
    return {(link.a, link.b): link.kind for link in cluster.links}


def affinities(cluster):
    return [(gpu.numa, gpu.cpu_affinity) for gpu in cluster.of_kind("gpu")]


ASCEND = """$ npu-smi info -t topo
           NPU0       NPU1       NPU2       CPU Affinity
NPU0       X          HCCS       PHB        144-167
NPU1       HCCS       X          SYS        0-23
NPU2       PHB        SYS        X          96-119

Legend:
  X    = Self
  SYS  = Path traversing PCIe and NUMA nodes.
  HCCS = Connection traversing HCCS.
"""


def test_ascend_s_devices_are_joined_by_hccs_or_pcie():
    cluster = parse_dump(ASCEND, "d", CATALOGUE)

    assert kinds(cluster) == {("GPU0", "GPU1"): "HCCS", ("GPU0", "GPU2"): "PHB", ("GPU1", "GPU2"): "SYS"}
    assert affinities(cluster) == [(None, "144-167"), (None, "0-23"), (None, "96-119")]
    assert "Ascend" in cluster.warnings[0]


def test_numbers_of_physical_devices_are_kept():
    text = "          Phy-ID8  Phy-ID9\nPhy-ID8   X        SIO\nPhy-ID9   SIO      X\n"

    assert kinds(parse_dump(text, "d", CATALOGUE)) == {("GPU8", "GPU9"): "SIO"}


def test_metax_prints_the_node_before_the_cpus():
    rows = "".join(
        f"GPU{i}    " + "".join(f"{'X' if i == j else 'MX' if i // 2 == j // 2 else 'NODE':<8}" for j in range(4))
        + f"{i // 2}              {'0-31,64-95' if i < 2 else '32-63,96-127'}\n"
        for i in range(4)
    )  # fmt: skip
    head = "Device link type matrix\n        GPU0    GPU1    GPU2    GPU3    Node Affinity  CPU Affinity\n"

    cluster = parse_dump(head + rows + "\nLegend:\n  MX   = Connection traversing MetaXLink\n", "d", CATALOGUE)

    assert kinds(cluster)["GPU0", "GPU1"] == "MX"
    assert kinds(cluster)["GPU1", "GPU2"] == "NODE"
    assert affinities(cluster) == [(0, "0-31,64-95"), (0, "0-31,64-95"), (1, "32-63,96-127"), (1, "32-63,96-127")]


def test_moore_threads_names_bridges_in_its_own_way():
    text = (
        "  \tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
        "  GPU0\tX\tMT2\tSPB\t0-31\t0\n  GPU1\tMT2\tX\tMPB\t0-31\t0\n  mlx5_0\tSPB\tMPB\tX\n"
    )

    cluster = parse_dump(text, "d", CATALOGUE)

    expected = {("GPU0", "GPU1"): "MT2", ("GPU0", "mlx5_0"): "PIX", ("GPU1", "mlx5_0"): "PXB"}
    assert kinds(cluster) == expected
    assert analyse(cluster).nic_of_gpu == {"GPU0": ("mlx5_0", "PIX"), "GPU1": ("mlx5_0", "PXB")}


@pytest.mark.parametrize("between", ["|", " "])
def test_the_tiles_of_intel_s_cards_are_counted_through(between):
    text = (
        "         GPU 0/0|GPU 0/1|GPU 1/0|CPU Affinity\n"
        "GPU 0/0 |S      |MDF    |XL*    |0-51,104-155\n"
        "GPU 0/1 |MDF    |S      |XL16   |0-51,104-155\n"
        "GPU 1/0 |XL*    |XL16   |S      |52-103,156-207\n"
    ).replace("|", between)

    cluster = parse_dump(text, "d", CATALOGUE)

    assert kinds(cluster) == {("GPU0", "GPU1"): "MDF", ("GPU0", "GPU2"): "XL*", ("GPU1", "GPU2"): "XL16"}
    assert "GPU2 is 1/0" in cluster.warnings[0]
    assert affinities(cluster)[2] == (None, "52-103,156-207")


@pytest.mark.parametrize("code", ["HCCS", "SIO"])
def test_a_link_of_which_no_catalogue_has_the_rate_stays_open(code):
    text = f"       NPU0  NPU1\nNPU0   X     {code}\nNPU1   {code}   X\n"

    cluster = parse_dump(text, "d", CATALOGUE)

    assert [link.bandwidth_bytes_per_s for link in cluster.links] == [None]
    assert analyse(cluster).bisection_bytes_per_s is None
    assert any(warning.startswith(f"{code}: ") for warning in cluster.warnings)


def of_three(title: str, same: str, cell: str, third: str) -> str:
    rows = [(same, cell, third), (cell, same, third), (third, third, same)]
    return f"{title}\n      GPU0 GPU1 GPU2\n" + "".join(f"GPU{i} {' '.join(row)}\n" for i, row in enumerate(rows))


def peers(number: int, *status: str) -> dict[str, object]:
    links = [
        {"gpu": n, "weight": 15, "link_type": "XGMI", "num_hops": 1, "link_status": s} for n, s in enumerate(status)
    ]
    return {"gpu": number, "links": links}


@pytest.mark.parametrize(
    "text",
    [
        of_three("ACCESS TABLE:", "ENABLED", "DISABLED", "ENABLED")
        + of_three("LINK TYPE TABLE:", "SELF", "XGMI", "XGMI")
        + of_three("WEIGHT TABLE:", "0", "15", "15"),
        of_three("== Link accessibility between two GPUs ==", "True", "False", "True")
        + of_three("== Link Type between two GPUs ==", "0", "XGMI", "XGMI")
        + of_three("== Weight between two GPUs ==", "0", "15", "15"),
        json.dumps(
            [
                peers(0, "ENABLED", "DISABLED", "ENABLED"),
                peers(1, "DISABLED", *["ENABLED"] * 2),
                peers(2, *["ENABLED"] * 3),
            ]
        ),
    ],
    ids=["amd-smi", "rocm-smi", "amd-smi --json"],
)
def test_gpus_without_access_to_each_other_are_said_and_their_link_has_no_rate(text, tmp_path):
    path = tmp_path / ("dump.json" if text.startswith("[") else "dump.txt")
    path.write_text(text)
    cluster = load_dump(path, CATALOGUE, "mi300x")

    assert [w for w in cluster.warnings if w.startswith("no peer access between 1 pair of GPUs (GPU0-GPU1)")]
    assert [link.bandwidth_bytes_per_s for link in cluster.links] == [None, 64e9, 64e9]
