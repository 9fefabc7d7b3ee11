"""Tables as people paste them: every version, launchers' prefixes, other tools. The answers lie beside them."""

import json
import re
import time
from pathlib import Path

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables, read_tables
from meshwright.bench.reading.identify import named_in
from meshwright.cli import run_command
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

TABLES = Path(__file__).parent / "tables"
ANSWERS = json.loads((TABLES / "answers.json").read_text())
HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_pasted_table_is_read_right(name):
    answer = ANSWERS[name]
    found = read_tables(str(TABLES / f"{name}.txt"))
    rows = [(index, row) for index, table in enumerate(found) for row in table.rows]

    assert [[table.collective, table.ranks] for table in found] == answer["tables"]
    assert "sizes" not in answer or len({(index, row.bytes) for index, row in rows}) == answer["sizes"]
    if "last_us" in answer:
        assert rows[-1][1].time_s * 1e6 == pytest.approx(answer["last_us"], rel=1e-3)
    if "max_busbw" in answer:
        # the bandwidth is counted from the time, which has more digits than the printed bandwidth
        assert max(row.busbw_bytes_per_s for _, row in rows) / 1e9 == pytest.approx(answer["max_busbw"], rel=4e-3)
    assert answer.get("notes", "") in " ".join(note for table in found for note in table.notes)


@pytest.mark.parametrize("name", sorted(name for name in ANSWERS if "verdict" in ANSWERS[name]))
def test_the_verdict_is_the_maintainers(name):
    ok, words = ANSWERS[name]["verdict"]
    verdict = judge(load_catalogue(), read_tables(str(TABLES / f"{name}.txt")))[-1]

    assert (verdict.ok, words in verdict.reason) == (ok, True), verdict.reason


@pytest.mark.parametrize(
    ("name", "link", "nics", "ok", "expected"),
    [
        ("new_no_ranks_listed", "hdr-200", 4, True, 96e9),
        ("max_9_84_of_25", "hdr-200", 1, False, 24e9),
        ("alltoall_64_ranks_49", "ndr-400", 8, True, 48e9),
        ("nvbandwidth", "pcie-4", None, True, 25e9),
        ("ib_write_bw", "ndr-400", None, False, 48e9),
    ],
)
def test_a_rate_is_held_against_the_links_that_are_named(name, link, nics, ok, expected):
    (verdict,) = judge(load_catalogue(), read_tables(str(TABLES / f"{name}.txt")), link=link, nics=nics)

    assert verdict.ok is ok
    assert verdict.expected_bytes_per_s == pytest.approx(expected, rel=0.04)


def test_the_time_of_the_host_is_not_taken_for_a_transfer():
    with pytest.raises(InputError, match=r"cpu_time_table.txt:15: cputime"):
        read_tables(str(TABLES / "cpu_time_table.txt"))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1048576  262144  float  sum  -1  77.10  18.60  23.80  0", "algbw 18.60 GB/s x time is not the size"),
        ("1048576  262145  float  sum  -1  77.10  13.60  23.80  0", "no multiple of 262145 elements"),
        ("1048576  262144  float  sum  -1  0.00  13.60  23.80  0", "time above 0"),
    ],
)
def test_a_row_that_contradicts_itself_is_named(row, words):
    good = "2097152  524288  float  sum  -1  154.2  13.60  23.80  0\n"

    with pytest.raises(InputError, match=f"^t:3: .*{words}"):
        parse_tables(f"# all_reduce_perf\n{HEADER}{row}\n{good}", "t")


def test_bandwidths_that_contradict_name_and_ranks_are_an_error():
    devices = "".join(f"#  Rank  {i} Group  0 Pid 1 on h device {i} [0x1] X\n" for i in range(8))
    row = "1048576  262144  float  sum  -1  77.10  13.60  11.90  0\n"

    with pytest.raises(InputError, match=r"t:11: busbw 11.90 over algbw 13.60 is not the 1.75"):
        parse_tables(f"# Collective test starting: all_reduce_perf\n{devices}{HEADER}{row}", "t")


