"""Dumps as people paste and tools write them: what each says, and what it must not be taken for."""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.cluster.analysis import analyse
from meshwright.cluster.compact import compact
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
DATA = Path(__file__).parent / "data" / "topologies"


def read(name: str, gpu: str | None = None) -> Cluster:
    return load_dump(DATA / name, CATALOGUE, gpu)


def pairs(cluster: Cluster) -> dict[tuple[str, str], tuple[str, float | None]]:
    """Kind and GB/s of every link."""
    return {
        (k.a, k.b): (k.kind, None if k.bandwidth_bytes_per_s is None else k.bandwidth_bytes_per_s / 1e9)
        for k in cluster.links
    }


def between_gpus(cluster: Cluster) -> Counter[tuple[str, float | None]]:
    gpus = {d.id for d in cluster.of_kind("gpu")}
    return Counter(what for (a, b), what in pairs(cluster).items() if {a, b} <= gpus)


def count(cluster: Cluster, kind: str) -> int:
    return len(cluster.of_kind(kind))  # type: ignore[arg-type]


def bisection(cluster: Cluster) -> float | None:
    found = analyse(cluster).bisection_bytes_per_s
    return None if found is None else found / 1e9


def numa(cluster: Cluster) -> dict[str, int | None]:
    return {d.id: d.numa for d in cluster.devices}


@pytest.mark.parametrize("name", ["smi_fence_after.txt", "smi_details.txt", "smi_gpu_rows_only.txt"])
def test_prose_around_a_matrix_and_rows_of_nics_that_were_left_out_do_not_hide_it(name):
    cluster = read(name)

    assert (count(cluster, "gpu"), count(cluster, "nic")) == (4, 2)
    assert between_gpus(cluster) == {("NV4", 100.0): 6}
    assert pairs(cluster)["GPU0", "NIC0"][0] == pairs(cluster)["GPU2", "NIC1"][0] == "PXB"
    assert (("NIC0", "NIC1") in pairs(cluster)) == (name != "smi_gpu_rows_only.txt")
    assert any("no row for NIC0, NIC1" in w for w in cluster.warnings) == (name == "smi_gpu_rows_only.txt")


def test_two_devices_that_ran_together_in_the_header_are_two():
    cluster = read("smi_header_glued.txt")

    assert (count(cluster, "gpu"), count(cluster, "nic")) == (8, 13)
    assert set(between_gpus(cluster)) == {("NV18", None)}
    assert pairs(cluster)["GPU0", "NIC11"][0] == "PIX"


@pytest.mark.parametrize(
    ("name", "model", "rate", "total"),
    [
        ("smi_collect_env.txt", "h100", ("NV18", 450.0), 1800),
        ("smi_table_names.txt", "h100", ("NV18", 450.0), 450),
        ("smi_3090_named.txt", "rtx-3090", ("NV4", 56.25), 56.25),
    ],
)
def test_a_name_anywhere_in_the_file_settles_open_rates(name, model, rate, total):
    cluster = read(name)

    assert {d.model for d in cluster.of_kind("gpu")} == {model}
    assert set(between_gpus(cluster)) == {rate}
    assert bisection(cluster) == total


def test_a_gpu_with_links_down_is_named_and_costs_its_share():
    cluster = read("smi_degraded_nvswitch.txt", "h100")
    group = compact(cluster, CATALOGUE).groups[0]

    assert analyse(cluster).verdicts == ("GPU3 has 16 NVLinks, the others 18: 2 are down",)
    assert bisection(cluster) == 3 * 450 + 400
    assert group.switched
    assert group.gpu_bandwidth_bytes_per_s == 400e9


def test_a_gpu_off_the_fabric_is_named_and_the_rest_keeps_its_switch():
    cluster = read("smi_one_gpu_out.txt", "b200")

    assert any(v.startswith("GPU2 has no NVLink") for v in analyse(cluster).verdicts)
    assert bisection(cluster) == 3 * 900 + 63
    assert compact(cluster, CATALOGUE).groups[0].gpu_link == "PCIe"


