"""Tables of benchmarks above torch.distributed and of RCCL, and runs of nccl-tests with something wrong around them."""

import json
from pathlib import Path

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
ROW = "  1073741824  268435456  float  sum  -1  250000  4.29  4.29  0\n"
DEVICE = "#  Rank {0:2} Group  0 Pid {1} on {2} device  {3} [0000:{4}:00] NVIDIA RTX A6000\n"
DS_TITLE = "---- Performance of {0} on {1} devices ------\n"
DS_COLUMNS = "Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)\n"
LOG = (
    "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     "
    "tput_avg (Gbps)     busbw_avg (Gbps)\n"
)


def verdict(text):
    (found,) = judge(load_catalogue(), parse_tables(text, "t"))
    return found


def deepspeed(what, ranks, row):
    (table,) = parse_tables(DS_TITLE.format(what, ranks) + DS_COLUMNS + row, "t")
    return table


def test_deepspeed_counts_an_all_reduce_twice_in_its_throughput():
    table = deepspeed("all_reduce", 8, "256.0 MB   134217728x2   2.000 ms   2147.484   1879.048\n")

    assert (table.collective, table.ranks, table.rows[0].bytes) == ("all_reduce", 8, 2**28)
    assert (table.rows[0].dtype, table.rows[0].element_bytes) == ("2-byte", 2)  # a half or a bfloat16
    assert table.rows[0].busbw_bytes_per_s == pytest.approx(1879.048e9 / 8, rel=1e-4)


@pytest.mark.parametrize(("throughput", "busbw", "payload"), [(1073.742, 939.524, 2**28), (8589.935, 7516.193, 2**31)])
def test_the_throughput_tells_whether_a_size_of_deepspeed_is_the_share_of_one_rank(throughput, busbw, payload):
    table = deepspeed("all_gather", 8, f"256.0 MB   134217728x2   2.000 ms   {throughput}   {busbw}\n")

    assert table.rows[0].bytes == payload


def test_deepspeed_is_read_behind_the_names_of_hosts():
    lines = (
        DS_TITLE.format("broadcast", 4) + DS_COLUMNS + "64.0 MB   16777216x4   900.000 us   596.523   596.523\n"
    ).splitlines()

    (table,) = parse_tables("".join(f"> worker-3: {line}\n" for line in lines), "t")

    assert (table.tool, table.collective, table.ranks, table.rows[0].bytes) == ("DeepSpeed", "broadcast", 4, 2**26)


@pytest.mark.parametrize(
    "row",
    ["256.0 MB   134217728x2   2.000 ms   1500.0   1312.5\n", "256.0 MB   134217728x2   2.000 ms   2147.484   900.0\n"],
)
def test_a_row_of_deepspeed_that_contradicts_itself_is_named(row):
    with pytest.raises(InputError, match="^t:3: "):
        deepspeed("all_reduce", 8, row)


def test_calls_that_deepspeed_logged_in_training_are_read_and_not_judged():
    calls = {
        "all_reduce": [("0B", 2, 0.11, 0.05, "0.00", "0.00"), ("512.0 MB", 10, 90.0, 9.0, 954.44, 835.13)],
        "reduce_scatter_tensor": [("64.0 MB", 300, 1500.0, 5.0, 858.99, 751.62)],
        "barrier": [("0B", 3, 5.41, 1.8, "0.00", "0.00")],
    }
    text = LOG
    for what, rows in calls.items():
        text += f"{what}\n" + "".join(" " * 20 + "".join(f"{cell:<20}" for cell in row) + "\n" for row in rows)

    tables = parse_tables(text, "t")

    assert [(t.collective, t.ranks, len(t.rows)) for t in tables] == [("all_reduce", 8, 1), ("reduce_scatter", 8, 1)]
    assert [t.rows[0].bytes for t in tables] == [2**29, 2**29]  # of the second each rank has an eighth
    assert {v.ok for v in judge(load_catalogue(), tables)} == {None}


