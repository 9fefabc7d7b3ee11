"""Causes that a file itself tells come before the usual ones: ports, threads, devices, few calls, single sizes."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.cli import run_command
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def iperf(bits_per_second, *, streams=1, version="iperf 3.12"):
    seconds = 10.0
    total = {"seconds": seconds, "bytes": bits_per_second * seconds / 8, "bits_per_second": bits_per_second}
    start = {
        "version": version,
        "connected": [{"local_host": "n1", "remote_host": "n2"}],
        "test_start": {"protocol": "TCP", "num_streams": streams, "reverse": 0},
    }
    return json.dumps({"start": start, "end": {"sum_sent": total, "sum_received": total}})


def reason(text, link, **options):
    return judge(CATALOGUE, parse_tables(text, "t"), link=link, **options)[0].reason


@pytest.mark.parametrize(("gbps", "port"), [(9.4147, 10), (0.9413, 1), (23.537, 25), (9.9, 10), (37.66, 40)])
def test_the_goodput_of_a_slower_port_names_it(gbps, port):
    assert f"it is what TCP carries on {port} Gb/s Ethernet" in reason(iperf(gbps * 1e9), "100Gbps")


@pytest.mark.parametrize("gbps", [9.3, 9.45, 20.0, 37.6, 9.6])
def test_other_rates_name_no_port(gbps):
    assert "Ethernet" not in reason(iperf(gbps * 1e9), "100Gbps")


def test_a_link_is_no_slower_port_of_itself():
    assert "Ethernet" not in reason(iperf(9.4147e9), "10Gbps")


def test_a_test_over_sockets_is_not_told_to_use_rdma():
    assert "RDMA" not in reason(iperf(20e9, streams=8, version="iperf 3.17"), "100Gbps")


@pytest.mark.parametrize(
    ("version", "says"), [("iperf 3.12", True), ("iperf 3.15", True), ("iperf 3.16", False), ("iperf 3.19.1", False)]
)
def test_streams_of_an_old_iperf_share_a_thread(version, says):
    assert ("8 TCP streams by one thread" in reason(iperf(20e9, streams=8, version=version), "100Gbps")) is says


def test_streams_of_an_unknown_iperf_may_share_a_thread():
    lines = "".join(
        f"[{stream}]   0.00-10.00  sec  7.00 GBytes  6.00 Gbits/sec                  receiver\n"
        for stream in (" 5", " 7", " 9")
    )
    text = (
        f"Connecting to host n2, port 5201\n{lines}[SUM]   0.00-10.00  sec  21.0 GBytes  18.0 Gbits/sec    receiver\n"
    )

    assert "3 TCP streams by one thread, as iperf3 before 3.16 moves them, which the file does not exclude" in reason(
        text, "100Gbps"
    )


LISTED = "".join(
    f"#  Rank {rank:2} Group  0 Pid  {7000 + rank} on n{rank // 8} device {rank % 8} [0x{16 + rank % 8:x}] NVIDIA H100 "
    "80GB HBM3\n"
    for rank in range(16)
)
HEADER = """#     size     count    type   redop    root    time  algbw  busbw #wrong    time  algbw  busbw #wrong
#      (B)  (elements)                          (us) (GB/s) (GB/s)           (us) (GB/s) (GB/s)
"""
SLOW = f"{HEADER}  1073741824  268435456  float  sum  -1  429497  2.50  4.69  0  429497  2.50  4.69  0\n"
SOCKET = "n0:7000:7100 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0\n"


def of_nccl(log):
    return reason(f"{log}# nThread 1 nGpus 1\n# Using devices\n{LISTED}{SLOW}", "400Gbps", nics=8)


@pytest.mark.parametrize("verb", ["set to", "set by environment to"])
def test_a_name_of_devices_that_nccl_did_not_find_is_the_cause(verb):
    log = f"n0:7000:7100 [0] NCCL INFO NCCL_IB_HCA {verb} ibp9\nn0:7000:7100 [0] NCCL INFO NET/IB : No device found.\n"

    said = of_nccl(log + SOCKET)
    assert "NET/IB found no device by the name that NCCL_IB_HCA sets (ibp9;" in said
    assert "GDRDMA" not in said


def test_a_host_without_rdma_devices_is_said_to_have_none():
    assert "NET/IB found no device (ibv_devices)" in of_nccl(
        "n0:7000:7100 [0] NCCL INFO NET/IB : No device found.\n" + SOCKET
    )


def test_the_network_that_nccl_chose_tells_where_no_channel_is_listed():
    assert "sockets in place of RDMA" in of_nccl("n0:7000:7100 [0] NCCL INFO Using network Socket\n")
    assert "sockets" not in of_nccl("n0:7000:7100 [0] NCCL INFO Using network IB\n")


def test_the_network_of_a_run_inside_a_host_is_no_cause():
    listed = "".join(line for line in LISTED.splitlines(keepends=True) if " on n0 " in line)
    text = f"n0:7000:7100 [0] NCCL INFO Using network Socket\n# nThread 1 nGpus 1\n# Using devices\n{listed}"
    said = judge(CATALOGUE, parse_tables(text + SLOW.replace("4.69", "4.38"), "t"))[0]

    assert said.ok is False
    assert "socket" not in said.reason


def test_a_log_in_which_infiniband_is_disabled_says_so():
    log = "n0:7000:7100 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"

    assert "(NET/Socket): NCCL_IB_DISABLE=1 is set" in of_nccl(log + SOCKET)


def test_without_a_log_the_usual_causes_are_named():
    assert "GDRDMA" in of_nccl("")


def test_the_most_of_two_nodes_is_told_from_the_ring_over_their_nics():
    fast = SLOW.replace("429497  2.50  4.69", "5368.7  200.00  375.00")
    said = reason(f"# nThread 1 nGpus 1\n# Using devices\n{LISTED}{fast}", "400Gbps", nics=8)

    assert "of the 480 GB/s that NCCL reaches at most by trees, which NVLink 4 bounds and not the NICs" in said
    assert "above the 340 GB/s of a ring" in said


def test_a_predicted_time_says_that_it_is_no_limit(capsys):
    code = run_command(
        ["collectives", "price", "--like", "nccl", "--ranks", "16", "--bytes", "4G", "--cluster", "dgx-h100"]
    )

    assert code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "each is the time to expect of a call of that size" in words
    assert "bench --from holds a table against what NCCL reaches on its links at most" in words


IMB = """# Benchmarking Bcast
# #processes = 6
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.05         0.07         0.06
{}
"""


def test_a_size_that_was_called_once_says_so():
    (table,) = parse_tables(IMB.format("      8388608  1  4100.0  4400.0  4250.0"), "t")

    assert table.notes == (
        "8 MiB was called once: the times are those of the slowest rank, and chance is in them (-iter, -time)",
    )


def test_sizes_that_were_called_often_need_no_word():
    (table,) = parse_tables(IMB.format("      8388608  20  4100.0  4400.0  4250.0"), "t")

    assert table.notes == ()


def test_one_size_has_no_fit_and_the_output_says_so(tmp_path, capsys):
    path = tmp_path / "imb.txt"
    path.write_text(IMB.format("      8388608  20  4100.0  4400.0  4250.0"))

    run_command(["bench", "--from", str(path)])

    assert "no fit of alpha and beta: one size" in capsys.readouterr().out


ALL_TO_ALL = """GPU-GFX All-To-All benchmark:
==========================
Summary: [67108864 bytes per Transfer]
SRC\\DST   GPU 00    GPU 01    GPU 02    GPU 03      STotal      Actual
GPU 00       N/A     40.000     40.100     {}     120.200     118.000
GPU 01    40.000        N/A     40.100     40.200     120.300     118.000
GPU 02    40.000     40.100        N/A     40.200     120.300     118.000
GPU 03    {}     40.100     40.200        N/A     120.400     118.000

