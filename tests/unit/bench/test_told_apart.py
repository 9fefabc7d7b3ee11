"""Tables of a file that look alike are told apart: whose results are wrong, which ends, which type, which failed."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.judgement.shapes import dip
from meshwright.bench.reading import parse_tables
from meshwright.bench.table import Row
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

HEAD = """# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = " {size} {count} float {op} -1 {time:.1f} 10.00 10.00 {wrong} {time:.1f} 10.00 10.00 {wrong}\n"


def rows(op, wrong=0):
    return "".join(
        ROW.format(size=size, count=size // 4, op=op, time=size / 1e4, wrong=wrong) for size in (2**20, 2**21)
    )


def test_wrong_results_are_of_the_operator_whose_rows_have_them():
    tables = parse_tables(HEAD + rows("sum", 7) + rows("max") + "# Out of bounds values : 4 FAILED\n", "t")

    assert [bool(table.wrong) for table in tables] == [True, False]


def test_a_footer_with_wrong_results_that_no_row_has_is_of_every_table_above_it():
    tables = parse_tables(HEAD + rows("sum") + rows("max") + "# Out of bounds values : 4 FAILED\n", "t")

    assert [table.wrong for table in tables] == [4, 4]


@pytest.mark.parametrize(
    "end",
    ["[nid07:411] *** Process received signal ***\n", "srun: error: oom-kill event in StepId=77.0\n"],
)
def test_a_run_that_failed_behind_its_last_row_is_said(end):
    *_, table = parse_tables(HEAD + rows("sum") + rows("max") + end, "t")

    assert any("failed after its row of 2097152 B" in note for note in table.notes)


def test_a_program_that_fails_behind_the_footer_leaves_the_table_as_it_is():
    (table,) = parse_tables(
        HEAD + rows("sum") + "# Avg bus bandwidth    : 10\n[nid07:411] *** Process received signal ***\n", "t"
    )

    assert table.notes == ()


def test_a_markdown_table_with_the_columns_of_nccl_tests_keeps_type_and_operator():
    (table,) = parse_tables(
        "# all_reduce, 8 ranks\n\n"
        "size | count | type | redop | root | time | algbw | busbw | #wrong\n"
        "-- | -- | -- | -- | -- | -- | -- | -- | --\n"
        "2097152 | 1048576 | half | max | -1 | 20.0 | 104.86 | 183.50 | 0\n"
        "4194304 | 2097152 | half | max | -1 | 36.0 | 116.51 | 203.89 | 0\n",
        "t",
    )

    assert {(row.dtype, row.element_bytes, row.redop) for row in table.rows} == {("half", 2, "max")}
    assert (table.collective, table.ranks) == ("all_reduce", 8)


def test_pairs_of_osu_are_named_by_where_their_buffers_lie():
    one = (
        "# OSU MPI-CUDA Bandwidth Test v7.3\n# Send Buffer on {} (x) and Receive Buffer on {} (y)\n"
        "# Size  MB/s\n8192  {}\n"
    )
    tables = parse_tables(one.format("HOST", "DEVICE", 7000.5) + one.format("DEVICE", "HOST", 310.25), "t")

    assert [table.name for table in tables] == ["pair bandwidth, host to device", "pair bandwidth, device to host (2)"]


def test_two_tables_of_perftest_have_two_names():
    one = " #bytes  #iterations  BW peak[MB/sec]  BW average[MB/sec]\n 65536   1000   9000.00   {}.50\n\n"

    assert len({table.name for table in parse_tables(one.format(8800) + one.format(910), "t")}) == 2


def test_numbers_of_lines_are_no_part_of_a_matrix():
    lines = [
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
        "   D\\D     0      1",
        "     0 1500.25  41.50",
        "     1  41.75 1498.00",
    ]
    (table,) = parse_tables("".join(f"{number:5d} {line}\n" for number, line in enumerate(lines, start=31)), "t")

    assert [(rate.src, rate.dst, rate.rate_bytes_per_s) for rate in table.rates][1] == ("0", "1", 41.5e9)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("P2P=Disabled Latency Matrix (us)\n   GPU     0      1\n     0   1.60  11.30\n", "latencies of pairs"),
        ("Host/Device Bandwidth Matrix (GB/s), memory=Pinned\n   Dir\\D       0\n   D2H     55.00\n", "busGrind"),
        ("sockperf: == version #3.10 ==\nsockperf: Summary: Latency is 12.4 usec\n", "sockperf"),
        ("Intel(R) Memory Latency Checker - v3.11\n       0  110.2  190.1\n", "mlc"),
        ("HPLinpack 2.3  --  High-Performance Linpack benchmark\nN      :  90000\n", "HPL"),
        ("STREAM version $Revision: 5.10 $\nTriad:  209877.3  0.0092  0.0091  0.0093\n", "STREAM"),
        ("fio-3.28\n  read: IOPS=6501, BW=6502MiB/s\n", "fio"),
        ('{"node": "n1", "nccl-bw:nvlink/allreduce_8388608_busbw:0": 372.1}\n', "SuperBench"),
        ("# OSU MPI Barrier Latency Test v7.1\n# Avg Latency(us)\n             8.12\n", "barrier"),
        ("[./simpleP2P] - Starting...\ncudaMemcpyPeer between GPU0 and GPU1: 11.50GB/s\n", "simpleP2P"),
        ("| RESULT TYPE | DRIVER | AVG VALUE |\n| Stream | netperf | 9000.5 (Mb/s) |\n", "k8s-netperf"),
    ],
)
def test_known_outputs_that_are_not_read_are_refused_by_name(text, named):
    with pytest.raises(InputError, match=named):
        parse_tables(text, "t")


