"""The grid of a pipeline as a terminal shows it."""

import pytest

from meshwright import cli
from meshwright.layout import Layout
from meshwright.pipelines import StageTimes, picture, schedule, timed
from meshwright.report.grid import pipeline_figure, pipeline_lines
from meshwright.timeline import Performance, step_parts, summarize
from testkit.runs import step_spans

UNIT = Performance(  # a step of 256 micro-batches, each 4 s forward and 8 s backward over four stages
    step_time_s=3072.0, forward_s=256.0, backward_s=512.0, optimizer_s=0.0, exposed_comm_s=0.0, hidden_comm_s=0.0,
    bubble_s=0.0, data_s=0.0, tokens_per_s_per_gpu=1.0, model_tflops_per_gpu=1.0, mfu=None, peak_memory_bytes_per_gpu=1,
)  # fmt: skip
SCHEDULES = ["pp=4,schedule=gpipe", "pp=4,schedule=1f1b", "pp=4,vpp=2,schedule=interleaved", "pp=4,schedule=zb"]


def test_without_a_pipeline_there_is_no_grid():
    assert pipeline_lines(Layout.parse("dp=4"), 8, 80) == []


def test_a_grid_that_fits_is_drawn_whole():
    heading, *rows, idle = pipeline_lines(Layout.parse("pp=2,schedule=1f1b"), 3, 80)

    assert [*rows, idle.removesuffix(" as drawn")] == picture(schedule("1f1b", 2, 1, 3)).splitlines()
    assert heading == "pipeline 1f1b, 3 micro-batches: stage, pass, micro-batch"


@pytest.mark.parametrize("text", SCHEDULES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_row_is_wider_than_the_terminal(text, width):
    layout = Layout.parse(text)
    heading, *rows, _ = pipeline_lines(layout, 64, width)

    assert "of 64 micro-batches" in heading
    assert len(rows) == layout.pp
    assert max(map(len, rows)) <= width


def test_of_many_ranks_the_first_are_drawn_and_the_rest_counted():
    lines = pipeline_lines(Layout.parse("pp=32"), 64, 120)

    assert "... 16 more ranks" in lines
    assert sum(line.startswith("rank ") for line in lines) == 16


def test_plan_prints_the_grid_of_the_layout_that_it_prices(capsys):
    words = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h200", "--gpus", "8", "--global-batch", "16"]

    assert cli.run_command([*words, "--layout", "pp=4,dp=2,zero=1"]) == 0
    out = capsys.readouterr().out
    assert "\n".join(picture(schedule("1f1b", 4, 1, 8)).splitlines()[:-1]) in out


def test_of_many_micro_batches_warm_up_one_period_and_drain_are_drawn():
    predicted = summarize(
        [step_parts(step_spans(0, 0, 0.0))], ranks=4, tokens_per_step=1, model_flops_per_step=1.0,
        peak_flops_per_s=None, peak_memory_bytes=1,
    )  # fmt: skip
    for text in SCHEDULES:
        figure = pipeline_figure(Layout.parse(f"{text},mbs=1"), 256, predicted)
        bars = sum(len(trace["x"]) for trace in figure.traces)

        assert bars < 500
        assert "of 256 micro-batches: warm-up, steady state, drain" in figure.note
        assert ("repeats the marked period" in figure.note) == ("gpipe" not in text) == ("shapes" in figure.layout)


def test_the_marked_period_is_as_long_as_one_more_micro_batch_makes_the_step():
    even = StageTimes.even(4)
    (shape,) = pipeline_figure(Layout.parse("pp=4,mbs=1"), 256, UNIT).layout["shapes"]
    longer = timed(schedule("1f1b", 4, 1, 41), even).step_s - timed(schedule("1f1b", 4, 1, 40), even).step_s

    assert shape["x1"] - shape["x0"] == pytest.approx(longer)


def test_of_a_schedule_drawn_in_part_the_idle_share_is_that_of_the_whole():
    layout = Layout.parse("pp=8,vpp=5,schedule=interleaved")
    *_, idle = pipeline_lines(layout, 64, 120)

    assert idle == "idle 2.1% of the step with all 64"  # (8 - 1) / (5 x 64) of the work
