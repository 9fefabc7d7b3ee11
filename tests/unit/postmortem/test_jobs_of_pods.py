"""Kubernetes' events of a namespace: those of the job itself, by the names of the pods whose logs are here."""

import pytest

from .made import judge, raised

BROKEN = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3699, remote process exited or there was a"
    " network error, NCCL version 2.27.5"
)
HEAD = "LAST SEEN   TYPE      REASON      OBJECT      MESSAGE"
ACCOMMODATES = "Preempted to accommodate a workload (UID: 9f54, JobUID: a20d) due to prioritization in the ClusterQueue"
OURS = {
    "a pod that Kubernetes' scheduler took": "3m Normal Preempted pod/gpt-worker-1 Preempted by pod 77 on node n3",
    "a workload that Kueue preempted": f"3m   Normal   Preempted   workload/pytorchjob-gpt-1a2b3   {ACCOMMODATES}",
    "a job that Kueue stopped": f"3m   Normal   Stopped   pytorchjob/gpt   {ACCOMMODATES}",
}
OTHERS = {
    "another job's pod": "3m Normal Preempted pod/bert-worker-1 Preempted by pod 77 on node n3",
    "another job's workload": f"3m   Normal   Preempted   workload/pytorchjob-bert-1a2b3   {ACCOMMODATES}",
    "another job's pod without memory": "3m Warning OOMKilled pod/bert-worker-1 container pytorch was OOMKilled",
    "our workload, which preempted another": "3m Normal Preempted workload/pytorchjob-gpt-1a2b3 Preempted workload"
    " team/bert (UID: 7acf) in ClusterQueue cq",
}


def judged(tmp_path, event):
    logs = {f"gpt-{pod}.log": raised(rank, BROKEN) for rank, pod in enumerate(("master-0", "worker-0", "worker-1"))}
    return judge(tmp_path, {**logs, "events.txt": [HEAD, event]})


@pytest.mark.parametrize("whose", OURS)
def test_the_job_was_ended_by_what_befell(whose, tmp_path):
    verdict = judged(tmp_path, OURS[whose])

    assert (verdict.kind, verdict.unknown) == ("killed", False)


@pytest.mark.parametrize("whose", OTHERS)
def test_the_job_was_not_ended_by_what_befell(whose, tmp_path):
    verdict = judged(tmp_path, OTHERS[whose])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), True)


def test_pods_of_a_group_with_a_name_of_its_own_are_of_the_job(tmp_path):
    event = "3m Normal Preempted pod/gpt-a3-workers-0-x7k2p Preempted by pod 77 on node n3"

    assert judged(tmp_path, event).kind == "killed"


def test_logs_that_are_not_named_after_pods_do_not_tell_whose_an_event_is(tmp_path):
    logs = {f"rank{rank}.log": raised(rank, BROKEN) for rank in range(2)}

    assert judge(tmp_path, {**logs, "events.txt": [HEAD, OTHERS["another job's pod"]]}).kind == "killed"


def test_a_node_that_went_is_no_fault_of_a_training_that_came_to_its_end(tmp_path):
    event = "9m Warning NodeNotReady node/a3-99 Node a3-99 status is now: NodeNotReady"
    files = {"train.log": ["[rank0]: step 3 loss 2", "[rank0]: Training completed"], "events.txt": [HEAD, event]}

    assert judge(tmp_path, files).kind == "none"
    assert judge(tmp_path, {**files, "train.log": files["train.log"][:1]}).kind == "killed"