@pytest.mark.parametrize("gpu", [None, "a800"])
def test_some_gpus_of_a_board_are_known_to_be_behind_its_switch(gpu):
    cluster = read("smi_subset_of_switch.txt", gpu)

    assert bisection(cluster) == 200
    if gpu:
        assert compact(cluster, CATALOGUE).groups[0].gpu_bandwidth_bytes_per_s == 200e9


def test_pairs_joined_by_bridges_meet_the_others_over_pcie():
    cluster = read("smi_bridged_pairs.txt", "a100-80g-pcie")

    assert bisection(cluster) == 4 * 31
    assert not analyse(cluster).verdicts


def test_one_matrix_has_one_generation_of_nvlink():
    found = between_gpus(read("smi_mixed_generations.txt"))

    assert dict(found) == {("NV1", None): 4, ("NV2", None): 2}
    assert dict(between_gpus(read("smi_mixed_generations.txt", "v100-16g"))) == {("NV1", 25.0): 4, ("NV2", 50.0): 2}


def test_devices_that_always_have_nvlink_and_show_none_are_asked_why():
    (said,) = analyse(read("smi_sxm_without_nvlink.txt", "h100")).verdicts

    assert "h100 has 18 links" in said
    assert "topo -mp" in said


def test_two_matrices_in_a_file_are_two_nodes():
    cluster = read("smi_two_hosts.txt")

    assert {d.node for d in cluster.devices} == {"node01", "node02"}
    assert (count(cluster, "gpu"), count(cluster, "nic")) == (8, 4)
    assert pairs(cluster)["node01/GPU0", "node01/GPU1"][0] == "NV4"
    assert pairs(cluster)["node02/GPU0", "node02/GPU1"][0] == "SYS"
    assert "node01, node02" in cluster.warnings[0]
    assert bisection(read("smi_two_hosts.txt", "a100-40g")) is None  # the network between them is in no matrix


def test_nics_are_on_the_node_of_the_gpus_that_they_are_near_and_a_shared_one_is_named():
    cluster = read("smi_h100_nine_nics_unbalanced.txt")

    nics = [numa(cluster)[f"NIC{i}"] for i in range(9)]
    assert nics == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    assert any("GPU6 and GPU7 share NIC8" in verdict for verdict in analyse(cluster).verdicts)


def test_a_list_of_numa_nodes_begins_with_the_one_that_has_the_cpus():
    cluster = read("smi_numa_list.txt")

    assert [numa(cluster)[f"GPU{i}"] for i in range(4)] == [0, 0, 1, 1]
    assert [d.memory_numa for d in cluster.of_kind("gpu")] == [2, 10, 18, 26]
    assert any("bind each rank" in line for line in analyse(cluster).advice)
    assert analyse(cluster).verdicts == ()


def test_peer_to_peer_states_are_read_as_pairs_without_a_rate():
    cluster = read("smi_p2p.txt")

    assert between_gpus(cluster) == {("P2P", None): 1}
    assert bisection(cluster) is None
    assert "topo -m" in cluster.warnings[-1]


def test_the_status_of_nvlinks_says_how_fast_they_are():
    assert between_gpus(read("nvlink_status.txt")) == {("NV4", 56.25): 1}


def test_weights_tell_direct_links_from_routed_ones():
    cluster = read("rocm_weights.txt", "mi250x")
    group = compact(cluster, CATALOGUE).groups[0]

    assert between_gpus(cluster) == {("xGMI", 50.0): 12, ("xGMI", None): 16}
    assert (group.gpu.model, group.gpu.memory_bytes, group.gpu.peak_flops_per_s["bf16"]) == (
        *("mi250x-gcd", CATALOGUE.accelerators["mi250x-gcd"].memory_bytes),
        191.5e12,
    )
    assert len(group.mesh) == 12
    assert bisection(cluster) == 4 * 50
    assert any("16 pairs are more than one xGMI hop apart" in warning for warning in cluster.warnings)


