"""Texts that end in the middle of a row, and texts of two runs at once."""

import pytest

from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError

HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
ROWS = (
    "   4096   1024  float  sum  -1  10.00  0.41  0.72  0\n",
    "   8192   2048  float  sum  -1  10.00  0.82  1.43  0\n",
)
HEADLESS = "4096 1024 float sum 0 10.00 0.41 0.41 0e+00 9.00 0.46 0.46 0e+00\n"
IMB = """# Benchmarking Allreduce
# #processes = 4
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1024         1000         4.00         5.00         4.50
         2048         1000         6.00         7.00         6.50
"""
OSU = "# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)  Min Latency(us)\n1024  5.00  4.0\n2048  7.00  6.0\n"
MARKDOWN = "all_reduce\n\n| Size | time (us) | algbw (GB/s) |\n|--|--|--|\n| 1024 | 5 | 0.205 |\n| 2048 | 7 | 0.29 |\n"
CSV = "size_bytes,ranks,collective,time_us\n1024,4,all_reduce,5.0\n2048,4,all_reduce,7.0\n"


@pytest.mark.parametrize(
    ("text", "cut", "sizes"),
    [
        ("# all_reduce_perf\n" + HEADER + "".join(ROWS), "  16384   4096  float  sum  -1  11.", 2),
        ("# all_reduce_perf\n" + HEADER + "".join(ROWS), "  16384   40", 2),
        ("# all_reduce_perf\n" + HEADER + "".join(ROWS), "16384 4096 float sum -1 11.0 1.49 2.61 N/\n```\n", 2),
        (HEADLESS, "8192 2048 float sum 0 10.00 0.82 0.82 0e+\n", 1),
        (IMB, "         4096         1000         9.\n\n", 2),
        (OSU, "4096  12.0", 2),
        (MARKDOWN, "| 4096 | 1", 2),
        (CSV, "4096,4,all_re", 2),
    ],
    ids=["in the time", "in the count", "in the last word", "no header", "IMB", "OSU", "markdown", "CSV"],
)  # fmt: skip
def test_a_last_row_that_is_cut_is_left_out_and_said_whatever_tool_wrote_it(text, cut, sizes):
    (table,) = parse_tables(text + cut, "t")

    assert (len(table.rows), table.notes[-1]) == (sizes, f"line {text.count(chr(10)) + 1} is cut off: left out")
    assert not any("cut off" in note for note in parse_tables(text, "t")[0].notes)


@pytest.mark.parametrize(
    "text",
    [
        IMB + "2 nodes of 2\n",
        IMB.replace("6.50\n", "6.50   <- 2 nodes\n")
        + "         4096         1000         9.00        10.00         9.50\n",
        OSU + "# done\n",
        OSU + "|\n|\n",
    ],
)
def test_what_stands_below_a_whole_row_is_no_cut_one(text):
    assert not parse_tables(text, "t")[0].notes


FIXED = "# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)\n" + "".join(
    f"{2**i}  {10 + i:.2f}\n" for i in range(10, 14)
)


@pytest.mark.parametrize(("end", "sizes"), [("16384  2\n", 4), ("16384  24.0\n```\n", 4), ("16384  24.05\n", 5)])
def test_a_last_figure_with_fewer_decimals_than_all_above_it_is_cut(end, sizes):
    (table,) = parse_tables(FIXED + end, "t")

    assert len(table.rows) == sizes
    assert table.notes == (("line 7 is cut off: left out",) if sizes == 4 else ())


def test_a_tool_that_drops_the_zeros_of_a_fraction_has_cut_nothing():
    bare = FIXED.replace(".00", ".25")

    assert len(parse_tables(bare + "16384  24.5\n", "t")[0].rows) == 5


def test_a_matrix_cut_in_a_figure_of_its_first_row_shows_no_slow_pair():
    whole = MATRIX.format("Unidirectional") + "     1  20.00 900.00\n"
    (table,) = parse_tables(whole + MATRIX.format("Bidirectional")[:-4], "t")

    assert len(table.rates) == 4
    assert table.notes == ("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s): line 7 is cut off: left out",)
    with pytest.raises(InputError, match=r"t:3: Unidirectional .*: cut off in its first row"):
        parse_tables(MATRIX.format("Unidirectional")[:-7], "t")


MATRIX = "{} P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 900.00  20.00\n"


@pytest.mark.parametrize(
    ("end", "notes"),
    [
        ("     1  20.00 900.00\n", []),
        ("     1  20.00\n", ["1 rows for 2 columns: it is cut off", "line 4 is cut off: left out"]),
        ("     1  20.00 900.00\n" + MATRIX.format("Bidirectional")[:-7], ["line 7 is cut off: left out"]),
    ],
)
def test_whole_rows_and_matrices_count_where_the_last_one_is_cut(end, notes):
    (table,) = parse_tables(MATRIX.format("Unidirectional") + end, "t")

    assert [note.rpartition("(GB/s): ")[2] for note in table.notes] == notes
    assert len(table.rates) == 2 * (1 + ("1  20.00 900" in end))


def test_two_runs_that_write_into_one_another_are_refused_and_one_after_the_other_are_not():
    def rows(*sizes: int) -> str:
        return "".join(
            f"{size} {size // 4} float sum -1 10.00 {size / 1e4:.2f} {size / 1e4 * 1.75:.2f} 0\n" for size in sizes
        )

    head = "# all_reduce_perf\n" + HEADER

    with pytest.raises(InputError, match="t:7: the sizes fall back to 4096 B and go on at line 8: two runs"):
        parse_tables(head + rows(2048, 4096, 2048, 4096 * 2, 4096, 4096 * 4), "t")
    assert [len(t.rows) for t in parse_tables(head + rows(2048, 4096, 8192, 2048, 4096, 8192), "t")] == [3, 3]


def test_a_row_that_nccl_s_log_cuts_behind_a_rank_that_looks_like_its_device_is_whole_again():
    log = "[0] dray-7:77:77 [0] NCCL INFO 4096 Bytes -> Algo 0 proto 0 time 9.1\n"
    text = HEADER + f"[0]   4096   1024  float  sum  -1{log}{log}[0]  10.00  0.41  0.72  0\n"
    (table,) = parse_tables("# all_reduce_perf\n" + text, "t")

    assert [(row.bytes, row.time_s) for row in table.rows] == [(4096, pytest.approx(10e-6))]


def test_a_size_that_stands_twice_below_the_lists_of_two_runs_is_refused():
    def devices(process: int) -> str:
        return "".join(
            f"#  Rank  {rank} Group  0 Pid  {process + rank} on ash-3 device  {rank} [0000:1{rank}:00] NVIDIA L40\n"
            for rank in range(2)
        )

    def rows(*sizes: int) -> str:
        return "".join(f"{size} {size // 4} float sum -1 {size / 1e4:.2f} 10.00 10.00 0\n" for size in sizes)

    first, second = devices(8000), devices(9000)

    with pytest.raises(InputError, match="t:7: 2048 B stands twice below the lists of 2 runs"):
        parse_tables(f"# all_reduce_perf\n{first}{second}{rows(2048, 2048, 4096, 8192, 16384)}", "t")
    with pytest.raises(InputError, match="t:9: the sizes fall back to 4096 B and go on at line 10: two runs"):
        parse_tables(f"# all_reduce_perf\n{first}{second}{rows(2048, 4096, 8192, 4096, 16384)}", "t")
    assert [len(t.rows) for t in parse_tables(f"# all_reduce_perf\n{first}{second}{rows(2048, 4096, 8192)}", "t")] == [
        3
    ]