def test_the_log_of_an_old_deepspeed_which_counted_every_call_twice_is_read():
    rows = (
        "broadcast | [Caller Func: _broadcast_model]\n"
        + " " * 20
        + "2.0 MB    24    2.05    0.08    397.06    372.24\n"
    )
    rows += (
        "all_gather_base | [Caller Func: fetch]\n" + " " * 20 + "6.0 MB    24    1.90    0.08    1293.47    1212.63\n"
    )

    tables = parse_tables(LOG + rows, "t")

    assert [(t.collective, t.ranks, t.rows[0].bytes) for t in tables] == [
        ("broadcast", 16, 2 * 2**20),
        ("all_gather", 16, 6 * 2**20),
    ]


def test_a_run_that_failed_before_its_first_row_is_told_from_a_file_without_a_table():
    text = "# nThread 1 nGpus 1 minBytes 8\nbox: Test NCCL failure all_reduce.cu:77 'unhandled system error'\n"

    with pytest.raises(InputError, match=r"the run failed .*Test NCCL failure all_reduce.cu:77"):
        parse_tables(text, "t")


def test_ranks_that_share_one_gpu_are_named():
    devices = "".join(DEVICE.format(rank, 51_200 + rank, "box", 0, "3b") for rank in (0, 1))

    found = verdict("# all_reduce_perf\n" + devices + HEADER + ROW)

    assert (found.ok, found.reason) == (False, "ranks 0, 1 share one GPU (0000:3b:00 of box)")


@pytest.mark.parametrize(
    "devices",
    [
        [(0, 51_200, "box", 0, "3b"), (1, 51_201, "box", 1, "3c")],
        [(0, 51_200, "box", 0, "3b"), (1, 9_004, "box", 0, "3b")],  # two machines of one name
        [(0, 41, "box", 0, "3b"), (1, 42, "box", 0, "3b")],  # two containers of one name
        [(0, 51_200, "box1", 0, "3b"), (1, 51_201, "box2", 0, "3b")],
    ],
)
def test_devices_that_only_look_alike_are_no_shared_gpu(devices):
    text = "# all_reduce_perf\n" + "".join(DEVICE.format(*device) for device in devices) + HEADER + ROW

    assert "share one GPU" not in verdict(text).reason


def test_a_markdown_table_needs_no_times():
    text = """all_reduce_perf on four GPUs

| Size | AlgBW | BusBW |
|---|---|---|
| 64 MB | 20.00 GB/s | 30.00 GB/s |
| **1 GB** | **40.00 GB/s** | **60.00 GB/s** |
| Average | | 45 GB/s |
"""
    (table,) = parse_tables(text, "t")

    assert (table.collective, table.ranks, [row.bytes for row in table.rows]) == ("all_reduce", 4, [2**26, 2**30])
    assert table.rows[1].busbw_bytes_per_s == pytest.approx(60e9)


def test_gigabits_in_a_markdown_table_are_no_gigabytes():
    rows = "| size (B) | algbw (Gb/s) | busbw (Gb/s) |\n|---|---|---|\n| 1073741824 | 320.0 | 280.0 |\n"

    (table,) = parse_tables("all_gather_perf\n\n" + rows, "t")

    assert table.rows[0].algbw_bytes_per_s == pytest.approx(40e9)
    assert table.ranks == 8


RECORD = {
    "numCycle": 0, "name": "ReduceScatter", "nodes": 2, "ranks": 8, "ranksPerNode": 4, "gpusPerRank": 1,
    "size": 268435456, "type": "half", "redop": "sum", "inPlace": 0, "time": 2000.0, "algBw": 134.217728,
    "busBw": 117.440512, "wrong": "0",
}  # fmt: skip

