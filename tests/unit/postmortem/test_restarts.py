"""In-process restarts: who ended, by the records that the other ranks found."""

import pytest

from .made import judge, raised, timed_out

LOGGER = "2026-11-20 12:02:32,220 nvidia_resiliency_ext.inprocess [WARNING] [{rank}] iteration={n}"
RECORD = (
    LOGGER + " interrupted: [InterruptionRecord(rank={by}, interruption=<Interruption.{what}: 1>)]; RankShouldRestart"
)
TOLD = LOGGER + " Interruption.{what} on ranks=[{by}]"


def interrupted(by, *, form=RECORD, what="EXCEPTION", n=0, ranks=(0, 1, 3)):
    return [f"[rank{rank}]: " + form.format(rank=rank, n=n, by=by, what=what) for rank in ranks]


def steps(first):
    return [f"[rank0]: iteration {step} loss 2.1" for step in range(first, first + 4)]


@pytest.mark.parametrize("form", [RECORD, TOLD], ids=["records", "in words"])
@pytest.mark.parametrize(("what", "kind"), [("EXCEPTION", "exception"), ("TERMINATED", "killed")])
def test_the_rank_whose_own_log_is_missing_is_the_one_that_the_others_found_recorded(what, kind, form, tmp_path):
    verdict = judge(tmp_path, [*steps(0), *interrupted(2, form=form, what=what)])

    assert (verdict.kind, verdict.blamed) == (kind, (2,))


def test_what_the_rank_itself_says_of_its_end_is_the_cause(tmp_path):
    verdict = judge(tmp_path, [*steps(0), *raised(2, "ValueError: token id 9 out of range"), *interrupted(2)])

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))
    assert "token id 9 out of range" in verdict.because


NOT_NAMED = {
    "a time-out of who may wait": interrupted(2, what="SOFT_TIMEOUT"),
    "two that ended": [*interrupted(2), *interrupted(1, ranks=(0, 3))],
    "two that ended, in words": interrupted("1, 2", form=TOLD),
    "who waited": [timed_out(2, 9), *interrupted(2)],
    "a restart that they outlived": [*interrupted(2), *steps(4)],
    "ranks that are numbered anew": [
        "[rank0]: iteration=1 state=State(rank=0, world_size=8, active_rank=0, initial_rank=1, initial_world_size=9)",
        *interrupted(2, n=1),
    ],
}


@pytest.mark.parametrize("lines", NOT_NAMED.values(), ids=NOT_NAMED)
def test_records_that_do_not_tell_one_rank_that_ended_name_nobody(lines, tmp_path):
    assert 2 not in judge(tmp_path, [*steps(0), *lines]).blamed


def test_the_last_restart_counts_where_they_outlived_one_before(tmp_path):
    verdict = judge(tmp_path, [*interrupted(2), *steps(4), *interrupted(1, n=1, ranks=(0, 2, 3))])

    assert (verdict.kind, verdict.blamed) == ("exception", (1,))
