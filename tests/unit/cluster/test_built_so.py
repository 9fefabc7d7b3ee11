"""Machines built with fewer NICs or links than others: healthy, where the same figures elsewhere are damage."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.cluster.graph import Device
from meshwright.cluster.pcipath import PciDevice, host_links
from meshwright.hardware import load_catalogue

from .machines import Machine, as_nccl, machine

CATALOGUE = load_catalogue()
H100, MI300X = machine("dgx-h100"), machine("mi300x-8")
OPPOSITE = {(0, 5), (1, 4), (2, 7), (3, 6)}


def said(m: Machine, folder: Path) -> tuple[str, ...]:
    (folder / "system.xml").write_text(as_nccl(m))
    return analyse(load_dump(folder / "system.xml", CATALOGUE)).verdicts


@pytest.mark.parametrize("nics", [(7,), (6, 7), (4, 6), (0, 2, 4, 6), (0, 2, 4), (1, 2, 3, 5, 6)], ids=str)
def test_fewer_nics_than_gpus_are_how_a_machine_was_built(nics, tmp_path):
    assert said(replace(H100, nics=nics), tmp_path) == ()


def test_one_nic_fewer_than_eight_gpus_is_one_that_is_missing(tmp_path):
    (verdict,) = said(replace(H100, nics=(0, 1, 2, 3, 4, 6, 7)), tmp_path)

    assert "GPU5 and GPU6 share mlx5_6" in verdict
    assert "the other GPUs have one each" in verdict


def test_a_mesh_in_which_every_gpu_lacks_one_peer_was_built_so(tmp_path):
    links = {pair: count for pair, count in MI300X.links.items() if pair not in OPPOSITE}

    assert said(replace(MI300X, links=links), tmp_path) == ()


def test_three_pairs_lost_of_four_that_could_be_built_so_are_named(tmp_path):
    links = {pair: count for pair, count in MI300X.links.items() if pair not in OPPOSITE - {(3, 6)}}

    assert [verdict[:9] for verdict in said(replace(MI300X, links=links), tmp_path)] == [
        "GPU0-GPU5", "GPU1-GPU4", "GPU2-GPU7",
    ]  # fmt: skip


def test_a_device_of_unknown_place_is_not_put_beside_the_cpus_of_no_node():
    gpu = PciDevice(Device(id="GPU0", kind="gpu"), ("a",), 64e9)
    cpus = [Device(id="CPU1", kind="cpu", numa=1), Device(id="CPU of no node", kind="cpu")]

    assert host_links([gpu], cpus) == []
    assert [link.b for link in host_links([gpu], cpus[1:])] == ["CPU of no node"]


def slots(*codes: str) -> str:
    """Return a matrix of RTX A5000 with these codes, a word of them for each row."""
    count = len(codes)
    names = "".join(f"GPU {n}: NVIDIA RTX A5000 (UUID: GPU-{n})\n" for n in range(count))
    head = "\t" + "\t".join(f"GPU{n}" for n in range(count)) + "\tCPU Affinity\tNUMA Affinity\n"
    return names + head + "".join(f"GPU{n}\t" + "\t".join(row.split()) + "\t0-15\t0\n" for n, row in enumerate(codes))


def test_gpus_behind_one_pcie_switch_share_its_link_to_the_others():
    two = ("X PIX NODE NODE", "PIX X NODE NODE", "NODE NODE X PIX", "NODE NODE PIX X")
    apart = ("X NODE NODE NODE", "NODE X NODE NODE", "NODE NODE X NODE", "NODE NODE NODE X")
    shared, own = (analyse(parse_dump(slots(*codes), "m", CATALOGUE)) for codes in (two, apart))

    assert (shared.bisection_bytes_per_s, own.bisection_bytes_per_s) == (
        pytest.approx(31.5e9, 0.02),
        pytest.approx(63e9, 0.02),
    )
    assert any("share its link to the others (GPU0, GPU1; GPU2, GPU3)" in said for said in shared.advice)
    assert not any("share its link" in said for said in own.advice)


def test_gpus_behind_one_pcie_switch_reach_each_other_without_its_link():
    one = analyse(parse_dump(slots("X PIX PIX PIX", "PIX X PIX PIX", "PIX PIX X PIX", "PIX PIX PIX X"), "m", CATALOGUE))

    assert one.bisection_bytes_per_s == pytest.approx(63e9, 0.02)
    assert not any("share its link" in said for said in one.advice)
