"""Lines of iperf that people cut out: the sum alone, or streams without the lines that name both ends."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

SUM_OF_2 = "[SUM]  0.0-20.0 sec    210 GBytes  90.2 Gbits/sec\n"
SUM_OF_3 = "[SUM]   0.00-20.00  sec  70.0 GBytes  30.1 Gbits/sec                  receiver\n"


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        (SUM_OF_2, 90.2),
        ("[  3]  0.0-10.0 sec  1.09 GBytes   940 Mbits/sec\n", 0.94),
        ("[  5]  0.0-10.0 sec  5.00 GBytes  4.29 Gbits/sec\n[  6]  0.0-10.0 sec  5.10 GBytes  4.38 Gbits/sec\n", 8.67),
        ("[  5]  0.0- 5.0 sec  3.00 GBytes  5.15 Gbits/sec\n[  5]  0.0-10.0 sec  5.00 GBytes  4.29 Gbits/sec\n", 4.29),
    ],
    ids=["sum", "one stream", "two streams", "an interval before"],
)
def test_rows_of_iperf_2_are_read_without_the_lines_that_name_the_ends(text, gbps):
    (table,) = parse_tables(text, "t")

    assert table.rates[0].rate_bytes_per_s == pytest.approx(gbps * 1e9 / 8, rel=1e-3)


def test_intervals_of_iperf_2_alone_are_refused():
    with pytest.raises(InputError, match="the lines of the whole run"):
        parse_tables("".join(f"[  3] {n}.0- {n + 1}.0 sec   112 MBytes   940 Mbits/sec\n" for n in range(4)), "t")


def test_a_sum_of_iperf3_is_of_streams_that_one_thread_may_have_moved():
    of_2, of_3 = parse_tables(SUM_OF_2, "a")[0], parse_tables(SUM_OF_3, "b")[0]
    found = judge(load_catalogue(), [of_2, of_3], node=None, link="100Gbps", nics=None)
    alone = judge(load_catalogue(), [of_3], node=None, link="100Gbps", nics=None)

    assert [one.ok for one in (*found, *alone)] == [True, None, False]
    assert "several TCP streams by one thread" in found[1].reason


@pytest.mark.parametrize("gap", ["\t", "  ", " | "])
def test_a_table_of_busbw_alone_is_refused_for_what_it_lacks(gap):
    rows = [
        ["size", "type", "redop", "busbw", "algo", "nchannels"],
        ["33554432", "float", "sum", "120.5", "RING", "32"],
    ]
    text = "\n".join(gap.join(row) for row in rows) + "\n"

    with pytest.raises(InputError, match="its heading has busbw and neither time nor algbw"):
        parse_tables(text, "t")


@pytest.mark.parametrize("heading", ["ms/call", "ms per iteration", "time (ms)"])
def test_megabytes_of_a_table_are_what_its_times_and_rates_agree_on(heading):
    def table(algbw):
        head = f"| payload | {heading} | algbw | busbw |\n|---|---|---|---|\n"
        return f"{head}| 40.0 MB | 8.000 | {algbw} | {algbw * 1.5} |\n"

    sizes = [parse_tables("all_reduce on 4 ranks\n" + table(algbw), "t")[0].rows[0] for algbw in (5.0, 5.24)]

    assert [row.bytes for row in sizes] == [40_000_000, 40 * 2**20]
    assert [row.time_s for row in sizes] == [0.008, 0.008]
    with pytest.raises(InputError, match="is not the size"):
        parse_tables(table(6.0), "t")
