"""How a job came to its end by schedulers, communicators that were never made, errors that a terminal wrapped."""

import pytest

from .made import judge, stood_still, timed_out

LIMIT = "slurmstepd: error: *** JOB 99 ON n3 CANCELLED AT 2026-11-20T10:30:00 DUE TO TIME LIMIT ***"
PODS = ["NAME    READY   STATUS      RESTARTS   AGE", "ft-0   0/1     Completed   0          81m"]


def begins(rank):
    return (
        f"n:{10 + rank}:{10 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 4 cudaDev"
        f" {rank} nvmlDev {rank} busId {rank + 1}b000 commId 0x5a - Init START"
    )


def test_who_alone_did_not_begin_a_communicator_until_the_job_ended_has_not_come(tmp_path):
    verdict = judge(tmp_path, [*map(begins, (0, 1, 3)), LIMIT])

    assert (verdict.kind, verdict.rank, verdict.waiting) == ("absent", 2, (0, 1, 3))


def test_a_log_that_ends_while_a_communicator_is_made_names_nobody(tmp_path):
    assert judge(tmp_path, [*map(begins, (0, 1, 3))]).kind == "none"


def test_a_log_that_ends_while_a_communicator_is_made_leaves_open_whether_all_begin_it(tmp_path):
    verdict = judge(tmp_path, [*map(begins, (0, 1, 3))])

    assert verdict.missing[0].startswith("whether rank 2 begins it later: 3 of 4 ranks began")


@pytest.mark.parametrize("sign", ["(nothing more, for an hour)", stood_still(0), LIMIT])
def test_who_did_not_begin_a_communicator_for_which_others_are_seen_to_wait_has_not_come(sign, tmp_path):
    verdict = judge(tmp_path, [*map(begins, (0, 1, 2)), sign])

    assert (verdict.kind, verdict.rank, verdict.waiting, verdict.silent) == ("absent", 3, (0, 1, 2), True)


def test_of_half_of_the_ranks_that_did_not_begin_a_communicator_none_is_named(tmp_path):
    verdict = judge(tmp_path, [*map(begins, (0, 1)), LIMIT])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)
    assert "ranks 2, 3 did not begin" in verdict.because


def test_a_job_that_made_steps_had_its_communicator(tmp_path):
    assert judge(tmp_path, [*map(begins, (0, 1, 3)), "step 4 loss 2.1", LIMIT]).kind == "killed"


@pytest.mark.parametrize(
    "lines",
    [
        [*PODS, "ft-1   0/1     Completed   0          81m"],
        ["JobID|State|ExitCode", "991|COMPLETED|0:0", "991.0|COMPLETED|0:0"],
        ["JobID    JobName  State     ExitCode", "991      train    COMPLETED      0:0"],
    ],
)
def test_what_a_scheduler_calls_completed_is_known_to_be_well(lines, tmp_path):
    verdict = judge(tmp_path, {"state.txt": lines, "train.log": ["step 1 loss 2.0"]})

    assert (verdict.kind, verdict.unknown) == ("none", False)


@pytest.mark.parametrize(
    "lines",
    [
        [*PODS, "ft-1   1/1     Running     0          81m"],
        [*PODS, "ft-1   0/1     Completed   1          81m"],
        ["JobID|State|ExitCode", "991|COMPLETED|0:0", "991.0|RUNNING|0:0"],
    ],
)
def test_what_is_not_all_completed_at_once_is_not_known_to_be_well(lines, tmp_path):
    verdict = judge(tmp_path, {"state.txt": lines, "train.log": ["step 1 loss 2.0"]})

    assert verdict.unknown


GLOO = "[rank{}]: RuntimeError: [../gloo/gloo/transport/tcp/unbound_bu"


