"""Figures side by side in one text: columns of several, hosts whose lines take turns, and their verdicts."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
COMPARED = """all_reduce on eight cards
| Buffer | NCCL (us) | ours, one shot (us) | p99 (us) | speedup |
|---|---|---|---|---|
| 64KB | 21.5 | 7.5 | 9.0 | 2.9x |
| 1MB | 33.0 | N/A | N/A | - |
| 16MB | 140.25 | 655.0 | 700.0 | 0.2x |
"""
DRAWN = """+-----------+-----------+--------------+----------------+-------------------+
| Size (B)  | Time (us) | AlgBW (GB/s) | NCCL Time (us) | NCCL AlgBW (GB/s) |
+-----------+-----------+--------------+----------------+-------------------+
| 1.0 MiB   |   10.486  |     100.0    |     20.972     |        50.0       |
| 4.0 MiB   |   41.943  |     100.0    |     83.886     |        50.0       |
+-----------+-----------+--------------+----------------+-------------------+
"""
TURNS = """east1:                     RDMA_Write BW Test
west7:                     RDMA_Write BW Test
east1:  #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
west7:  #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
west7:  65536      5000             97.10              96.00              0.183
east1:  65536      5000             193.10             192.00             0.366
"""
STREAMS = """a: Connecting to host 10.9.0.3, port 5201
b: Connecting to host 10.9.0.4, port 5201
a: [  5] local 10.9.0.1 port 40000 connected to 10.9.0.3 port 5201
b: [  5] local 10.9.0.2 port 40000 connected to 10.9.0.4 port 5201
b: [  5]   0.00-10.00  sec  11.6 GBytes  10.0 Gbits/sec                  receiver
a: [  5]   0.00-10.00  sec  23.3 GBytes  20.0 Gbits/sec                  receiver
"""
HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


def run(ranks, hosts, gpu, busbw):
    """Return the text of an all-reduce of nccl-tests of 4 GiB."""
    where = [f"Pid {r} on host{r * hosts // ranks} device {r} [0x1b]" for r in range(ranks)]
    lines = [f"#  Rank {r:2d} Group  0 {place} {gpu}\n" for r, place in enumerate(where)]
    algbw = busbw / (2 * (ranks - 1) / ranks)
    row = f"{2**32} {2**30} float sum -1 {2**32 / algbw / 1e3:.1f} {algbw:.2f} {busbw:.2f} 0\n"
    return "$ mpirun all_reduce_perf -b 4G -e 4G\n" + "".join(lines) + HEAD + row


def test_times_of_several_beside_each_other_are_tables_of_their_own():
    tables = {table.name: [row.time_s for row in table.rows] for table in parse_tables(COMPARED, "t")}

    assert tables == {
        "table, NCCL": pytest.approx([21.5e-6, 33e-6, 140.25e-6]),
        "table, ours, one shot": pytest.approx([7.5e-6, 655e-6]),
    }


def test_bandwidths_go_with_the_times_before_them_in_a_drawn_table():
    tables = parse_tables(DRAWN, "t")

    assert [table.name for table in tables] == ["table, Time", "table, NCCL Time"]
    assert [row.time_s for row in tables[1].rows] == pytest.approx([20.972e-6, 83.886e-6])


def test_a_column_of_times_without_a_unit_is_refused_where_no_bandwidth_tells_it():
    with pytest.raises(InputError, match="t:1: a column of times without a unit"):
        parse_tables("| size (B) | time |\n|---|---|\n| 4096 | 0.0213 |\n", "t")


def test_rows_that_name_their_collective_or_ranks_are_tables_of_their_own():
    head = "| Collective | # GPUs | Size (B) | Time (us) |\n|---|---|---|---|\n"
    rows = "| All-Reduce | 8 | 4096 | 20 |\n| All-Reduce | 16 | 4096 | 30 |\n| all_gather | 16 | 4096 | 25 |\n"
    tables = parse_tables(head + rows, "t")

    assert [(t.name, t.collective, t.ranks, t.rows[0].time_s) for t in tables] == [
        ("table, all_reduce of 8", "all_reduce", 8, pytest.approx(20e-6)),
        ("table, all_reduce of 16", "all_reduce", 16, pytest.approx(30e-6)),
        ("table, all_gather of 16", "all_gather", 16, pytest.approx(25e-6)),
    ]


def test_a_heading_may_part_the_words_of_an_all_reduce():
    (table,) = parse_tables("### All-Reduce\n\n| Size (B) | Time (us) |\n|---|---|\n| 4096 | 20 |\n", "t")

    assert table.collective == "all_reduce"


def test_algorithm_bandwidth_in_full_words_tells_the_ranks():
    text = "| Message size | Time (ms) | Algorithm bandwidth (Gbps) | Bus BW (Gbps) |\n|---|---|---|---|\n"
    (table,) = parse_tables(text + "| 1 GiB | 43.0 | 199.8 | 374.6 |\n", "t")

    assert (table.collective, table.ranks) == ("all_reduce", 16)


def test_columns_that_somebody_joined_to_a_table_of_osu_are_said():
    text = "# OSU MPI-ROCM Broadcast Latency Test v7.5\n# Size       Avg Latency(us)\n8   3.5   4.5\n64   3.9   4.9\n"
    (table,) = parse_tables(text, "t")

    assert [row.time_s for row in table.rows] == pytest.approx([3.5e-6, 3.9e-6])
    assert any("1 figure more than the header" in note for note in table.notes)


def test_own_columns_of_osu_are_no_joined_ones():
    head = "# OSU MPI Broadcast Latency Test v7.5\n# Size  Avg Latency(us)  Min Latency(us)  Iterations\n"

    assert parse_tables(head + "8  3.5  3.1  1000\n", "t")[0].notes == ()


def test_lines_of_hosts_that_take_turns_are_a_table_for_each():
    rates = {table.name: table.rates[0].rate_bytes_per_s for table in parse_tables(TURNS, "t")}

    assert rates == {"east1: RDMA_Write bandwidth": 24e9, "west7: RDMA_Write bandwidth": 12e9}


def test_streams_of_hosts_that_take_turns_are_not_mixed():
    rates = {table.name: table.rates[0].rate_bytes_per_s for table in parse_tables(STREAMS, "t")}

    assert rates == {"a: 10.9.0.1 to 10.9.0.3": 2.5e9, "b: 10.9.0.2 to 10.9.0.4": 1.25e9}


def test_one_table_below_lines_of_several_hosts_stays_one():
    log = "".join(f"n{i}: 12 34 of module {i} are loaded\n" for i in (1, 2, 1, 2))
    text = log + HEAD + "4096 1024 float sum -1 8.192 0.50 0.50 0\n"

    assert len(parse_tables(text, "t")) == 1


def test_bytes_per_second_of_iperf3_are_powers_of_two():
    text = "[  5]   0.00-10.00  sec  27.4 GBytes  2.50 GBytes/sec                  receiver\n"
    (table,) = parse_tables(text, "t")

    assert table.rates[0].rate_bytes_per_s == 2.5 * 2**30


def test_copies_within_each_gpu_are_one_row_and_not_cut_off():
    text = "Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n     0     1\n 0  1250.5  1251.0\n"
    (table,) = parse_tables(text, "t")

    assert (len(table.rates), table.notes) == (2, ())


def test_dies_of_a_card_are_not_held_against_whole_cards():
    (verdict,) = judge(CATALOGUE, parse_tables(run(8, 1, "AMD Instinct MI250X", 100.0), "t"))

    assert verdict.ok is None


def test_a_rate_of_a_nic_of_half_the_assumed_rate_is_not_called_bad():
    (verdict,) = judge(CATALOGUE, parse_tables(run(2, 2, "NVIDIA GH200 480GB", 23.5), "t"))

    assert verdict.ok is None
    assert "half that rate" in verdict.reason


def test_a_rate_far_from_what_any_assumed_nic_carries_stays_bad():
    (verdict,) = judge(CATALOGUE, parse_tables(run(2, 2, "NVIDIA GH200 480GB", 9.0), "t"))

    assert verdict.ok is False


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [(2.097, 1.0486, []), (14.68, 7.34, ["7"]), (2.0, 1.0, []), (1.0486, 0.5243, ["0.5"])],
    ids=["size over time", "seven times that", "in GiB", "half of it"],
)
def test_a_bandwidth_that_is_not_size_over_time_is_said(of_a, of_b, said):
    text = (
        "| Size (KB) | A Time (ms) | B Time (ms) | A BW (GB/s) | B BW (GB/s) |\n|---|---|---|---|---|\n"
        f"| 2048 | 1.0 | 2.0 | {of_a} | {of_b} |\n"
    )
    tables = parse_tables(text, "t")

    assert [table.name for table in tables] == ["table, A Time", "table, B Time"]
    for table in tables:
        assert [note.split(" says ")[1].split(" times")[0] for note in table.notes] == said


@pytest.mark.parametrize(("rate", "is_judged"), [(14.68, False), (1.835, True)], ids=["of shares", "as busbw"])
def test_a_gather_whose_sizes_are_shares_by_its_own_bandwidth_is_not_judged(rate, is_judged):
    text = f"all_gather_perf\n\n| Size (KB) | Time (ms) | BW (GB/s) |\n|---|---|---|\n| 2048 | 1.0 | {rate} |\n"
    (table,) = parse_tables(text, "t")

    assert (table.collective, table.unjudged == "") == ("all_gather", is_judged)
    assert len(table.notes) == 1
