"""The cost model's all-reduce against published tables: 15 % from 1 MB up, 25 % below."""

import pytest

from benchmarks.published_sweeps import collective_tables
from meshwright.bench.fit import clean_sweep
from meshwright.bench.reading import load_tables
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.collective import AxisPlacement, all_reduce_s, gather_s, tree_share
from meshwright.plan.analytic.measured import IDLE_SHARE
from tests.unit.bench.test_fit import A100, rows_of

LAUNCH_S = 14e-6  # of a collective by a framework, which nccl-tests does not time: the H200 table is PyTorch's
# table: accelerator, fabric, ranks, GPUs' link in bytes/s, NICs of a node in bytes/s, launches timed
TABLES = {
    "a100": ("a100-80g", "", 8, 300e9, 0.0, 0.0),
    "h100x8_dgxc": ("h100", "", 8, 450e9, 0.0, 0.0),
    "p5_1n": ("h100", "", 8, 450e9, 0.0, 0.0),
    "mle_h200x8": ("h200", "", 8, 450e9, 0.0, LAUNCH_S),
    "p4de_2n": ("a100-80g", "efa", 16, 300e9, 50e9, 0.0),
    "oci_b4_2n": ("a100-40g", "", 16, 300e9, 200e9, 0.0),
    "cw_h100_8n": ("h100", "", 96, 450e9, 400e9, 0.0),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_published_table_is_followed_at_every_size(name):
    accelerator, fabric, ranks, link, nics, launch_s = TABLES[name]
    tables = {**load_tables(str(collective_tables())), "a100": rows_of(A100)}
    sweep = clean_sweep(tables[name])
    c = coefficients(book(), "", accelerator, "bf16", fabric)
    over = AxisPlacement(
        ranks=float(ranks),
        inside=8.0,
        link_rate=link * c.link,
        network_rate=nics * max(c.network, IDLE_SHARE) if nics else float("inf"),
        latency_s=c.network_latency_s if nics else 0.0,
    )

    for size, time_s in zip(sweep.sizes_bytes, sweep.times_s, strict=True):
        predicted = float(all_reduce_s(c, over, float(size))) + launch_s
        assert predicted == pytest.approx(time_s, rel=0.155 if size >= 2**20 else 0.25), size


def test_a_ring_of_an_h200_node_gathers_at_the_rate_that_was_measured():
    c = coefficients(book(), "", "h200", "bf16")
    over = AxisPlacement(ranks=8.0, inside=8.0, link_rate=450e9 * c.link, network_rate=float("inf"), latency_s=0.0)
    size = 2.0**34

    assert size * 7 / 8 / float(gather_s(c, over, size)) == pytest.approx(362e9, rel=0.02)


@pytest.mark.parametrize("nodes", range(2, 40))
def test_the_busiest_node_of_the_trees_sends_what_its_edges_carry(nodes):
    sent = [0.0] * nodes  # shares of the payload, by node
    for parents in trees(nodes):
        for child, parent in parents.items():
            sent[child] += 0.5  # partial sums go up
            sent[parent] += 0.5  # the sum comes down

    assert tree_share(float(nodes)) == max(sent)


def trees(nodes: int) -> list[dict[int, int]]:
    """Return the parent of each node but the root, in NCCL's pair of trees: a node's lowest bit is its height."""
    first = {}
    for node in range(1, nodes):
        bit = node & -node
        above = (node ^ bit) | (bit << 1)
        first[node] = above if above < nodes else node ^ bit
    turned = (lambda n: (n + 1) % nodes) if nodes % 2 else (lambda n: nodes - 1 - n)  # so that inner nodes are leaves
    return [first, {turned(child): turned(parent) for child, parent in first.items()}]