def swept(*times_us):
    return [
        Row(collective="all_gather", backend="nccl", ranks=8, bytes=2 ** (16 + i), time_s=time * 1e-6)
        for i, time in enumerate(times_us)
    ]


def test_of_several_dips_the_deepest_is_named_and_as_a_stall_where_calls_stand_still():
    found = dip(swept(50, 60, 190, 210, 60_000, 61_000, 700, 1200))

    assert "dips at 1 MiB" in found
    assert "calls stall" in found


def test_columns_of_rccl_tests_that_are_no_figures_are_passed_over():
    (table,) = parse_tables(
        "all_reduce_perf\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong algo proto nchannels\n"
        "#   (B) (elements)                 (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)\n"
        "  1048576  262144  float  sum  -1  20.0  52.43  91.75  0  20.5  51.15  89.51  0  TREE  LL128  32\n"
        "  2097152  524288  float  sum  -1  30.0  69.91  122.34  0  30.5  68.76  120.33  0  RING  SIMPLE  56\n",
        "t",
    )

    assert (table.ranks, [row.wrong for row in table.rows]) == (8, [0, 0])


def test_pairs_without_peer_access_are_named_beside_the_matrix_that_has_it_on():
    matrix = " Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 880.00   6.10\n     1   6.20 881.00\n"
    off, on = parse_tables(
        "Device=0 CANNOT Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n"
        f"Unidirectional P2P=Disabled{matrix}Unidirectional P2P=Enabled{matrix}",
        "t",
    )

    assert off.notes == ()
    assert on.notes == ("no peer access between 1 pair (0-1): their copies go through the host",)


def test_a_collective_whose_sizes_mean_something_else_is_said_to_be_one():
    (table,) = parse_tables(
        "mpirun -np 4 osu_allgatherv\n# OSU MPI Allgatherv Vector Latency Test v7.4\n# Size  Latency(us)\n64  9.50\n",
        "t",
    )

    assert table.unjudged.startswith("Allgatherv Vector: what its sizes count is not known")


def test_the_times_that_mpirun_puts_before_its_tags_are_taken_off():
    tag = "Tue Mar  5 08:01:02 2024[1,0]<stdout>:"
    text = f"mpirun -np 4 osu_allreduce\n{tag}# OSU MPI Allreduce Latency Test v7.4\n{tag}# Size  Avg Latency(us)\n"
    (table,) = parse_tables(f"{text}{tag}4096  21.50\n", "t")

    assert (table.collective, table.ranks, [row.bytes for row in table.rows]) == ("all_reduce", 4, [4096])


def test_pairs_whose_results_are_wrong_are_no_matter_of_a_link():
    text = (
        "# OSU MPI-CUDA Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)        Validation\n"
        "1048576             41207.11              Pass\n4194304             44207.11              Fail\n"
    )
    (verdict,) = judge(load_catalogue(), parse_tables(text, "t"), link="ndr-400")

    assert verdict.ok is False
    assert "results are wrong" in verdict.reason


def test_gpus_of_several_hosts_of_a_rack_are_named_by_their_processes():
    text = (
        "Process 0 (tray1): device 0: NVIDIA GB200 (00000008:01:00)\n"
        "Process 1 (tray2): device 0: NVIDIA GB200 (00000008:01:00)\n\n"
        "Running multinode_device_to_device_memcpy_read_ce.\n"
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A    790.10\n"
        " 1    790.20       N/A\n"
    )
    (verdict,) = judge(load_catalogue(), parse_tables(text, "t"))

    assert verdict.ok is True
    assert "NVLink 5" in verdict.reason


def test_what_a_gpu_copies_within_its_memory_is_held_against_no_link():
    text = (
        "Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n           0         1\n"
        " 0   1390.00   1400.00\n"
    )
    (verdict,) = judge(load_catalogue(), parse_tables(text, "t"), link="nvlink-4")

    assert verdict.ok is None
    assert "within its own memory" in verdict.reason
