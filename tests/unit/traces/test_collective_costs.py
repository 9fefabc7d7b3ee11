"""The cost of collectives is that of the collectives of a rank, and apart from waiting for the last."""

from tests.unit.traces.jobs import Job
from tests.unit.traces.test_culprit import run, told_of


def test_transfers_of_groups_that_move_data_one_after_the_other_do_not_add_up(tmp_path):
    """Each rank moves data for 11 ms a step, less than the late rank costs; the groups together move them for 21."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        for pair, before_us, after_us in (([0, 1], 5000, 15_000), ([2, 3], 15_000, 5000)):
            for rank in pair:
                job.ranks[rank].compute(before_us)
            job.meet(pair, transfer_us=10_000.0)
            for rank in pair:
                job.ranks[rank].compute(after_us)
        job.ranks[3].host_is("gc.collect", 13_000, "python_function")
        job.meet()
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 3
    assert found.finding.said == ""


def test_transfers_that_hide_under_computation_excuse_no_late_rank(tmp_path):
    """A gather of 90 ms hides; who is late to the reduction costs 5 ms of a step of 100, and nothing else is lost."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        starts = [rank.now_us for rank in job.ranks]
        job.meet_at("all_gather", starts, 90_000.0, stream=21)
        for rank in job.ranks:
            rank.compute(90_000 + 5000 * (rank.number == 2))
        job.meet()
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 2


def test_what_waiting_for_ranks_that_are_late_in_turn_takes_is_said(tmp_path):
    """Of four experts, another one has the most tokens in each layer."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        for layer in range(4):
            for rank in job.ranks:
                rank.compute(4000 if rank.number == layer else 2000, "grouped_gemm")
            job.meet(name="alltoall")
    found = told_of(tmp_path, job)

    assert found.culprit is None
    waits = "waiting for the last to come takes 6 ms a step, the transfers themselves 4 ms"
    assert found.finding.said == f"nobody is late step after step: {waits}"


def test_a_collective_that_a_rank_dropped_does_not_make_it_an_untraced_one(tmp_path):
    """The profiler of rank 2 lost the kernels of the last step; the others are told of by all four ranks."""
    job = run(Job(4), steps=6)
    for rank in job.ranks:
        calls = [event for event in rank.events if "Group size" in event["args"]]
        for seq, event in enumerate(calls):
            event["args"]["Seq"] = seq
    lost = job.ranks[2].events[-3:]
    assert sum("Seq" in event["args"] for event in lost) == 1
    job.ranks[2].events = [event for event in job.ranks[2].events if event not in lost]
    found = told_of(tmp_path, job)

    assert len(found.meetings.found) == 5
    assert "not among the traces" not in found.finding.said
