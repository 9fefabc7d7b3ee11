"""Figures of tables as shells, progress bars, spreadsheets and people of several countries write them."""

import pytest

from meshwright.plan.validate import predict
from tests.unit.plan.test_table_forms import CATALOGUE, CELLS, KNOWN, rows, table, without


def measured(tmp_path, **cells):
    given = without("step_time_s") | cells
    (row,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in given.items()}))
    return row


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("0:01:56.25", 116.25),
        ("1:56.25", 116.25),
        ("00:01:56", 116.0),
        ("1m56.25s", 116.25),
        ("1m56,25s", 116.25),
        ("1 min 56 s", 116.0),
        ("1h 2min", 3720.0),
        ("PT1M56.25S", 116.25),
        ("116.25 sec", 116.25),
        ("116.25s/it", 116.25),
        ("116.25 s per step", 116.25),
        ("0.0086 it/s", 1 / 0.0086),
        ("2.5 steps/s", 0.4),
        ("116 250 ms", 116.25),
        ("116.25 ± 0.4 s", 116.25),
        ("116.25 +/- 1%", 116.25),
    ],
)
def test_a_time_of_a_step_is_read_as_clocks_shells_and_progress_bars_write_it(tmp_path, cell, seconds):
    assert measured(tmp_path, step_time_s=cell).measured_step_time_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "cell", "seconds"),
    [
        ("s/it", "116.25", 116.25),
        ("ms/step", "116250", 116.25),
        ("it/s", "0.0086", 1 / 0.0086),
        ("train/steps_per_second", "0.0086", 1 / 0.0086),
        ("steps", "5000", None),
        ("train/steps", "5000", None),
        ("avg step time (ms)", "116250", 116.25),
    ],
)
def test_a_column_may_be_the_time_of_a_step_or_their_rate_and_is_no_number_of_steps(tmp_path, name, cell, seconds):
    found = measured(tmp_path, **{name: cell}).measured_step_time_s

    assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_time_goes_before_a_rate_of_steps_in_the_same_table(tmp_path):
    assert measured(tmp_path, **{"step time": "116.25", "it/s": "0.01"}).measured_step_time_s == 116.25


def test_a_mean_gives_way_to_the_time_itself_and_is_not_chosen_before_a_median(tmp_path):
    mean = {"mean step time (s)": "117"}

    assert measured(tmp_path, **mean, step_time_s="116.25").measured_step_time_s == 116.25
    assert measured(tmp_path, **mean, median_step_time_s="116").measured_step_time_s is None
    assert measured(tmp_path, **{"mean peak memory (GiB)": "71"}).measured_peak_memory_bytes is None


def test_minutes_and_seconds_that_may_be_hours_and_minutes_are_not_counted(tmp_path):
    (said,) = measured(tmp_path, step_time_s="01:56").unreadable

    assert said == "step_time_s: '01:56' is 01 min 56 s or 01 h 56 min, so it counts as not measured"


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        ("1.128k", 1128),
        ("1,13k", 1130),
        ("1.13 K tok/s/gpu", 1130),
        (".5k", 500),
        ("1,128 tokens/s/GPU", 1128),
        ("1'128", 1128),
        ("1128 tok/s", None),
    ],
)
def test_tokens_a_second_may_be_in_thousands_and_have_the_unit_of_one_gpu_alone(tmp_path, cell, rate):
    found = measured(tmp_path, **{"tokens/s/GPU": cell}).measured_step_time_s

    assert found == (None if rate is None else pytest.approx(1024 * 8192 / (rate * 64)))


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        ({"seq_len": "8.192", "global_batch_sequences": "1.024", "step_time_s": "116,25"}, ";"),
        ({"seq_len": "8 192", "global_batch_sequences": "1\u202f024", "step_time_s": "116,25"}, ";"),
        ({"seq_len": "8'192", "global_batch_sequences": "1'024", "step_time_s": "116.25"}, ";"),
        ({"seq_len": "8192.0", "tp": "4.000", "step_time_s": "116.25"}, ","),
    ],
    ids=["points", "spaces", "apostrophes", "floats"],
)
def test_whole_numbers_have_the_marks_of_the_country_whose_decimals_the_table_has(tmp_path, cells, mark):
    assert rows(tmp_path, table(CELLS | cells, mark)) == rows(tmp_path, table(CELLS), "other")


def test_points_part_thousands_of_figures_too_where_decimals_have_commas(tmp_path):
    head, first = table(CELLS | {"step_time_s": "116,25"}, ";").splitlines()
    found = rows(
        tmp_path, "\n".join((head, first, first.replace("116,25", "1.116"), first.replace("116,25", "1.116,5")))
    )

    assert [row.measured_step_time_s for row in found] == [116.25, 1116.0, 1116.5]


def test_a_whole_number_that_may_be_a_thousand_times_as_much_is_refused_by_its_cell(tmp_path):
    cells = CELLS | {"seq_len": "4.000", "step_time_s": "116"}

    assert rows(tmp_path, table(cells))[0].reason == "seq_len: '4.000' is 4000 or 4"
    assert "got '8.192'" in rows(tmp_path, table(CELLS | {"seq_len": "8.192"}))[0].reason


def test_a_batch_that_no_gpu_computes_in_its_time_may_be_one_of_tokens(tmp_path):
    (found,) = predict(rows(tmp_path, table(CELLS | {"global_batch_sequences": "8388608"})), CATALOGUE, KNOWN)

    assert found.error is None
    assert found.perhaps == "its batch in tokens would be of 1,024 sequences (column global_batch_tokens)"
