"""`meshwright report` on traces: files and folders, the page's data on standard output, Chakra traces beside it."""

import json
import os
import pathlib
import shutil

import pytest

from meshwright.cli import run_command
from meshwright.report.pages.trace import apart_by_rank
from meshwright.traces.summary import RankShares

DATA = pathlib.Path(__file__).parents[1] / "traces" / "data"


def report(capsys, *words):
    code = run_command(["report", *map(str, words)])
    return code, capsys.readouterr()


def test_the_data_of_a_page_have_the_median_every_rank_and_the_culprit(capsys, tmp_path):
    code, printed = report(capsys, DATA / "t07_culprit", "--json", "--output", tmp_path / "page.html")
    data = json.loads(printed.out)
    keys = ["step_s", "compute_s", "exposed_comm_s", "hidden_comm_s", "idle_s", "data_s"]

    assert code == 0
    assert [data["median"][key] for key in keys] == pytest.approx([0.02, 0.005, 0.0097, 0, 0.005, 0])
    assert [own["rank"] for own in data["ranks"]] == [0, 1, 2, 3]
    assert data["ranks"][3]["exposed_comm_s"] == pytest.approx(0.001)
    assert set(keys) <= set(data["ranks"][0])
    assert data["culprit"]["rank"] == 3
    assert data["culprit"]["costs_s_per_step"] == pytest.approx(0.0084)
    assert "outside any operator" in data["culprit"]["because"]
    assert {section["heading"] for section in data["sections"]} >= {"Where a step goes", "Timeline", "Ranks"}
    assert json.loads((tmp_path / "page.json").read_text()) == data


def test_the_page_is_named_by_html_as_in_other_commands(capsys, tmp_path):
    code, _ = report(capsys, DATA / "t16_tb", "--html", tmp_path / "page.html")

    assert code == 0
    assert (tmp_path / "page.html").exists()


def test_a_page_from_before_among_the_traces_does_not_name_the_next_one(capsys, tmp_path):
    files = [shutil.copy(path, tmp_path) for path in sorted((DATA / "t07_culprit").glob("*"))]
    report(capsys, *files)
    code, _ = report(capsys, *sorted(tmp_path.glob("*.json*")))

    assert code == 0
    assert len(list(tmp_path.glob("*-report.html"))) == 1


def test_nobody_to_blame_is_null(capsys, tmp_path):
    _, printed = report(capsys, DATA / "real_runs" / "none", "--json", "--output", tmp_path / "page.html")

    assert json.loads(printed.out)["culprit"] is None


def test_ranks_that_differ_much_are_told_beside_the_median_that_is_none_of_theirs(capsys, tmp_path):
    _, printed = report(capsys, DATA / "t07_culprit", "--output", tmp_path / "page.html")

    assert "exposed communication 5.0% (rank 3) to " in printed.out


def test_ranks_that_are_alike_have_their_median_alone():
    times = {"step_s": 1.0, "compute_s": 0.7, "exposed_comm_s": 0.2, "hidden_comm_s": 0.1, "idle_s": 0.1}
    even = [RankShares(rank=rank, **times, data_s=0.0, copied_s=0.0, other_s=0.0) for rank in range(2)]

    assert apart_by_rank(even) == ""


def test_a_page_lies_beside_what_was_given(capsys, tmp_path):
    shutil.copytree(DATA / "t16_tb", tmp_path / "profile")
    code, printed = report(capsys, tmp_path / "profile")

    assert code == 0
    assert (tmp_path / "profile-report.html").exists()
    assert "on 2 ranks (1 step traced)" in printed.out


def test_the_same_traces_are_written_as_chakras(capsys, tmp_path):
    code, _ = report(capsys, DATA / "t07_culprit", "--chakra", tmp_path / "et", "--output", tmp_path / "page.html")
    again, printed = report(capsys, tmp_path / "et", "--output", tmp_path / "again.html")

    assert (code, again) == (0, 0)
    assert sorted(path.name for path in (tmp_path / "et").iterdir()) == ["0.et", "1.et", "2.et", "3.et"]
    assert "on 4 ranks" in printed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.json"], "no such file or folder"),
        ([DATA / "t27_same_rank"], "both are rank 0"),
        ([DATA / "t09_no_length.json"], "nothing in it lasts"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(capsys, tmp_path, words, message):
    code, printed = report(capsys, *words, "--output", tmp_path / "page.html")

    assert code == 2
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_a_page_is_not_written_into_a_pipe_for_its_data_go_beside_it(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    code, printed = report(capsys, DATA / "t16_tb", "--html", tmp_path / "pipe")

    assert (code, os.listdir(tmp_path)) == (2, ["pipe"])
    assert "pipe: is a device or a pipe, expected a file: the data of a page go beside it" in printed.err


def test_a_folder_of_runs_is_not_taken_for_ranks_of_one_job(capsys, tmp_path):
    for age_s, name in enumerate(["newest", "older"]):
        shutil.copytree(DATA / "t16_tb", tmp_path / "runs" / name)
        (tmp_path / "runs" / name / "plan.json").write_text("{}")
        os.utime(tmp_path / "runs" / name / "plan.json", (1000 - age_s, 1000 - age_s))

    code, printed = report(capsys, tmp_path / "runs")

    assert code == 2
    assert printed.err == f"meshwright: {tmp_path}/runs: 2 runs in it; expected one of them: {tmp_path}/runs/newest\n"


def test_runs_deeper_in_a_folder_are_not_taken_for_ranks_of_one_job(capsys, tmp_path):
    shutil.copytree(DATA / "t16_tb", tmp_path / "project" / "runs" / "one")
    (tmp_path / "project" / "runs" / "one" / "plan.json").write_text("{}")

    code, printed = report(capsys, tmp_path / "project")

    assert (code, printed.err.partition("; ")[2]) == (2, f"expected one of them: {tmp_path}/project/runs/one\n")


def test_a_terminal_shows_what_a_reader_must_know_of_the_figures(capsys, tmp_path):
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "pid": 3,
            "ts": 900 * at,
            "dur": 800,
            "args": {"stream": 7, "device": at % 2},
        }
        for at in range(8)
    ]
    (tmp_path / "two.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    code, printed = report(capsys, tmp_path / "two.json", "--output", tmp_path / "page.html")

    assert code == 0
    assert "\nto know: one process used 2 devices" in printed.out


@pytest.mark.parametrize("named", ["", "rank0.log"])
def test_logs_are_refused_with_the_command_that_reads_them(named, tmp_path, capsys):
    (tmp_path / "rank0.log").write_text("step 7 loss 2.0\n[rank0]: ValueError: 7 labels\n")

    code, said = report(capsys, tmp_path / named)

    assert code == 2
    assert "`meshwright doctor --logs" in said.err


def test_a_trace_that_is_cut_off_is_not_called_a_log(tmp_path, capsys):
    (tmp_path / "rank0.json").write_text('{"traceEvents": [{"ph": "X", "name": "gemm", "ts": 1, "dur"')

    code, said = report(capsys, tmp_path / "rank0.json")

    assert code == 2
    assert "doctor" not in said.err