def test_a_row_cut_in_the_middle_is_an_error_and_a_cut_last_one_is_left_out():
    cut, whole = "1048576  262144  float  sum  -1  77.10\n", "2097152  524288  float  sum  -1  154.2  13.60  23.80  0\n"
    (table,) = parse_tables(f"# all_reduce_perf\n{HEADER}{whole}{cut}", "t")

    assert (len(table.rows), table.notes) == (1, ("line 4 is cut off: left out",))
    with pytest.raises(InputError, match="^t:3: "):
        parse_tables(f"# all_reduce_perf\n{HEADER}{cut}{whole}", "t")


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("mpirun -np 16 ./build/broadcast_perf -b 1M", 16),
        ("mpirun -n 2 -N 1 ./broadcast_perf -g 8", 16),
        ("srun -N 4 --ntasks-per-node=8 broadcast_perf_mpi -g 1", 32),
        ("./broadcast_perf -g 8", None),
    ],
)
def test_the_command_tells_the_ranks_where_nothing_else_does(command, ranks):
    (table,) = parse_tables(f"{command}\n{HEADER}1048576  262144  float  none  0  77.10  13.60  13.60  0\n", "t")

    assert (table.collective, table.ranks) == ("broadcast", ranks)


def test_ranks_that_the_bandwidths_leave_open_are_a_range():
    row = "1048576  262144  float  sum  -1  477.10  2.20  4.33  0\n"
    (table,) = parse_tables(f"# all_reduce_perf\n{HEADER}{row}", "t")

    assert table.ranks is None
    assert table.ranks_range[0] <= 64 <= table.ranks_range[1]


def test_gathers_of_before_2020_count_what_is_received():
    head = "#       size         count    type     time   algbw   busbw  error\n"
    rows = "67108864  2097152  float  1000.0  58.72  58.72  0e+00\n"
    (named,) = parse_tables(f"all_gather_perf\n{head}{rows}", "t")
    (bare,) = parse_tables(f"{head}{rows}", "t")

    assert (named.collective, named.ranks) == ("all_gather", 8)
    assert named.rows[0].busbw_bytes_per_s == pytest.approx(58.72e9, rel=1e-3)
    assert (bare.collective, bare.ranks, "all_reduce" in bare.candidates) == (None, 8, False)


def test_processes_with_several_gpus_that_each_are_alone_are_told_so():
    devices = "".join(
        f"#  Rank  {i} Group  0 Pid 1{host} on gpu{host} device  {i} [0x03] NVIDIA A100-PCIE-40GB\n"
        for host in range(2)
        for i in range(2)
    )
    rows = "".join(f"{size}  {size // 4}  float  sum  -1  77.10  {size / 77.1e3:.2f}  {size / 77.1e3:.2f}  0\n" * 2
                   for size in (1048576, 2097152))  # fmt: skip
    (table,) = parse_tables(f"# all_reduce_perf\n{devices}{HEADER}{HEADER}{rows}", "t")

    assert (table.alone, table.ranks) == (2, 2)
    assert "built without MPI=1" in judge(load_catalogue(), [table])[0].reason


def test_a_slow_process_of_the_json_is_named():
    text = json.loads((TABLES / "nccl_tests_json.txt").read_text())
    for result in text["results"]:
        result["out_of_place_per_iter"] = {"per_process_max_times_us": [[10.0, 11.0]] * 7 + [[19.0, 20.0]]}
    (table,) = parse_tables(json.dumps(text), "t")

    assert table.slow == ("process 7 on host-01 takes 1.9 times as long as most",)
    assert judge(load_catalogue(), [table])[0].ok is False


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("alg_bw", float("inf"), "results[0].out_of_place.alg_bw: inf is no finite number"),
        ("time", 10**30, "results[0].out_of_place.time: a number of 100 bits"),
    ],
)
def test_json_with_a_figure_that_is_none_is_refused_where_it_stands(key, value, said):
    text = json.loads((TABLES / "nccl_tests_json.txt").read_text())
    text["results"][0]["out_of_place"][key] = value

    with pytest.raises(InputError, match=re.escape(said)):
        parse_tables(json.dumps(text), "t")