IN_PLACE = {"inPlace": 1, "time": 1000.0, "algBw": 268.435456, "busBw": 234.881024}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([RECORD]),
        json.dumps(RECORD) + "\n" + json.dumps(RECORD | IN_PLACE) + "\n",
        ",".join(RECORD) + "\n" + ",".join(map(str, RECORD.values())) + "\n",
        ",".join(key.lower() for key in RECORD if key != "nodes") + "\n" + ",".join(map(str, RECORD.values())) + "\n",
    ],
    ids=["list", "lines", "csv", "csv whose heading lacks the nodes"],
)
def test_records_of_rccl_tests_say_ranks_and_nodes(text):
    (table,) = parse_tables(text, "t")

    assert (table.tool, table.collective, table.ranks, table.nodes) == ("rccl-tests", "reduce_scatter", 8, 2)
    assert [(row.bytes, row.time_s, row.dtype, row.wrong) for row in table.rows] == [(2**28, 2e-3, "half", 0)]


def test_records_of_rccl_tests_without_mpi_count_gpus():
    record = {"name": "AllReduce", "gpus": 8, "inPlace": 0, "redop": "sum", "size": 67108864, "time": 671.08864,
              "type": "float", "algBw": 100.0, "busBw": 175.0, "#wrong": "0"}  # fmt: skip
    for text in (json.dumps(record), ",".join(record) + "\n" + ",".join(map(str, record.values())) + "\n"):
        (table,) = parse_tables(text, "t")

        assert (table.tool, table.collective, table.ranks, table.hosts) == ("rccl-tests", "all_reduce", 8, ())
        assert [(row.bytes, row.wrong) for row in table.rows] == [(2**26, 0)]


@pytest.mark.parametrize(
    "change", [{"busBw": 90.0}, {"algBw": 90.0}, {"time": 0.0}, {"ranks": "many"}, {"ranks": 10**18}]
)
def test_a_record_of_rccl_tests_that_contradicts_itself_is_named(change):
    with pytest.raises(InputError, match="^t: record 1"):
        parse_tables(json.dumps([RECORD | change]), "t")


def test_a_median_of_param_is_the_time_and_its_bandwidths_tell_the_ranks():
    head = (
        "COMMS-RES-all_to_all-bfloat16  total-size (B)  nElementsPerRank  nElementsPairPerRank  Latency(us):p50  p75  "
    )
    head += "p95  Min  Max  AlgBW(GB/s)  BusBW(GB/s)\n"
    row = (
        "COMMS-RES-all_to_all-bfloat16  67108864  33554432  0  1000.0  1010.0  1100.0  900.0  1500.0  67.109  62.915\n"
    )

    (table,) = parse_tables(head + row, "t")

    assert (table.collective, table.ranks, table.rows[0].time_s) == ("all_to_all", 16, pytest.approx(1e-3))
    assert (table.rows[0].dtype, table.rows[0].element_bytes) == ("bfloat16", 2)


def test_elements_of_gloo_are_as_wide_as_its_bandwidth_says():
    text = (
        "Algorithm:   allreduce_bcube\nOptions:     processes=2, inputs=1, threads=1\n"
        "   elements   min (us)   p50 (us)   p99 (us)   max (us)   avg (GB/s)    samples\n"
        "   10000000       9000      10000      11000      12000        1.863        100\n"
    )
    (table,) = parse_tables(text, "t")

    assert (table.ranks, table.rows[0].bytes) == (2, 20_000_000)


@pytest.mark.parametrize("word", ["0x10", "fast", "1e999", "inf"])
def test_a_bandwidth_of_param_that_is_no_number_is_named(word):
    table = (Path(__file__).parent / "tables" / "param.txt").read_text()

    with pytest.raises(InputError, match=f"^t:3: {word}: expected a bandwidth in GB/s"):
        parse_tables(table.replace("323.974", word), "t")


