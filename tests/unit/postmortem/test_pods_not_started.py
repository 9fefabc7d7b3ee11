"""Pods without numbers in their names that were never started, while the others of their job wait for them."""

import pytest

from .made import judge

PODS = ("lm-x7k2p", "lm-b9d4q", "lm-z5w8m")
LATE = "lm-f2h6v"
TABLE = [
    "NAME       READY   STATUS    RESTARTS   AGE",
    *(f"{pod}   1/1     Running   0          31m" for pod in PODS),
    f"{LATE}   0/1     Pending   0          31m",
]
NO_NODE = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
EVENTS = [f"31m   Warning   FailedScheduling   pod/{LATE}   {NO_NODE}"]
DESCRIBED = [
    f"Name:             {LATE}",
    "Status:           Pending",
    "Events:",
    "  Type     Reason            Age   From               Message",
    f"  Warning  FailedScheduling  31m   default-scheduler  {NO_NODE}",
]
GAVE_UP = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
TOLD = {"a table": TABLE, "events": EVENTS, "a description": DESCRIBED}


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
def test_who_gave_up_a_rendezvous_waited_for_the_pod_that_was_not_started(told, tmp_path):
    verdict = judge(tmp_path, {"pods.txt": told, **{f"{pod}.log": [GAVE_UP] for pod in PODS}})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)
    assert f"pod {LATE} has not started" in verdict.because
    assert any(line.file == "pods.txt" for line in verdict.evidence)


def test_a_pod_that_has_not_started_keeps_the_others_of_its_name_before_anybody_gives_up(tmp_path):
    verdict = judge(tmp_path, {"pods.txt": TABLE})

    assert (verdict.kind, verdict.unknown, verdict.rule) == ("absent", True, "not-started")
    assert f"pod {LATE} has not started" in verdict.because


@pytest.mark.parametrize(
    "files",
    [
        {"pods.txt": TABLE, "train.log": [f"step {step} loss 1.0" for step in range(9)]},
        {"pods.txt": [*TABLE[:-1], TABLE[-1].replace(LATE, "web-f2h6v")]},
        {"pods.txt": TABLE[:-1]},
    ],
    ids=["the job makes steps", "of another job", "all run"],
)
def test_a_pod_that_nobody_waits_for_is_no_fault(files, tmp_path):
    assert judge(tmp_path, files).kind == "none"


def joins(ranks, came, world):
    told = f"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {came}/{world} clients"
    return [f"[rank{rank}]: {told} joined." for rank in ranks]


def test_ranks_that_did_not_come_are_all_others_where_as_many_wait_as_the_store_counts(tmp_path):
    verdict = judge(tmp_path, joins(range(12), 12, 16))

    assert (verdict.kind, verdict.blamed) == ("absent", (12, 13, 14, 15))


def test_ranks_that_did_not_come_are_not_told_where_more_came_than_are_heard(tmp_path):
    verdict = judge(tmp_path, joins(range(12), 14, 16))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)
