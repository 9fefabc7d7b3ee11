"""A rank's share of the NICs where hosts are not named, and rates that no NIC bounds."""

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.hardware import load_catalogue

HEADER = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
MATRIX = """Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 900.00  19.00  19.20
     1  19.10 900.00  19.30
     2  19.20  19.10 900.00
"""
BETWEEN_HOSTS = """[tuning] Best dispatch (BF16): SMs 20, NVL chunk 8, RDMA chunk 16: RATE GB/s (RDMA), 65.40 GB/s (NVL)
[tuning] Best combine: SMs 20, NVL chunk 4, RDMA chunk 8: 18.00 GB/s (RDMA), 58.80 GB/s (NVL)
"""


def verdicts(text, node=None, link=None, nics=None):
    return judge(load_catalogue(), parse_tables(text, "t"), node=node, link=link, nics=nics)


def all_to_all(ranks, busbw):
    algbw = busbw * ranks / (ranks - 1)
    size = 2**30
    half = f"{size / algbw / 1e3:.1f} {algbw:.3f} {busbw:.3f} 0"
    return f"# alltoall_perf\n{HEADER} {size} {size // 4 // ranks} float none -1 {half} {half}\n"


def all_reduce(ranks, busbw, sizes=(2**32,)):
    algbw = busbw / (2 * (ranks - 1) / ranks)
    halves = [f"{size / algbw / 1e3:.1f} {algbw:.2f} {busbw:.2f} 0" for size in sizes]
    rows = "".join(f" {n} {n // 4} float sum -1 {half} {half}\n" for n, half in zip(sizes, halves, strict=True))
    return f"# all_reduce_perf\n{HEADER}{rows}"


def test_an_all_to_all_is_not_held_against_a_nic_of_which_nobody_knows_how_many_ranks_share_it():
    (found,) = verdicts(all_to_all(64, 0.5), link="100Gbps", nics=1)

    assert (found.ok, found.expected_bytes_per_s) == (None, None)
    assert "how many ranks share the NICs of a host is not known" in found.reason


def test_an_all_to_all_below_a_nic_for_each_rank_may_be_of_ranks_that_share_one():
    (found,) = verdicts(all_to_all(32, 11.0), link="400Gbps", nics=4)

    assert found.ok is None
    assert "if each rank has a NIC: how many ranks share" in found.reason


def test_an_all_to_all_above_the_rate_of_a_nic_is_of_few_hosts():
    (good,) = verdicts(all_to_all(16, 43.0), link="hdr-200", nics=8)
    (beyond,) = verdicts(all_to_all(16, 90.0), link="hdr-200", nics=8)

    assert (good.ok, beyond.ok) == (True, None)
    assert "ran over others" in beyond.reason


def test_a_ring_that_links_inside_a_node_bound_may_reach_what_these_carry():
    (found,) = verdicts(all_reduce(16, 362.0), node="mi300x-8")
    (beyond,) = verdicts(all_reduce(16, 480.0), node="mi300x-8")

    assert found.ok is True
    assert "inside a node, which bounds it" in found.reason
    assert (beyond.ok, "more than these carry" in beyond.reason) == (None, True)


def test_a_table_that_collapses_says_how_far_its_end_is_from_what_the_links_carry():
    sizes = [2**n for n in range(20, 30)]
    good, bad = all_reduce(16, 20.0, sizes[:6]), all_reduce(16, 4.0, sizes[6:])
    rows = bad.partition(HEADER)[2]
    (found,) = verdicts(good + rows, link="400Gbps", nics=8)

    assert "collapses from 64 MiB on" in found.reason
    assert "at 512 MiB it has 4 GB/s of the 340 GB/s that NCCL reaches" in found.reason


def test_copies_without_peer_access_accuse_no_link():
    (found,) = verdicts(MATRIX, link="pcie-4")

    assert found.ok is None
    assert "without peer access: each copy passes through the host's memory" in found.reason


def test_gpus_of_a_host_share_its_nics_where_all_send_at_once():
    network, inside = verdicts(BETWEEN_HOSTS.replace("RATE", "20.00"), link="400Gbps", nics=4)
    (slow, _), (alone, _) = (
        verdicts(BETWEEN_HOSTS.replace("RATE", "20.00"), link="400Gbps", nics=n) for n in (8, None)
    )

    assert (network.ok, slow.ok, alone.ok) == (True, False, False)
    assert "its share of 4 x NIC of 400Gbps for 8 GPUs" in network.reason
    assert (inside.ok, "which these links wait for" in inside.reason) == (None, True)
