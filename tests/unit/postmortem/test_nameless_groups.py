"""Time-outs of several groups that no line names: two ranks that have one place cannot be of one group."""

from .made import judge, timed_out

COLUMN = [timed_out(rank, 60, "_REDUCE_SCATTER_BASE", 32, 8, place=rank // 4) for rank in (1, 5, 9)]
ROW = [timed_out(rank, 488, place=rank - 12) for rank in (12, 14, 15)]


def test_the_rank_that_is_missing_from_two_groups_without_names_keeps_both_waiting(tmp_path):
    verdict = judge(tmp_path, [*COLUMN, *ROW])

    assert (verdict.kind, verdict.rank) == ("absent", 13), str(verdict)


def test_calls_of_two_groups_without_names_are_not_unlike(tmp_path):
    verdict = judge(tmp_path, [timed_out(4, 60, place=0), timed_out(5, 60, place=1), timed_out(6, 9, place=0)])

    assert verdict.kind != "desync", str(verdict)
    assert verdict.blamed == ()


def test_ranks_that_share_a_place_in_one_call_are_of_groups_that_are_not_told(tmp_path):
    every = [timed_out(rank, 60, place=rank // 4) for rank in range(12)]

    assert judge(tmp_path, every).blamed == ()
