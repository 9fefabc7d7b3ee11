"""Pods of which only some ranks speak: the block of the job's ranks that each has."""

import pytest

from .made import judge
from .test_hosts import TOLD_TO_END, broke

DESCRIBED = [
    "Name:             fit-w-0-2-xq7vd",
    "Node:             pool-k4tt/10.128.3.44",
    "Status:           Failed",
    "Message:          Pod was terminated in response to imminent node shutdown.",
]
EVENT = "2m14s   Warning   PreemptScheduled   node/pool-k4tt   Instance preemption notice received"
SOME = [(0, 1, 3), (0, 1), (0, 2), (1, 2)]


def said(rank, world=16):
    return f"[rank{rank}]: INFO 11-20 08:10:40 dist.py:51 rank={rank} world={world}"


def logs(speak, *, breaks=(0, 1, 3), say=said):
    """The logs of the pods of four ranks of which some speak; all but one lose a peer."""
    return {
        f"fit-w-0-{pod}.log": [
            *(say(4 * pod + place) for place in places),
            *(broke(4 * pod + place) for place in places if pod in breaks),
        ]
        for pod, places in enumerate(speak)
        if places
    }


def of_pod(tmp_path, files, *lines):
    verdict = judge(tmp_path, {**files, "describe.txt": [*DESCRIBED, *lines]})
    return verdict.kind, verdict.blamed


@pytest.mark.parametrize("speak", [SOME, [(0,)] * 4, [*SOME[:2], (), SOME[3]]], ids=["some", "the first", "others"])
def test_a_pod_has_the_block_of_ranks_that_its_number_leads_to(speak, tmp_path):
    assert of_pod(tmp_path, logs(speak), EVENT) == ("killed", (8, 9, 10, 11))


def test_a_pod_that_ended_without_an_event_on_its_node_has_them_too(tmp_path):
    assert of_pod(tmp_path, logs(SOME)) == ("killed", (8, 9, 10, 11))


ROUND = {f"fit-w-0-{pod}.log": [said(pod), said(pod + 4), *([broke(pod)] * (pod != 2))] for pod in range(4)}
UNTOLD = {
    "ranks go round the pods": ROUND,
    "one of its ranks complains": logs(SOME, breaks=range(4)),
    "nothing says how many ranks there are": logs(SOME, say=lambda rank: f"[rank{rank}]: begins"),
    "two sizes fit": {f"fit-w-0-{pod}.log": [said(4 * pod, 24), broke(4 * pod)] for pod in range(2)},
    "the number counts in a group": logs(SOME, say=lambda rank: f"[rank{rank}]: tp rank={rank} world=16"),
}


@pytest.mark.parametrize("files", UNTOLD.values(), ids=UNTOLD)
def test_a_pod_whose_ranks_do_not_follow_from_its_number_is_not_named(files, tmp_path):
    assert of_pod(tmp_path, files, EVENT) == ("killed", ())


@pytest.mark.parametrize(
    ("ended", "breaks", "blamed"),
    [([2], (0, 1, 3), (8, 9, 10, 11)), ([1, 2], (0, 1, 3), ()), ([2], (0, 1), ())],
    ids=["one", "two", "one that says nothing may have ended too"],
)
def test_a_pod_of_which_some_ranks_speak_was_taken_where_its_agent_alone_was_told_to_end(
    ended, breaks, blamed, tmp_path
):
    files = logs(SOME, breaks=breaks)
    files |= {
        name: [*lines, TOLD_TO_END] for pod in ended for name, lines in files.items() if name.endswith(f"{pod}.log")
    }

    table = [f"fit-w-0-{pod}-xq7v{pod + 2}   0/1   Error   0   59m" for pod in range(4)]

    assert judge(tmp_path, {**files, "pods.txt": table}).blamed == blamed


def test_hosts_of_which_only_some_ranks_speak_have_no_blocks(tmp_path):
    """Nobody numbers them as Kubernetes does its pods."""
    log = [f"oak-{rank // 4}: [rank{rank}]: begins, world_size: 8" for rank in (0, 1, 2, 4, 7)]

    assert judge(tmp_path, [*log, broke(0, label="oak-0: "), "srun: error: Node failure on oak-1"]).blamed == ()


LED = ["fit-master-0", "fit-worker-0", "fit-worker-1"]
GONE = [DESCRIBED[0].replace("fit-w-0-2-xq7vd", "fit-worker-0"), *DESCRIBED[1:]]


def test_the_workers_of_a_job_with_a_master_come_after_its_ranks(tmp_path):
    """The number of a worker alone would lead to the ranks before it."""
    said_by = {
        f"{pod}.log": [said(8 * at, world=24), *(broke(8 * at) if at != 1 else ())] for at, pod in enumerate(LED)
    }
    verdict = judge(tmp_path, {**said_by, "describe.txt": [*GONE, EVENT]})

    assert not set(verdict.blamed) - set(range(8, 16)), verdict.because
