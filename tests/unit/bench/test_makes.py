"""Results of benchmarks by make of machine: what is measured again replaces its row, what is not stays."""

import json

import pytest

from benchmarks import makes, pages
from benchmarks.result import Result


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(makes, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def on(monkeypatch):
    def of_make(make):
        machine = {"cpu": make.split(",")[0], "make": make, "cores": 2, "kernel": "6", "torch": "2", "commit": "abc"}
        monkeypatch.setattr(makes, "describe_machine", lambda: machine)

    return of_make


def measured(*rows):
    return Result("steps", [{"ranks": ranks, "time_ms": time_ms} for ranks, time_ms in rows], keys=("ranks",))


def rows_of(path):
    return [(row["ranks"], row["time_ms"]) for row in json.loads(path.read_text())["rows"]]


def test_a_row_that_is_measured_again_replaces_its_own_and_the_others_stay(results, on):
    on("Xeon, family 6, model 1")
    makes.keep("steps", measured((2, 1.0), (4, 2.0)))
    path = makes.keep("steps", measured((4, 3.0), (1, 9.0)))

    assert rows_of(path) == [(1, 9.0), (2, 1.0), (4, 3.0)]


def test_each_make_has_a_file_of_its_own_named_in_plain_letters(results, on):
    on("Intel(R) Xeon(R) Processor, family 6, model 167")
    one = makes.keep("steps", measured((2, 1.0)))
    on("AMD EPYC, family 25, model 17")
    other = makes.keep("steps", measured((2, 5.0)))

    assert (one.name, other.name) == (
        "intel-r-xeon-r-processor-family-6-model-167.json",
        "amd-epyc-family-25-model-17.json",
    )
    assert rows_of(one) == [(2, 1.0)]


def test_a_page_shows_one_table_for_each_make_with_its_name_and_date(results, on):
    for make, time_ms in (("Xeon, family 6, model 1", 1.0), ("EPYC, family 25, model 2", 5.0)):
        on(make)
        makes.keep("steps", measured((2, time_ms)))

    shown = pages.with_results("<!-- measured: steps -->\n<!-- end of steps -->\n")

    assert shown.count("| ranks | time_ms |") == 2
    for make in ("Xeon, family 6, model 1", "EPYC, family 25, model 2"):
        assert f"2 cores of {make}, Linux 6, torch 2, commit abc, measured 20" in shown


def test_a_column_that_older_rows_lack_is_shown(results, on):
    on("Xeon")
    makes.keep("steps", measured((1, 1.0)))
    makes.keep("steps", Result("steps", [{"ranks": 2, "time_ms": 2.0, "parts": "forward -3"}], keys=("ranks",)))

    shown = pages.with_results("<!-- measured: steps -->\n<!-- end of steps -->\n")

    assert "| ranks | time_ms | parts |" in shown
    assert "| 1 | 1 |  |" in shown


def test_what_is_asked_of_a_page_but_was_measured_on_no_make_is_named(results, on):
    on("Xeon")
    makes.keep("steps", measured((2, 1.0)))

    with pytest.raises(SystemExit, match="steps has no rows with ranks=4"):
        pages.with_results("<!-- measured: steps ranks=4 -->\n<!-- end of steps -->\n")
