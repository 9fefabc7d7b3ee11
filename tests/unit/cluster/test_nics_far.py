"""NICs that are far from GPUs, hosts of racks, and prices on several hosts like the one of a file."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cluster.analysis import analyse
from meshwright.cluster.catalogue_devices import open_domain
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def matrix(nics_of: dict[str, dict[str, str]], numa: dict[str, int], link: str = "NV12", count: int = 4) -> str:
    """Return a matrix of GPUs that one kind of link joins, with the NICs that are nearer to a GPU than SYS."""
    gpus = [f"GPU{i}" for i in range(len(nics_of))]
    nics = [f"NIC{i}" for i in range(count)]
    rows = ["\t".join(["", *gpus, *nics, "CPU Affinity", "NUMA Affinity"])]
    for gpu in gpus:
        cells = [" X " if gpu == other else link for other in gpus]
        cells += [nics_of[gpu].get(nic, "SYS") for nic in nics]
        rows.append("\t".join([gpu, *cells, f"{16 * numa[gpu]}-{16 * numa[gpu] + 15}", str(numa[gpu])]))
    return "\n".join(rows) + "\n"


NUMA = {"GPU0": 0, "GPU1": 0, "GPU2": 1, "GPU3": 1}


def test_a_gpu_far_from_all_nics_has_that_of_a_gpu_of_its_numa_node_and_not_one_that_serves_nobody():
    near = {"GPU0": {"NIC2": "PIX"}, "GPU1": {}, "GPU2": {}, "GPU3": {"NIC1": "PIX"}}
    found = analyse(parse_dump(matrix(near, NUMA), "node.txt", CATALOGUE, "a100-80g")).nic_of_gpu
    assert found == {"GPU0": ("NIC2", "PIX"), "GPU1": ("NIC2", "SYS"), "GPU2": ("NIC1", "SYS"), "GPU3": ("NIC1", "PIX")}


def test_where_all_nics_are_as_far_from_all_gpus_none_is_given_to_any():
    found = analyse(parse_dump(matrix({gpu: {} for gpu in NUMA}, NUMA), "node.txt", CATALOGUE, "a100-80g"))
    assert found.nic_of_gpu == {}
    assert any("GPU0, GPU1, GPU2, GPU3: every NIC is SYS away" in said for said in found.advice)


def test_the_only_nic_of_a_host_serves_all_gpus_however_far_it_is():
    text = matrix({gpu: {} for gpu in NUMA}, NUMA, count=1)
    found = analyse(parse_dump(text, "node.txt", CATALOGUE, "a100-80g"))
    assert set(found.nic_of_gpu.values()) == {("NIC0", "SYS")}


@pytest.mark.parametrize(("gpu", "is_open"), [("gb200", True), ("gb300", True), ("h100", False)])
def test_one_host_of_a_rack_says_that_the_size_of_its_domain_is_open(gpu, is_open, tmp_path, capsys):
    text = matrix({gpu: {} for gpu in NUMA}, NUMA, link="NV18")
    assert bool(open_domain(parse_dump(text, "tray.txt", CATALOGUE, gpu), CATALOGUE)) == is_open
    (tmp_path / "tray.txt").write_text(text)
    words = "up to 18, 72 GPUs"
    assert run_command(["topo", "--from", str(tmp_path / "tray.txt"), "--gpu", gpu]) == 0
    assert (words in " ".join(capsys.readouterr().out.split())) == is_open
    assert run_command(["topo", "--from", str(tmp_path / "tray.txt"), "--gpu", gpu, "--domain", "9"]) == 0
    assert words not in " ".join(capsys.readouterr().out.split())


def test_a_price_on_more_ranks_than_a_file_has_gpus_takes_several_hosts_like_it(tmp_path, capsys):
    (tmp_path / "m.txt").write_text(matrix({gpu: {} for gpu in NUMA}, NUMA))
    node = str(tmp_path / "node.json")
    assert run_command(["topo", "--from", str(tmp_path / "m.txt"), "--gpu", "a100-80g", "--save", node]) == 0
    price = ["collectives", "price", "--like", "nccl", "--ranks", "8", "--bytes", "1G", "--cluster", node]
    capsys.readouterr()
    assert run_command(price) == 2
    assert "no NIC of known rate joins its nodes; expected --inter RATE" in capsys.readouterr().err
    times = []
    for rate in ("400Gbps", "100Gbps"):
        assert run_command([*price, "--inter", rate, "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out))
    assert 2.5 < times[1]["time_us"] / times[0]["time_us"] < 4.5
    assert any("8 GPUs are 2 nodes like its own" in note for note in times[0]["notes"])


def link_types(groups: list[set[int]], gpus: int) -> str:
    """Return rocm-smi's table of link types, without weights, of GPUs that xGMI joins in groups."""
    rows = ["=========== Link Type between two GPUs ===========", "  ".join(["", *(f"GPU{i}" for i in range(gpus))])]
    for i in range(gpus):
        cells = ["0" if i == j else "XGMI" if any({i, j} <= group for group in groups) else "PCIE" for j in range(gpus)]
        rows.append("  ".join([f"GPU{i}", *cells]))
    return "\n".join(rows) + "\n"


def test_cards_with_as_many_peers_as_links_have_one_link_to_each():
    cluster = parse_dump(link_types([{0, 1, 4, 5}, {2, 3, 6, 7}], 8), "hives.txt", CATALOGUE, "mi100")
    assert {link.bandwidth_bytes_per_s for link in cluster.links if link.kind == "xGMI"} == {46e9}
    said = [line for line in analyse(cluster).advice if "groups" in line]
    assert len(said) == 1
    assert "GPU0, GPU1, GPU4, GPU5 (all of their links are in use); GPU2, GPU3, GPU6, GPU7" in said[0]


def test_cards_with_more_peers_than_links_stay_open_without_weights():
    cluster = parse_dump(link_types([{0, 1, 2, 3}], 4), "ring.txt", CATALOGUE, "mi50")
    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {None}
    assert any("without the table of weights" in said for said in cluster.warnings)
    assert not any("lower bound" in said for said in cluster.warnings)
    assert not any("groups" in line for line in analyse(cluster).advice)
