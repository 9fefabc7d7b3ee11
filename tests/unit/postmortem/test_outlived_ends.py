"""Ends that look like faults: a limit's signal, memory that a program caught, a job that still makes its steps."""

import pytest

from .made import answer, judge, told

NONE, KILLED = answer("none"), answer("killed")
LIMIT = "slurmstepd: error: *** STEP 41.0 ON c12 CANCELLED AT 2026-11-20T10:30:00 DUE TO TIME LIMIT ***"
BROKEN = ["Traceback (most recent call last):", '  File "/opt/job/feed.py", line 8, in pump', "    queue.take()"]
STEPS = [f"[2026-11-20 10:{n:02}:00] step {n} loss 2.{n}" for n in range(10, 16)]
SEGFAULT = "[Thu Nov 19 13:05:20 2026] python3[811]: segfault at 8 ip 000071 sp 000072 error 4 in libc.so.6"


def table(state):
    return f"{'JobID':12} {'State':>10} ExitCode\n41           {state:>10}      0:0\n41.0          CANCELLED     0:15\n"


@pytest.mark.parametrize("error", ["ValueError: I/O operation on closed file", "OSError: [Errno 9] Bad descriptor"])
@pytest.mark.parametrize("others", [{}, {"sacct.txt": table("TIMEOUT")}])
def test_what_the_signal_of_a_time_limit_leaves_behind_is_no_fault_of_a_program(tmp_path, error, others):
    log = "\n".join(["step 7", LIMIT, *BROKEN, error, "srun: error: c12: tasks 0-3: Terminated"])

    assert told(judge(tmp_path, {"job.out": log, **others}), KILLED) == KILLED


def test_an_exception_before_the_time_limit_stays_the_cause(tmp_path):
    log = "\n".join(["[rank2]: " + line for line in [*BROKEN, "ValueError: 7 labels"]] + [LIMIT])

    wanted = answer("exception", 2)
    assert told(judge(tmp_path, {"job.out": log}), wanted) == wanted


CAUGHT = "batch finder: 96 rows ... CUDA out of memory. Tried to allocate 2.10 GiB, halving"
EPOCHS = [f"epoch {n}/4 | 100%|####| 90/90 [01:10<00:00, 1.2it/s]" for n in range(1, 5)]


def test_memory_that_a_search_for_the_batch_size_ran_out_of_is_no_fault(tmp_path):
    assert told(judge(tmp_path, {"job.out": "\n".join([CAUGHT, *EPOCHS, "exit code 0"])}), NONE) == NONE


def test_a_run_that_ends_with_an_exit_code_of_0_outlived_its_memory_error(tmp_path):
    caught = "rank 1 retries: CUDA out of memory. Tried to allocate 2.10 GiB"

    assert told(judge(tmp_path, {"job.out": "\n".join([caught, *EPOCHS, "exit code 0"])}), NONE) == NONE


def test_a_search_for_the_batch_size_after_which_no_step_comes_did_fail(tmp_path):
    verdict = judge(tmp_path, {"job.out": "\n".join([CAUGHT, "loading"])})

    assert verdict.kind == "device_memory"


def seen(clock, *more):
    return "\n".join(["> looks stuck since noon", f"Fri Nov 20 {clock} UTC 2026", *STEPS, *more])


def test_a_job_whose_next_step_is_not_late_yet_does_not_hang(tmp_path):
    verdict = judge(tmp_path, {"question.md": seen("10:15:50")})

    assert told(verdict, NONE) == NONE
    assert not verdict.unknown


def test_a_job_whose_next_step_is_late_is_not_said_to_go_on(tmp_path):
    assert judge(tmp_path, {"question.md": seen("10:45:00")}).unknown


def test_a_process_that_ended_a_day_before_the_last_steps_is_of_another_job(tmp_path):
    assert told(judge(tmp_path, {"question.md": seen("10:15:50", "    " + SEGFAULT)}), NONE) == NONE


def test_a_process_that_ended_after_the_last_step_is_not(tmp_path):
    late = SEGFAULT.replace("Thu Nov 19 13:05", "Fri Nov 20 10:16")

    assert judge(tmp_path, {"question.md": seen("10:45:00", late)}).kind == "killed"
