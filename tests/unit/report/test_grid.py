"""The grid of a pipeline as a terminal shows it."""

import pytest

from meshwright import cli
from meshwright.layout import Layout
from meshwright.pipelines import picture, schedule
from meshwright.report.grid import pipeline_lines

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

    assert cli.run([*words, "--layout", "pp=4,dp=2,zero=1"]) == 0
    out = capsys.readouterr().out
    assert "\n".join(picture(schedule("1f1b", 4, 1, 8)).splitlines()[:-1]) in out
