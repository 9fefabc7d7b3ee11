"""Tools that measure between two ends: rates of their bandwidth tests, and times of messages, of no collective."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

LATENCY = """# OSU MPI-ROCM Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       3.10
65536                   9.70
"""
TO_AND_FRO = """# Benchmarking PingPong
# #processes = 2
       #bytes #repetitions      t[usec]   Mbytes/sec
         1024         1000         2.00       512.00
"""
PING_PONG = """fi_pingpong -p efa 10.3.0.8
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      10      =10      1.2k        0.00s      2.91      22.00       0.05
4k      10      =10      80k         0.00s    163.84      25.00       0.04
"""
ONE_WAY = """bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec
4k      10k     39m         0.02s   2048.00       2.00       0.50
256k    1k      250m        0.02s  10485.76      25.00       0.04
"""
UCX = """| Test:         tag match bandwidth                                                                        |
| Message size: 1048576                                                                                    |
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]             8,000      0.402    50.000    50.000    20000.00   20000.00      20,000      20,000
Final:                10,000      0.401    48.000    49.600    20833.33   20161.29      20,833      20,161
"""
UCX_OLD = """$ ucx_perftest node-7 -t ucp_put_bw -s 65536
+--------------+-----------------------------+---------------------+-----------------------+
|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
| # iterations | typical | average | overall |  average |  overall |   average |   overall |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
          100000     5.000     6.250     6.250    10000.00   10000.00      160000      160000
"""
NETPERF = """MIGRATED UDP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to sink () port 0 AF_INET
Socket  Message  Elapsed      Messages
Size    Size     Time         Okay Errors   Throughput
bytes   bytes    secs            #      #   10^6bits/sec

212992    8192   10.00     1000000      0    6553.60
212992           10.00      900000           5898.24
MIGRATED TCP MAERTS TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to sink () port 0 AF_INET
Recv   Send    Send
Socket Socket  Message  Elapsed
Size   Size    Size     Time     Throughput
bytes  bytes   bytes    secs.    MBytes/sec

131072  16384  16384    10.00    1000.00
"""
TRANSACTIONS = """MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to sink () port 0 AF_INET
Local /Remote
Socket Size   Request  Resp.   Elapsed  Trans.
Send   Recv   Size     Size    Time     Rate
bytes  Bytes  bytes    bytes   secs.    per sec

16384  131072 1        1       10.00    25000.00
"""
OMNI = """PROTOCOL=TCP
THROUGHPUT=8000.0
THROUGHPUT_UNITS=10^6bits/s
DIRECTION=Send
PROTOCOL=TCP
THROUGHPUT=20
THROUGHPUT_UNITS=10^9bits/s
DIRECTION=Receive
"""
QPERF = """rc_lat:
    latency  =  2.1 us
ud_bw:
    send_bw  =  11 GB/sec
    recv_bw  =  10.5 GB/sec
rc_bi_bw:
    bw  =  20 GB/sec
