"""The tree of lstopo as text: NUMA nodes, cores, whose accelerators they are, and paths between devices."""

from pathlib import Path

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.cluster.nics import nic_of_gpu
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
TEXT = (Path(__file__).parent / "data" / "topologies" / "lstopo_text.txt").read_text()
OLD = """Machine (64GB)
  NUMANode L#0 (P#0 32GB) + Socket L#0 + L3 L#0 (20MB)
    Core L#0 + PU L#0 (P#0)
    Core L#1 + PU L#1 (P#40)
    HostBridge L#0
      PCIBridge
        PCI 10de:17fd
          GPU L#0 "nvml0"
      PCIBridge
        PCI 15b3:1013
          Net L#1 "ib0"
          OpenFabrics L#2 "mlx5_0"
  NUMANode L#1 (P#1 32GB) + Socket L#1 + L3 L#1 (20MB) + Core L#2 + PU L#2 (P#1)
"""


def kinds(cluster):
    return {frozenset((link.a, link.b)): link.kind for link in cluster.links}


def test_devices_cpus_and_paths_are_those_of_the_drawing():
    cluster = parse_dump(TEXT, "t", CATALOGUE)
    found = kinds(cluster)

    assert [(cpu.numa, cpu.cores, cpu.cpu_affinity) for cpu in cluster.of_kind("cpu")] == [(0, 2, "0,2"), (1, 2, "1,3")]
    assert [(gpu.id, gpu.model, gpu.numa) for gpu in cluster.of_kind("gpu")] == [
        ("GPU0", "nvidia", 0),
        ("GPU1", "nvidia", 1),
    ]
    assert [(nic.id, nic.numa) for nic in cluster.of_kind("nic")] == [("mlx5_0", 0)]
    assert found[frozenset(("GPU0", "mlx5_0"))] == "PIX"
    assert found[frozenset(("GPU0", "GPU1"))] == "SYS"
    assert nic_of_gpu(cluster)["GPU1"] == ("mlx5_0", "SYS")
    assert cluster.hosts[0].memory_bytes == 251 * 2**30
    assert any(said.startswith("lstopo's text does not say NVLink") for said in cluster.warnings)
    assert any(said.startswith("PCI 02:00.0 (VGA): a console or a GPU") for said in cluster.warnings)


def test_the_text_of_hwloc_1_has_ids_in_place_of_buses():
    cluster = parse_dump(OLD, "t", CATALOGUE)

    assert [(cpu.numa, cpu.cores, cpu.cpu_affinity) for cpu in cluster.of_kind("cpu")] == [(0, 2, "0,40"), (1, 1, "1")]
    assert [device.id for device in cluster.devices if device.kind != "cpu"] == ["GPU0", "mlx5_0"]
    assert kinds(cluster)[frozenset(("GPU0", "mlx5_0"))] == "PHB"


@pytest.mark.parametrize("mark", ["> ", ">> ", "    "])
def test_it_may_be_quoted_or_indented(mark):
    text = "Here it is:\n\n" + "".join(f"{mark}{line}\n" for line in TEXT.splitlines()) + "\nRegards\n"

    assert parse_dump(text, "t", CATALOGUE).links == parse_dump(TEXT, "t", CATALOGUE).links


def test_an_accelerator_of_which_nothing_says_whose_it_is_is_refused():
    text = TEXT.replace('          GPU(NVML) "nvml1"\n', '          CoProc(OpenCL) "opencl0d1"\n')

    with pytest.raises(InputError, match=r"t:30: PCI b3:00.0 \(3D\): whose accelerator it is is not said"):
        parse_dump(text, "t", CATALOGUE)


def test_a_device_that_is_not_written_as_lstopo_does_is_refused():
    with pytest.raises(InputError, match=r"t:30: 'PCI b3:zz.0 \(3D\)': expected such as"):
        parse_dump(TEXT.replace("b3:00.0", "b3:zz.0"), "t", CATALOGUE)


def test_a_text_that_cannot_show_nvlink_says_nothing_against_it():
    text = (
        "Machine (64GB total)\n  Package L#0\n    NUMANode L#0 (P#0 64GB)\n    Core L#0 + PU L#0 (P#0)\n"
        "    HostBridge\n"
        + "".join(
            f'      PCIBridge\n        PCI {bus}:00.0 (3D)\n          CoProc(CUDA) "cuda{i}"\n'
            for i, bus in enumerate(("1a", "2a"))
        )
    )

    assert not [said for said in analyse(parse_dump(text, "l", CATALOGUE, "h100")).verdicts if "links" in said]
