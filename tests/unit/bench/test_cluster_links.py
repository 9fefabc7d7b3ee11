"""`bench --from --cluster FILE`: the yardstick of a table is the machine whose topology was saved."""

import msgspec
import pytest

from meshwright.bench.judgement.cluster_links import links_of_nodes, nodes_of
from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.cluster.builders import node_group
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
HEAD = "# all_reduce_perf -np {} -N {}\n#       size  count  type  redop  root  time  algbw  busbw  #wrong\n"


def group(name, **changes):
    return msgspec.structs.replace(node_group(CATALOGUE, name), type="", **changes)


def verdict(nodes, busbw, ranks, per_node, **options):
    size = 2**33
    algbw = busbw / (2 * (ranks - 1) / ranks)
    row = f"{size} {size // 4} float sum -1 {size / algbw / 1e3:.1f} {algbw:.3f} {busbw:.3f} 0\n"
    (found,) = judge(
        CATALOGUE,
        parse_tables(HEAD.format(ranks, per_node) + row, "t"),
        nodes=links_of_nodes(CATALOGUE, nodes),
        **options,
    )
    return found


@pytest.mark.parametrize(
    ("name", "changes", "busbw", "ranks", "per_node", "ok"),
    [
        ("dgx-h100", {}, 400, 32, 8, True),
        ("dgx-h100", {"nics": 4}, 180, 32, 8, True),  # half of the NICs, as the file says
        ("dgx-h100", {}, 180, 32, 8, False),
        ("dgx-h100", {}, 378, 8, 8, True),
        ("dgx-h100", {"gpu_bandwidth_bytes_per_s": 225e9}, 185, 8, 8, False),  # links that trained down excuse nothing
        ("dgx-a100-80g", {"nic_kind": "tcp", "nic_bandwidth_bytes_per_s": 12.5e9, "nics": 1}, 10, 32, 8, True),
        ("gb200-nvl72", {"scale_up_nodes": 1}, 90, 72, 4, False),  # a file of one tray; NVLink joins the rack
        ("gb200-nvl72", {"scale_up_nodes": 1}, 840, 72, 4, True),
    ],
)
def test_a_table_is_held_against_the_machine_of_the_file(name, changes, busbw, ranks, per_node, ok):
    assert verdict(group(name, **changes), busbw, ranks, per_node).ok is ok


def test_nics_whose_rate_the_file_lacks_have_that_of_the_link():
    matrix = "\t".join(["", "GPU0", "GPU1", "NIC0", "NIC1", "CPU Affinity", "NUMA Affinity"]) + "\n"
    for own, peer in (0, 1), (1, 0):
        row = {own: "X", peer: "NV18", 2 + own: "PIX", 2 + peer: "NODE", 4: "0-31", 5: "0"}
        matrix += "\t".join([f"GPU{own}", *(row[i] for i in range(6))]) + "\n"
    for own, peer in (0, 1), (1, 0):
        row = {own: "PIX", peer: "NODE", 2 + own: "X", 2 + peer: "NODE"}
        matrix += "\t".join([f"NIC{own}", *(row[i] for i in range(4))]) + "\n"
    cluster = parse_dump(matrix, "t", CATALOGUE, "h100")

    unknown, known = (nodes_of(cluster, CATALOGUE, link, "t") for link in (None, "ndr-400"))

    assert verdict(unknown, 90, 8, 2).ok is None
    assert verdict(known, 92, 8, 2, link="ndr-400").ok is True
    assert verdict(known, 45, 8, 2, link="ndr-400").ok is False