"""
INTRANODE = """[tuning] SMs 24, NVL chunk 4: 120.00 GB/s (NVL), avg_t: 500.00 us
[tuning] SMs 24, NVL chunk default: 151.00 GB/s (NVL), avg_t: 400.00 us
[tuning] Best dispatch (BF16): SMs 24, NVL chunk 16, 150.00 GB/s (NVL), t: 402.00 us
"""
ON_NPUS = """[tuning] Dispatch (BF16) 30.00 GB/s (HCCS), 9.50 GB/s (RDMA), avg_t: 800.00 us, notify_t: 50.00 us
[tuning] Combine 28.00 GB/s (HCCS), 9.10 GB/s (RDMA), avg_t: 830.00 us
"""
LOW_LATENCY = """[rank 0] Dispatch + combine bandwidth: 50.00 GB/s, avg_t=400.00 us, min_t=390.00 us, max_t=410.00 us
[rank 1] Dispatch bandwidth: 45.00 GB/s, avg_t=160.00 us | Combine bandwidth: 55.00 GB/s, avg_t=250.00 us
"""


def rates(text):
    return [(table.name, rate.what, rate.bytes, rate.rate_bytes_per_s)
            for table in parse_tables(text, "t") for rate in table.rates]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (LATENCY, [(1, 3.1e-6), (65536, 9.7e-6)]),
        (TO_AND_FRO, [(1024, 2e-6)]),
        (PING_PONG, [(64, 22e-6), (4096, 25e-6)]),
        (PING_PONG.partition("\n")[2], [(64, 22e-6), (4096, 25e-6)]),
        (ONE_WAY.replace("39m", "78m").replace("250m", "500m"), [(4096, 2e-6), (2**18, 25e-6)]),
        (UCX_OLD.replace("put_bw", "put_lat"), [(65536, 6.25e-6)]),
        (UCX_OLD.partition("\n")[2].replace("10000.00   10000.00 ", "1.22       1.22  "), None),
    ],
    ids=["OSU", "IMB", "fi_pingpong", "by its columns", "by what an iteration counts", "ucx_perftest", "no size"],
)
def test_times_of_messages_between_two_ends_are_no_collective_s(text, times):
    if times is None:
        with pytest.raises(InputError, match="^t:5: a latency test of which the size is not known: keep the command"):
            parse_tables(text, "t")
        return
    (table,) = parse_tables(text, "t")
    (verdict,) = judge(load_catalogue(), [table], link="hdr-200")

    assert [(row.bytes, row.time_s) for row in table.rows] == [(size, pytest.approx(time)) for size, time in times]
    assert {(row.collective, row.dtype, row.element_bytes) for row in table.rows} == {(None, "char", 1)}
    assert (verdict.ok, "messages between two ends, and of no collective" in verdict.reason) == (None, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE_WAY, [("bandwidth", "bandwidth", 4096, 2.048e9), ("bandwidth", "bandwidth", 2**18, 10.48576e9)]),
        (UCX, [("tag match bandwidth", "tag match bandwidth", 2**20, 20161.29 * 2**20)]),
        (UCX_OLD, [("ucp_put_bw", "ucp_put_bw", 65536, 10000.0 * 2**20)]),
        (NETPERF, [("here to sink", "UDP stream", None, 737.28e6), ("sink to here", "TCP stream", None, 1e3 * 2**20)]),
        (OMNI, [("TCP stream", f"TCP stream, {way}", None, rate) for way, rate in (("send", 1e9), ("receive", 2.5e9))]),
        (QPERF, [("ud_bw", "ud_bw", None, 10.5e9), ("rc_bi_bw", "rc_bi_bw", None, 20e9)]),
        (INTRANODE, [("DeepEP, NVLink", "dispatch (BF16)", None, 150e9)]),
        (INTRANODE.rpartition("[")[0], [("DeepEP, NVLink", "dispatch or combine, tuning", None, 151e9)]),
        (
            ON_NPUS,
            [
                ("DeepEP, HCCS", "dispatch (BF16)", None, 30e9),
                ("DeepEP, HCCS", "combine", None, 28e9),
                ("DeepEP, RDMA", "dispatch (BF16)", None, 9.5e9),
                ("DeepEP, RDMA", "combine", None, 9.1e9),
            ],
        ),
        (
            LOW_LATENCY,
            [
                ("DeepEP, low latency", "dispatch + combine, rank 0", None, 50e9),
                ("DeepEP, low latency", "dispatch, rank 1", None, 45e9),
                ("DeepEP, low latency", "combine, rank 1", None, 55e9),
            ],
        ),
    ],
    ids=["fabtests", "ucx", "old ucx", "netperf", "omni", "qperf", "DeepEP", "cut short", "NPUs", "low latency"],
)  # fmt: skip
def test_the_rate_of_a_bandwidth_test_is_what_the_receiver_got(text, expected):
    assert rates(text) == [(*words, pytest.approx(rate)) for *words, rate in expected]


def test_both_ways_of_qperf_count_together_and_its_latencies_are_named():
    one_way, both = parse_tables(QPERF, "t")

    assert (one_way.both_ways, both.both_ways, both.notes) == (False, True, ("rc_lat: latency, left out",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ONE_WAY.replace("10485.76", "11985.76"), r"^t:3: 11985.76 MB/sec x 25.00 usec/xfer is not the size 256k"),
        (UCX.replace("1048576", "4194304"), r"^t:8: 20161.3 MB/s are not 20161 messages a second of 4194304 B"),
        (NETPERF.replace("6553.60", "9553.60"), r"^t:6: 1000000 messages of 8192 B in 10.00 s are 6553.6, not 9553.60"),
        (TRANSACTIONS, "^t: netperf counted transactions, which is latency"),
        (NETPERF.partition("MIGRATED TCP")[0].replace("10^6bits", "10^21474bits"), "^t: no table found"),
        ("THROUGHPUT=7.5\nPROTOCOL=TCP\n", "^t:1: expected THROUGHPUT_UNITS"),
        ("rc_lat:\n    latency  =  2.1 us\n", r"^t: latency tests of qperf \(rc_lat\)"),
        (QPERF.replace("10.5 GB/sec", "10.5 GiB/h"), "^t:5: GiB/h: expected a bandwidth such as GB/sec"),
    ],
)
def test_what_contradicts_itself_or_is_no_bandwidth_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        parse_tables(text, "t")


def iperf(end, server=False, **test):
    start = {
        "connected": [{"socket": 5, "local_host": "10.9.0.1", "remote_host": "10.9.0.2", "remote_port": 5201}],
        "test_start": {"protocol": "TCP", "num_streams": 4, "reverse": 0} | test,
    }
    start |= {"accepted_connection": {"host": "10.9.0.2"}} if server else {"connecting_to": {"host": "10.9.0.2"}}
    return json.dumps({"start": start, "intervals": [{"sum": {"bits_per_second": 1.0}}], "end": end}, indent=1)


def total(gigabits, **more):
    return {"seconds": 10.0, "bytes": gigabits * 1e10 / 8, "bits_per_second": gigabits * 1e9} | more


FORTH = {"sum_sent": total(81), "sum_received": total(80)}
BACK = {"sum_sent_bidir_reverse": total(41), "sum_received_bidir_reverse": total(40)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (iperf(FORTH), [("10.9.0.1", "10.9.0.2", 10e9)]),
        (iperf(FORTH, reverse=1), [("10.9.0.2", "10.9.0.1", 10e9)]),
        (iperf(FORTH, server=True), [("10.9.0.2", "10.9.0.1", 10e9)]),
        (iperf(FORTH | BACK, bidir=1), [("10.9.0.1", "10.9.0.2", 10e9), ("10.9.0.2", "10.9.0.1", 5e9)]),
        (iperf({"sum": total(80, lost_percent=25.0)}, protocol="UDP"), [("10.9.0.1", "10.9.0.2", 7.5e9)]),
        (iperf(FORTH) + "\n" + iperf(FORTH), [("10.9.0.1", "10.9.0.2", 10e9)] * 2),
    ],
    ids=["forth", "reversed", "of the server", "both ways", "UDP that lost a quarter", "two runs"],
)  # fmt: skip
def test_the_json_of_iperf3_says_who_sent_how_much_to_whom(text, expected):
    tables = parse_tables(text, "t")

    assert [(rate.src, rate.dst, rate.rate_bytes_per_s) for table in tables for rate in table.rates] == [
        (src, dst, pytest.approx(rate)) for src, dst, rate in expected
    ]


def test_events_of_iperf3_are_one_run_and_a_missing_receiver_is_said():
    whole = json.loads(iperf({"sum_sent": total(8)}))
    lines = [{"event": "start", "data": whole["start"]}, {"event": "interval", "data": {}}]
    lines += [{"event": "end", "data": whole["end"]}]

    (table,) = parse_tables("\n".join(map(json.dumps, lines)), "t")

    assert (table.tool, table.rates[0].rate_bytes_per_s) == ("iperf3", 1e9)
    assert table.notes == ("the receiver's figure is missing: this is what was sent",)


def test_a_json_of_iperf3_that_contradicts_itself_or_failed_is_refused():
    with pytest.raises(InputError, match="^t: sum_received: .* bits/s, not 9e"):
        parse_tables(iperf({"sum_received": total(80) | {"bits_per_second": 90e9}}), "t")
    with pytest.raises(InputError, match="^t: iperf3 measured nothing: unable to connect"):
        parse_tables(json.dumps({"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}), "t")


def test_what_the_server_of_iperf3_printed_names_its_own_end_first():
    text = """Accepted connection from 10.2.0.4, port 41000
