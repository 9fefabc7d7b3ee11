"""Tools that show a part: the paths of one GPU (dcgmi topo), CPUs of modules (hl-smi), ports, places (gcloud)."""

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
DCGMI = """+-------------------+------------------------------------------------+
| GPU ID: 0         | Topology Information                           |
+===================+================================================+
| CPU Core Affinity | 0 - 3, 8 - 9,                                  |
|                   | 12                                             |
+-------------------+------------------------------------------------+
| To GPU 1          | Connected via a PCIe host bridge               |
|                   | Connected via four NVLINKs (Links: 0, 1, 2, 3) |
+-------------------+------------------------------------------------+
| To GPU 2          | Connected via a CPU-level link                 |
+-------------------+------------------------------------------------+
"""
SECOND = """+-------------------+------------------------------------------------+
| GPU ID: 2         | Topology Information                           |
+===================+================================================+
| CPU Core Affinity | 4 - 7                                          |
+-------------------+------------------------------------------------+
| To GPU 0          | Connected via a CPU-level link                 |
+-------------------+------------------------------------------------+
| To GPU 1          | Connected via an on-board PCIe switch          |
+-------------------+------------------------------------------------+
"""
GAUDI = """$ hl-smi topo -c -N
modID   CPU Affinity      NUMA Affinity
-----   ------------      -------------
1       0-3, 8-11         0
0       4-7, 12-15        1
"""
INSTANCE = """{intro}name: {name}
metadata:
  items:
  - key: startup-script
    value: |
      echo name: nobody
resourceStatus:
  physicalHostTopology:
    block: b1
    cluster: c1
    subblock: {subblock}
  upcomingMaintenance: {{}}
status: RUNNING
"""


def kinds(cluster):
    return {(link.a, link.b): link.kind for link in cluster.links}


def test_dcgmi_shows_the_paths_of_one_gpu_and_the_others_stay_unknown():
    cluster = parse_dump(DCGMI, "d", CATALOGUE)

    assert [(gpu.id, gpu.cpu_affinity) for gpu in cluster.devices] == [
        ("GPU0", "0-3,8-9,12"),
        ("GPU1", None),
        ("GPU2", None),
    ]
    assert kinds(cluster) == {("GPU0", "GPU1"): "NV4"}
    assert "GPU0-GPU2 (Connected via a CPU-level link), GPU1-GPU2 is not said" in cluster.warnings[0]


def test_tables_of_several_gpus_complete_each_other_and_the_cpus_tell_sockets_apart():
    assert kinds(parse_dump(DCGMI + SECOND, "d", CATALOGUE)) == {
        ("GPU0", "GPU1"): "NV4",
        ("GPU0", "GPU2"): "SYS",
        ("GPU1", "GPU2"): "PSB",
    }
    with pytest.raises(InputError, match="GPU 0 and GPU 2 name different paths to each other"):
        parse_dump(DCGMI + SECOND.replace("a CPU-level link  ", "a PCIe host bridge"), "d", CATALOGUE)


def test_nvlinks_that_dcgmi_has_no_word_for_stay_unknown_and_are_not_pcie():
    cluster = parse_dump(DCGMI.replace("Connected via four NVLINKs (Links: 0, 1, 2, 3)", "Unknown"), "d", CATALOGUE)

    assert not cluster.links
    assert "GPU0-GPU1 (Connected via a PCIe host bridge, Unknown)" in cluster.warnings[0]


def test_hl_smi_says_the_cpus_and_the_node_of_each_module_and_no_links():
    cluster = parse_dump(GAUDI, "d", CATALOGUE)

    assert [(gpu.id, gpu.numa, gpu.cpu_affinity) for gpu in cluster.devices] == [
        ("GPU0", 1, "4-7,12-15"),
        ("GPU1", 0, "0-3,8-11"),
    ]
    assert not cluster.links
    assert "names no links and no NICs" in cluster.warnings[0]
    with pytest.raises(InputError, match="module 1: expected one row"):
        parse_dump(GAUDI.replace("0       4-7", "1       4-7"), "d", CATALOGUE)


def test_a_table_of_hl_smi_may_have_one_of_the_two_columns():
    nodes = parse_dump("modID   NUMA Affinity\n-----   ----\n0       1\n", "d", CATALOGUE)
    cpus = parse_dump("modID   CPU Affinity\n-----   ----\n0       0-3, 8-11\n", "d", CATALOGUE)

    assert [(d.numa, d.cpu_affinity) for d in (*nodes.devices, *cpus.devices)] == [(1, None), (None, "0-3,8-11")]


