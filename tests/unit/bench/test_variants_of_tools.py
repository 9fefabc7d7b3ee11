"""Variants of outputs that people keep: sweeps of types at one size, columns filled up, a plugin that adds up."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
PINGPONG = (
    "$ fi_pingpong -p efa 10.0.0.9\nbytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
)
HEAD = (
    "#     size     count   type  redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#      (B)  (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)


def verdicts(text, link=None):
    return judge(CATALOGUE, parse_tables(text, "t"), link=link)


def test_a_total_that_is_filled_up_before_its_unit_is_one_column():
    rows = "64      1k      =1k      0.12   m      0.04s       3.20       20.00        0.05\n"
    rows += "64k     1k      =1k      125.00 m      0.10s    1310.72       50.00        0.02\n"

    (table,) = parse_tables(PINGPONG + rows, "t")

    assert [(row.bytes, row.time_s) for row in table.rows] == [(64, pytest.approx(2e-5)), (65536, pytest.approx(5e-5))]


def test_a_row_with_a_column_too_many_is_no_row_that_is_passed_over():
    with pytest.raises(InputError, match="^t:3: 9 columns: expected bytes"):
        parse_tables(PINGPONG + "64      1k      =1k  7    0.12m      0.04s       3.20       20.00        0.05\n", "t")


def sweep(*times_us):
    """All-reduces of four ranks of one size, a type each."""
    types = [("int8", 1), ("half", 2), ("float", 4), ("double", 8)]
    rows = ""
    for (name, width), time_us in zip(types, times_us, strict=True):
        size = 2**26
        one = f"{time_us:.1f}  {size / time_us / 1e3:.2f}  {1.5 * size / time_us / 1e3:.2f}  0"
        rows += f"  {size}  {size // width}  {name}  sum  -1  {one}  {one}\n"
    return HEAD + rows


def test_types_of_one_size_that_are_as_fast_are_one_table_without_a_fit():
    (table,) = parse_tables(sweep(300.0, 301.0, 305.0, 298.0), "t")

    assert [row.dtype for row in table.rows] == ["int8", "half", "float", "double"]
    assert {row.bytes for row in table.rows} == {2**26}


def test_a_type_that_is_slower_keeps_each_in_a_table_of_its_own():
    assert len(parse_tables(sweep(300.0, 301.0, 305.0, 900.0), "t")) == 4


QPERF = "tcp_bw:\n    bw  =  3.1 GB/sec\n{used}rc_bw:\n    bw  =  12.1 GB/sec\n"


def test_a_core_that_qperf_kept_busy_bounds_its_stream_and_no_fault_of_the_link_follows():
    tcp, rdma = verdicts(QPERF.format(used="    recv_cpus_used  =  103 % cpus\n"), "100Gbps")

    assert (tcp.ok, rdma.ok) == (None, True)
    assert "kept a core busy at the receiving end (103 % cpus)" in tcp.reason


def test_a_stream_of_tcp_is_no_fault_of_a_link_that_another_test_of_the_file_fills():
    tcp, _ = verdicts(QPERF.format(used=""), "100Gbps")

    assert tcp.ok is None
    assert "rc_bw reached 12.1 GB/s in the same file" in tcp.reason


def test_a_stream_of_tcp_stays_bad_where_nothing_else_fills_the_link():
    tcp, rdma = verdicts(QPERF.format(used="").replace("12.1", "3.3"), "100Gbps")

    assert (tcp.ok, rdma.ok) == (False, False)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("h:1:2 [0] NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v8)\n", True),
        ("h:1:2 [0] NCCL INFO cuda\n", False),
    ],
)
def test_a_rate_above_that_of_trees_is_said_to_be_of_switches_where_the_log_names_their_plugin(log, said):
    devices = "".join(
        f"#  Rank {rank:2} Group  0 Pid  {rank + 9} on  node{rank // 8} device  {rank % 8} [0000:1b:00] NVIDIA H100\n"
        for rank in range(32)
    )
    size, time_us = 2**33, 34000.0
    one = f"{time_us:.0f}  {size / time_us / 1e3:.2f}  {31 / 16 * size / time_us / 1e3:.2f}  0"
    text = f"{devices}{log}{HEAD}  {size}  {size // 4}  float  sum  -1  {one}  {one}\n"

    (found,) = judge(CATALOGUE, parse_tables(text, "t"), link="400Gbps", nics=8)

    assert found.ok
    assert ("SHARP" in found.reason) == said