def test_json_has_an_object_a_row_and_one_a_table(capsys):
    assert run_command(["bench", "--from", str(TABLES / "log_of_all_tests.txt"), "--json"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    tables = [one for one in objects if "verdict" in one]

    assert [one["table"] for one in objects if "bytes" in one] == [1, 2, 2]
    assert [(one["table"], one["collective"], one["ranks"]) for one in tables] == [
        (1, "all_reduce", 2),
        (2, "all_to_all", 2),
    ]
    assert set(tables[0]["verdict"]) == {"ok", "reason", "expected_GBps"}


def test_wrong_results_are_the_exit_code(capsys):
    assert run_command(["bench", "--from", str(TABLES / "wrong_results.txt")]) == 1
    assert "verdict: bad: results are wrong" in capsys.readouterr().out


@pytest.mark.parametrize(("table", "code"), [("built_without_mpi.txt", 1), ("a100_230.txt", 0)])
def test_a_bad_verdict_is_the_exit_code(capsys, table, code):
    assert run_command(["bench", "--from", str(TABLES / table)]) == code
    assert ("verdict: bad" in capsys.readouterr().out) == bool(code)


def test_a_fast_size_among_slow_ones_is_called_fast(capsys):
    run_command(["bench", "--from", str(TABLES / "bench_fast_size.txt")])
    text = capsys.readouterr().out

    assert "128 KiB took 184 us, less than smaller sizes" in text
    assert all(f"{size} KiB took" in text for size in (2, 8, 16))


def test_nics_without_a_table_or_a_kind_are_refused(capsys):
    assert run_command(["bench", "--nics", "4"]) == 2
    assert run_command(["bench", "--from", str(TABLES / "new_no_ranks_listed.txt"), "--nics", "4"]) == 2
    assert "--link" in capsys.readouterr().err


PREFIXES = [
    "[default0]:", "[rank0]: ", "[0] ", "[1,0]<stdout>:", "00: ", "node1: ", "trainer-1  | ", "> ", "> > ",
    "[pod/nccl-test-launcher/mpi] ", "(head, rank=0, pid=12, ip=10.0.0.1) ", "(RayTrainWorker pid=3, ip=1.2.3.4) ",
    "\x1b[36m(head, rank=0, pid=1)\x1b[0m ", "2025-03-04T10:11:12.1+01:00 stdout F ", "Mar 04 10:11:12 h nccl[1]: ",
    "2025-03-04 10:11:12,123 - INFO - ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_launchers_and_logs_put_before_a_line_is_taken_off(prefix):
    bare = (TABLES / "two_nodes_h100_known_good.txt").read_text()
    plain, tagged = (
        parse_tables(text, "t") for text in (bare, "".join(prefix + line for line in bare.splitlines(True)))
    )

    assert tagged == plain


def test_rates_without_times_are_nothing_to_draw(tmp_path, capsys):
    for option in ("--plot", "--html"):
        assert run_command(["bench", "--from", str(TABLES / "nvbandwidth.txt"), option, str(tmp_path / "x.html")]) == 2
        assert f"{option}: no table has sizes and times to draw" in capsys.readouterr().err


def test_a_matrix_of_one_device_has_no_pair_to_judge():
    text = "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0\n     0 144.46\n"
    (verdict,) = judge(load_catalogue(), parse_tables(text, "t"), link="pcie-4")

    assert (verdict.ok, verdict.reason) == (None, "one device: there is no pair to judge")


def test_a_heading_after_rows_names_the_next_table():
    row = "1048576  262144  float  {}  {}  77.10  13.60  13.60  0\n"
    text = f"all_reduce result\n{HEADER}{row.format('sum', -1)}broadcast result\n{HEADER}{row.format('none', 0)}"

    assert [table.collective for table in parse_tables(text, "t")] == ["all_reduce", "broadcast"]


def test_the_two_matrices_of_an_old_rocm_bandwidth_test_are_both_read():
    one, both = read_tables(str(TABLES / "rocm_2_0_1.txt"))

    assert (len(one.rates), one.both_ways) == (6, False)
    assert (len(both.rates), both.both_ways) == (4, True)  # it writes "Bdirectional"
    assert {(rate.src, rate.dst) for rate in both.rates} == {("CPU0", "1"), ("CPU0", "2"), ("1", "CPU0"), ("2", "CPU0")}


@pytest.mark.parametrize("line", ["x" * 10**6, "x" * 32_000, "1 " * 500_000, "1," * 400_000 + "x", "| " * 500_000])
def test_a_line_that_no_table_has_is_refused_at_once(line):
    start = time.process_time()

    with pytest.raises(InputError, match="f.txt"):
        parse_tables(f"# nThread 1 nGpus 8\n{line}\n", "f.txt")

    assert time.process_time() - start < 1.0  # of the processor; all of the command has 2 s


def test_a_megabyte_that_names_no_collective_costs_next_to_nothing():
    line = '{"a":' * 200_000
    start = time.process_time()

    assert [named_in(line) for _ in range(6)] == [None] * 6
    assert time.process_time() - start < 0.5  # of the processor; by the patterns alone it is 2.2 s


@pytest.mark.parametrize(
    ("line", "collective"),
    [
        ("# Collective: AllReduce", "all_reduce"),
        ("# Test starting: alltoall_perf", "all_to_all"),
        ("mpirun -np 8 ./build/ALL_GATHER_PERF -b 8", "all_gather"),
        ("bus bandwidth of a reduce-scatter", "reduce_scatter"),
        ("All-Gather, 8 cards", "all_gather"),
        ("ALL REDUCE (ring)", "all_reduce"),
        ("all-to-all", "all_to_all"),
        ("a reduce and a scatter", None),
        ("scatter over all ranks", "scatter"),
    ],
)
def test_names_are_found_in_any_case_and_with_their_words_apart(line, collective):
    found = named_in(line)

    assert (found.collective if found else None) == collective


@pytest.mark.parametrize("text", ['{"a":' * 300_000, "[" * 2_000_000, '{"size": 1} ' * 100_000])
def test_a_line_without_end_that_only_looks_like_json_is_refused_before_patterns_are_looked_for_in_it(text):
    start_s = time.process_time()

    with pytest.raises(InputError, match=r"x\.json:1: .* characters; expected lines of at most 32,768"):
        parse_tables(text, "x.json")

    assert time.process_time() - start_s < 2


def test_every_file_that_is_given_is_read_and_names_its_tables(tmp_path, capsys):
    good, slow = (tmp_path / name for name in ("pair_a_b.txt", "pair_a_c.txt"))
    text = (TABLES / "log_of_all_tests.txt").read_text()
    good.write_text(text)
    slow.write_text(text)

    answers = []
    for words in (["--from", str(good), "--from", str(slow)], ["--from", str(good), str(slow)]):
        assert run_command(["bench", *words]) == 0
        answers.append(capsys.readouterr().out)

    assert answers[0] == answers[1]
    assert answers[0].count("# pair_a_b.txt: ") == answers[0].count("# pair_a_c.txt: ") > 0


def test_a_file_among_several_that_is_not_there_is_named(capsys):
    assert run_command(["bench", "--from", str(TABLES / "log_of_all_tests.txt"), "all_reduec"]) == 2
    assert "all_reduec" in capsys.readouterr().err
