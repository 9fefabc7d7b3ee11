"""Time-outs of torch before 2.0, which does not number the calls of a group, and many ranks without a log."""

from .made import judge, timed_out


def old(rank, operation="ALLREDUCE"):
    return (
        f"[E ProcessGroupNCCL.cpp:566] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType="
        f"{operation}, Timeout(ms)=600000) ran for 60{rank}101 milliseconds before timing out."
    )


JOINED = [f"Added key: store_based_barrier_key:1 to store for rank: {rank}" for rank in range(4)]


def test_unlike_calls_without_numbers_are_told_and_nobody_is_named(tmp_path):
    verdict = judge(tmp_path, [*JOINED, old(0), old(1, "ALLGATHER"), old(2), old(3)])

    assert (verdict.kind, verdict.unknown, verdict.blamed) == ("desync", True, ())
    assert "ranks 0, 2, 3 in all_reduce and rank 1 in all_gather" in verdict.because
    assert "torch before 2.0" in verdict.missing[0]


def test_the_rank_without_a_time_out_is_named_and_said_to_have_none(tmp_path):
    verdict = judge(tmp_path, [*JOINED, old(0), old(1), old(3)])

    assert (verdict.kind, verdict.blamed) == ("absent", (2,))
    assert "rank 2 alone printed no time-out" in verdict.because


def test_ranks_without_a_log_are_told_in_one_line(tmp_path):
    files = {f"rank{rank}.log": [f"[rank{rank}] world_size: 48", timed_out(rank, 5)] for rank in range(8)}
    verdict = judge(tmp_path, files)

    assert verdict.unknown
    assert verdict.missing == ("the logs of ranks 8-47",)


def test_lines_of_several_ranks_without_a_line_s_end_between_them_are_read_apart(tmp_path):
    verdict = judge(tmp_path, [*JOINED, "".join(timed_out(rank, 7) for rank in (0, 1, 3))])

    assert (verdict.kind, verdict.blamed, verdict.waiting) == ("absent", (2,), (0, 1, 3))


def test_hosts_that_do_not_meet_are_sought_by_the_words_of_their_launcher(tmp_path):
    error = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
    verdict = judge(tmp_path, {f"host{n}.log": ["Traceback (most recent call last):", error] for n in range(2)})

    assert verdict.kind == "absent"
    assert "--rdzv-endpoint" in verdict.next[0]


def test_a_store_that_not_all_ranks_reach_is_sought_by_its_address(tmp_path):
    lines = [
        "[rank0]: torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 6/8 clients joined"
    ]
    verdict = judge(tmp_path, lines)

    assert "MASTER_ADDR" in verdict.next[0]


CANCELLED = "slurmstepd: error: *** JOB 812 ON elm3 CANCELLED AT 2026-11-20T10:31:07 ***"


def test_who_cancelled_a_job_is_told_by_the_table_of_the_scheduler(tmp_path):
    table = ["JobID  State  ExitCode", "812  CANCELLED by 4031  0:0", "812.0  CANCELLED  0:15"]
    verdict = judge(tmp_path, {"a.out": ["step 3 loss 2.0", CANCELLED], "sacct.txt": table})

    assert (verdict.kind, verdict.blamed) == ("killed", ())
    assert verdict.because == "SLURM cancelled the job by request (scancel) of user 4031"
    assert "getent passwd" in verdict.next[0]
