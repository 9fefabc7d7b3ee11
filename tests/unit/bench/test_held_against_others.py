"""Tables of a file held against each other, shares of NICs and their own rate, limits of a flow, sums in a switch."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
HEADER = """#     size     count    type   redop    root    time  algbw  busbw #wrong    time  algbw  busbw #wrong
#      (B)  (elements)                          (us) (GB/s) (GB/s)           (us) (GB/s) (GB/s)
"""
VERBS = """                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : {device}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 {size}      50000            0.00               {gbps:.2f}             0.4
"""
CUDA = "creating CUDA Ctx\ncuMemAlloc() of a 131072 bytes GPU buffer\n"
OSU = """# OSU MPI-CUDA Bandwidth Test v7.3
# Send Buffer on {0} and Receive Buffer on {0}
# Size      Bandwidth (MB/s)
{1}"""


def judged(text, **options):
    return judge(CATALOGUE, parse_tables(text, "t"), **options)


def rails(*gbps, size=65536):
    return "".join(VERBS.format(device=f"mlx5_{i}", size=size, gbps=rate) for i, rate in enumerate(gbps))


def run(hosts, per_host, device, size, algbw, factor, redop="sum"):
    """Return a table of nccl-tests: its list of devices and one size."""
    ranks = hosts * per_host
    listed = "".join(
        f"#  Rank {rank:2} Group  0 Pid  {4000 + rank} on n{rank // per_host} device {rank % per_host} "
        f"[0x1{rank % per_host}] {device}\n"
        for rank in range(ranks)
    )
    count = size // 4 if redop == "sum" else size // 4 // ranks
    time = size / algbw / 1e3
    both = f"{time:.1f}  {algbw:.2f}  {algbw * factor:.2f}"
    last = "0" if redop == "sum" else "N/A"
    return f"# Using devices\n{listed}{HEADER} {size} {count} float {redop} -1 {both} 0 {both} {last}\n"


def test_a_rail_at_half_of_the_others_is_bad_though_its_messages_are_of_the_tools_own_size():
    verdicts = judged(rails(98.0, 98.1, 49.2, 98.0), link="100Gbps")

    assert [verdict.ok for verdict in verdicts] == [True, True, False, True]
    assert "slow beside 3 others of the same test: 6.15 GB/s, and there 12.2 GB/s (50 %" in verdicts[2].reason
    assert "ibstat: Rate" in verdicts[2].reason
    assert "TCP" not in verdicts[2].reason


def test_a_slow_rail_is_named_without_a_link_and_not_called_bad_for_it_may_be_of_another_kind():
    verdicts = judged(rails(98.0, 98.1, 24.0, 98.0))

    assert [verdict.ok for verdict in verdicts] == [None] * 4
    assert "slow beside 3 others" in verdicts[2].reason
    assert "or it is of another kind" in verdicts[2].reason
    assert "slow beside" not in verdicts[0].reason


def test_two_rails_do_not_tell_which_of_them_is_the_slow_one():
    assert all("slow beside" not in verdict.reason for verdict in judged(rails(98.0, 49.0)))


def test_a_device_that_was_measured_twice_is_held_against_nothing_beside_it():
    text = rails(98.0, 98.1, 98.0) + VERBS.format(device="mlx5_0", size=65536, gbps=40.0)

    assert "slow beside" not in judged(text)[3].reason


@pytest.mark.parametrize(("gbps", "ok"), [(310.0, False), (345.0, True)])
def test_verbs_are_held_against_more_of_a_named_rate_than_sockets(gbps, ok):
    (verdict,) = judged(rails(gbps), link="400Gbps")

    assert (verdict.ok, verdict.expected_bytes_per_s) == (ok, pytest.approx(48e9))


def test_gpu_memory_slower_than_host_memory_of_the_same_nic_is_no_fault_of_the_network():
    verdicts = judged(rails(98.0) + CUDA + rails(30.0), link="100Gbps")

    assert [verdict.ok for verdict in verdicts] == [True, False]
    assert "reached 12.2 GB/s in the same file, so the network is sound, and ACS or the IOMMU" in verdicts[1].reason
    assert [table.buffers for table in parse_tables(rails(98.0) + CUDA + rails(30.0), "t")] == ["", "device to device"]


def test_host_memory_of_another_nic_does_not_clear_the_network():
    other = CUDA + VERBS.format(device="mlx5_7", size=65536, gbps=30.0)

    assert "the network is sound" not in judged(rails(98.0) + other, link="100Gbps")[1].reason


@pytest.mark.parametrize("link", ["100Gbps", None])
def test_buffers_of_a_gpu_that_are_staged_name_gpudirect(link):
    text = OSU.format("HOST (H)", "4194304 12100.0\n") + OSU.format("DEVICE (D)", "4194304 4100.0\n")
    host, device = judged(text, link=link)

    assert "GPUDirect RDMA" in device.reason
    assert "GPUDirect" not in host.reason
    assert device.ok is (None if link is None else False)


def test_where_host_memory_is_as_slow_gpudirect_is_not_blamed():
    text = OSU.format("HOST (H)", "4194304 4000.0\n") + OSU.format("DEVICE (D)", "4194304 4100.0\n")

    assert all("GPUDirect" not in verdict.reason for verdict in judged(text, link="100Gbps"))


STREAM = (
    "{}[  5] local 10.0.0.1 port 40000 connected to 10.0.0.2 port 5201\n"
    "[  5]   0.00-10.00  sec  5 GBytes  {} Gbits/sec  receiver\n"
)


@pytest.mark.parametrize(("gbps", "where"), [("4.96", "outside of"), ("9.53", "within")])
def test_a_single_flow_on_ec2_at_its_limit_shows_no_fault(gbps, where):
    (verdict,) = judged(STREAM.format("p5.48xlarge, two of them\n", gbps), link="100Gbps")

    assert verdict.ok is None
    assert f"{where} a cluster placement group" in verdict.reason


@pytest.mark.parametrize(("before", "gbps"), [("", "4.96"), ("p5.48xlarge\n", "2.50")])
def test_a_single_flow_elsewhere_or_below_a_limit_stays_bad(before, gbps):
    assert judged(STREAM.format(before, gbps), link="100Gbps")[0].ok is False


def test_an_all_to_all_above_what_is_usual_and_below_the_rate_of_its_nics_is_good():
    text = run(4, 8, "NVIDIA H100 80GB HBM3", 2**33, 63.0, 31 / 32, redop="none")
    (verdict,) = judged("$ mpirun -np 32 alltoall_perf\n" + text, link="400Gbps", nics=8)

    assert verdict.ok is True
    assert "over which 24 of 32 parts go" in verdict.reason
    assert "94 % of the 64.6 GB/s that their own rate allows" in verdict.reason


def test_an_all_to_all_above_the_rate_of_its_nics_ran_over_others():
    text = run(4, 8, "NVIDIA H100 80GB HBM3", 2**33, 75.0, 31 / 32, redop="none")

    assert judged("$ mpirun -np 32 alltoall_perf\n" + text, link="400Gbps", nics=8)[0].ok is None


def test_a_sum_in_the_switch_explains_a_rate_above_the_links():
    (above,) = judged(run(1, 8, "NVIDIA H100 80GB HBM3", 2**33, 272.0, 1.75))
    (below,) = judged(run(1, 8, "NVIDIA A100-SXM4-80GB", 2**33, 132.0, 1.75))

    assert "NVLink 4, 450 GB/s per direction): above the links' own rate, for the switch adds up" in above.reason
    assert "NVLink 3, 300 GB/s per direction)" in below.reason
    assert "adds up" not in below.reason


def test_hosts_of_one_domain_are_said_to_be_joined():
    (verdict,) = judged(run(4, 4, "NVIDIA GB200", 2**34, 430.0, 1.875))

    assert verdict.ok is True
    assert "900 GB/s per direction, which joins all 4 hosts" in verdict.reason


def test_wrong_results_are_named_by_their_sizes():
    rows = "".join(
        f"  {2**power}  {2**power // 4}  float  sum  -1  {2**power / 2e5:.1f}  200.00  350.00  {wrong}"
        f"  {2**power / 2e5:.1f}  200.00  350.00  0\n"
        for power, wrong in zip(range(25, 32), (0, 7, 0, 9, 1, 2, 3), strict=True)
    )

    assert "at 64 MiB, 256 MiB, 512 MiB, 1 GiB and 1 other size)" in judged(HEADER + rows)[0].reason


def test_the_nics_of_an_instance_that_the_text_names_are_no_question():
    slow = run(4, 8, "NVIDIA A100-SXM4-40GB", 2**30, 15.1, 62 / 32)
    (guessed,), (told,) = judged(slow), judged("4 x p4d.24xlarge\n" + slow)

    assert told.ok is False
    assert "FI_EFA_USE_DEVICE_RDMA=1" in told.reason
    assert "assumed aws-p4d, which the text names" in told.reason
    assert "IOMMU" not in told.reason
    assert guessed.reason != told.reason


def test_sockets_for_want_of_a_plugin_name_the_plugin():
    log = (
        "n0:7:8 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.\n"
        "n0:7:8 [0] NCCL INFO NET/IB : No device found.\nn0:7:8 [0] NCCL INFO Using network Socket\n"
    )
    slow = run(2, 8, "NVIDIA H100 80GB HBM3", 2**30, 2.5, 30 / 16)

    assert "no plugin for other networks was found (libnccl-net.so" in judged(log + slow)[0].reason
    assert "plugin" not in judged(log.split("\n", 1)[1] + slow)[0].reason


def test_a_log_without_peer_access_says_so_of_a_good_rate_of_cards():
    log = "n0:7:8 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via SHM/direct/direct\n"
    (verdict,) = judged(log + run(1, 8, "NVIDIA GeForce RTX 4090", 2**30, 6.7, 1.75))

    assert verdict.ok is True
    assert "no peer access between GPUs of a host (SHM)" in verdict.reason


def test_a_ratio_of_an_all_gather_excludes_a_hypercube():
    (table,) = parse_tables(run(2, 8, "NVIDIA H100 80GB HBM3", 2**30, 100.0, 15 / 16, redop="none"), "t")

    assert table.candidates == ("all_gather", "all_to_all")
