"""Groups that traces do not name are told by the ends of their collectives, and what is not told is said."""

import json

import numpy as np
import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.stragglers.common_ends import groups_by_ends
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

PAIRS, ACROSS = [(0, 1), (2, 3)], [(0, 2), (1, 3)]  # tensor groups, and the data groups of a mesh of 2 by 2
SIBLINGS = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "3"}


def told_of(tmp_path, job):
    return summarized(read_traces(job.write(tmp_path)))


def mesh(late=None, steps=4, said=None):
    """Two replicas of two ranks: tensor groups meet after each layer, replicas at the end; `late` idles 8 ms."""
    job = Job(4, hosts=("", "", "", ""))
    for number in range(steps):
        job.step(number)
        for layer in range(3):
            for rank in job.ranks:
                if rank.number == late and not layer:
                    rank.idle(8000 + 300 * number)
                rank.compute(5000 + 40 * ((3 * rank.number + number + layer) % 4))
            for pair in PAIRS:
                job.meet(pair, told=False, stream=20, **(said or {}))
        for pair in ACROSS:
            job.meet(pair, told=False, stream=21)
    return job


def test_nobody_is_late_in_a_mesh_in_step(tmp_path):
    found = told_of(tmp_path, mesh())

    assert found.culprit is None
    assert found.finding.said.startswith("nobody is late step after step")


def test_the_groups_of_a_mesh_that_no_trace_names_are_told_by_their_ends(tmp_path):
    found = told_of(tmp_path, mesh(late=1))

    assert {meeting.members for meeting in found.meetings.found if meeting.size == 2} >= set(PAIRS)


@pytest.mark.parametrize("late", range(4))
def test_who_is_late_in_groups_that_no_trace_names_is_the_culprit(late, tmp_path):
    culprit = told_of(tmp_path, mesh(late)).culprit

    assert culprit.rank == late
    assert culprit.costs_s_per_step == pytest.approx(8.5e-3, rel=0.1)


@pytest.mark.parametrize("late", [0, 3])
def test_sibling_groups_of_one_name_are_told_apart(late, tmp_path):
    found = told_of(tmp_path, mesh(late, said=SIBLINGS))

    assert found.culprit.rank == late
    assert found.meetings.untraced == ""


def test_of_too_few_calls_it_is_not_told_which_ranks_meet(tmp_path):
    job = Job(4, hosts=("",) * 4)
    job.step(0)
    for pair in PAIRS:
        job.meet(pair, told=False, **SIBLINGS)
    job.meet()

    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert "which ranks meet in some calls of all_reduce is not in these traces" in found.finding.said
    assert "nobody is late" not in found.finding.said


@pytest.mark.parametrize("late", [0, 2])
def test_a_root_that_is_late_holds_up_its_own_group_alone(late, tmp_path):
    """The first of each tensor group hands its batch to the other, in broadcasts that name no group."""
    job = Job(4, hosts=("",) * 4)
    for number in range(4):
        job.step(number)
        job.ranks[late].idle(9000 + 300 * number)
        for pair in PAIRS:
            job.meet(pair, 100.0, "Broadcast", told=False, stream=22)
        for layer in range(3):
            for rank in job.ranks:
                rank.compute(4000 + 50 * ((rank.number + number + layer) % 3))
            for pair in PAIRS:
                job.meet(pair, told=False, stream=20)
        for pair in ACROSS:
            job.meet(pair, told=False, stream=21)

    found = told_of(tmp_path, job)

    assert {meeting.members for meeting in found.meetings.found if meeting.name == "broadcast"} == set(PAIRS)
    assert found.culprit.rank == late


def test_the_list_of_process_groups_beside_the_events_says_which_ranks_meet(tmp_path):
    """Two calls of a group: too few to be told by their ends."""
    job = Job(4)
    for number in range(2):
        job.step(number)
        job.ranks[2].idle(7000)
        for rank in job.ranks:
            rank.compute(10_000)
        for pair in PAIRS:
            job.meet(pair, told=False, **SIBLINGS)
        for rank in job.ranks:
            rank.compute(10_000)
        job.meet()
    for path, rank in zip(job.write(tmp_path), range(4), strict=True):
        trace = json.loads(path.read_text())
        ranks = list(PAIRS[rank // 2])
        trace["distributedInfo"]["pg_config"] = [{"pg_name": "3", "pg_desc": "tp", "pg_size": 2, "ranks": ranks}]
        path.write_text(json.dumps(trace))

    found = summarized(read_traces([tmp_path]))

    assert found.meetings.untraced == ""
    assert {meeting.members for meeting in found.meetings.found} == {*PAIRS, (0, 1, 2, 3)}


@pytest.mark.parametrize("listed", [None, 7, [3], [{"ranks": "0"}], [{"pg_name": "3", "ranks": [0, 1], "pg_size": 4}]])
def test_a_list_of_process_groups_that_is_none_or_cut_short_says_nothing(listed, tmp_path):
    job = Job(2)
    job.step(0)
    job.meet(told=False, **SIBLINGS)
    paths = job.write(tmp_path)
    trace = json.loads(paths[0].read_text())
    trace["distributedInfo"]["pg_config"] = listed
    paths[0].write_text(json.dumps(trace))

    (found,) = read_traces(paths[:1])

    assert [call.ranks for call in found[0].calls] == [""]


def test_replicas_that_never_meet_hide_no_rank_that_is_slow_in_one_of_them(tmp_path):
    job = Job(4)
    now_us = [0.0, 0.0]
    for number in range(4):
        for replica, pair in enumerate(PAIRS):
            start = now_us[replica]
            for member in pair:
                rank = job.ranks[member]
                rank.now_us = start
                rank.compute(14_000 if member == 3 else 10_000)
            job.meet(pair)
            now_us[replica] = job.ranks[pair[0]].now_us
            for member in pair:
                length_us = now_us[replica] - start
                job.ranks[member].event("user_annotation", f"ProfilerStep#{number}", start, length_us)

    found = told_of(tmp_path, job)

    assert found.culprit.rank == 3
    assert found.culprit.costs_s_per_step == pytest.approx(4e-3, rel=0.05)


def spans(*ends_s):
    ends = np.asarray(ends_s)
    return np.stack((ends - 1e-3, ends), axis=1)


def test_clocks_that_differ_do_not_part_a_group():
    ends = np.asarray([0.01, 0.02, 0.031, 0.04])

    found = groups_by_ends([{0: spans(*ends), 1: spans(*(ends + 5.0))}])

    assert found == [[frozenset({0, 1})]]


def test_ranks_whose_ends_differ_by_this_and_that_are_no_group():
    found = groups_by_ends([{0: spans(0.01, 0.02, 0.03), 1: spans(0.014, 0.021, 0.039)}])

    assert found == [[]]
