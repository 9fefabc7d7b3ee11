"""Pairs of each of several rates, ports of a fabric with their rates, and names that notes give GPUs."""

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.drawing.draw import draw
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
PCIE = """        GPU0    GPU1    GPU2    GPU3
GPU0     X      PXB     SYS     SYS
GPU1    PXB      X      SYS     SYS
GPU2    SYS     SYS      X      PXB
GPU3    SYS     SYS     PXB      X
"""


def drawn(text):
    cluster = parse_dump(text, "t", CATALOGUE)
    return draw(cluster, analyse(cluster)).splitlines()


def amd(rates):
    """Return amd-smi's tables of four GPUs; `rates` are MB/s of the pairs that a link joins."""
    names = [f"0000:0{i}:00.0" for i in range(4)]
    tables = {"LINK TYPE": lambda i, j: "SELF" if i == j else "XGMI", "HOPS": lambda i, j: int(i != j),
              "WEIGHT": lambda i, j: 0 if i == j else 15 if (min(i, j), max(i, j)) in rates else 30,
              "NUMA BW": lambda i, j: f"50-{rates[min(i, j), max(i, j)]}" if (min(i, j), max(i, j)) in rates
              else "N/A"}  # fmt: skip
    lines = []
    for title, cell in tables.items():
        lines += [f"{title} TABLE:", " ".join(["            ", *names])]
        lines += [" ".join([a, *(str(cell(i, j)) for j in range(4))]) for i, a in enumerate(names)]
    return "\n".join(lines) + "\n"


def test_pairs_are_named_where_a_kind_of_link_has_several_rates():
    lines = drawn(amd({(0, 1): 200000, (2, 3): 200000, (0, 2): 50000, (1, 3): 50000}))

    assert (
        "xGMI: 200 GB/s (GPU0-GPU1, GPU2-GPU3), 50 GB/s (GPU0-GPU2, GPU1-GPU3), rate not known (GPU0-GPU3, GPU1-GPU2) "
        "per direction"
    ) in lines


def test_no_pair_is_named_where_all_have_one_rate():
    lines = drawn(amd({(a, b): 64000 for a in range(4) for b in range(a + 1, 4)}))

    assert "xGMI: 64 GB/s per direction" in lines


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("25.78125", "100 Gb/s"),
        ("53.125", "200 Gb/s"),
        ("106.25", "400 Gb/s"),
        ("14.0625", "56 Gb/s"),
        ("10.0", "40 Gb/s"),
    ],
)
def test_the_rate_of_a_port_is_that_of_its_data_and_no_place_is_said_to_lack_it(lane, said):
    ports = "".join(
        f'        1    {n}[  ] ==( 4X   {lane} Gbps Active/  LinkUp)==>   {n + 9}    1[  ] "box{n} HCA-1" ( )\n'
        for n in (1, 2)
    )
    lines = drawn(f"Switch: 0x1 MF0;leaf0:MQM8700/U1:\n{ports}")

    assert f"ports of box1, box2: 1 x {said} each way" in lines
    assert not any("places alone" in line for line in lines)


@pytest.mark.parametrize(
    "note",
    [
        "- GPU: 4x NVIDIA A100-SXM4-80GB", "**GPUs:** 4 x NVIDIA A100-SXM4-80GB (one board)",
        "* **GPU**: NVIDIA A100-SXM4-80GB x 4", "- GPU: NVIDIA A100-SXM4-80GB", "GPU model: NVIDIA A100-SXM4-80GB, SXM",
    ],
)  # fmt: skip
def test_a_note_that_names_the_gpus_shows_that_links_are_missing(note):
    cluster = parse_dump(f"{note}\n\n```\n{PCIE}```\n", "t", CATALOGUE)

    assert {gpu.model for gpu in cluster.of_kind("gpu")} == {"a100-80g"}
    assert any(said.startswith("a100-80g has 12 links to its peers, and none is shown") for said in
               analyse(cluster).verdicts)  # fmt: skip
