"""Counts of calls by rank and group, as people print the status of torch's flight records."""

import pytest

from .made import judge, timed_out

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def python(rank, key, purpose, members, last, done):
    counts = {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": done}
    return f"rank {rank:3d} pg {key} {purpose:<10} {members} {counts}"


def words(rank, key, purpose, members, last, done):
    listed = ", ".join(map(str, members))
    return f"[rank {rank}] group={key} ({purpose}) ranks=[{listed}]: last_enqueued_collective={last}" + (
        f" last_completed_collective={done}"
    )


def cut(rank, key, purpose, members, last, done):
    told = f"[{members[0]}, {members[1]}, ..., {members[-1]}]" if len(members) > 2 else str(list(members))
    counts = f'"last_enqueued_collective": "{last}", "last_completed_collective": "{done}"'
    return f'- rank {rank}, {key} {purpose} "{told}" {counts}'


def status(form, late):
    """Eight ranks in two halves; the second half waits for one of its ranks, the first half for the second."""
    lines = []
    for rank in range(8):
        half = HALVES[rank // 4]
        ahead = rank < 4
        lines.append(form(rank, 0, "default_pg", tuple(range(8)), 51 if ahead else 50, 50))
        last = 90 if ahead else 88 if rank == late else 89
        lines.append(form(rank, 2, "experts", half, last, 90 if ahead else 88))
    return lines


@pytest.mark.parametrize("form", [python, words, cut])
def test_who_has_not_come_to_the_call_of_its_own_group_is_named_and_not_who_waits_for_it(form, tmp_path):
    verdict = judge(tmp_path, {"status.txt": status(form, 6), "rank5.log": [timed_out(5, 89, "ALLTOALL", place=1)]})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", (6,), 89)
    assert verdict.collective == "all_to_all"


def test_counts_of_groups_whose_ranks_are_not_told_name_nobody(tmp_path):
    lines = [line.replace(str(list(half)), "").replace(str(half), "") for half in HALVES for line in status(python, 6)]
    verdict = judge(tmp_path, {"status.txt": [line for line in lines if "experts" in line]})

    assert verdict.blamed == ()
