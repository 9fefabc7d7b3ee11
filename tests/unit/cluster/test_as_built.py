"""Topologies that look worse than they are: hidden switches, idle links, cards without links, single checksums."""

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.drawing.draw import draw
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def matrix(gpus, nics, near, between):
    """Return a matrix of GPUs and NICs; `near(i, j)` is the code from a GPU to a NIC, `between` that of two GPUs."""
    lines = ["\t" + "\t".join([*(f"GPU{i}" for i in range(gpus)), *(f"NIC{j}" for j in range(nics))])]
    for i in range(gpus):
        cells = [" X " if i == k else between for k in range(gpus)] + [near(i, j) for j in range(nics)]
        lines.append(f"GPU{i}\t" + "\t".join(cells))
    for j in range(nics):
        cells = [near(i, j) for i in range(gpus)] + [" X " if j == k else "SYS" for k in range(nics)]
        lines.append(f"NIC{j}\t" + "\t".join(cells))
    return "\n".join(lines) + "\n"


def shown(text, gpu=None):
    cluster = parse_dump(text, "d", CATALOGUE, gpu)
    return draw(cluster, analyse(cluster))


@pytest.mark.parametrize(
    ("nics", "near", "hidden"),
    [
        (4, lambda i, j: "NODE", True),
        (4, lambda i, j: "PIX" if i == j else "NODE", False),
        (1, lambda i, j: "NODE", False),
    ],
    ids=["a NIC each, all as far", "a NIC each behind its switch", "one NIC for all"],
)
def test_nics_as_far_from_every_gpu_may_be_what_a_virtual_machine_shows(nics, near, hidden):
    assert ("a virtual machine hides the PCIe switches" in shown(matrix(4, nics, near, "NV12"), "a100-80g")) is hidden


@pytest.mark.parametrize(("gpu", "none"), [("l40s", True), ("l4", True), ("a40", False), (None, False)])
def test_cards_that_have_no_links_of_their_own_lack_none(gpu, none):
    said = shown(matrix(4, 1, lambda i, j: "NODE", "NODE"), gpu)

    assert ("no NVLink or other link of its own to peers: PCIe alone is how it is built" in said) is none


def test_links_that_a_card_cannot_have_are_shown_all_the_same():
    assert "NV4" in shown(matrix(4, 1, lambda i, j: "NODE", "NV4"), "l40s")


def test_a_mesh_says_what_a_gpu_has_to_all_its_peers():
    assert "a GPU to all its peers together: 300 GB/s per direction" in shown(
        matrix(4, 1, lambda i, j: "PXB", "NV4"), "a100-80g"
    )


QUERY = "index, name, pstate, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max\n"


def notes(*rows):
    return parse_dump(QUERY + "".join(f"{row}\n" for row in rows), "q", CATALOGUE).warnings


def test_a_low_generation_of_idle_gpus_is_no_fault_and_their_lanes_are():
    said = notes("0, NVIDIA A30, P8, 1, 4, 16, 16", "1, NVIDIA A30, P0, 4, 4, 16, 16", "2, NVIDIA A30, P8, 1, 4, 8, 16")

    assert "GPU2 has 8 of 16 PCIe lanes trained" in said
    (idle,) = [words for words in said if "generation" in words]
    assert idle.startswith("PCIe generation 1 of 4 on GPU0, GPU2: idle (state P8), which saves power and is no fault")


def test_a_low_generation_at_work_is_to_be_looked_at():
    (said,) = [words for words in notes("0, NVIDIA A30, P0, 3, 4, 16, 16") if "generation" in words]

    assert said.startswith("GPU0 runs at PCIe generation 3 of 4 in state P0, in which it is not asleep")


def counters(*of_links):
    return "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n" + "".join(
        f"\t Link {i}: Replay Errors: {replays}\n\t Link {i}: CRC Errors: {checksums}\n"
        for i, (replays, checksums) in enumerate(of_links)
    )


def test_a_single_checksum_error_is_told_from_a_link_that_repeats():
    said = parse_dump(counters((0, 1), (900, 12), (0, 0)), "e", CATALOGUE).warnings

    assert any(words.startswith("1 of 3 NVLinks has errors: GPU0 link 1 (Replay 900, CRC 12): ") for words in said)
    assert "single checksum errors without a repeat are chance, and no fault yet: GPU0 link 0 (CRC 1)" in said


@pytest.mark.parametrize("link", [(1, 0), (0, 5000)], ids=["a repeat", "many checksums"])
def test_a_repeat_or_many_checksum_errors_are_no_chance(link):
    said = parse_dump(counters(link, (0, 0)), "e", CATALOGUE).warnings

    assert any("1 of 2 NVLinks has errors" in words for words in said)
    assert not any("chance" in words for words in said)
