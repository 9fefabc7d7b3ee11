"""Ranks that stand in a call which others have ended: they are behind, even where other logs are missing."""

from .made import WORLD, failed_at, judge, timed_out


def stands(rank, seq, operation="ALLREDUCE"):
    return [timed_out(rank, seq, operation), failed_at(rank, WORLD, seq, seq, seq - 1)]


def test_a_rank_in_a_call_that_others_ended_does_not_wait_with_them_and_is_behind(tmp_path):
    lines = [*(line for rank in (0, 8, 16, 24) for line in stands(rank, 92)), *stands(19, 91, "_ALLGATHER_BASE")]

    verdict = judge(tmp_path, {"job.out": lines})

    assert (verdict.kind, verdict.rank, verdict.seq) == ("absent", 19, 92)
    assert 19 not in verdict.waiting


def test_a_root_that_has_left_its_broadcast_does_not_show_that_all_have_come(tmp_path):
    lines = [*(line for rank in (0, 8, 16, 24) for line in stands(rank, 92)), *stands(19, 91, "BROADCAST")]

    assert judge(tmp_path, {"job.out": lines}).rank != 19
