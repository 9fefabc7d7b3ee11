"""Batch systems and services that tell in words of their own that they ended a job, and for what."""

import pytest

from .made import answer, judge, timed_out, told

STEPS = [f"step {n} loss 2.{n}" for n in range(4)]
WAITS = [timed_out(rank, 9) for rank in (0, 1, 3)]
MEMORY_HELD = "\tError from slot1@n4: memory usage exceeded request_memory"
HELD = "012 (481.000.000) 2026-11-20 10:10:00 Job was held."
LIMITS = {
    "Grid Engine's": 'job 481 exceeded job hard limit "h_rt" of queue "gpu.q" (3600 > limit:3600) - sending SIGKILL',
    "Modal's": "FunctionTimeoutError: Task's current input in-Ab3 hit its timeout of 2700s",
    "HTCondor's user": "009 (481.000.000) 2026-11-20 10:10:00 Job was aborted.",
    "HTCondor's hold": HELD,
}
MEMORY = {
    "HTCondor": [HELD, MEMORY_HELD],
    "Grid Engine": ['job 481.1 exceeded job hard limit "h_vmem" of queue "gpu.q" (9 > limit:8) - sending SIGKILL'],
    "Vertex AI": ["The replica master 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."],
    "a replica of today": [
        "The replica workerpool0-0 exited with a non-zero status of 137. Termination reason: OOMKilled."
    ],
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_job_that_its_batch_system_ended_blames_nobody(name, tmp_path):
    wanted = answer("killed")
    assert told(judge(tmp_path, [*STEPS, LIMITS[name]]), wanted) == wanted


@pytest.mark.parametrize("name", LIMITS)
def test_what_ends_whatever_hangs_is_not_the_cause_of_a_hang(name, tmp_path):
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, [*STEPS, *WAITS, LIMITS[name]]), wanted) == wanted


@pytest.mark.parametrize("name", MEMORY)
def test_a_job_that_ran_out_of_its_memory_is_told_so(name, tmp_path):
    wanted = answer("host_memory", unknown=True)
    assert told(judge(tmp_path, [*STEPS, *MEMORY[name]]), wanted) == wanted


def test_a_job_that_was_evicted_had_no_fault_of_its_own(tmp_path):
    wanted = answer("killed")
    assert told(judge(tmp_path, [*STEPS, "004 (481.000.000) 11/20 10:10:00 Job was evicted."]), wanted) == wanted


@pytest.mark.parametrize(("code", "kind"), [(137, "killed"), (9, "killed"), (1, "none")])
def test_the_code_of_a_replica_tells_whether_it_was_killed_and_not_by_whom(code, kind, tmp_path):
    line = f"The replica workerpool1-0 exited with a non-zero status of {code}."
    wanted = answer(kind, unknown=True)
    assert told(judge(tmp_path, [*STEPS, line]), wanted) == wanted
