"""The code that hosts are in while their devices idle is named."""

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job


@pytest.mark.parametrize(
    ("cat", "what", "said"),
    [
        ("user_annotation", "CPUAdam.step", "while the host is in CPUAdam.step, outside any operator)"),
        ("user_annotation", "Optimizer.step#Lion.step", "is in Optimizer.step#Lion.step, outside any operator)"),
        ("python_function", "log.py(12): flush", "while the host is in log.py(12): flush, outside any operator)"),
        ("cpu_op", "aten::item", "while the host is in aten::item)"),
    ],
)
def test_the_innermost_frame_or_operator_is_named(tmp_path, cat, what, said):
    job = Job(2)
    for number in range(3):
        job.step(number)
        for rank in job.ranks:
            rank.event("python_function", "train.py(10): main", rank.now_us, 99_000)
            rank.compute(20_000)
            rank.host_is(what, 70_000, cat)
        job.meet()

    ranks = read_traces(job.write(tmp_path))

    assert said in verdict_of(ranks, summarized(ranks))


def test_no_frame_is_named_that_lasts_for_a_small_part_of_it(tmp_path):
    job = Job(2)
    for number in range(3):
        job.step(number)
        for rank in job.ranks:
            rank.compute(20_000)
            rank.host_is("log", 20_000)
        job.meet()

    ranks = read_traces(job.write(tmp_path))

    assert "while the host runs code outside any operator)" in verdict_of(ranks, summarized(ranks))
