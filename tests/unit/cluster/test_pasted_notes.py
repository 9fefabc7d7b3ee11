"""Dumps as other tools' notes hold them: empty cells, bold names, devices by other names, and what is refused."""

from pathlib import Path

import pytest

from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
ROWS = (
    ("", "GPU0", "GPU1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"),
    ("GPU0", " X ", "PHB", "", "2", "", "N/A"),
    ("GPU1", "PHB", " X ", "", "0", "", "N/A"),
)


def load(folder: Path, text: str, name: str = "dump.txt") -> Cluster:
    (folder / name).write_text(text)
    return load_dump(folder / name, CATALOGUE)


def affinities(cluster: Cluster) -> list[tuple[int | None, str | None]]:
    return [(gpu.numa, gpu.cpu_affinity) for gpu in cluster.of_kind("gpu")]


def test_an_empty_cell_of_cpus_stays_empty_where_tabs_became_blanks(tmp_path):
    tabs = "\n".join("\t".join(row) for row in ROWS) + "\n"

    assert affinities(load(tmp_path, tabs)) == [(2, None), (0, None)]
    assert affinities(load(tmp_path, tabs.expandtabs())) == [(2, None), (0, None)]


@pytest.mark.parametrize("cpus", ["3", "0-7", "0-7,16-23"])
def test_cpus_one_stop_of_a_tab_behind_the_codes_are_cpus(tmp_path, cpus):
    text = f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t{cpus}\nGPU1\tPHB\t X \t{cpus}\n"

    assert affinities(load(tmp_path, text.expandtabs())) == [(None, cpus)] * 2


@pytest.mark.parametrize("name", ["**GPU {}:** {}", "- **GPU {}**: {}", "* GPU {}: {}", "GPU{}: {}"])
def test_names_of_gpus_in_a_list_may_be_bold(tmp_path, name):
    lines = [name.format(i, "NVIDIA A100-SXM4-80GB, 81920 MiB") for i in (0, 1)]

    cluster = load(tmp_path, "\n".join([*lines, "", "\tGPU0\tGPU1", "GPU0\t X \tNV12", "GPU1\tNV12\t X "]))

    assert [gpu.model for gpu in cluster.of_kind("gpu")] == ["a100-80g"] * 2


def test_the_ranks_of_an_nccl_test_name_the_gpus_of_a_matrix_beside_them(tmp_path):
    ranks = "".join(
        f"#  Rank  {i} Group  0 Pid  {90 + i} on box1 device  {i} [0000:{i + 1}a:00] NVIDIA L40S\n" for i in (0, 1)
    )

    cluster = load(tmp_path, ranks + "\n\tGPU0\tGPU1\nGPU0\t X \tNODE\nGPU1\tNODE\t X \n")

    assert [gpu.model for gpu in cluster.of_kind("gpu")] == ["l40s"] * 2


def test_a_table_that_numbers_devices_is_a_matrix_of_gpus(tmp_path):
    table = """+----------------------------------------------+
| ASCEND   | Device 0 | Device 1 | CPU Affinity | NUMA Affinity |
|----------|----------|----------|--------------|---------------|
| Device 0 | X        | PIX      | 0-23         | 0             |
| Device 1 | PIX      | X        | 24-47        | 1             |
+----------------------------------------------+
"""
    cluster = load(tmp_path, table)

    assert [link.kind for link in cluster.links] == ["PIX"]
    assert affinities(cluster) == [(0, "0-23"), (1, "24-47")]


UNREAD = {
    "xpu.txt": ("$ xpu-smi discovery\n| 0 | Device Name: Intel(R) Data Center GPU Max 1550 |\n", "xpu-smi"),
    "npu.txt": ("| npu-smi 24.1.rc2   Version: 24.1.rc2 |\n| 0  910B3  | OK  | 94.1  46  0 / 0 |\n", "npu-smi"),
    "part.txt": ("    HostBridge L#3\n      PCIBridge L#4 (busid=0000:3b:00.0)\n        PCI L#5\n", "lstopo's text"),
    "rapids.json": ('{"system": {"hostname": "a"}, "gpus": [{"id": 0, "network_devices": ["mlx5_0"]}]}', "rapidsmpf"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_says_nothing_of_links_is_refused_by_its_name(tmp_path, name):
    text, tool = UNREAD[name]

    with pytest.raises(InputError, match=f"this is .*{tool}.*expected"):
        load(tmp_path, text, name)