def test_pairs_over_pcie_are_slow_beside_xgmi():
    cluster = read("rocm_two_hives.txt")
    (slow,) = analyse(cluster).slow

    assert {kind: n for (kind, _), n in between_gpus(cluster).items()} == {"xGMI": 12, "PCIe": 16}
    assert (slow.kind, len(slow.pairs)) == ("PCIe", 16)
    assert "between the sockets" in slow.why


def test_numa_nodes_of_older_rocm_smi_are_read():
    assert list(numa(read("rocm_old_numa.txt")).values()) == [0, 1, 2, 3]


def test_amd_smi_says_the_rate_of_each_pair():
    cluster = read("amdsmi_topology.txt")

    assert between_gpus(cluster) == {("xGMI", 50.0): 6}
    assert "GPU1 is 0000:26:00.0" in cluster.warnings[0]


def test_memory_without_cpus_is_no_cpu():
    cluster = read("hwloc_gpu_memory_node.xml")

    assert [(d.id, d.cores) for d in cluster.of_kind("cpu")] == [("CPU0", 8)]
    assert [(d.numa, d.memory_bytes) for d in cluster.of_kind("memory")] == [(1, 102005473280)]
    assert "no accelerator found" in cluster.warnings[0]


def test_graphics_inside_a_cpu_are_no_accelerator():
    cluster = read("hwloc_igpu.xml")

    assert [d.model for d in cluster.of_kind("gpu")] == ["rtx-4090"]


def test_processing_accelerators_are_gpus_for_hwloc_too():
    cluster = read("hwloc_mi300x.xml")

    assert [(d.model, d.numa) for d in cluster.of_kind("gpu")] == [("mi300x", 0), ("mi300x", 1)]


def test_the_bandwidths_of_hwloc_are_links():
    cluster = read("hwloc_nvlink_matrix.xml")

    assert between_gpus(cluster) == {("NV12", 300.0): 1}
    assert bisection(cluster) == 300


def test_nics_have_their_names_in_version_3_of_hwloc():
    assert [d.id for d in read("hwloc_v3_nic.xml").of_kind("nic")] == ["mlx5_3"]


def test_a_rate_that_no_slot_carries_is_not_used():
    cluster = read("nccl_absurd_nic.xml", "h100")

    assert cluster.of_kind("nic")[0].network_bandwidth_bytes_per_s is None
    assert "25,000 GB/s" in cluster.warnings[0]
    assert compact(cluster, CATALOGUE).groups[0].nic_bandwidth_bytes_per_s == 0


def test_the_fused_dump_of_a_rack_is_one_domain_over_its_hosts():
    cluster = read("nccl_fused_two_hosts.xml", "gb200")
    group = compact(cluster, CATALOGUE).groups[0]

    assert {d.node for d in cluster.devices} == {"node0", "node1"}
    assert (count(cluster, "gpu"), count(cluster, "nic")) == (8, 4)
    assert between_gpus(cluster) == {("NV18", 900.0): 28}
    assert (group.count, group.gpus, group.switched, group.scale_up_nodes) == (2, 4, True, 2)


def test_what_the_file_does_not_say_of_cores_is_not_one_core():
    cluster = read("nccl_no_affinity.xml")

    assert cluster.hosts == ()
    assert {d.cores for d in cluster.of_kind("cpu")} == {None}
    assert ("C2C", 345e9) in {(k.kind, k.bandwidth_bytes_per_s) for k in cluster.links}


def test_a_log_of_nccl_is_read_as_the_machine_that_it_draws():
    cluster = read("nccl_system_dump.txt")

    assert (count(cluster, "gpu"), count(cluster, "nic")) == (1, 1)
    assert cluster.of_kind("nic")[0].network_bandwidth_bytes_per_s == 50e9
    assert pairs(cluster)["GPU0", "NIC0"] == ("PIX", 48.0)
    assert any("370.8 GB/s" in warning for warning in cluster.warnings)


