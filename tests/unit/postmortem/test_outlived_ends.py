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


MEMORY = "[WARNING] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. (rows {})"
UNREACHED = (
    "[W1120 10:01:01.5 socket.cpp:697] [c10d] The client socket has timed out after 60000ms to connect to [h0]:29500"
)
AGENT = "I1120 10:44:45.01 7 torch/distributed/elastic/agent/server/api.py:894] [m] worker group successfully finished."
ENDED_WELL = {
    "torchrun": f"{AGENT} Waiting 300 seconds for other agents to finish.",
    "an older torchrun": "INFO: Local worker group finished (SUCCEEDED). Waiting 300 seconds for others",
    "Kubeflow": "I1120 10:44:45 pytorchjob.go:440] PyTorchJob ml/vit-7 is successfully completed.",
    "SageMaker": "2026-11-20 10:44:45,012 sagemaker-training-toolkit INFO Reporting training SUCCESS",
}
SHORT = ["step 1 loss 2.2", "step 2 loss 2.1"]


@pytest.mark.parametrize("end", ENDED_WELL.values(), ids=ENDED_WELL)
@pytest.mark.parametrize("error", [[MEMORY.format(9)], [*BROKEN, "ValueError: 7 labels"], [UNREACHED]])
def test_what_a_launcher_outlived_that_saw_its_ranks_end_well_is_no_fault(tmp_path, end, error):
    assert told(judge(tmp_path, {"job.log": [*error, *SHORT, end]}), NONE) == NONE


NOT_ENDED = {
    "an error after the end, of the next run": [*SHORT, AGENT, MEMORY.format(9)],
    "no end": [MEMORY.format(9), *SHORT],
    "the end of another host": ["n1: [rank4]: " + MEMORY.format(9), "n0: [rank0]: step 2 loss 2", f"n0: {AGENT}"],
    "the end of a process": [MEMORY.format(9), *SHORT, "process 44 successfully finished."],
}


@pytest.mark.parametrize("lines", NOT_ENDED.values(), ids=NOT_ENDED)
def test_what_no_launcher_outlived_stays_the_fault(tmp_path, lines):
    assert judge(tmp_path, {"job.log": lines}).kind == "device_memory"


@pytest.mark.parametrize(
    "says", ["retrying with 32", "trying batch size 32", "retry with batch_size=32", "retrying at 8"]
)
def test_memory_that_a_program_says_to_try_again_with_less_is_no_fault_once_it_makes_steps(tmp_path, says):
    lines = [f"{MEMORY.format(9)} {says}", *STEPS]

    assert told(judge(tmp_path, {"job.log": lines}), answer("none", unknown=True))["kind"] == "none"
    assert judge(tmp_path, {"job.log": lines[:2]}).kind == "device_memory"


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB."
LESS = [
    "Decreasing batch size to: 8.",
    "Batch size 16 failed, trying batch size 8",
    "caught OOM, lowering micro-batch to 2",
]
NO_BATCH = "RuntimeError: No executable batch size found, reached zero."


@pytest.mark.parametrize("less", LESS)
def test_memory_is_no_fault_where_a_line_behind_it_says_that_a_smaller_batch_is_tried_and_steps_follow(tmp_path, less):
    assert judge(tmp_path, {"job.log": [FULL, less, *STEPS]}).kind == "none"


OF_RANKS = [f"[rank0]: {line}" for line in STEPS]
STILL_FULL = {
    "no steps": [FULL, LESS[0], *STEPS[:1]],
    "down to nothing": [FULL, LESS[0], FULL, "Decreasing batch size to: 1.", FULL, *BROKEN, NO_BATCH],
    "full again after steps": [FULL, LESS[0], *STEPS, FULL, LESS[0], *BROKEN, NO_BATCH],
    "less of something else": [FULL, "lowering learning rate to 1e-5", *STEPS[:4]],
    "another rank's batch": [f"[rank3]: {FULL}", f"[rank0]: {LESS[0]}", *OF_RANKS],
}


@pytest.mark.parametrize("lines", STILL_FULL.values(), ids=STILL_FULL)
def test_memory_stays_the_fault_where_no_smaller_batch_went_well(tmp_path, lines):
    assert judge(tmp_path, {"job.log": lines}).kind == "device_memory"


TRIED_AGAIN = "CUDA out of memory. Tried to allocate 4.20 GiB. GPU 2 has a total capacity of 39.1 GiB; trying again"


@pytest.mark.parametrize(
    "lines",
    [["INFO accelerate.utils.memory: Decreasing batch size to: 12.", FULL, *STEPS], [TRIED_AGAIN, *STEPS]],
    ids=["in a line above it", "in its own words"],
)
def test_memory_is_no_fault_where_its_program_says_beside_it_that_it_tries_again_and_steps_follow(lines, tmp_path):
    assert judge(tmp_path, {"job.log": lines}).kind == "none"
    assert judge(tmp_path, {"job.log": lines[:2]}).kind == "device_memory"


NCCL_TESTS = [
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20",
    "theta3:661:670 [4] misc/cudawrap.cc:36 NCCL WARN Cuda failure 1 'invalid argument'",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong",
    "        1048576        262144     float     sum      -1   27.8   37.76  66.09      0",
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 171.022",
]


def test_what_nccl_tests_ran_to_its_end_over_is_no_fault(tmp_path):
    assert judge(tmp_path, {"sum.txt": NCCL_TESTS}).kind == "none"
    assert judge(tmp_path, {"sum.txt": NCCL_TESTS[:3]}).kind == "exception"


XID_BEFORE = "[Tue Oct 14 11:20:11 2025] NVRM: Xid (PCI:0000:4e:00): 31, pid=9901, name=python3, Ch 00000008"


def test_a_gpus_error_in_a_kernels_log_is_no_fault_of_a_training_that_came_to_its_end(tmp_path):
    steps = [f"step {n} loss 2.{n}" for n in range(3)]
    files = {"job.log": [*steps, "Training finished: 300/300 steps."], "dmesg.txt": [XID_BEFORE]}

    assert judge(tmp_path, files).kind == "none"
    assert judge(tmp_path, {**files, "job.log": steps}).kind == "device"


AGAIN = [
    *(f"step {n} loss 2.{n}" for n in range(30, 60)),
    "E1120 10:20:58.1 41 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 0"
    " (pid: 51) of binary: /usr/bin/python3",
    "I1120 10:20:58.2 41 torch/distributed/elastic/agent/server/api.py:908] [default] Worker group FAILED. 2/3"
    " attempts left; will restart worker group",
]


def test_ranks_that_a_launcher_started_anew_and_that_train_on_did_not_end(tmp_path):
    steps = [f"step {n} loss 2.{n}" for n in range(40, 80)]

    assert told(judge(tmp_path, [*AGAIN, *steps]), wanted := answer("none", unknown=True)) == wanted


def test_ranks_that_were_started_anew_and_come_no_further_than_before_may_have_ended(tmp_path):
    assert judge(tmp_path, [*AGAIN, *(f"step {n} loss 2.{n}" for n in range(30, 60))]).kind != "none"
