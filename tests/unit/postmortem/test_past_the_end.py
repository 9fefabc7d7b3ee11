"""Hangs past the end of a training: its processes do not exit, or a time limit ends them."""

from .made import answer, judge, stood_still, told

STEPS = [f"[2026-11-20 10:0{n}:00] iteration {n}/6 loss 2.{n}" for n in range(1, 7)]
DONE = "[after training is done] datetime: 2026-11-20 10:06:30"
LIMIT = "slurmstepd: error: *** STEP 41.0 ON c12 CANCELLED AT 2026-11-20T10:30:00 DUE TO TIME LIMIT ***"
OVER = "a line before that says that the training came to its end"


def test_a_time_limit_after_the_end_of_a_training_says_that_it_was_over(tmp_path):
    verdict = judge(tmp_path, [*STEPS, DONE, LIMIT])

    assert told(verdict, answer("killed")) == answer("killed")
    assert OVER in verdict.because
    assert [line.line for line in verdict.evidence] == [7, 8]
    assert "destroy_process_group" in verdict.next[0]


def test_watchdogs_that_stand_still_after_the_end_hang_in_the_exit(tmp_path):
    verdict = judge(tmp_path, [*STEPS, "[INFO:swift] End time of running main: 10:07", stood_still(4), stood_still(0)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host", (), True)
    assert OVER in verdict.because


def test_a_training_that_goes_on_after_a_part_of_it_ended_was_not_over(tmp_path):
    verdict = judge(tmp_path, [*STEPS[:3], "stage 1: training is done", *STEPS[3:], LIMIT])

    assert verdict.kind == "killed"
    assert OVER not in verdict.because


def test_the_end_of_one_rank_is_not_the_end_of_the_others(tmp_path):
    verdict = judge(tmp_path, [*STEPS, f"[rank0]: {DONE}", stood_still(4)])

    assert OVER not in verdict.because