Average   bandwidth (GPU Timed):   40.100 GB/s
"""


def test_sums_of_an_all_to_all_are_of_no_pair():
    (table,) = parse_tables(ALL_TO_ALL.format("40.100", "40.100"), "t")

    assert len(table.rates) == 12
    assert {rate.bytes for rate in table.rates} == {67108864}
    assert max(rate.rate_bytes_per_s for rate in table.rates) == pytest.approx(40.2e9)


def test_a_slow_pair_of_an_all_to_all_is_named_both_ways():
    found = judge(CATALOGUE, parse_tables(ALL_TO_ALL.format("9.100", "9.300"), "t"))[0]

    assert found.ok is False
    assert "2 pairs are slow: GPU00 to GPU03 has 9.1 GB/s" in found.reason
    assert "also GPU03 to GPU00" in found.reason


PARAM = """0:  MPI environment: {'world_size': 8, 'local_size': 4, 'global_rank': 0, 'local_rank': 0}
0: \t COMMS-RES \t size (B) \t num-elements \t Latency(us):\tp50 \t p75 \t p95 \t Min \t Max AlgBW(GB/s) BusBW(GB/s)
0: \tCOMMS-RES-all_reduce-float32  134217728  33554432 \t 6710.9 6800.0 6900.0 6600.0 7000.0 \t 20.000 \t 35.000
"""


def test_older_columns_of_param_are_read_with_the_hosts_of_its_environment():
    (table,) = parse_tables(PARAM, "t")

    assert (table.collective, table.ranks, table.nodes, table.ranks_per_node) == ("all_reduce", 8, 2, 4)
    assert table.rows[0].time_s == pytest.approx(6710.9e-6)
    assert judge(CATALOGUE, [table], link="100Gbps", nics=2)[0].ok is True


def test_an_environment_of_other_ranks_says_nothing_of_hosts():
    (table,) = parse_tables(PARAM.replace("'world_size': 8", "'world_size': 64"), "t")

    assert (table.ranks, table.nodes) == (8, None)


def test_gb200_is_known_by_the_name_that_nvbandwidth_prints():
    text = (
        "".join(f"Process {i} (tray-{i // 2}): device {i % 2}: HGX GB200 (00000008:0{i}:00)\n" for i in range(4))
        + "\nRunning multinode_device_to_device_memcpy_write_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
        + "  0 1 2 3\n"
        + "".join(f" {i} " + " ".join("N/A" if i == j else "790.5" for j in range(4)) + "\n" for i in range(4))
    )

    assert judge(CATALOGUE, parse_tables(text, "t"))[0].ok is True


def test_the_diagonal_of_a_matrix_is_said_to_be_no_link(tmp_path, capsys):
    path = tmp_path / "p2p.txt"
    path.write_text(
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n"
        "     0 890.10  25.20\n     1  25.10 892.30\n"
    )

    run_command(["bench", "--from", str(path)])

    assert "GB/s; of a device to itself: its own memory, no link" in capsys.readouterr().out


def test_a_rate_above_the_usual_says_its_share_of_the_link():
    text = "# OSU MPI Bandwidth Test v7.1\n# Size      Bandwidth (MB/s)\n4194304  12050.0\n8388608  12100.0\n"

    assert "not the most that they carry (97 % of it)" in reason(text, "100Gbps")