PAYLOADS = """The average bandwidth of all_reduce with a 2.0GB payload (5 trials, 8 ranks):
 algbw: 180.0 GBps (1440.0 Gbps)
 busbw: 315.0 GBps (2520.0 Gbps)

The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 8 ranks):
 algbw: 200.0 GBps (1600.0 Gbps)
 busbw: 350.0 GBps (2800.0 Gbps)

"""


def test_payloads_of_no_ranks_are_no_table():
    with pytest.raises(InputError, match="^t: no table found"):
        parse_tables(PAYLOADS.replace("8 ranks", "-0.0 ranks"), "t")


PROFILE = """- hardware: _CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9, minor=0)

The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    2GiB | 315.00GBps | 180.00GBps |
|    4GiB | 350.00GBps | 200.00GBps |
"""


@pytest.mark.parametrize("before", ["", "[pool-a.node_1:0]:", "[1,0]<stdout>: "])
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (PAYLOADS, [2e9, 4e9]),
        (PROFILE, [2 * 2**30, 4 * 2**30]),
    ],
    ids=["a line each", "a table"],
)
def test_both_forms_of_all_reduce_bench_name_ranks_and_tell_busbw_from_algbw(text, sizes, before):
    (table,) = parse_tables("\n".join(before + line for line in text.splitlines()), "t")

    assert (table.collective, table.ranks, [row.bytes for row in table.rows]) == ("all_reduce", 8, sizes)
    assert [row.busbw_bytes_per_s for row in table.rows] == pytest.approx([315e9, 350e9], rel=1e-3)
    assert set(table.devices) == ({"NVIDIA H100 80GB HBM3"} if "hardware" in text else set())


ASCEND = """$ mpirun -n 4 ./bin/all_reduce_test -b 1M -e 2M -f 2 -d fp32 -p 4
data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:
1048576           |     500.00    |      1.95313        | success
2097152           |     800.00    |      2.44141        | success
"""


def of_ascend(what, time, rates, check):
    first, last = rates
    text = ASCEND.replace("all_reduce", what).replace("avg_time", time)
    return text.replace("1.95313", first).replace("2.44141        | success", f"{last}        | {check}")


@pytest.mark.parametrize(
    ("what", "time", "rates", "check", "collective", "wrong"),
    [
        ("all_reduce", "avg_time", ("1.95313", "2.44141"), "success", "all_reduce", 0),  # GiB/s
        ("all_reduce", "aveg_time", ("2.09715", "2.62144"), "failed", "all_reduce", 1),
        ("all_gather", "aveg_time", ("2.09715", "2.62144"), "success", None, 0),
    ],
)
def test_hccl_test_of_ascend_is_read_by_sizes_and_times(what, time, rates, check, collective, wrong):
    (table,) = parse_tables(of_ascend(what, time, rates, check), "t")

    assert (table.collective, table.ranks, table.wrong) == (collective, 4, wrong)
    assert [row.bytes / row.time_s for row in table.rows] == pytest.approx([2.097152e9, 2.62144e9])
    counted = [note for note in table.notes if "what a size of" in note]
    assert bool(counted) == (collective is None)
    assert [note for note in table.notes if "GiB/s" in note] == list(table.notes)[: time == "avg_time"]
    with pytest.raises(InputError, match="t:4: alg_bandwidth 9.44141 GB/s x time is not the size"):
        parse_tables(of_ascend(what, time, (rates[0], "9.44141"), check), "t")


def test_type_operator_and_checks_of_hccl_test_are_those_of_its_command_and_rows():
    text = ASCEND.replace("-d fp32", "-d bfp16 -o max").replace("2.44141        | success", "2.44141        | NULL")
    (table,) = parse_tables(text, "t")

    assert [(row.dtype, row.element_bytes, row.redop) for row in table.rows] == [("bfloat16", 2, "max")] * 2
    assert [row.wrong for row in table.rows] == [0, None]
    assert any("results were not checked" in note for note in table.notes)


