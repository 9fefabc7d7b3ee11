"""Dumps that end in the middle, as screens and posts cut them: what is whole counts, nothing else is guessed."""

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


PICTURE = "h:1:2 [0] NCCL INFO " + "\nh:1:2 [0] NCCL INFO ".join(
    [
        "=== System : maxBw 48.0 totalBw 200.0 ===",
        "CPU/0-0 (1/1/2)",
        *(f"+ PCI[24.0] - GPU/0-{n}000 ({n})\nh:1:2 [0] NCCL INFO     + NVL[200.0] - NVS/0-0" for n in (1, 2)),
        "+ PCI[24.0] - GPU/0-3000 (3)",
    ]
)


def test_a_gpu_whose_links_a_cut_picture_of_nccl_does_not_reach_is_left_out():
    cluster = parse_dump(PICTURE, "x", CATALOGUE)
    whole = parse_dump(PICTURE + "\nh:1:2 [0] NCCL INFO =====", "x", CATALOGUE)

    assert {k.kind for k in cluster.links if k.b == "GPU1"} == {"NVLink"}
    assert [len(c.of_kind("gpu")) for c in (cluster, whole)] == [2, 3]
    assert any("GPU/0-3000 is left out" in warning for warning in cluster.warnings)
    assert any("cut off, more devices may follow" in warning for warning in cluster.warnings)
    assert not any("cut off" in warning for warning in whole.warnings)


def test_a_picture_of_nccl_cut_before_its_gpus_and_paths_alone_are_refused_as_such():
    head = "\n".join(PICTURE.splitlines()[:2])
    with pytest.raises(InputError, match="x: NCCL's picture of the system is cut off before its first GPU"):
        parse_dump(head, "x", CATALOGUE)
    with pytest.raises(InputError, match="x: NCCL's list of paths is cut off before it names its own device"):
        parse_dump("h:1:2 [0] NCCL INFO NET/4 :GPU/18000 (6/10.0/SYS) CPU/1 (3/48.0/PHB)", "x", CATALOGUE)


MATRIX = """        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NV12    PIX     SYS     0-15,32-47      0
GPU1    NV12     X      SYS     PIX     16-31,48-63     1
"""


@pytest.mark.parametrize("end", ["NIC0    PIX     SYS      X", "NIC0    PIX     SYS      X      S"])
def test_a_row_of_a_nic_that_the_end_of_the_text_cuts_is_as_one_that_is_not_there(end):
    cut, without = (parse_dump(MATRIX + row, "m", CATALOGUE) for row in (end, ""))

    assert (cut.devices, cut.links, cut.warnings) == (without.devices, without.links, without.warnings)
    with pytest.raises(InputError, match="m:4: row NIC0: "):
        parse_dump(MATRIX + end + "\nNIC1    SYS     PIX     SYS      X", "m", CATALOGUE)


def test_cpus_that_the_end_of_the_text_cuts_are_not_shown():
    rows = "        GPU0    GPU1    CPU Affinity\nGPU0     X      PHB     0-15,32-47\nGPU1    PHB      X      0-15,3"
    cluster = parse_dump(rows, "m", CATALOGUE)
    own = parse_dump(rows.replace("0-15,3\n", "0-15,32-47\n") + "2-47", "m", CATALOGUE)

    assert [gpu.cpu_affinity for gpu in cluster.of_kind("gpu")] == ["0-15,32-47", None]
    assert "GPU1: its CPUs are cut off: left out" in cluster.warnings
    assert [gpu.cpu_affinity for gpu in own.of_kind("gpu")] == ["0-15,32-47"] * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('see:\n<system version="1">\n  <cpu numaid="0">\n    <pci busid="0000:', "a piece of NCCL's topology XML"),
        ('    <pci busid="0000:1b:00.0" class="0x0302"/>\n  </cpu>\n', "a piece of NCCL's topology XML"),
        ('    <object type="PCIDev" pci_busid="0000:1b:00.0">\n', "a piece of lstopo's XML"),
    ],
)
def test_a_piece_of_xml_is_refused_as_what_it_is_a_piece_of(text, words):
    with pytest.raises(InputError, match=f"x: this is {words}, .*; expected all of it"):
        parse_dump(text, "x", CATALOGUE)


def test_a_gpu_whose_list_of_nvlinks_is_cut_is_not_counted_with_the_others():
    links = "".join(f"\n\t Link {n}: 26.562 GB/s" for n in range(18))
    uuid = "(UUID: GPU-00000000-0000-0000-0000-00000000000{})"
    text = "".join(f"GPU {n}: NVIDIA H100 80GB HBM3 {uuid.format(n)}{links}\n" for n in range(3))
    cluster = parse_dump(text[: text.rindex("Link 9")], "n", CATALOGUE)

    assert "18 NVLinks of 25 GB/s on each of 2 GPUs: 450 GB/s per direction" in cluster.warnings
    assert "GPU2: 9 of its 18 NVLinks are in the list: it was cut" in cluster.warnings


BELOW = """GPU0 GPU1 GPU2 NIC0 CPU Affinity NUMA Affinity
GPU0 X NV12 SYS PXB 0-31 0
GPU1 NV12 X NV12 SYS 32-63 1
"""


@pytest.mark.parametrize("row", ["GPU2 SYS NV1", "GPU2 SYS NV12 X", "GPU2 SYS NV12 X SY"])
def test_a_last_gpu_whose_row_is_cut_has_the_links_that_the_others_say(row):
    cluster = parse_dump(BELOW + row, "t", CATALOGUE)

    pairs = {frozenset((link.a, link.b)): link.kind for link in cluster.links}
    assert pairs[frozenset(("GPU0", "GPU2"))] == "SYS"
    assert pairs[frozenset(("GPU1", "GPU2"))] == "NV12"
    assert frozenset(("GPU2", "NIC0")) not in pairs
    assert "the row of GPU2 is cut off" in " ".join(cluster.warnings)


def test_a_row_that_is_cut_above_others_and_two_missing_rows_are_refused():
    short = "GPU0 GPU1 GPU2 CPU Affinity\nGPU0 X NV12 NV12 0-3\nGPU2 NV12"

    for text in (short, BELOW.replace("GPU1 NV12 X NV12 SYS 32-63 1", "GPU1 NV12 X") + "GPU2 SYS NV12 X PXB 32-63 1"):
        with pytest.raises(InputError):
            parse_dump(text, "t", CATALOGUE)


@pytest.mark.parametrize(
    ("nodes", "memory", "numa"),
    [("1", "N/A", 1), ("0-1", "N/A", None), ("0-1,8", "N/A", None), ("0,3-9", "2", 0), ("0-1", "1", 0)],
)
def test_a_gpu_near_several_numa_nodes_of_cpus_is_on_none_of_them(nodes, memory, numa):
    text = f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV4\t0-7\t{nodes}\t\t{memory}\n"
    cluster = parse_dump(f"{text}GPU1\tNV4\t X \t0-7\t{nodes}\t\t{memory}\n", "t", CATALOGUE)

    assert {gpu.numa for gpu in cluster.of_kind("gpu")} == {numa}
    assert any("which of them is nearest is not known" in warning for warning in cluster.warnings) is (numa is None)
