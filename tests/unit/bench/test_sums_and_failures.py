"""Tables that would mislead: sums of pairs, messages too short for a link, damaged data, late calls, wide cells."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.bench.table import Row, print_rows
from meshwright.cli import run_command
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
SUMS = """# OSU MPI Multiple Bandwidth / Message Rate Test v7.5
# [ pairs: {pairs} ] [ window size: 64 ]
# Size                  MB/s        Messages/s
65536              {rate}         1250000.00
4194304            {rate}           20000.00
"""
WRITE = """                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 {size}          5000             {rate}               {rate}                2.0
"""


def verdict(text, link):
    (table,) = parse_tables(text, "t")
    (found,) = judge(CATALOGUE, [table], link=link)
    return found


def test_a_sum_over_pairs_is_called_one_and_not_good_for_a_single_link():
    text = SUMS.format(pairs=24, rate="90000.00")
    (table,) = parse_tables(text, "t")

    assert table.notes == ("the rates are the sum of 24 pairs of processes at once",)
    assert verdict(text, "100Gb/s").ok is None
    assert "over several" in verdict(text, "100Gb/s").reason


def test_one_pair_of_a_test_of_several_is_a_pair():
    (table,) = parse_tables(SUMS.format(pairs=1, rate="12000.00"), "t")

    assert table.notes == ()
    assert verdict(SUMS.format(pairs=1, rate="12000.00"), "100Gb/s").ok is True


@pytest.mark.parametrize(
    ("size", "rate", "ok"),
    [(8, "0.20", None), (2048, "9.00", None), (65536, "20.00", False), (65536, "98.00", True), (65536, "190.0", None)],
)
def test_a_rate_is_bad_only_where_its_messages_can_fill_the_link(size, rate, ok):
    assert verdict(WRITE.format(size=size, rate=rate), "100Gb/s").ok is ok


@pytest.mark.parametrize(("unit", "expected"), [("Gb/s", 1.5e9), ("GB/sec", 12e9), ("MB/s", 12 * 2**20)])
def test_the_unit_of_perftest_is_read_in_the_forms_that_people_shorten_it_to(unit, expected):
    text = (
        f" #bytes  #iterations  BW peak[{unit}]  BW average[{unit}]\n 65536   5000   13.00   12.00   <- as it should\n"
    )
    (table,) = parse_tables(text, "t")

    assert [rate.rate_bytes_per_s for rate in table.rates] == [pytest.approx(expected)]


def measured(**more):
    passed = {
        "name": "host_to_device_memcpy_ce",
        "status": "Passed",
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": [["50", "50"]],
        "sum": 100,
    }
    broken = {"name": "device_to_device_memcpy_read_ce", "status": "Error"}
    waived = {"name": "device_local_copy", "status": "Waived"}
    return json.dumps({"nvbandwidth": {"testcases": [passed, broken, waived]} | more})


def test_a_data_check_that_fails_after_good_tests_is_a_bad_table_in_json_too():
    tables = parse_tables(measured(error="Invalid value when checking the pattern at 0x10: Current offset : 64"), "t")

    assert [table.name.partition(",")[0] for table in tables] == [
        "host_to_device_memcpy_ce",
        "device_to_device_memcpy_read_ce",
    ]
    assert [found.ok for found in judge(CATALOGUE, tables)] == [None, False]
    assert "it waived device_local_copy" in tables[-1].notes[-1]


def test_another_error_of_nvbandwidth_is_a_note_beside_its_tables():
    (table,) = parse_tables(measured(error="CUDA_ERROR_OUT_OF_MEMORY: out of memory"), "t")

    assert table.wrong == 0
    assert any("CUDA_ERROR_OUT_OF_MEMORY" in note for note in table.notes)


@pytest.mark.parametrize("line", ["Waiving device_local_copy.", "Running device_local_copy.\nWaived: \n"])
def test_tests_that_nvbandwidth_waived_are_named(line):
    matrix = (
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 50.00 50.00\n"
    )

    with pytest.raises(InputError, match="waived device_local_copy"):
        parse_tables(f"nvbandwidth Version: v0.8\n{line}\n", "t")
    (table,) = parse_tables(f"{matrix}\nSUM host_to_device_memcpy_ce 100.00\n\n{line}\n", "t")
    assert "it waived device_local_copy" in table.notes[-1]


LATE = """torchrun --nproc_per_node 8 --nnodes 1 bench.py
size(MB)   tavg(usec)    tmin(usec)    tmax(usec)  avgbw(GB/sec)  maxbw(GB/sec)  minbw(GB/sec)
0.50  100.0  {low}  120.0  8.75   9.72  7.29
1.00  400.0  {dip}  9000.0 4.38  14.58  0.19
2.00  160.0  150.0  180.0 21.88  23.33 19.44
4.00  250.0  240.0  260.0 28.00  29.17 26.92
"""


def test_late_calls_that_raise_a_mean_are_no_change_of_protocol():
    (table,) = parse_tables(LATE.format(low="90.0", dip="120.0"), "t")

    assert "dips" not in judge(CATALOGUE, [table])[0].reason
    assert "at 1 size a few late calls raise the mean (up to 9000 us, the fastest 120)" in table.notes[0]


def test_a_size_whose_fastest_call_is_slow_too_is_a_dip():
    (table,) = parse_tables(LATE.format(low="90.0", dip="380.0"), "t")

    assert "dips at 977 KiB" in judge(CATALOGUE, [table])[0].reason
    assert table.notes == ()


def test_a_figure_wider_than_its_column_stands_apart_from_the_one_before_it():
    common = {"collective": "all_reduce", "backend": "nccl", "ranks": 2, "redop": "sum"}
    printed = print_rows([Row(bytes=2**31, time_s=0.5, wrong=402653184, **common)]).splitlines()[-1]

    assert printed.split()[6:8] == ["4.295", "4.02653e+08"]


HEADED = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"


def test_a_heading_without_a_whole_row_is_said():
    with pytest.raises(InputError, match="heading of nccl-tests stands there, and no whole row"):
        parse_tables(f"# nThread 1 nGpus 1\n{HEADED}    1048576   262144   float  sum   -1   90", "t")


def test_processes_that_are_each_alone_are_said_before_any_row():
    alone = "#   Rank  0 Pid    {pid} on  {host} device  0 [0x00] NVIDIA A10\n"
    text = alone.format(pid=11, host="anna") + alone.format(pid=12, host="bert") + HEADED

    with pytest.raises(InputError, match="2 processes are each rank 0 of 1"):
        parse_tables(text, "t")


ONE_PROCESS = """$ ./all_gather_perf -b 1M -e 4M -f 4 -g 1
#  Rank  0 Group  0 Pid     31 on emil device  0 [0x01] NVIDIA GeForce RTX 4090
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float    none      -1    10.00  104.86    0.00      0
     4194304       1048576     float    none      -1    20.00  209.72    0.00      0
