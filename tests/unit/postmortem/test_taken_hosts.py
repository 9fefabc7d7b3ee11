"""Hosts that a cloud takes back: its notice, the agent that is told to end minutes later, and what others say."""

import pytest

from .made import judge

ASKED = "http://169.254.169.254/latest/meta-data/spot"
NOTICES = {
    "an answer of the cloud": f'{ASKED}/instance-action: 200 {{"action": "terminate", "time": "2026-11-20T10:02:00Z"}}',
    "a time": f"spot-watch INFO GET {ASKED}/termination-time -> 2026-11-20T10:02:00Z",
    "an order to stop": f'{ASKED}/instance-action {{"action":"stop","time":"2026-11-20T10:02:00Z"}}',
    "a script's own words": "spot instance termination notice received, 120 s left",
    "words of another script": "Received a spot interruption notice from the metadata service",
    "a daemon's words": "m1-spot (i-0f3) reclaim notice, draining in 110 s",
    "Google's answer": "computeMetadata/v1/instance/preempted: TRUE",
}
NO_NOTICES = {
    "no answer": f"GET {ASKED}/instance-action -> 404",
    "a watcher that starts": "watching for spot interruption notices every 5 s",
    "a plan": "if a spot interruption notice is received the trainer saves",
    "a negation": "no spot termination notice received",
}


def agent(first, *, ended=""):
    """What torchrun's agent of two ranks prints; `ended` is when it was told to end."""
    lines = [
        "I1120 09:00:00.000000 31 torch/distributed/elastic/agent/server/api.py:525]   local_ranks=[0, 1]",
        f"I1120 09:00:00.000000 31 torch/distributed/elastic/agent/server/api.py:525]   global_ranks=[{first},"
        f" {first + 1}]",
    ]
    api = "31 torch/distributed/elastic/agent/server/api.py:719]"
    return [*lines, *([f"W1120 {ended} {api} Received 15 death signal, shutting down workers"] if ended else [])]


def broke(rank, at=""):
    """A rank that lost another, with a clock or without."""
    head = f"[rank{rank}]:[E1120 {at} ProcessGroupNCCL.cpp:552] [Rank {rank}] " if at else f"[rank{rank}]: "
    return f"{head}ncclRemoteError: A call failed possibly due to a network error or a remote process exiting."


def files(notice, *others, ended="10:02:01.000000"):
    """The logs of two hosts, one of which its cloud takes back."""
    taken = agent(2, ended=ended)
    return {
        "m0.log": [*agent(0), "step 70 loss 1.2", *others],
        "m1.log": [*taken[:2], f"2026-11-20 10:00:00 {notice}", *taken[2:]],
    }


@pytest.mark.parametrize("at", ["", "10:02:04.1"])
@pytest.mark.parametrize("notice", NOTICES.values(), ids=NOTICES)
def test_the_ranks_of_a_host_that_its_cloud_takes_back_were_killed(notice, at, tmp_path):
    verdict = judge(tmp_path, files(notice, broke(0, at), broke(1, at)))

    assert (verdict.kind, verdict.blamed) == ("killed", (2, 3))


@pytest.mark.parametrize("watcher", ["spot-watch_m1.log", "watch.m1.out", "m1/imds.log"])
def test_a_watcher_of_a_host_speaks_for_it_in_a_file_of_its_own(watcher, tmp_path):
    logs = files("epoch 1 begins", broke(0), broke(1))
    verdict = judge(tmp_path, {**logs, watcher: [f"2026-11-20T10:00:00Z imds {NOTICES['an order to stop']}"]})

    assert (verdict.kind, verdict.blamed) == ("killed", (2, 3))
    assert "took the machine back" in verdict.because


def test_a_restart_that_finds_no_peers_is_the_end_of_the_attempt_in_which_they_were_lost(tmp_path):
    logs = files(NOTICES["a time"], broke(0, "10:02:04.1"), broke(1, "10:02:04.1"))
    api = "31 torch/distributed/elastic/agent/server/api.py"
    logs["m0.log"] += [
        f"I1120 10:02:05.000000 {api}:889] [default] Worker group FAILED. 3/3 attempts left; will restart worker group",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    ]
    verdict = judge(tmp_path, logs)

    assert (verdict.kind, verdict.blamed) == ("killed", (2, 3))
    assert [line.text[:7] for line in verdict.evidence].count("[rank0]") == 1


@pytest.mark.parametrize("notice", NO_NOTICES.values(), ids=NO_NOTICES)
def test_who_looks_for_a_notice_has_none(notice, tmp_path):
    assert judge(tmp_path, files(notice, broke(0), broke(1))).blamed == ()


def test_ranks_that_broke_before_a_host_was_taken_back_did_not_lose_it(tmp_path):
    verdict = judge(tmp_path, files(NOTICES["a time"], broke(0, "10:01:04.1"), broke(1, "10:01:04.2")))

    assert not set(verdict.blamed) & {2, 3}


def test_a_rank_that_fails_between_the_notice_and_the_end_of_its_host_failed_by_itself(tmp_path):
    error = (
        "[rank1]:[E1120 10:01:00.5 trainer.py:3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    )
    verdict = judge(tmp_path, files(NOTICES["a time"], error, broke(0, "10:01:04.1")))

    assert (verdict.kind, verdict.blamed) == ("device_memory", (1,))


def test_no_host_was_taken_where_all_were(tmp_path):
    both = files(NOTICES["a time"], broke(0))
    both["m0.log"] = [*both["m0.log"][:2], *both["m1.log"][2:], broke(0)]

    assert judge(tmp_path, both).blamed == ()
