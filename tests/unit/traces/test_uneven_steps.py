"""Steps that last much longer than the typical one are told, which a median hides."""

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import STEP_US, Job


def accumulating(reduced, work_us=90_000.0, transfer_us=60_000.0, steps=8):
    """Reduce gradients in some steps alone; in the others every rank computes and goes on."""
    job = Job(2)
    for number in range(steps):
        job.step(number)
        for rank in job.ranks:
            rank.compute(work_us)
        if number in reduced:
            job.meet(transfer_us=transfer_us)
    return job


def verdict(tmp_path, job):
    ranks = read_traces(job.write(tmp_path))
    return verdict_of(ranks, summarized(ranks))


def test_gradients_that_are_reduced_every_few_steps_are_not_called_no_loss(tmp_path):
    found = verdict(tmp_path, accumulating({2, 5}))

    assert "2 of 8 steps (2, 5) take 150 ms, 1.5 times the typical step, mostly by more exposed communication" in found


def test_a_step_in_which_all_hosts_compile_is_told(tmp_path):
    job = Job(2)
    for number in range(5):
        job.step(number)
        for rank in job.ranks:
            rank.compute(90_000)
            rank.idle(2_000_000 if number == 1 else 0)
        job.meet()
    found = verdict(tmp_path, job)

    assert "step 1 takes 2.09 s, 20.9 times the typical step, mostly by more idle time" in found
    assert "nobody is late" in found


def test_what_hosts_are_in_during_a_long_step_is_named(tmp_path):
    job = Job(2)
    for number in range(5):
        job.step(number)
        for rank in job.ranks:
            rank.compute(90_000)
            rank.host_is("save checkpoint", 2_000_000 if number == 2 else 0)
        job.meet()

    assert "more idle time (while the host is in save checkpoint, outside any operator);" in verdict(tmp_path, job)


@pytest.mark.parametrize("reduced", [set(), {3}, set(range(8))], ids=["never", "once", "always"])
def test_steps_that_cost_little_more_are_not_told(tmp_path, reduced):
    """One step of eight that lasts 1.5 times as long is 6 % of all."""
    assert "times the typical step" not in verdict(tmp_path, accumulating(reduced))


def test_a_first_step_that_waits_for_a_profiler_that_begins_later_is_not_told(tmp_path):
    """The device of rank 1 computes on, but what it did before its profiler began is not in its trace."""
    job = Job(2)
    for number in range(5):
        job.step(number)
        for rank in job.ranks:
            rank.compute(90_000)
            rank.idle(500_000 if (rank.number, number) == (1, 0) else 0)
        job.meet()
    late = job.ranks[1]
    late.events = [event for event in late.events if event["ts"] >= 1e6 + 590_000]
    late.event("user_annotation", "ProfilerStep#0", 590_000, 1000)
    found = verdict(tmp_path, job)

    assert "times the typical step" not in found
    assert "nobody is late" in found


def test_a_rank_that_held_up_a_single_step_by_more_than_a_step_is_said_and_not_blamed(tmp_path):
    def late(length_us):
        job = Job(4)
        for number in range(6):
            job.step(number)
            for rank in job.ranks:
                rank.compute(STEP_US / 2)
                if (rank.number, number) == (0, 3):
                    rank.host_is("gc.collect", length_us, "python_function")
            job.meet()
        return job

    (tmp_path / "much").mkdir()
    (tmp_path / "little").mkdir()
    much, little = (
        summarized(read_traces(late(length_us).write(tmp_path / name)))
        for name, length_us in (("much", 400_000), ("little", 60_000))
    )

    assert much.culprit is None
    assert "rank 0 is late in step 3 alone and costs 400 ms in it" in much.finding.said
    assert much.finding.said.endswith("because its host collects garbage 400 ms longer while its device idles")
    assert "rank" not in little.finding.said
