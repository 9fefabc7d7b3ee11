import csv
import io

import pytest

from meshwright.bench.reading import load_tables
from meshwright.bench.table import Row, csv_text, print_rows, row_form
from meshwright.errors import InputError

# the layout of nccl-tests: out of place, then in place
NCCL_TESTS = """# nThread 1 nGpus 8 minBytes 33554432 maxBytes 134217728 step: 2(factor) warmup iters: 5
#
# Using devices
#  Rank  0 Group  0 Pid  11 on  node device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  7 Group  0 Pid  11 on  node device  7 [0xbd] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608     float     sum      -1    424.0   79.14  138.49      0    421.1   79.68  139.44      0
    67108864      16777216     float     sum      -1    684.6   98.02  171.54      0    680.0   98.69  172.70      0
   134217728      33554432     float     sum      -1   1327.6  101.10  176.92      0   1320.1  101.67  177.92      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 162.5
"""


def rows() -> list[Row]:
    common = {"collective": "all_reduce", "backend": "gloo", "ranks": 4, "redop": "sum", "wrong": 0}
    return [
        Row(bytes=1024, time_s=1e-4, low_s=0.9e-4, high_s=2e-4, **common),
        Row(bytes=2**20, time_s=1e-3, low_s=1e-3, high_s=1e-3, **common),
    ]


def test_a_saved_nccl_tests_table_is_read(tmp_path):
    path = tmp_path / "table.txt"
    path.write_text(NCCL_TESTS)
    found = load_tables(str(path))["table"]

    assert [(row.bytes, row.ranks, row.redop) for row in found] == [
        (2**25, 8, "sum"),
        (2**26, 8, "sum"),
        (2**27, 8, "sum"),
    ]
    assert found[0].time_s == pytest.approx(424e-6)
    assert [row.busbw_bytes_per_s / 1e9 for row in found] == pytest.approx([138.49, 171.54, 176.92], rel=1e-3)


def test_the_rank_count_follows_from_the_two_bandwidths(tmp_path):
    path = tmp_path / "table.txt"
    path.write_text("\n".join(line for line in NCCL_TESTS.splitlines() if "Rank" not in line))

    assert {row.ranks for row in load_tables(str(path))["table"]} == {8}


def test_a_table_in_prose_is_read(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("size: us, algbw, busbw\n33554432: 424.0, 79.14, 138.49 | 67108864: 684.6, 98.02, 171.54.")
    found = load_tables(str(path))["table"]

    assert [(row.bytes, row.ranks) for row in found] == [(2**25, 8), (2**26, 8)]
    assert [row.time_s for row in found] == pytest.approx([424e-6, 684.6e-6])


def test_what_is_printed_is_read_back(tmp_path):
    text, table = tmp_path / "ours.txt", tmp_path / "ours.csv"
    text.write_text("# ranks 4\n" + print_rows(rows()))
    table.write_text(csv_text(rows()))

    for found in (load_tables(str(text))["table"], load_tables(str(table))["all_reduce"]):
        assert [(row.bytes, row.ranks) for row in found] == [(1024, 4), (2**20, 4)]
        assert [row.time_s for row in found] == pytest.approx([1e-4, 1e-3])


def test_the_printed_columns_are_those_of_nccl_tests():
    header, units, first, _ = print_rows(rows()).splitlines()

    assert header.lstrip("#").split()[:8] == ["size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"]
    assert units.split()[:3] == ["#", "(B)", "(elements)"]
    assert first.split() == ["1024", "256", "float", "sum", "100.00", "0.010", "0.015", "0", "90.00", "200.00"]


def test_json_has_the_designs_keys():
    assert list(row_form(rows()[0]))[:7] == [
        "collective",
        "backend",
        "ranks",
        "bytes",
        "time_us",
        "algbw_GBps",
        "busbw_GBps",
    ]
    assert row_form(rows()[0])["busbw_GBps"] == pytest.approx(1024 / 1e-4 * 1.5 / 1e9)


def test_csv_is_plain():
    assert [r["bytes"] for r in csv.DictReader(io.StringIO(csv_text(rows())))] == ["1024", "1048576"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.txt", ""),
        ("t.txt", "hello"),
        ("t.txt", "1024 256 float sum abc\n1024 256 float sum x y z\n"),
        ("t.txt", "1024 256 float sum 0 0 0\n"),
        ("t.csv", "size_bytes,foo\n1,2\n"),
        ("t.csv", "size_bytes,ranks,time_us\nx,8,1\n"),
        ("t.csv", "size_bytes,ranks,time_us\n1024,8,-1\n"),
        ("t.csv", "size_bytes,ranks,time_us\n"),
        ("t.csv", "size_bytes,ranks,time_us,algbw_GBps\n1024,8,,0\n"),
    ],
)
def test_a_broken_table_is_a_one_line_error(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(InputError, match=name) as caught:
        load_tables(str(path))

    assert "\n" not in str(caught.value)
