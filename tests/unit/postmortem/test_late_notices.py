"""Nodes that a scheduler sees fail only after others have timed out: what shows that they failed before."""

import pytest

from .made import judge, timed_out

MAP = "c0: ranks 0-1   c1: ranks 2-3   c2: ranks 4-5"
SILENT = "[2026-11-20T10:11:00.004] error: Nodes c1 not responding"
BACK = "[2026-11-20T10:12:00.004] Node c1 now responding"
DOWN = "[2026-11-20T10:21:10.004] error: Nodes c1 not responding, setting DOWN"
FAILED = "srun: error: Node failure on c1"
CANCELLED = "slurmstepd: error: *** STEP 8.0 ON c0 CANCELLED AT 2026-11-20T10:21:12 DUE TO NODE FAILURE ***"
CLOSED = "c0:20:29 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer c1.cluster<46469>"


def log(*ranks, before=(), ended=CANCELLED):
    return [MAP, *before, *(timed_out(rank, 7) for rank in ranks), FAILED, ended]


ENDED = "8        job   NODE_FAIL    0:0   4   c[0-2]"
HEARD = [MAP, timed_out(0, 7)]


FELL = {
    "the controller did not hear it before": {"job.out": log(0), "ctl.log": [SILENT, DOWN]},
    "the controller did not hear it and another": {
        "job.out": log(0),
        "ctl.log": [SILENT.replace("c1", "c[1,7]"), BACK.replace("c1", "c7"), DOWN],
    },
    "the controller did not hear it, and ended the job": {"job.out": HEARD, "ctl.log": [SILENT], "sacct.txt": [ENDED]},
    "another lost it before": {"job.out": log(0, before=[CLOSED])},
    "ranks of all other hosts waited": {"job.out": log(0, 4)},
}


@pytest.mark.parametrize("files", FELL.values(), ids=FELL)
def test_a_node_that_failed_before_it_was_noticed_is_all_its_ranks(files, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("killed", (2, 3))


STOOD = {
    "the controller heard it again": {"job.out": log(0), "ctl.log": [SILENT, BACK, DOWN]},
    "it heard it again, and ended the job": {"job.out": HEARD, "ctl.log": [SILENT, BACK], "sacct.txt": [ENDED]},
    "nothing shows when": {"job.out": log(0)},
    "a connection closed after the time-out": {"job.out": [*log(0)[:2], CLOSED, FAILED, CANCELLED]},
    "one of its ranks waited": {"job.out": log(0, 2, 4, before=[CLOSED])},
    "hours after": {"job.out": log(0, 4, ended=CANCELLED.replace("T10", "T12"))},
    "it was never given up": {"job.out": [MAP, timed_out(0, 7), timed_out(4, 7)], "ctl.log": [SILENT]},
}


@pytest.mark.parametrize("files", STOOD.values(), ids=STOOD)
def test_a_node_of_which_nothing_shows_that_it_failed_before_is_not_to_blame(files, tmp_path):
    assert not set(judge(tmp_path, files).blamed) & {2, 3}
