"""The JSON of perftest: which unit its bandwidths have, its old forms that are no JSON, and what is refused."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

INFO = '"test_info": {{\n"test": "{test}",\n"Device": "mlx5_4",\n"Link_type": "IB"\n}},\n'
RATES = '"{name}": {{\n"MsgSize": {size},\n"n_iterations": 500,\n"BW_average": {average},\n"MsgRate": {messages}\n}}\n'


def report(average, messages, *, size=65536, test="RDMA_Write_BW_Test", name="results"):
    rates = RATES.format(name=name, size=size, average=average, messages=messages)
    return "{\n" + INFO.format(test=test) + rates + "}\n"


@pytest.mark.parametrize(
    ("average", "messages", "bytes_per_s"),
    [("390.10", "0.744057", 390.1e9 / 8), ("46504.00", "0.744064", 46504 * 2**20), ("0.00", "0.000000", 0)],
)
def test_the_rate_of_messages_tells_the_unit_of_a_bandwidth(average, messages, bytes_per_s):
    (table,) = parse_tables(report(average, messages), "r.json")

    assert (table.name, table.tool) == ("RDMA_Write bandwidth of mlx5_4", "perftest")
    assert table.rates[0].rate_bytes_per_s == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (report("390.10", "0.000000"), "nothing says whether in Gb/s"),
        (report("390.10", "0.100000"), "neither in Gb/s nor in MiB/s"),
        ("{\n" + INFO.format(test="Send_BW_Test") + '"results": {\n"bw_avg": 390.1,\n}\n}\n', "nothing says whether"),
    ],
)
def test_a_bandwidth_whose_unit_nothing_tells_is_refused(text, why):
    with pytest.raises(InputError, match=why):
        parse_tables(text, "r.json")


def test_a_report_of_2023_without_quotation_marks_is_read():
    (table,) = parse_tables(
        '{\ntest_info: {\ntest: RDMA_Write_Latency_Test,\nDevice: "mlx5_1",\nTX_depth : 1,\n},\nresults: {\n'
        "MsgSize: 64,\nn_iterations: 1000,\nt_typical: 2.02,\nt_avg: 2.04,\npercentile_99.9: 4.03,\n},\n}\n",
        "r.json",
    )

    assert [(row.bytes, row.time_s) for row in table.rows] == [(64, pytest.approx(2.02e-6))]
    assert table.unjudged


def test_reports_of_several_devices_in_one_file_are_a_table_each():
    long = 2**23
    text = report("196.80", "0.002933", size=long) + report("98.40", "0.001466", size=long).replace("_4", "_5")
    tables = parse_tables(text, "r.json")
    verdicts = judge(load_catalogue(), tables, link="hdr-200")

    assert [table.name[-6:] for table in tables] == ["mlx5_4", "mlx5_5"]
    assert [verdict.ok for verdict in verdicts] == [True, False]


def test_both_directions_together_are_held_against_both_and_each_side_against_one():
    both = report("780.00", "1.487732", test="RDMA_Write_Bidirectional_BW_Test").rstrip("}\n") + "},\n"
    text = both + RATES.format(name="results_local", size=65536, average="390.00", messages="0.743866") + "}\n"
    verdicts = judge(load_catalogue(), tables := parse_tables(text, "r.json"), link="ndr-400")

    assert [table.both_ways for table in tables] == [True, False]
    assert [verdict.ok for verdict in verdicts] == [True, True]


def test_a_report_below_what_another_run_printed_hides_nothing():
    printed = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]\n 65536  5000  0.00  97.50\n"
    tables = parse_tables(f"RDMA_Read BW Test\n{printed}$ cat r.json\n{report('390.10', '0.744057')}", "log")

    assert [table.name for table in tables] == ["RDMA_Read bandwidth", "RDMA_Write bandwidth of mlx5_4"]
