"""Hosts that a check of their state calls bad, beside ranks that are silent: whose silence it bears out."""

import pytest

from .made import joined, judge, timed_out

PER_HOST, HOSTS, BAD = 8, 4, 2


def job(*, silent=True, heard=()):
    """A log of four hosts, of whose third no rank prints a time-out where it is silent, but the `heard` ones."""
    ranks = range(PER_HOST * HOSTS)
    of_bad = {rank for rank in ranks if rank // PER_HOST == BAD} - set(heard) if silent else set()
    lines = [joined(rank, len(ranks), host=f"gp{rank // PER_HOST + 1:02}") for rank in ranks]
    return [*lines, *(timed_out(rank, 7) for rank in ranks if rank not in of_bad)]


def lined(form, bad, good):
    return [form.format(f"gp{number:02}", bad if number == BAD + 1 else good) for number in range(1, HOSTS + 1)]


CHECKS = {
    "sinfo": [
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST",
        "train        up 7-00:00:00      1  down* gp03",
        "train        up 7-00:00:00      3  alloc gp[01-02,04]",
    ],
    "sinfo of each node": lined("{}           1     train {}", "down*", "alloc"),
    "sinfo -R": [
        "REASON               USER      TIMESTAMP           NODELIST",
        "NHC: check_hw_gpu    root      2026-11-20T10:12:00 gp03",
    ],
    "scontrol": [
        "NodeName=gp03 Arch=x86_64",
        "   State=IDLE+DRAIN ThreadsPerCore=1",
        "   Reason=GPU 1 failed [root@x]",
    ],
    "kubectl": lined("{}    {}   <none>   12d   v1.29.3", "NotReady", "Ready"),
    "events": ["4m11s  Normal  NodeNotReady  node/gp03  Node gp03 status is now: NodeNotReady"],
    "a shell": ["gp01:  10:30:01 up 12 days", "pdsh@login: gp03: ssh exited with exit code 255"],
    "pings": lined("{} is {}", "unreachable", "alive"),
    "Ansible": lined("{} | {} => {{", "UNREACHABLE!", "SUCCESS"),
    "a table": ["host  gpus  health", *lined("{}     8   {}", "FAILED", "ok")],
    "power": lined("{}: Chassis Power is {}", "off", "on"),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_ranks_of_a_host_that_a_check_calls_bad_are_absent_where_they_alone_are_silent(check, tmp_path):
    verdict = judge(tmp_path, {"train.log": job(), "check.txt": check})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", tuple(range(16, 24)), 7)
    assert "gp03" in verdict.because


NO_CHECKS = {
    "none": [],
    "of another host": [*lined("{} is {}", "unreachable", "alive")[:BAD], "gp07 is unreachable"],
    "with too few that are well": ["gp03: unreachable", "gp01: alive"],
    "of all": [f"gp0{number} is unreachable" for number in range(1, 5)],
    "of what a person plans": [
        "REASON               USER      TIMESTAMP           NODELIST",
        "kernel update        root      2026-11-20T10:12:00 gp03",
    ],
    "of a host that drains": ["gp03           1     train drng", "gp01           1     train alloc"],
}


@pytest.mark.parametrize("check", NO_CHECKS.values(), ids=NO_CHECKS)
def test_a_silent_host_is_not_named_without_a_check_that_calls_it_bad(check, tmp_path):
    verdict = judge(tmp_path, {"train.log": job(), "check.txt": check})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_a_check_of_a_host_does_not_spread_the_silence_of_one_rank_to_all_of_its_host(tmp_path):
    heard = [rank for rank in range(16, 24) if rank != 17]

    verdict = judge(tmp_path, {"train.log": job(heard=heard), "check.txt": CHECKS["pings"]})

    assert (verdict.kind, verdict.blamed) == ("absent", (17,))


def test_a_check_of_a_host_whose_ranks_all_wait_blames_none_of_them(tmp_path):
    verdict = judge(tmp_path, {"train.log": job(silent=False), "check.txt": CHECKS["pings"]})

    assert (verdict.kind, verdict.blamed) == ("stuck", ())
