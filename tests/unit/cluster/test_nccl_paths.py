"""NCCL's lists of paths: how each GPU reaches the others and the NICs, where the picture of the system is missing."""

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
NEW = """ruth:7:9 [0] NCCL INFO GPU/1A000 :GPU/0-1a000 (0/5000.0/LOC) GPU/0-3b000 (2/370.8/NVL) \
GPU/0-9c000 (2/24.0/SYS) NVS/0-0 (1/370.8/NVL) CPU/0-0 (2/24.0/PHB) CPU/0-1 (3/10.0/SYS) \
NET/0-0 (3/48.0/PXB) NET/0-1 (6/10.0/SYS)
ruth:7:9 [0] NCCL INFO GPU/3B000 :GPU/0-1a000 (2/370.8/NVL) GPU/0-3b000 (0/5000.0/LOC) GPU/0-9c000 (2/24.0/SYS) \
CPU/0-0 (2/24.0/PHB) CPU/0-1 (3/10.0/SYS) NET/0-0 (4/24.0/PHB) NET/0-1 (6/10.0/PXN)
ruth:7:9 [0] NCCL INFO GPU/9C000 :GPU/0-1a000 (2/24.0/SYS) GPU/0-3b000 (2/24.0/SYS) GPU/0-9c000 (0/5000.0/LOC) \
CPU/0-0 (3/10.0/SYS) CPU/0-1 (2/24.0/PHB) NET/0-0 (6/10.0/SYS) NET/0-1 (3/48.0/PIX)
ruth:7:9 [0] NCCL INFO NET/0 :GPU/0-1a000 (3/48.0/PXB) CPU/0-0 (2/48.0/PHB) NET/0-0 (0/5000.0/LOC)
saul:7:9 [0] NCCL INFO GPU/1000 :GPU/0-1000 (0/5000.0/LOC)
"""
OLD = """`h:1:2 [0] NCCL INFO GPU/2000 :GPU/2000 (0/5000.000000/LOC) GPU/3000 (1/44.000000/NVL) CPU/0 (1/12.000000/PHB)
h:1:2 [0] NCCL INFO GPU/3000 :GPU/2000 (1/44.000000/NVL) GPU/3000 (0/5000.000000/LOC) CPU/0 (1/12.000000/PHB)
"""


def test_the_lists_of_all_gpus_give_their_links_nics_and_numa_nodes():
    cluster = parse_dump(NEW, "t", CATALOGUE)
    links = {(link.a, link.b): (link.kind, link.bandwidth_bytes_per_s) for link in cluster.links}

    assert [(device.id, device.numa) for device in cluster.devices] == [
        ("GPU0", 0),
        ("GPU1", 0),
        ("GPU2", 1),
        ("NIC0", 0),
        ("NIC1", None),
    ]
    assert links["GPU0", "GPU1"] == ("NVLink", 370.8e9)
    assert links["GPU0", "GPU2"] == ("SYS", 24e9)
    assert links["GPU2", "NIC1"] == ("PIX", 48e9)
    assert ("GPU1", "NIC1") not in links
    assert any("1 path through another GPU or the network: GPU1-NIC1 (PXN)" in said for said in cluster.warnings)
    assert "lists of other hosts are left out: saul" in cluster.warnings


def test_the_lists_of_older_versions_are_read():
    (link,) = parse_dump(OLD, "t", CATALOGUE).links

    assert (link.a, link.b, link.kind, link.bandwidth_bytes_per_s) == ("GPU0", "GPU1", "NVLink", 44e9)


def test_lists_of_some_gpus_only_are_refused_since_the_others_would_seem_unlinked():
    with pytest.raises(InputError, match="lists of paths of 1 of 3 GPUs: expected one of each"):
        parse_dump(NEW.splitlines()[0], "t", CATALOGUE)