[  5] local 10.2.0.5 port 5201 connected to 10.2.0.4 port 41002
[  5]   0.00-10.04  sec  11.0 GBytes  9.40 Gbits/sec                  receiver
"""
    (table,) = parse_tables(text, "t")

    assert table.name == "10.2.0.4 to 10.2.0.5"


def nvbandwidth(**change):
    case = {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 700.5,
            "bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
            "bandwidth_matrix": [["N/A", "350"], ["350.5", "N/A"]]} | change  # fmt: skip
    latency = case | {
        "name": "device_to_device_latency_sm",
        "bandwidth_description": "Device to Device Latency SM (ns)",
    }
    data = {"CUDA Runtime Version": 12080, "GPU Device list": ["0: NVIDIA H200 (00000000:19:00)"], "testcases": [
        {"name": "all_to_host_memcpy_ce", "status": "Waived"}, case, latency]}  # fmt: skip
    return json.dumps({"nvbandwidth": data})


def test_the_json_of_nvbandwidth_has_the_matrices_of_its_text():
    (table,) = parse_tables(nvbandwidth(), "t")
    (host,) = parse_tables(nvbandwidth(bandwidth_description="memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                                       bandwidth_matrix=[["55", "55.5"]], sum=110.5), "t")  # fmt: skip

    assert (table.tool, table.peers, table.devices) == ("nvbandwidth", True, ("NVIDIA H200",))
    assert table.name.startswith("device_to_device_memcpy_read_ce, memcpy CE GPU(row) <- GPU(column)")
    assert [(rate.src, rate.dst, rate.rate_bytes_per_s) for rate in table.rates] == [
        ("0", "1", 350e9),
        ("1", "0", 350.5e9),
    ]
    assert [(rate.src, rate.dst) for rate in host.rates] == [("CPU0", "GPU0"), ("CPU0", "GPU1")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sum": 900.0}, "sum 900 is not that of the matrix, 700.5"),
        ({"bandwidth_matrix": [["N/A", "350"], ["350.5"]]}, "expected a matrix with rows of one length"),
        ({"bandwidth_matrix": [["N/A", "fast"], ["350.5", "N/A"]]}, "'fast': expected GB/s or N/A"),
    ],
)
def test_a_matrix_of_the_json_that_contradicts_itself_is_named(change, words):
    with pytest.raises(InputError, match=f"^t: device_to_device_memcpy_read_ce: {words}"):
        parse_tables(nvbandwidth(**change), "t")


IPERF2 = """Server listening on UDP port 5001
[  3] local 10.7.0.2 port 5001 connected with 10.7.0.1 port 41000
[  3]  0.0- 1.0 sec   119 MBytes  1000 Mbits/sec   0.004 ms    0/85000 (0%)
[  3]  0.0-10.0 sec  1.16 GBytes  1000 Mbits/sec   0.004 ms    0/850000 (0%)
"""
DUAL = """Server listening on TCP port 5001
Client connecting to 10.7.0.2, TCP port 5001
[  5] local 10.7.0.1 port 41000 connected with 10.7.0.2 port 5001
[  4] local 10.7.0.1 port 5001 connected with 10.7.0.2 port 43242
[  5]  0.0-10.0 sec  10.5 GBytes  9.00 Gbits/sec
[  4]  0.0-10.0 sec  9.31 GBytes  8.00 Gbits/sec
[SUM]  0.0-10.0 sec  19.8 GBytes  17.0 Gbits/sec
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            IPERF2.replace("Server listening on UDP", "Client connecting to 10.7.0.2, UDP").replace(
                "0.0-10.0", "0.0-10.1"
            )
            + "[  3] Server Report:\n[  3]  0.0- 9.9 sec  1.04 GBytes   900 Mbits/sec   0.1 ms 5/50 (10%)\n",
            [("10.7.0.1 to 10.7.0.2", "UDP streams", None, 112.5e6)],
        ),
        (IPERF2, [("10.7.0.1 to 10.7.0.2", "UDP streams", None, 125e6)]),
        (
            DUAL,
            [
                ("10.7.0.1 to 10.7.0.2", "TCP streams", None, 1.125e9),
                ("10.7.0.2 to 10.7.0.1", "TCP streams", None, 1e9),
            ],
        ),
    ],
)
def test_iperf_2_says_the_whole_run_of_each_direction(text, expected):
    assert rates(text) == [(*words, pytest.approx(rate)) for *words, rate in expected]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IPERF2.replace("1.16 GBytes", "2.16 GBytes"), "^t:4: 2.16 GBytes in 10 s are not 1000 Mbits/sec"),
        (IPERF2.replace("0.0-10.0", "9.0-10.0").replace("1.16 GBytes", "119 MBytes"), "lines of the whole run"),
    ],
)
def test_a_line_of_iperf_2_that_contradicts_itself_or_is_of_a_part_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        parse_tables(text, "t")