def test_instances_of_google_cloud_in_yaml_have_the_places_that_json_has():
    text = INSTANCE.format(intro="---\n", name="a-1", subblock="s1") + INSTANCE.format(
        intro="---\n", name="a-2", subblock="s2"
    )
    one = parse_dump(INSTANCE.format(intro="", name="a-1", subblock="s1"), "d", CATALOGUE)
    both = parse_dump(text, "d", CATALOGUE)

    assert [(place.node, place.switches) for place in both.placements] == [
        ("a-1", ("s1", "b1", "c1")),
        ("a-2", ("s2", "b1", "c1")),
    ]
    assert one.placements == both.placements[:1]
    with pytest.raises(InputError, match="expected name of each instance"):
        parse_dump(text.replace("name: a-2", "label: a-2"), "d", CATALOGUE)


def test_two_gpus_whose_links_name_no_far_end_are_said_to_be_taken_as_joined():
    gpu = "GPU {}: NVIDIA H100 NVL (UUID: GPU-{})\n" + "".join(f"\t Link {i}: 26.562 GB/s\n" for i in range(12))
    cluster = parse_dump(gpu.format(0, 0) + gpu.format(1, 1), "d", CATALOGUE)

    assert kinds(cluster) == {("GPU0", "GPU1"): "NV12"}
    assert cluster.warnings == ("nvlink -s names no far end: taken that all 12 NVLinks join GPU0 and GPU1",)


def test_a_card_on_fewer_lanes_is_said_to_repeat_packets_where_it_does():
    query = (
        "GPU 00000000:17:00.0\n    Product Name : NVIDIA L4\n    PCI\n        GPU Link Info\n            Link Width\n"
    )
    query += "                Max : 16x\n                Current : 8x\n        Replays Since Reset : {}\n"

    assert (
        "GPU0 has 8 of 16 PCIe lanes trained, and its link repeated 90 packets"
        in parse_dump(query.format(90), "d", CATALOGUE).warnings
    )
    assert "GPU0 has 8 of 16 PCIe lanes trained" in parse_dump(query.format(0), "d", CATALOGUE).warnings


INTERFACES = "$ ibdev2netdev\nmlx5_0 port 1 ==> ens1np0 (Up)\nmlx5_1 port 1 ==> ens2np0 (Down)\n"


def test_ibdev2netdev_says_which_ports_carry_nothing_and_no_rates():
    cluster = parse_dump(INTERFACES, "d", CATALOGUE)

    assert [(nic.id, nic.kind, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [
        ("mlx5_0", "nic", None),
        ("mlx5_1", "nic", None),
    ]
    assert cluster.warnings[0] == "mlx5_1 carries nothing (Down)"
    assert "no rates" in cluster.warnings[1]


def test_the_rates_of_ibstat_stand_where_ibdev2netdev_stands_below_it():
    ports = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
    cluster = parse_dump(ports + INTERFACES.replace("mlx5_1", "mlx5_0").replace("Down", "Up"), "d", CATALOGUE)

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [("mlx5_0", 50e9)]
    assert not any("no rates" in warning for warning in cluster.warnings)


def test_a_port_that_is_down_is_said_below_the_matrix_that_has_its_nic():
    rows = "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV12\tPIX\tSYS\nGPU1\tNV12\t X \tSYS\tPIX\n"
    legend = "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n\n"
    cluster = parse_dump(f"{rows}\n{legend}{INTERFACES}", "d", CATALOGUE)

    assert len(cluster.of_kind("gpu")) == 2
    assert "mlx5_1 carries nothing (Down)" in cluster.warnings


QUERIED = """$ nvidia-smi --query-gpu=$COLUMNS --format=csv
index, name, pcie.link.gen.current, pcie.link.width.current, pcie.link.width.max, memory.total [MiB]
0, NVIDIA A30, 1, 16, 16, 24576 MiB
1, NVIDIA A30, 4, 4, 16, 24576 MiB
"""


@pytest.mark.parametrize("text", [QUERIED, QUERIED.replace(" MiB\n", "\n")], ids=["units", "nounits"])
def test_the_rows_of_query_gpu_are_gpus_with_their_memory_and_the_lanes_they_lack(text):
    cluster = parse_dump(text, "q", CATALOGUE)

    assert [(gpu.id, gpu.model, gpu.memory_bytes) for gpu in cluster.devices] == [
        ("GPU0", "a30", 24576 * 2**20),
        ("GPU1", "a30", 24576 * 2**20),
    ]
    assert cluster.links == ()
    assert [said for said in cluster.warnings if "PCIe" in said] == ["GPU1 has 4 of 16 PCIe lanes trained"]
    assert any(
        "what lies between the GPUs is not said: give the output of nvidia-smi topo -m" in w for w in cluster.warnings
    )


def test_rows_of_query_gpu_without_numbers_are_counted_and_other_lists_of_words_are_none():
    cluster = parse_dump(
        "name, pci.bus_id, memory.total [MiB]\nNVIDIA L4, 00000000:3B:00.0, 23034 MiB\n", "q", CATALOGUE
    )

    assert [(gpu.id, gpu.model) for gpu in cluster.devices] == [("GPU0", "l4")]
    with pytest.raises(InputError, match="not a known dump"):
        parse_dump("name, rack, room\nNVIDIA L4, 3, 12\n", "q", CATALOGUE)