GAUDI = """[BENCHMARK] hcclAllReduce(src!=dst,
  count=1048576, dtype=float, iterations=100)

[BENCHMARK]     NW Bandwidth   : 150.000000 GB/s
[BENCHMARK]     Algo Bandwidth : 100.000000 GB/s
"""


def test_hccl_demo_of_gaudi_counts_the_share_of_a_rank_in_a_gather():
    gather = GAUDI.replace("AllReduce", "AllGather").replace("100.000000", "50.000000")
    reduced, gathered = parse_tables(f"{GAUDI}\n$ next\n{gather}", "t")

    assert (reduced.collective, reduced.ranks, reduced.rows[0].bytes) == ("all_reduce", 4, 2**22)
    assert (gathered.collective, gathered.ranks, gathered.rows[0].bytes) == ("all_gather", 4, 2**24)
    for table in (reduced, gathered):
        assert table.rows[0].busbw_bytes_per_s == pytest.approx(150e9)
    with pytest.raises(InputError, match="t:1: hcclSendRecv: expected AllReduce or AllGather"):
        parse_tables(GAUDI.replace("AllReduce", "SendRecv"), "t")


def test_a_latency_test_of_perftest_has_times_of_messages_and_a_read_is_said_to_be_a_round_trip():
    whole = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n 64  1000  1.8  5.0  1.9  2.5\n"
    timed = " #bytes #iterations  t_avg[usec]  tps average\n 64  5123456  0.98  512310.22\n"

    (read,) = parse_tables(f"   RDMA_Read Latency Test\n{whole}", "t")
    (sent,) = parse_tables(f"   Send Latency Test\n{timed}", "t")

    assert [(row.bytes, round(row.time_s * 1e9)) for row in (*read.rows, *sent.rows)] == [(64, 1900), (64, 980)]
    assert read.notes == ("a time of RDMA_Read is that of a round trip",)
    assert (read.unjudged, sent.notes) == (sent.unjudged, ())
    assert "no collective" in sent.unjudged


def test_a_table_of_perftest_names_its_device_and_says_that_both_ports_took_part():
    head = "   RDMA_Write BW Test\n Dual-port       : {}\t\tDevice         : {}\n"
    table = " #bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n 65536  5000  392.0  {}  0.7\n"
    text = "".join(head.format(dual, device) + table.format(rate) for dual, device, rate in
                   (("OFF", "mlx5_2", 391), ("ON", "mlx5_5", 196), ("OFF", "mlx5_2", 390)))  # fmt: skip

    found = parse_tables(text, "t")

    assert [table.name for table in found] == [
        "RDMA_Write bandwidth of mlx5_2",
        "RDMA_Write bandwidth of mlx5_5",
        "RDMA_Write bandwidth of mlx5_2 (3)",
    ]
    assert [table.notes for table in found] == [(), ("both ports of the device together (Dual-port: ON)",), ()]


def test_a_table_of_one_way_above_one_of_both_ways_stays_one_way():
    table = " #bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n 65536  5000  392.0  {}  0.7\n"
    text = f"  RDMA_Write BW Test\n{table.format(391)}  RDMA_Write Bidirectional BW Test\n{table.format(752)}"

    assert [(found.name, found.both_ways) for found in parse_tables(text, "t")] == [
        ("RDMA_Write bandwidth", False),
        ("RDMA_Write bidirectional bandwidth", True),
    ]


@pytest.mark.parametrize(("told", "dtype", "width"), [("MPI_CHAR", "char", 1), ("MPI_FLOAT", "float", 4)])
def test_elements_of_osu_are_of_the_type_that_it_prints(told, dtype, width):
    text = (
        f"mpirun -np 4 osu_bcast\n# OSU MPI Broadcast Latency Test v7.4\n# Datatype: {told}.\n# Size  Avg Latency(us)\n"
    )
    ((row,),) = (table.rows for table in parse_tables(f"{text}8192  12.5\n", "t"))

    assert (row.dtype, row.element_bytes) == (dtype, width)
