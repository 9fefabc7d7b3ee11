"""Tables of nccom-test and of NVSHMEM's perftests: what names them, what their sizes count, what contradicts itself."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

GATHER = """$ nccom-test -r 16 -b 8mb -e 32mb -f 4 -d bf16 allg
     size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)
     8388608         4194304    bf16          200.00          41.94          39.32
    33554432        16777216    bf16          500.00          67.11          62.91
Avg bus bandwidth:    51.1150GB/s
"""
STATISTICS = """nccom-test -r 8 allr --stats p50 avg --show-input-output-size
size(B) count(elems) total_input_size(B) total_output_size(B) type time:p50(us)  time:avg(us)  algbw(GB/s)  busbw(GB/s)
4194304  4194304  4194304  4194304  uint8  90  100.0  41.94  73.40
"""
RESULTS = {
    "results": [
        {"size(B)": 2**25, "count(elems)": 2**24, "type": "fp16", "algbw(GB/s)": 67.108864, "busbw(GB/s)": 125.82912,
         "time:avg(us)": 500.0}
    ]
}  # fmt: skip
IN_KERNELS = """mype: 0 mype_node: 0 device name: NVIDIA H100 80GB HBM3 bus id: 10
#alltoall_latency
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
4096        1024      32-bit    warp      12.000000         0.341         0.299
4194304     1048576   32-bit    block     160.000000        26.214        22.938
#alltoall_device
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
4194304     524288    64-bit    block     100.000000        41.943        36.700
"""
WITH_SPREAD = """#device_reduction
size(B) count type redop scope latency(us) stddev(us)  min_lat(us)  max_lat(us)  repetitions  algbw(GB/s)  busbw(GB/s)
1048576  262144  int  sum  block  50.000000  NA  50.000000  50.000000  1  20.972  31.457
"""


def only(text):
    (table,) = parse_tables(text, "t")
    return table


@pytest.mark.parametrize(
    ("operation", "collective", "busbw"),
    [
        ("allr", "all_reduce", 62.92),
        ("all_reduce", "all_reduce", 62.92),
        ("redsct", "reduce_scatter", 31.46),
        ("alltoall", "all_to_all", 31.46),
        ("sendrecv", "sendrecv", 33.55),
        ("permute", "permute", 33.55),
    ],
)
def test_the_command_of_nccom_test_names_collective_ranks_and_nodes(operation, collective, busbw):
    table = only(
        f"$ nccom-test -r 16 -N 2 {operation} -d fp32\n"
        "     size(B)    count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
        f"    16777216         4194304    fp32         500          33.55          {busbw}\n"
    )

    assert (table.tool, table.collective, table.ranks, table.nodes) == ("nccom-test", collective, 16, 2)
    assert [(row.bytes, row.time_s, row.dtype) for row in table.rows] == [(2**24, pytest.approx(5e-4), "fp32")]


def test_bandwidths_of_old_versions_of_nccom_test_are_gibibytes_and_the_time_says_so():
    old = "nccom-test -r 2 allr\n size(B)  count(elems)  type  time(us)  algbw(GB/s)  busbw(GB/s)\n"

    table = only(old + "  33554432  33554432  uint8  768  40.69  40.69\n")

    assert (table.ranks, table.rows[0].busbw_bytes_per_s) == (2, pytest.approx(43.69e9, rel=1e-3))
    with pytest.raises(InputError, match=r"^t:3: algbw 42.00 GB/s x time is not the size: .* 43.69 GB/s \(40.69 GiB/s"):
        parse_tables(old + "  33554432  33554432  uint8  768  42.00  42.00\n", "t")


def test_a_command_of_several_operations_leaves_the_table_to_its_heading_and_else_to_its_bandwidths():
    command = "nccom-test -r 16 allg redsct\n"
    rest = GATHER.partition("\n")[2]

    assert only(command + "[allg]\n" + rest).collective == "all_gather"
    open_one = only(command + rest)
    assert (open_one.collective, open_one.ranks) == (None, 16)
    assert open_one.candidates == ("all_gather", "all_to_all", "reduce_scatter")


def test_columns_of_nccom_test_that_options_add_are_told_by_their_titles():
    table = only(STATISTICS)

    assert (table.collective, table.ranks, table.rows[0].time_s) == ("all_reduce", 8, pytest.approx(1e-4))


@pytest.mark.parametrize("option", ["--custom-replica-group groups.json", "--data-parallel-dimension 8"])
def test_the_ranks_of_groups_that_run_at_once_are_those_of_the_bandwidths(option):
    assert only(STATISTICS.replace("-r 8", f"-r 64 {option}")).ranks == 8


def test_the_json_of_nccom_test_is_read_with_the_command_above_it_or_without():
    alone, below = only(json.dumps(RESULTS)), only("$ nccom-test -r 16 allr\n" + json.dumps(RESULTS, indent=2))

    assert (alone.collective, alone.ranks) == ("all_reduce", 16)  # busbw is above algbw
    assert (below.tool, below.collective, below.ranks, below.rows[0].dtype) == ("nccom-test", "all_reduce", 16, "fp16")
    with pytest.raises(InputError, match="^t: result 1: size 33554432 is not 5 elements"):
        parse_tables(json.dumps({"results": [RESULTS["results"][0] | {"count(elems)": 5}]}), "t")


def test_a_size_of_nccom_test_that_failed_is_noted_and_one_alone_is_no_table():
    head, row = GATHER.splitlines(keepends=True)[:2], GATHER.splitlines(keepends=True)[2]
    failure = "  134217728    Failure running neuron-bench - log file /tmp/nccom_test_log.log\n"

    assert only("".join([*head, row, failure])).notes == ("line 4: the run of 134217728 B failed",)
    with pytest.raises(InputError, match="the run failed before its first row"):
        parse_tables("".join([*head, failure]), "t")


def test_tables_of_nvshmem_stand_apart_by_name_type_and_scope_and_the_ratio_tells_the_ranks():
    tables = parse_tables(IN_KERNELS, "t")

    assert [(t.name, t.collective, t.ranks) for t in tables] == [
        ("alltoall_latency 32-bit warp", "all_to_all", 8),
        ("alltoall_latency 32-bit block", "all_to_all", 8),
        ("alltoall_device 64-bit block", "all_to_all", 8),
    ]
    assert tables[1].rows[0].element_bytes == 4
    assert (tables[2].rows[0].element_bytes, tables[2].rows[0].time_s) == (8, pytest.approx(1e-4))


def test_sizes_of_which_versions_of_nvshmem_differ_are_not_judged():
    _, of_a_share, whole = judge(load_catalogue(), parse_tables(IN_KERNELS, "t"), link="nvlink-4")

    assert (of_a_share.ok, "differs by version of NVSHMEM" in of_a_share.reason) == (None, True)
    assert "differs" not in whole.reason


def test_the_spread_of_nvshmem_is_no_root():
    table = only(WITH_SPREAD)

    assert (table.collective, table.ranks, table.rows[0].redop) == ("all_reduce", 4, "sum")


def test_a_row_of_nvshmem_that_contradicts_itself_is_named():
    with pytest.raises(InputError, match=r"^t:3: algbw 25.000 GB/s x time is not the size"):
        parse_tables(WITH_SPREAD.replace("20.972", "25.000"), "t")
    with pytest.raises(InputError, match=r"^t:3: busbw 39.000 over algbw 20.972"):
        parse_tables("#fcollect_on_stream\n" + WITH_SPREAD.partition("\n")[2].replace("31.457", "39.000"), "t")


@pytest.mark.parametrize("word", ["NaN", "-1e999", "-0.0", "1e999", "1048576.5x"])
def test_a_figure_of_nvshmem_that_is_none_is_refused(word):
    for figure in ("262144", "50.000000", "31.457"):
        with pytest.raises(InputError, match="^t:3: expected"):
            parse_tables(WITH_SPREAD.replace(figure, word, 1), "t")


@pytest.mark.parametrize("ranks", ["0", "0.5", "many"])
def test_a_number_of_workers_that_is_none_leaves_the_ranks_to_the_bandwidths(ranks):
    assert only(STATISTICS.replace("-r 8", f"-r {ranks}")).ranks == 8


LINES = """mype: 0 mype_node: 0 device name: NVIDIA H100 80GB HBM3 bus id: 10
reduction_on_stream
&&&& PERF reduction_on_stream___fp16-sum___size__2048___latency 7.500000 -us
&&&& PERF reduction_on_stream___fp16-sum___size__4194304___latency 40.000000 -us
alltoall_device
&&&& PERF_STATS alltoall_device___64-bit-block___size__4194304___latency -us mean=50.0 stddev=NA min=50.0 max=50.0
fcollect_latency
&&&& PERF fcollect_latency___32-bit-warp___size__4096___latency 12.000000 -us
barrier_on_stream
&&&& PERF barrier_on_stream___None___size__8___latency 7.500000 -us
"""


def test_lines_for_programs_are_tables_of_collectives():
    tables = parse_tables(LINES, "t")

    assert [(table.name, table.collective, bool(table.unjudged)) for table in tables] == [
        ("reduction_on_stream fp16 sum", "all_reduce", False),
        ("alltoall_device 64-bit block", "all_to_all", False),
        ("fcollect_latency 32-bit warp", "all_gather", True),
    ]
    assert [(row.bytes, row.time_s, row.element_bytes, row.redop) for row in tables[0].rows] == [
        (2048, pytest.approx(7.5e-6), 2, "sum"),
        (4194304, pytest.approx(40e-6), 2, "sum"),
    ]
    assert tables[1].rows[0].element_bytes == 8


def test_a_line_for_programs_of_a_type_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="t:3: type 'quad-sum', expected one of 32-bit"):
        parse_tables(LINES.replace("fp16-sum", "quad-sum"), "t")