def test_iperf_says_that_datagrams_were_lost_on_the_way():
    text = """Connecting to host 10.2.0.5, port 5201
[  5] local 10.2.0.4 port 41002 connected to 10.2.0.5 port 5201
[  5]   0.00-10.00  sec  1.25 GBytes  1.07 Gbits/sec  0.000 ms  0/920000 (0%)  sender
[  5]   0.00-10.04  sec   750 MBytes   627 Mbits/sec  0.014 ms  368000/920000 (40%)  receiver
"""
    counted = {"lost_packets": 25, "packets": 100, "lost_percent": 25.0}
    of_version_2 = (
        IPERF2 + "[  3] Server Report:\n[  3]  0.0-10.0 sec  1.05 GBytes   900 Mbits/sec   0.1 ms 5/50 (10%)\n"
    )

    (table,) = parse_tables(text, "t")
    (of_json,) = parse_tables(iperf({"sum": total(80, **counted)}, protocol="UDP"), "t")
    (of_old,) = parse_tables(of_version_2, "t")

    assert (table.rates[0].what, table.rates[0].rate_bytes_per_s) == ("UDP streams", pytest.approx(78.375e6))
    assert table.notes == ("368,000 of 920,000 datagrams were lost (40 %)",)
    assert of_json.notes == ("25 of 100 datagrams were lost (25 %)",)
    assert of_old.notes == ("5 of 50 datagrams were lost (10 %)",)


