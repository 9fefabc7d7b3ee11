"""Files that hold a table of runs among other things, or as JSON: where it begins, and what is no part of it."""

import json

import pytest

from meshwright import cli
from meshwright.errors import InputError
from meshwright.plan.tables.reading import not_read
from tests.unit.plan.test_table_forms import CELLS, barred, rows, table, two, without

NESTED = {**without("tp", "pp", "dp", "step_time_s"), "parallel": {"tp": 4, "pp": 4, "dp": 4}, "step_time_s": 116.25}


@pytest.mark.parametrize(
    "content",
    [
        "Sweep of week 20,,\n(first steps dropped),,\n\n" + table(CELLS),
        "Figures of May\n\n## Runs\n\n"
        + barred(CELLS)
        + "\n\nTP: tensor parallel size\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        barred(CELLS).replace("\n| ", "\n").removeprefix("| "),
        "sep=;\n" + table(CELLS, ";"),
        "# " + table(CELLS),
        table(CELLS) + ",".join(CELLS) + "\n",
        json.dumps(NESTED) + "\n",
        json.dumps([NESTED], indent=2),
        json.dumps({"runs": [NESTED]}),
    ],
    ids=["titles", "page", "no-outer-bars", "sep", "hash", "header-again", "json-line", "json-list", "json-object"],
)
def test_a_table_is_found_among_what_else_a_file_holds(tmp_path, content):
    (plain,) = rows(tmp_path, table(CELLS))

    assert rows(tmp_path, content, "other") == [plain]


def test_a_header_may_begin_with_the_number_of_gpus_under_a_hash(tmp_path):
    cells = {"# GPUs": "64", **without("num_gpus")}

    assert rows(tmp_path, table(cells))[0].run.gpus == 64


def test_text_before_a_table_is_said_not_to_be_read(tmp_path):
    path = tmp_path / "runs.md"
    path.write_text(f"# Runs\n\n## In mxfp8\n\n{barred(CELLS)}\n")

    assert not_read(path) == ["the table begins in line 5; what stands before it is not read: '## In mxfp8'"]


def test_a_table_that_lacks_a_column_says_in_which_line_it_begins(tmp_path):
    with pytest.raises(InputError, match=r"the column gpu in line 3; it has .*num_gpus"):
        rows(tmp_path, "A page\n\n" + barred(without("gpu")))


def test_a_second_table_of_runs_in_a_page_is_refused_for_what_stands_between(tmp_path):
    with pytest.raises(InputError, match="a second table of runs begins in line 7: expected one a file"):
        rows(tmp_path, f"{barred(CELLS)}\n\n### In fp8\n\n{barred(CELLS)}\n")


def test_a_second_table_behind_the_first_is_refused_also_where_its_columns_only_change_places(tmp_path):
    turned = dict(reversed(CELLS.items()))

    with pytest.raises(InputError, match="a second table of runs begins in line 4: expected one a file"):
        rows(tmp_path, table(CELLS) + "\n" + table(turned))


def test_lines_that_repeat_another_are_said(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(two(CELLS, CELLS))

    assert not_read(path) == ["lines that repeat another word for word: 1; each counts as a run of its own"]


@pytest.mark.parametrize(("said", "seconds"), [("ms", 0.11625), ("[s]", 116.25), ("minutes", 6975), ("ticks", None)])
def test_a_line_of_units_below_the_header_is_no_run_and_is_that_of_measured_columns(tmp_path, said, seconds):
    units = {"num_gpus": "#", "seq_len": "tok", "step_time_s": said}
    head, run = table(CELLS).splitlines()
    (row,) = rows(tmp_path, "\n".join((head, ",".join(units.get(name, "-") for name in CELLS), run)))

    assert row.measured_step_time_s == (None if seconds is None else pytest.approx(seconds))


def test_a_line_with_a_number_cut_in_two_is_named_by_its_line_and_reads_nothing(tmp_path):
    cells = without("step_time_s", "family", step_time_s="116.25", family="megatron")
    first = table(cells)
    _, shifted = rows(tmp_path, first + first.splitlines()[1].replace("116.25", "116,25") + "\n")

    assert shifted.reason.startswith("line 3 has 14 cells, 1 cell more than the table has columns")
    assert (shifted.family, shifted.measured_step_time_s, shifted.unreadable) == ("", None, ())


def test_a_row_below_merged_cells_is_told_so_and_is_not_filled(tmp_path):
    empty = dict.fromkeys(("gpu", "num_gpus", "model_name", "seq_len", "global_batch_sequences"), "")
    _, below = rows(tmp_path, two(CELLS, CELLS | empty))

    assert below.reason == (
        "gpu, num_gpus, seq_len, global_batch_sequences, model_name: not stated "
        "(of cells that a spreadsheet merged only the first has the value)"
    )


def test_a_mean_at_the_end_of_a_table_is_no_run(tmp_path):
    mean = dict.fromkeys(CELLS, "") | {"id": "mean", "step_time_s": "116.25"}

    assert rows(tmp_path, two(CELLS, mean))[1].reason.endswith("model_name: not stated")


def test_values_of_json_are_as_they_are_written_and_empty_where_there_are_none(tmp_path):
    lines = [NESTED | {"step_time_s": value, "seq_parallel": True} for value in (None, float("nan"), 9.5, "9500 ms")]
    found = rows(tmp_path, "\n".join(json.dumps(line) for line in lines))

    assert [row.measured_step_time_s for row in found] == [None, None, 9.5, 9.5]
    assert {row.run.layout.sp for row in found} == {1}


def test_objects_whose_names_do_not_say_the_layout_do_not_lend_theirs(tmp_path):
    measured = without("step_time_s") | {"eval": {"step_time_s": 2.0}}
    split = without("tp", "pp", "dp") | {"inference": {"tp": 8}}

    assert rows(tmp_path, json.dumps(measured))[0].measured_step_time_s is None
    assert "column inference.tp is not read" in rows(tmp_path, json.dumps(split))[0].reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(CELLS) + "\n{'gpu': 1}\n", "line 2: expected an object of JSON"),
        ('{"gpu": "H100", "gpu": "A100"}', "key gpu stands twice in one object"),
        ('[{"gpu": "H100"}, 3]', "expected an object of JSON for each run"),
        ('{"gpu": "H100", "nodes": 2}', "the column num_gpus in the keys of its objects; it has gpu, nodes"),
    ],
)
def test_json_that_holds_no_runs_is_refused_in_words(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        rows(tmp_path, content)


def test_text_in_another_encoding_is_refused_by_byte_and_line(tmp_path):
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte \d+, line 2\): spreadsheets write it as CSV UTF-8"):
        rows(tmp_path, table(CELLS | {"id": "Läufe"}).encode("latin-1"))


def test_a_table_of_which_no_row_is_priced_fails(tmp_path):
    priced, unpriced = tmp_path / "priced.csv", tmp_path / "unpriced.csv"
    priced.write_text(two(CELLS, CELLS | {"tp": "3"}))
    unpriced.write_text(table(CELLS | {"tp": "3"}))

    assert [cli.run_command(["validate", str(path)]) for path in (priced, unpriced)] == [0, 1]


def test_an_option_of_jobs_beside_a_table_is_named(tmp_path, capsys):
    (tmp_path / "runs.csv").write_text(table(CELLS))

    assert cli.run_command(["validate", str(tmp_path / "runs.csv"), "--cluster", "dgx-h100"]) == 2
    assert "--cluster: goes with --job FILE; each row of a table says it" in capsys.readouterr().err
