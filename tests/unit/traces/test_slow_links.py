"""A slow link between the ranks of one group of several is told by the groups beside it."""

import pytest

from tests.unit.traces.jobs import Job
from tests.unit.traces.test_culprit import told_of


def replicas(transfers_us, elements=(1000, 1000)):
    """Let pairs of replicas reduce, each over its own link, and all four ranks meet at the end of a step."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        for rank in job.ranks:
            rank.compute(20_000)
        for pair, transfer_us, count in zip(([0, 2], [1, 3]), transfers_us, elements, strict=True):
            before = {rank: len(job.ranks[rank].events) for rank in pair}
            job.meet(pair, transfer_us=transfer_us)
            for rank in pair:
                for event in job.ranks[rank].events[before[rank] :]:
                    if "Group size" in event["args"]:
                        event["args"] |= {"Process Group Description": "mesh_dp", "In msg nelems": count}
        job.meet()
    return job


def test_a_group_whose_transfers_last_longer_than_those_of_its_siblings_is_told(tmp_path):
    found = told_of(tmp_path, replicas((9000.0, 1200.0)))

    assert found.culprit is None
    assert "all_reduce of 3.91 KiB between ranks 0 and 2 takes 9 ms, between others 1.2 ms" in found.finding.said


@pytest.mark.parametrize(
    ("transfers_us", "elements"),
    [
        ((9000.0, 7000.0), (1000, 1000)),  # alike
        ((9000.0, 1200.0), (7500, 1000)),  # more bytes
        ((1500.0, 300.0), (1000, 1000)),  # little
    ],
)
def test_groups_that_last_longer_for_a_reason_or_by_little_are_not_told(tmp_path, transfers_us, elements):
    assert "between others" not in told_of(tmp_path, replicas(transfers_us, elements)).finding.said


def pipeline(lasts_us, late_us=0.0):
    """Let four stages pass on in turn and back; sends last as `lasts_us` says, and stage 3 works `late_us` longer."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        for sender, receiver in ((0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)):
            job.ranks[sender].compute(8000 + late_us * (sender == 3))
            pair = {sender: {"Collective name": "send", "Dst Rank": receiver}}
            pair[receiver] = {"Collective name": "recv", "Src Rank": sender}
            before = {rank: len(job.ranks[rank].events) for rank in pair}
            job.meet([sender, receiver], transfer_us=lasts_us.get(sender, 400.0))
            for rank, told in pair.items():
                for event in job.ranks[rank].events[before[rank] :]:
                    if "Group size" in event["args"]:
                        event["args"] |= {**told, "Process Group Name": "pp", "Process Group Ranks": "[0, 1, 2, 3]"}
    return job


def test_sends_of_one_rank_that_last_longer_than_those_of_others_are_told_and_nobody_is_blamed(tmp_path):
    found = told_of(tmp_path, pipeline({2: 16_000.0}))

    assert found.culprit is None
    assert "send of 3.91 KiB from rank 2 to ranks 1 and 3 takes 16 ms, between others 400 us" in found.finding.said


@pytest.mark.parametrize(("lasts_us", "late_us"), [({}, 0.0), ({}, 9000.0), (dict.fromkeys(range(4), 16_000.0), 0.0)])
def test_a_stage_that_keeps_others_waiting_has_no_slow_link(tmp_path, lasts_us, late_us):
    assert "between others" not in told_of(tmp_path, pipeline(lasts_us, late_us)).finding.said
