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


def test_a_rank_that_waits_in_another_call_than_the_one_named_is_told(tmp_path):
    others = [timed_out(rank, 7042, "_REDUCE_SCATTER_BASE", 80, 10) for rank in (0, 2, 3)]
    lines = [*others, timed_out(1, 7041, "_ALLGATHER_BASE", 10, 80)]  # sizes of eight ranks

    verdict = judge(tmp_path, {"job.out": lines})

    assert verdict.unknown
    assert "all_gather #7041" in verdict.because
    assert "reduce_scatter #7042" in verdict.because