def test_iperf3_without_the_receiver_s_line_says_that_it_is_what_was_sent():
    text = """Connecting to host 10.2.0.5, port 5201
[  5] local 10.2.0.4 port 41002 connected to 10.2.0.5 port 5201
[  5]   0.00-10.00  sec  11.0 GBytes  9.40 Gbits/sec    3             sender
"""
    (table,) = parse_tables(text, "t")

    assert (table.name, table.rates[0].rate_bytes_per_s) == ("10.2.0.4 to 10.2.0.5", pytest.approx(1.175e9))
    assert table.notes == (
        "the receiver's figure is missing: this is what was sent",
        "3 segments were sent again: lost or late on the way",
    )


def test_of_the_streams_of_iperf3_the_segments_that_were_sent_again_are_counted_once():
    text = """Connecting to host 10.2.0.7, port 5201
[  5] local 10.2.0.6 port 50012 connected to 10.2.0.7 port 5201
[  5]   0.00-4.00   sec  9.31 GBytes  20.0 Gbits/sec  2100             sender
[  5]   0.00-4.00   sec  9.31 GBytes  20.0 Gbits/sec                  receiver
[  7]   0.00-4.00   sec  9.31 GBytes  20.0 Gbits/sec   400             sender
[  7]   0.00-4.00   sec  9.31 GBytes  20.0 Gbits/sec                  receiver
[SUM]   0.00-4.00   sec  18.6 GBytes  40.0 Gbits/sec  2500             sender
[SUM]   0.00-4.00   sec  18.6 GBytes  40.0 Gbits/sec                  receiver
"""
    (table,) = parse_tables(text, "t")

    assert (table.rates[0].rate_bytes_per_s, table.notes) == (
        pytest.approx(5e9),
        ("2,500 segments were sent again: lost or late on the way",),
    )


