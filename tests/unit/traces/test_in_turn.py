"""Ranks that are late in turn, or almost as late as the last, are said beside who is to blame."""

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

TURNS = (2, 0, 3, 1, 3, 2)


def told_of(tmp_path, late_us, ranks=4):
    """Return what is told of ranks that compute 20 ms in each step, and `late_us(rank, step)` longer."""
    job = Job(ranks)
    for number in range(len(TURNS)):
        job.step(number)
        for rank in job.ranks:
            rank.compute(20_000)
            rank.compute(late_us(rank.number, number), "longer")
        job.meet()
    return summarized(read_traces(job.write(tmp_path)))


def test_that_another_rank_is_late_in_each_step_is_said_with_the_worst_of_them(tmp_path):
    found = told_of(tmp_path, lambda rank, step: (9000 if step == 3 else 8000) if TURNS[step] == rank else 1)

    assert found.culprit is None
    assert "; in each step another rank is late (2, 0, 3, 1, …): in step 3 rank 1" in found.finding.said
    assert "because its kernels take 9 ms longer (longer most of it)" in found.finding.said


def test_ranks_late_in_more_than_half_of_the_steps_are_counted(tmp_path):
    found = told_of(tmp_path, lambda rank, step: 8000 if TURNS[step] == rank and step != 1 else 1)

    assert "; in 5 of 6 steps another rank is late (2, 3, 1, 3, …): in step " in found.finding.said


@pytest.mark.parametrize(
    "late_us",
    [
        lambda rank, step: 8000 if rank == step % 2 else 1,  # two of four: not in turn
        lambda rank, step: 200 if TURNS[step] == rank else 1,  # little
        lambda rank, step: 8000 if TURNS[step] == rank and step < 3 else 1,  # in half of the steps
    ],
)
def test_few_ranks_or_little_are_no_turns(tmp_path, late_us):
    assert "another rank is late" not in told_of(tmp_path, late_us).finding.said


def test_what_a_second_late_rank_hides_of_the_cost_of_the_last_is_said(tmp_path):
    found = told_of(tmp_path, lambda rank, step: {1: 8000, 4: 5000}.get(rank, 1), ranks=6)

    assert found.culprit.rank == 1
    assert found.culprit.costs_s_per_step == pytest.approx(3e-3)
    assert found.finding.said == "ranks 1 and 4 come last together and cost 8 ms a step"


def test_ranks_of_a_host_that_are_unequally_slow_are_said_beside_the_slowest(tmp_path):
    """Each is as much later than the one before it, so that the longest gap is another one in each step."""
    more_us = {4: 3000, 5: 10_000, 6: 17_000, 7: 24_000}
    found = told_of(tmp_path, lambda rank, step: more_us.get(rank, 1) + 40 * ((rank + step) % 3), ranks=8)

    assert found.culprit.rank == 7
    assert found.finding.said.startswith("ranks 4, 5, 6 and 7 come last together and cost 2")


def test_ranks_that_are_unequally_slow_are_said_though_each_costs_little(tmp_path):
    more_us = {4: 1500, 5: 3000, 6: 4500, 7: 6000}
    found = told_of(tmp_path, lambda rank, step: more_us.get(rank, 1) + 40 * ((rank + step) % 3), ranks=8)

    said = found.finding.said
    assert "ranks 4, 5, 6 and 7 come last together and cost" in said


def test_a_second_rank_that_is_little_late_is_not_said_beside_the_last(tmp_path):
    found = told_of(tmp_path, lambda rank, step: {1: 8000, 4: 500}.get(rank, 1), ranks=6)

    assert found.culprit.rank == 1
    assert found.finding.said == ""


def test_the_file_of_the_culprit_is_said_where_its_name_does_not_tell_its_rank(tmp_path):
    told_of(tmp_path, lambda rank, step: 8000 * (rank == 2) + 1)
    assert summarized(read_traces([tmp_path])).notes == ()
    for rank, name in enumerate("dacb"):
        (tmp_path / f"rank{rank}.json").rename(tmp_path / f"{name}.json")

    assert summarized(read_traces([tmp_path])).notes == ("rank 2 is c.json",)
