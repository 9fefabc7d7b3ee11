"""Errors that a program logs in one line, with what it does for them."""

import pytest

from .made import judge, timed_out

OTHERS = [timed_out(rank, 5) for rank in (0, 2, 3)]
LEFT = [
    "ERROR step 42 raised IndexError('index 9 is out of bounds'); leaving the train loop",
    "CRITICAL trainer: run failed: ValueError: no such bucket, shutting down",
    "Unhandled exception: ZeroDivisionError('division by zero')",
    "2026-11-20 10:05:00,120 FATAL pkg.errors.ShardError('shard 7 is empty'), aborting",
]
KEPT = [
    "ERROR sample 9 raised ValueError('bad image'); skipping it and stopping the timer",
    "WARNING step 42 raised IndexError('index 9'); leaving it out",
    "ERROR: upload failed with OSError('disk'), retrying after the run stopped",
    "ERROR ConnectionError('peer closed'), leaving",
    "INFO cleaning up after ValueError('x') of the last run",
]


@pytest.mark.parametrize(("line", "kind"), [*((line, "exception") for line in LEFT), *((k, "absent") for k in KEPT)])
def test_an_error_for_which_a_program_gives_up_is_why_its_rank_did_not_come(line, kind, tmp_path):
    verdict = judge(tmp_path, {"rank1.log": ["loaded", line], "others.log": OTHERS})

    assert (verdict.kind, verdict.blamed) == (kind, (1,))


def test_an_error_after_which_the_rank_made_steps_is_over(tmp_path):
    verdict = judge(tmp_path, {"rank1.log": [LEFT[0], "step 43 loss 2.0", "step 44 loss 2.0"], "others.log": OTHERS})

    assert (verdict.kind, verdict.blamed) == ("absent", (1,))


TRACEBACK = ["Traceback (most recent call last):", '  File "/opt/job/feed.py", line 8, in pump', "    self.take()"]


@pytest.mark.parametrize("line", ["wrapper [ERROR] iteration=2 exception ValueError('7 labels')", "CRITICAL at step 9"])
def test_a_step_that_an_error_is_logged_with_was_not_made_after_it(line, tmp_path):
    verdict = judge(tmp_path, {"rank1.log": ["step 8 loss 2.0", *TRACEBACK, "ValueError: 7 labels", line]})

    assert (verdict.kind, verdict.rank) == ("exception", 1)


def test_a_step_that_a_rank_logs_behind_its_traceback_shows_that_it_went_on(tmp_path):
    verdict = judge(tmp_path, {"rank1.log": [*TRACEBACK, "ValueError: 7 labels", "INFO iteration=2 loss 2.0"]})

    assert verdict.kind == "none"