def test_a_file_of_a_cloud_says_by_class_what_a_device_is():
    cluster = read("nccl_topo_file_cloud_a.xml")
    found = pairs(cluster)

    assert (count(cluster, "gpu"), count(cluster, "nic")) == (2, 2)
    assert {(found[a, b][0], round(found[a, b][1] or 0, 1)) for a, b in found if "CPU" not in a + b} == {("PIX", 31.5)}
    assert set(numa(cluster).values()) == {0}


def test_a_pci_element_without_a_device_is_a_whole_switch():
    found = pairs(read("nccl_two_switches.xml"))

    assert found["GPU0", "mlx5_0"][0] == "PXB"


def test_the_rate_of_a_path_is_the_least_on_it():
    found = pairs(read("nccl_x8_slot.xml"))

    assert found["GPU0", "GPU1"] == ("PIX", pytest.approx(31.5, rel=1e-3))
    assert found["GPU0", "GPU2"] == found["GPU1", "GPU2"] == ("PHB", pytest.approx(15.75, rel=1e-3))


def test_xgmi_of_the_class_of_processing_accelerators_is_kept():
    cluster = read("rccl_xgmi_class_120000.xml")

    assert {d.model for d in cluster.of_kind("gpu")} == {"mi300x"}
    assert between_gpus(cluster) == {("xGMI", 64.0): 6}
    assert bisection(cluster) == 4 * 64
    assert compact(cluster, CATALOGUE).groups[0].gpu_bandwidth_bytes_per_s == 192e9


def test_blocks_of_slurm_hold_their_nodes():
    placements = read("slurm_block.conf").placements

    assert Counter(p.block for p in placements) == {"block1": 18, "block2": 18}


def test_switches_and_blocks_stand_beside_each_other_with_one_warning():
    cluster = read("slurm_mixed.conf")

    assert Counter((p.switches, p.block) for p in cluster.placements) == {
        (("leaf0", "root"), "rackA"): 18,
        (("leaf1", "root"), "rackB"): 18,
    }
    assert len(cluster.warnings) == 1


def test_the_yaml_of_slurm_is_read():
    placements = {p.node: p.switches for p in read("slurm_tree.yaml").placements}

    assert placements == {
        **dict.fromkeys(("node01", "node02"), ("s1", "sw_root")),
        **dict.fromkeys(("node03", "node04"), ("s2", "sw_root")),
    }


def test_a_copy_of_sysfs_has_its_host_and_the_lanes_that_are_trained(tmp_path):
    with tarfile.open(DATA / "sysfs_ryzen_2x4090_igpu.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    cluster = load_dump(tmp_path / "ryzen_2x4090_igpu", CATALOGUE)

    assert [(d.model, d.numa) for d in cluster.of_kind("gpu")] == [("rtx-4090", 0)] * 2
    assert pairs(cluster)["GPU0", "GPU1"] == ("PHB", pytest.approx(7.877, rel=1e-3))
    assert [(d.id, d.cores, d.cpu_affinity) for d in cluster.of_kind("cpu")] == [("CPU0", 16, "0-15")]
    assert any("GPU1 reaches its CPU at 7.88 GB/s" in verdict for verdict in analyse(cluster).verdicts)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.[ctxy]*")), ids=lambda p: p.name)
def test_every_one_of_them_is_printed_drawn_and_saved(path, tmp_path, capsys):
    if path.suffix == ".gz":
        pytest.skip("a folder, read above")
    saved = tmp_path / "cluster.json"

    assert (
        run_command(["topo", "--from", str(path), "--json", "--save", str(saved), "--svg", str(tmp_path / "a.svg")])
        == 0
    )
    assert set(json.loads(capsys.readouterr().out)) - {"placements"} == {"devices", "links", "warnings"}
    assert run_command(["topo", "--from", str(saved)]) == 0
