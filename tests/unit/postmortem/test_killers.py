"""Programs of a host that kill a rank's process, by the host's system log."""

import pytest

from .made import judge, timed_out

STARTED = [f"[2026-11-20 09:00:00] [INFO] trainer: started rank {rank} pid={4100 + rank}" for rank in range(4)]
WAITED = [timed_out(rank, 55) for rank in range(4) if rank != 2]
SAID = [
    "gpu-warden[812]: killed pid 4102",
    "gpu-warden[812]: process 4102 (uid 1017) holds /dev/nvidia2 for 3 days, sending SIGKILL",
    "quota.sh[90]: sent SIGKILL to pid 4102, over its hours",
]
DID_NOT = [
    "gpu-warden[812]: would kill, but not killed pid 4102: dry run",
    "gpu-warden[812]: process 4102 would be sent SIGKILL without dry run",
    "torchrun[3000]: sending SIGKILL to process 4102",
    "gpu-warden[812]: 4102 holds /dev/nvidia2",
]


def syslog(said, at="10:09:58"):
    return [f"Nov 20 {at} node-a CRON[77]: (root) CMD (true)", f"Nov 20 {at} node-a {said}"]


@pytest.mark.parametrize("said", SAID)
def test_a_program_of_the_host_that_killed_a_process_before_the_wait_tells_whose_it_was(said, tmp_path):
    verdict = judge(tmp_path, {"job.log": [*STARTED, *WAITED], "node-a.syslog": syslog(said)})

    assert (verdict.kind, verdict.blamed) == ("killed", (2,))
    assert said.split("[")[0] in verdict.because


@pytest.mark.parametrize("said", DID_NOT)
def test_a_word_on_a_process_that_was_not_killed_or_by_its_own_launcher_is_no_cause(said, tmp_path):
    verdict = judge(tmp_path, {"job.log": [*STARTED, *WAITED], "node-a.syslog": syslog(said)})

    assert verdict.kind == "absent"


def test_a_process_that_was_killed_when_the_others_had_given_up_is_no_cause(tmp_path):
    verdict = judge(tmp_path, {"job.log": [*STARTED, *WAITED], "node-a.syslog": syslog(SAID[0], "10:40:00")})

    assert verdict.kind == "absent"


def test_a_process_of_the_same_number_on_another_host_is_nobodys(tmp_path):
    job = [line.replace("trainer:", "trainer: host=node-b") for line in STARTED]

    verdict = judge(tmp_path, {"job.log": [*job, *WAITED], "node-a.syslog": syslog(SAID[0])})

    assert verdict.kind == "absent"
