"""Ranks on a ring pass data on as the stages of a pipeline do, but all of them have the same work."""

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

LAYERS, STEPS = 4, 4
CALLED = {"Collective name": "coalesced", "Process Group Name": "5", "Group size": 4, "Process Group Description": "cp"}
NAMELESS: dict[str, str] = {}


def around(job, told):
    """Let each rank pass a part of its sequence on and take one: it waits for both of its neighbours."""
    came_us = [rank.now_us for rank in job.ranks]
    for at, rank in enumerate(job.ranks):
        end = max(came_us[at - 1], came_us[at], came_us[(at + 1) % len(came_us)]) + 100
        rank.launch("ncclDevKernel_SendRecv()", rank.now_us, end - rank.now_us, 21, **told)
        rank.now_us = end


def told_of(tmp_path, late, told, hosts=("node0",)):
    job = Job(4, hosts)
    for number in range(STEPS):
        job.step(number)
        for rank in job.ranks:
            late(rank)
        for _ in range(LAYERS):
            for _ in job.ranks[1:]:
                around(job, told)
                for rank in job.ranks:
                    rank.compute(1500 if rank.number == 1 and late is SLOW else 1000, "attention")
    ranks = read_traces(job.write(tmp_path))
    summary = summarized(ranks)
    return summary, verdict_of(ranks, summary)


def SLOW(rank):
    """Rank 1 takes longer over each part."""


@pytest.mark.parametrize("told", [CALLED, NAMELESS], ids=["called", "nameless"])
def test_a_rank_whose_kernels_last_longer_sets_the_pace_of_its_ring(tmp_path, told):
    summary, verdict = told_of(tmp_path, SLOW, told)

    assert summary.culprit.rank == 1
    assert "rank 1 sets the pace of its ring and costs up to 6 ms a step, because its kernels" in verdict
    assert "pipeline" not in verdict


@pytest.mark.parametrize("told", [CALLED, NAMELESS], ids=["called", "nameless"])
def test_a_rank_whose_host_is_late_is_to_blame_where_all_others_wait_meanwhile(tmp_path, told):
    """Nothing in the trace says what the host does."""
    summary, verdict = told_of(tmp_path, lambda rank: rank.idle(12_000 if rank.number == 2 else 0), told)

    assert summary.culprit.rank == 2
    assert summary.culprit.at_most
    assert "its host is in code outside any operator 12 ms a step longer" in verdict


def test_who_holds_up_a_ring_is_not_told_where_clocks_have_nothing_in_common(tmp_path):
    hosts = ("node0", "node1", "node2", "node3")
    summary, verdict = told_of(tmp_path, lambda rank: rank.idle(12_000 if rank.number == 2 else 0), CALLED, hosts)

    assert summary.culprit is None
    assert "the device of rank 2 idles 12 ms a step longer than any other of its ring" in verdict
    assert "which is not told" in verdict


def test_collectives_over_a_ring_are_left_out_and_the_page_says_so(tmp_path):
    job = Job(4)
    for number in range(STEPS):
        job.step(number)
        for rank in job.ranks:
            rank.compute(1000 * (rank.number + 1))
        around(job, CALLED)
        job.meet()
    notes = summarized(read_traces(job.write(tmp_path))).notes

    assert "collectives that join several ranks of a ring say nothing of who is slow, and are left out" in notes


@pytest.mark.parametrize(
    ("text", "ring"),
    [("CONTEXT_PARALLEL_GROUP", True), ("mesh_cp", True), ("PIPELINE_MODEL_PARALLEL_GROUP", False), ("mesh_pp", False)],
)
def test_a_group_is_what_its_name_says(tmp_path, text, ring):
    summary, _ = told_of(tmp_path, SLOW, CALLED | {"Process Group Description": text})

    assert [one.ring for one in summary.meetings.neighbours] == [ring]
