"""The devices that a machine lists, as the nodes that the planner prices."""

import pytest
from msgspec.structs import replace

from meshwright.cluster.analysis import analyse
from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.compact import compact
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.expand import expanded
from meshwright.cluster.graph import Cluster, Device, Host
from meshwright.cluster.wire import read_cluster, wire_form
from meshwright.errors import InputError
from meshwright.files import to_json, write_struct
from meshwright.hardware import load_catalogue
from meshwright.plan.clusters.machines import cluster_by_name, nodes_counted, unlike_gpus
from testkit.topology_dumps import layouts, references

CATALOGUE = load_catalogue()
SAMPLES = {sample.name: sample for sample in [*references(), *layouts()]}


def discovered(tmp_path, name, gpu=None):
    path = tmp_path / f"{name}.txt"
    path.write_text(SAMPLES[name].text)
    return load_dump(path, CATALOGUE, gpu)


def nodes(tmp_path, name, gpu):
    return compact(discovered(tmp_path, name, gpu), CATALOGUE).groups[0]


@pytest.mark.parametrize("name", [key for key, node in CATALOGUE.nodes.items() if node.network])
def test_two_nodes_drawn_out_device_by_device_are_the_same_two_nodes_again(name):
    given = catalogue_cluster(CATALOGUE, name, nodes=2)

    found = compact(expanded(given), CATALOGUE).groups[0]

    # a list of devices names no catalogue entry, no domain of GPU links beyond a node, and no memory of processors
    wanted = replace(given.groups[0], type="", scale_up_nodes=1, numa_nodes=found.numa_nodes)
    wanted = replace(wanted, host_memory_bytes=None, host_memory_bandwidth_bytes_per_s=None)
    assert replace(found, gpu=wanted.gpu) == wanted
    assert found.gpu.peak_flops_per_s == wanted.gpu.peak_flops_per_s


def test_gpus_behind_a_switch_have_its_rate_once(tmp_path):
    group = nodes(tmp_path, "8_h100", "h100")

    assert (group.gpus, group.switched, group.gpu_link) == (8, True, "NV18")
    assert group.gpu_bandwidth_bytes_per_s == group.peer_bandwidth_bytes_per_s == 450e9
    assert group.reduction_bandwidth_bytes_per_s == pytest.approx(0.55 * 450e9)
    assert group.gpu.memory_bytes == 81_559 * 2**20  # as the driver shows


def test_a_mesh_has_the_links_of_a_gpu_to_all_its_peers(tmp_path):
    full, cube = nodes(tmp_path, "station_mesh", "a100-80g"), nodes(tmp_path, "dgx1_v100", "v100-16g")

    assert (full.gpu_bandwidth_bytes_per_s, full.peer_bandwidth_bytes_per_s, full.mesh) == (300e9, 100e9, ())
    assert cube.gpu_bandwidth_bytes_per_s == 150e9
    assert len(cube.mesh) == 16


@pytest.mark.parametrize("name", ["pcie_switches", "bridged_pairs", "two_phb"])
def test_gpus_that_their_own_links_do_not_join_meet_over_pcie(tmp_path, name):
    group = nodes(tmp_path, name, "a100-80g-pcie")

    assert group.gpu_link == "PCIe"
    assert group.gpu_bandwidth_bytes_per_s == CATALOGUE.interconnect("pcie-4").rate_bytes_per_s


def test_what_topo_prints_as_json_is_read_as_what_it_saves(tmp_path):
    saved = discovered(tmp_path, "8_h100", "h100")
    path = tmp_path / "printed.json"
    path.write_text(to_json(wire_form(saved)))

    assert compact(read_cluster(path), CATALOGUE).groups == compact(saved, CATALOGUE).groups


def test_gpus_of_two_models_are_told_to_count_as_the_slowest(tmp_path):
    alike, path = discovered(tmp_path, "8_h100", "h100"), tmp_path / "mixed.json"
    older = tuple(replace(gpu, model="a100-80g") for gpu in alike.of_kind("gpu")[:2])
    write_struct(
        path, replace(alike, devices=(*older, *(d for d in alike.devices if d.id not in {o.id for o in older})))
    )

    told = unlike_gpus(str(path), cluster_by_name(CATALOGUE, str(path), gpus=16, inter_bytes_per_s=2e11))

    assert told == (f"{path}: 2 a100-80g and 6 h100: all 16 GPUs count as the slowest, a100-80g",)
    assert unlike_gpus("dgx-h100", cluster_by_name(CATALOGUE, "dgx-h100")) == ()


def test_a_file_that_stands_for_more_nodes_than_it_has_is_told(tmp_path):
    path = tmp_path / "one.json"
    write_struct(path, discovered(tmp_path, "8_h100", "h100"))
    clusters = (cluster_by_name(CATALOGUE, str(path), gpus=gpus, inter_bytes_per_s=2e11) for gpus in (32, 8))
    told, as_it_is = (nodes_counted(str(path), cluster) for cluster in clusters)

    assert told == (f"{path} has 8 GPUs: 32 GPUs are 4 nodes like its own, joined by their NICs",)
    assert as_it_is == nodes_counted("dgx-h100", cluster_by_name(CATALOGUE, "dgx-h100", gpus=32)) == ()


@pytest.mark.parametrize("name", ["box.toml", "box.json", "box"])
def test_a_saved_machine_is_priced_whatever_its_file_is_called(tmp_path, name):
    saved, path = discovered(tmp_path, "8_h100", "h100"), tmp_path / name
    write_struct(path, saved)

    assert cluster_by_name(CATALOGUE, str(path)).groups == compact(saved, CATALOGUE).groups


def test_what_is_missing_is_said_in_one_line(tmp_path):
    cpu_only = Cluster(
        name="here",
        hosts=(Host(name="here", cores=2, memory_bytes=2**30),),
        devices=(Device(id="CPU0", kind="cpu", node="here"),),
    )
    cases = [
        (cpu_only, r"here: has no GPUs to plan for \(it lists 1 cpu\); expected a machine with GPUs"),
        (Cluster(name="saved.txt"), "it lists no devices"),
        (discovered(tmp_path, "8_h100"), "8_h100: does not say which GPUs it has; expected .* --gpu NAME"),
        (discovered(tmp_path, "8_a100", "mi300x"), r"link GPU0-GPU1 \(NV12\): its rate is not known"),
    ]
    for cluster, wanted in cases:
        with pytest.raises(InputError, match=wanted):
            compact(cluster, CATALOGUE)


def test_nodes_with_unlike_numbers_of_gpus_are_refused():
    whole = expanded(catalogue_cluster(CATALOGUE, "dgx-a100-80g", nodes=2))
    lacking = replace(whole, devices=tuple(d for d in whole.devices if d.id != "node1/GPU7"))

    with pytest.raises(InputError, match="node0 and node1 differ"):
        compact(lacking, CATALOGUE)


def test_a_job_over_nodes_that_differ_runs_at_the_pace_of_the_slowest(tmp_path):
    path = tmp_path / "two.txt"
    good, bad = SAMPLES["8_h100"].text, SAMPLES["8_h100"].text.replace("NV18", "NV16")
    path.write_text(f"node1\n{good}\n\nnode2\n{bad}\n")
    cluster = load_dump(path, CATALOGUE, "h100")
    group = compact(cluster, CATALOGUE).groups[0]

    assert (group.count, group.gpus, group.gpu_bandwidth_bytes_per_s) == (2, 8, 400e9)
    assert any(v.startswith("node2 differs from the other nodes: 28 x NV16") for v in analyse(cluster).verdicts)
