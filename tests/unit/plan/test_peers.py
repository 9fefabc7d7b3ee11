"""Cards whose driver gives them no peer access: what goes from one to another passes the host's memory."""

import csv
import io
import json

import pytest

from meshwright.cluster.builders import node_group
from meshwright.hardware import load_catalogue
from meshwright.hardware.arithmetic import share_between_peers
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.collective import span
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models
from meshwright.workload.models import load_model

RIG = """
[nodes.rig]
title = "a workstation"
accelerator = "{gpu}"
gpus = {{ value = 8, source = "assumed" }}
numa_nodes = {{ value = 2, source = "assumed" }}
no_network = "one machine"
"""
BUSBW_OF_EIGHT_5090 = 28e9  # NVIDIA/nccl, issue 1639: 8 GB, all-reduce
PCIE_5 = 63e9


def rig(tmp_path, gpu):
    path = tmp_path / f"{gpu}.toml"
    path.write_text(RIG.format(gpu=gpu))
    return load_catalogue(str(path))


def asked(catalogue, cluster, **changed):
    request = PlanRequest(
        model=load_model("llama3-8b"), cluster=str(cluster), gpus=8, global_batch=32, seq_len=4096, **changed
    )
    return setting_of(request, catalogue)


def test_eight_geforce_cards_reach_what_was_measured_of_them(tmp_path):
    group = node_group(rig(tmp_path, "rtx-5090"), "rig")
    reached = coefficients(book(), "since-2024", "rtx-5090", "bf16", "").link  # of a link's rate

    assert group.gpu_bandwidth_bytes_per_s * reached == pytest.approx(BUSBW_OF_EIGHT_5090, rel=0.02)
    assert group.peer_bandwidth_bytes_per_s == group.gpu_bandwidth_bytes_per_s
    assert group.host_bandwidth_bytes_per_s == PCIE_5  # to the host itself nothing is in between


def test_workstation_cards_of_the_same_chips_have_peer_access(tmp_path):
    assert node_group(rig(tmp_path, "rtx-pro-6000"), "rig").gpu_bandwidth_bytes_per_s == PCIE_5


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090", "rtx-5090", "rtx-4080", "rtx-5080"])
def test_an_answer_says_that_it_is_assumed_and_which_option_says_better(tmp_path, gpu):
    catalogue = rig(tmp_path, gpu)
    told = asked(catalogue, "rig").assumed

    assert any("no peer access" in text and "--intra" in text for text in told)
    assert not any("no peer access" in text for text in asked(catalogue, "rig", intra_bytes_per_s=2e10).assumed)
    assert not any("no peer access" in text for text in asked(rig(tmp_path, "rtx-pro-6000"), "rig").assumed)


def test_a_rate_that_a_cluster_file_gives_stands_and_is_doubted(tmp_path):
    catalogue = load_catalogue()
    known = catalogue.accelerators["rtx-4090"]
    gpu = {
        **{"id": "GPU", "kind": "gpu", "model": "rtx-4090", "memory_bytes": known.memory_bytes},
        **{"peak_flops_per_s": known.peak_flops_per_s, "memory_bandwidth_bytes_per_s": known.memory_rate.number},
    }
    rates = {"gpu_bandwidth_bytes_per_s": 31e9, "peer_bandwidth_bytes_per_s": 31e9}
    group = {"type": "", "count": 1, "gpus": 8, "gpu": gpu, "gpu_link": "PCIe", **rates}
    path = tmp_path / "rig.json"
    path.write_text(json.dumps({"name": "rig", "groups": [group]}))

    setting = asked(catalogue, path)

    assert setting.cluster.groups[0].gpu_bandwidth_bytes_per_s == 31e9
    assert any("31 GB/s, as the cluster says; without peer access 17" in text for text in setting.assumed)


def test_a_row_of_a_table_is_priced_so_too(tmp_path):
    row = {
        **{"gpu": "GeForce RTX 3090", "num_gpus": "2", "model_name": "llama3-8b", "seq_len": "2048"},
        **{"global_batch_sequences": "2", "family": "accelerate", "gpus_per_node": "2"},
    }
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    (tmp_path / "runs.csv").write_text(text.getvalue())
    catalogue = load_catalogue()

    (found,) = read_rows(tmp_path / "runs.csv", catalogue, book(), known_models())

    assert found.run.link_bytes_per_s == pytest.approx(0.55 * 31e9)
    assert any("no peer access" in text for text in found.run.assumed)


def test_bridges_between_cards_need_no_such_access():
    catalogue = load_catalogue()
    card = catalogue.accelerators["rtx-3090"]

    assert share_between_peers(card, catalogue.interconnect("nvlink-3-bridge")) == 1.0
    assert share_between_peers(card, catalogue.interconnect("pcie-4")) == 0.55


@pytest.mark.parametrize(("ranks", "rate"), [(2, 64e9), (4, 192e9), (8, 448e9)])
def test_a_tensor_group_on_links_that_join_pairs_has_those_between_its_own_gpus(ranks, rate):
    setting = asked(load_catalogue(), "mi300x-8")
    c = coefficients_of(setting)

    found = span(machine_of(setting), c, float(ranks), 1.0)

    assert found.link_rate == pytest.approx(rate * c.link)