@pytest.mark.parametrize(
    "halves",
    [
        (GLOO, "ffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
        (GLOO + "ffer.cc:81] Timed out waiting 1800000ms fo", "r recv operation to complete"),
        (GLOO + "ffer.cc:81] Timed out waiting", "1800000ms for recv operation to complete"),
    ],
)
def test_what_gloo_prints_is_read_where_a_terminal_wrapped_it(halves, tmp_path):
    begun, rest = halves
    lines = [row for rank in (0, 1, 3) for row in (begun.format(rank), rest)]

    verdict = judge(tmp_path, [*lines, "WORLD_SIZE=4"])

    assert (verdict.kind, verdict.rank) == ("absent", 2), str(verdict)


def test_a_wrapped_error_of_a_device_is_one_of_the_device(tmp_path):
    ended = "[rank3]:[E1120 10:10:00.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group"
    rows = [f"{ended} watchdog thread terminated with exception: CUDA error: uncorrectable ECC er", "ror encountered"]

    verdict = judge(tmp_path, [*rows, *(timed_out(rank, 9) for rank in range(3)), "WORLD_SIZE=4"])

    assert (verdict.kind, verdict.rank) == ("device", 3), str(verdict)


def test_counters_of_a_port_are_no_link_that_went_down(tmp_path):
    lines = ["mlx5_0: port 1 SymbolErrorCounter 12345 LinkDownedCounter 0", *(timed_out(rank, 9) for rank in range(4))]

    assert judge(tmp_path, [*lines, "WORLD_SIZE=4"]).kind == "stuck"


LIMITS = {
    "PBS": "=>> PBS: job killed: walltime 3601 exceeded limit 3600",
    "LSF": "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    "SLURM": LIMIT,
    "Flux": "3601.042s: job.exception type=timeout severity=0 resource allocation expired",
    "Kubernetes": "4m2s  Warning  DeadlineExceeded  job/ft  Job was active longer than specified deadline",
}


@pytest.mark.parametrize("notice", LIMITS.values(), ids=LIMITS)
def test_what_breaks_after_a_time_limit_is_no_rank_s_fault(notice, tmp_path):
    broken = ["c1: rank 2 died from signal 15", "[rank3]: ValueError: I/O operation on closed file"]

    verdict = judge(tmp_path, ["step=40 loss=2.0", notice, *broken])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("killed", (), False)


@pytest.mark.parametrize("notice", LIMITS.values(), ids=LIMITS)
def test_what_failed_before_a_time_limit_is_the_cause(notice, tmp_path):
    verdict = judge(tmp_path, ["step=40 loss=2.0", "[rank3]: ValueError: bad sample", "step=40", notice])

    assert (verdict.kind, verdict.blamed) == ("exception", (3,))


@pytest.mark.parametrize("number", [32, 104])
def test_a_connection_that_the_other_end_closed_is_no_fault_of_who_says_so(number, tmp_path):
    error = f"[rank6]: RuntimeError: oneCCL: exchange_utils.cpp:202 check_msg_retval: EXCEPTION: errno {number}"

    assert not judge(tmp_path, ["[rank0]: step 1", error]).blamed


def test_a_training_that_says_that_it_ended_shows_no_fault_by_that_line(tmp_path):
    lines = [*(f"[rank0] step {step}/40 loss 2.0" for step in range(38, 41)), "[rank0] Training completed. 40 steps"]

    verdict = judge(tmp_path, [*lines, "[rank1] destroyed its groups, exit 0"])

    assert (verdict.kind, [line.line for line in verdict.evidence]) == ("none", [4])
    assert "the training came to its end" in verdict.because


def test_a_log_of_steps_without_a_fault_shows_its_last_one(tmp_path):
    lines = [f"2026-11-20 10:0{minute}:00 step {minute} loss 2.0" for minute in range(9)]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.unknown, [line.line for line in verdict.evidence]) == ("none", True, [9])


def test_a_rank_that_cxx_ended_for_want_of_memory_ran_out_of_the_hosts(tmp_path):
    ended = "[rank2]: terminate called after throwing an instance of 'std::bad_alloc'"

    verdict = judge(tmp_path, [ended, "[rank2]:   what():  std::bad_alloc", *(timed_out(r, 9) for r in (0, 1, 3))])

    assert (verdict.kind, verdict.blamed) == ("host_memory", (2,))