"""


def test_a_process_that_is_alone_is_no_fault_where_nothing_says_that_others_were_started(tmp_path, capsys):
    (tmp_path / "t.txt").write_text(ONE_PROCESS)
    (table,) = parse_tables(ONE_PROCESS.replace("$ ./", "$ mpirun -np 2 ./"), "t")
    (of_several,) = judge(CATALOGUE, [table])

    assert run_command(["bench", "--from", str(tmp_path / "t.txt")]) == 0
    said = capsys.readouterr().out
    assert "verdict: unknown: the process is rank 0 of 1: nothing was sent" in said
    assert "alpha" not in said  # nothing crossed a link whose rate a fit could give
    assert (of_several.ok, "2 processes are each rank 0 of 1" in of_several.reason) == (False, True)


@pytest.mark.parametrize(("slow", "words"), [("25.00", "25 GB/s of 50 GB/s"), ("12.00", "12 GB/s of 50 GB/s")])
def test_one_of_four_devices_is_held_against_the_pairs_of_the_others(slow, words):
    rows = ["   D\\D     0      1      2      3"] + [
        f" {a} " + " ".join("900.00" if a == b else slow if 2 in (a, b) else "50.00" for b in range(4))
        for a in range(4)
    ]
    (table,) = parse_tables("Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + "\n".join(rows) + "\n", "t")
    (found,) = judge(CATALOGUE, [table])

    assert (found.ok, found.reason) == (False, f"device 2 is slow with every other: {words}")


def matrix_of_six(slow, lame=(4,), usual=390.0):
    """Return a matrix whose pairs with a device of `lame` have `slow` GB/s, others `usual`, within half a percent."""
    rows = ["   D\\D " + "      ".join(map(str, range(6)))] + [
        f" {a} "
        + " ".join(
            "2900.00" if a == b else f"{(slow if {a, b} & {*lame} else usual) * (1 + (a + b) % 3 / 500):.2f}"
            for b in range(6)
        )
        for a in range(6)
    ]
    return "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + "\n".join(rows) + "\n"


def test_a_device_that_lacks_one_link_of_many_stands_out_where_all_other_pairs_are_alike():
    lame, sound = (judge(CATALOGUE, parse_tables(matrix_of_six(rate), "t"))[0] for rate in (368.0, 386.0))

    assert (lame.ok, "device 4 is slow with every other: 369 GB/s of 391 GB/s" in lame.reason) == (False, True)
    assert "some of its links are down" in lame.reason
    assert (sound.ok, "no pair stands out" in sound.reason) == (None, True)


def test_a_small_loss_is_none_where_pairs_differ_as_much_among_themselves():
    text = matrix_of_six(368.0).replace("390.00", "372.00", 4)
    (found,) = judge(CATALOGUE, parse_tables(text, "t"))

    assert "stands out" in found.reason


def test_a_device_a_little_slower_over_pcie_may_sit_elsewhere():
    (found,) = judge(CATALOGUE, parse_tables(matrix_of_six(23.0, usual=25.0), "t"))

    assert (found.ok, "no pair stands out" in found.reason) == (None, True)


def test_two_devices_of_six_that_lack_a_link_are_both_named_and_three_are_the_layout():
    two, three = (judge(CATALOGUE, parse_tables(matrix_of_six(368.0, lame), "t"))[0] for lame in ((1, 4), (1, 2, 4)))

    assert two.ok is False
    assert [f"device {n} is slow with every other" in two.reason for n in range(6)] == [n in (1, 4) for n in range(6)]
    assert (three.ok, "no pair stands out" in three.reason) == (None, True)