@pytest.mark.parametrize(
    ("both", "said"),
    [("", "best 40 GB/s; --link"), (" Bidirectional", "best 40 GB/s both ways together (20 GB/s each way); --link")],
)
def test_a_rate_of_both_ways_is_said_by_direction_too(both, said):
    head = "#bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n"
    tables = parse_tables(f"RDMA_Write{both} BW Test\n{head}4194304  900  320.4  320.0  0.01\n", "t")
    (verdict,) = judge(load_catalogue(), tables)

    assert (verdict.ok, verdict.reason.startswith(said)) == (None, True)


def test_a_rate_above_the_usual_one_of_a_link_is_said_to_be_so():
    head = "#bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n"
    tables = parse_tables(f"RDMA_Write BW Test\n{head}4194304  900  198.4  198.0  0.01\n", "t")
    (verdict,) = judge(load_catalogue(), tables, link="hdr-200")

    assert (verdict.ok, "above that figure, which is usual" in verdict.reason) == (True, True)


THREADS = """|              |              |      overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
[thread 1]             1,000      0.402   200.000   200.000     5000.00    5000.00       5,000       5,000
[thread 0]             1,000      0.402   250.000   250.000     4000.00    4000.00       4,000       4,000
"""
OF_ALL = "Final:                 2,000      0.402   111.111   111.111     9000.00    9000.00       9,000       9,000\n"


def test_the_line_of_one_thread_is_not_what_all_threads_of_a_run_do():
    (table,) = parse_tables(THREADS, "t")
    (verdict,) = judge(load_catalogue(), [table], link="hdr-200")

    assert (table.rates, verdict.ok, verdict.reason) == ((), None, "no rate of the whole run")
    assert table.notes == ("lines of 2 threads without a Final: below them: what all do together is not known",)
    assert rates(THREADS + OF_ALL) == [("unnamed test", "unnamed test", None, 9000 * 2**20)]


def test_a_test_out_of_a_file_of_tests_has_the_name_above_it():
    named = "".join(f"======== {name} ========\n{THREADS}{OF_ALL}" for name in ("tag_bw", "stream_bw"))

    assert [name for name, *_ in rates(named)] == ["tag_bw", "stream_bw"]


PERFTEST = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4096       1000           0.00               {}              0.512000
"""


@pytest.mark.parametrize("row", ["**2000.00**", "2000.00"])
def test_a_figure_that_somebody_printed_bold_is_read_as_it_is(row):
    text = PERFTEST.format(row) if "*" in row else f"**{PERFTEST.format(row).splitlines()[1].strip()}**"
    headed = text if "*" in row else PERFTEST.splitlines()[0] + "\n" + text

    assert rates(headed) == [("RDMA bandwidth", "RDMA bandwidth", 4096, 2000 * 2**20)]


def test_a_copy_whose_bytes_nvbandwidth_finds_changed_is_damaged_data():
    text = "Running device_to_device_memcpy_read_ce.\n Invalid value when checking the pattern at 0x7f0000000000\n"
    (table,) = parse_tables(text, "t")
    (verdict,) = judge(load_catalogue(), [table])

    assert (table.name, verdict.ok) == ("device_to_device_memcpy_read_ce", False)
    assert "the data is damaged on its way" in verdict.reason


def test_the_average_of_perftest_is_found_by_its_title_not_by_its_place():
    text = PERFTEST.format("1000.00   2000.00").replace("BW average[", "BW min[MB/sec]   BW average[")

    assert rates(text) == [("RDMA bandwidth", "RDMA bandwidth", 4096, 2000 * 2**20)]
    with pytest.raises(InputError, match="t:2: average bandwidth -12.48: expected 0 or more"):
        parse_tables(PERFTEST.format("-12.48"), "t")
