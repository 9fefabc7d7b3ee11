"""Tracebacks without a rank that a program logged and outlived: whose they are, and whose they cannot be."""

from .made import answer, judge, timed_out, told

LOGGED = "2026-11-20 10:04:00,120 - ERROR - [rank2] the metrics were not sent"
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "metrics.py", line 3, in send',
    "    answer.raise_for_status()",
    "requests.exceptions.HTTPError: 503 Server Error",
]


def steps(minute, ranks=4):
    """Three steps of each rank."""
    return [
        f"2026-11-20 10:{minute:02}:{n:02},120 - INFO - [rank{rank}] step {3 * minute + n} loss 2.{n}"
        for n in range(3)
        for rank in range(ranks)
    ]


def waiting(*ranks):
    """What ranks print that waited ten minutes."""
    return [timed_out(rank, 52) for rank in ranks]


def test_a_traceback_below_the_line_of_a_ranks_logger_is_that_ranks(tmp_path):
    verdict = judge(tmp_path, [*steps(3), LOGGED, *TRACEBACK, *steps(5), *waiting(0, 1, 2)])

    assert told(verdict, answer("absent", 3, 52)) == answer("absent", 3, 52)


def test_an_error_of_nobody_is_not_of_the_missing_rank_that_made_steps_after_it(tmp_path):
    verdict = judge(tmp_path, [*steps(3), *TRACEBACK, *steps(5), *waiting(0, 1, 2)])

    assert told(verdict, answer("absent", 3, 52)) == answer("absent", 3, 52)


def test_an_error_of_nobody_behind_the_last_steps_is_of_the_missing_rank(tmp_path):
    verdict = judge(tmp_path, [*steps(3), *steps(5), *TRACEBACK, *waiting(0, 1, 2)])

    assert told(verdict, answer("exception", 3, 52)) == answer("exception", 3, 52)


def test_steps_of_a_former_time_behind_an_error_are_what_stood_in_a_buffer(tmp_path):
    verdict = judge(tmp_path, [*steps(5, ranks=3), *TRACEBACK, *steps(4), *waiting(0, 1, 2)])

    assert told(verdict, answer("exception", 3, 52)) == answer("exception", 3, 52)
