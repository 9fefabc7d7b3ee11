"""Labels of a program's logger between a clock and a level: the rank is that of the line, whatever the line says."""

import pytest

from .made import judge

CLOCK = "2026-05-06 07:08:{:02},120"
FORMS = {
    "a host and a rank": "{clock} oak-{node} rank{rank} {level} {text}",
    "in columns": "{clock} | oak{node} | rank {rank} | {level} | {text}",
    "without a host": "{clock} rank{rank} {level} {text}",
    "in brackets": "[{clock}] [rank={rank}] [{level}] {text}",
    "without a clock": "rank{rank} {level} {text}",
}
RAISED = [
    "Traceback (most recent call last):",
    '  File "/srv/feed.py", line 31, in pack',
    '    ids = row["ids"]',
    "KeyError: 'ids'",
]
BROKEN = "NCCL WARN socketProgress: Connection closed by remote peer oak-1<40022>"


def log(form, *, of=(4, 5, 6, 7), faulty=6):
    lines = [
        FORMS[form].format(
            clock=CLOCK.format(step), node=rank // 4, rank=rank, level="INFO", text=f"step={step} loss=2.1"
        )
        for step in range(6)
        for rank in of
    ]
    for rank in of:
        texts = RAISED if rank == faulty else [BROKEN]
        second = 20 if rank == faulty else 22
        lines += [
            FORMS[form].format(clock=CLOCK.format(second), node=rank // 4, rank=rank, level="ERROR", text=text)
            for text in texts
        ]
    return lines


@pytest.mark.parametrize("form", FORMS)
def test_a_traceback_behind_a_loggers_label_is_of_its_rank(form, tmp_path):
    files = {"oak-1.log": log(form), "oak-0.log": log(form, of=(0, 1, 2, 3))}
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("exception", (6,), False)
    assert "KeyError: 'ids'" in verdict.because


def test_a_hosts_clock_that_runs_ahead_hides_no_error(tmp_path):
    late = [line.replace("07:08:", "07:15:") for line in log("a host and a rank")]
    verdict = judge(tmp_path, {"oak-1.log": late, "oak-0.log": log("a host and a rank", of=(0, 1, 2, 3))})

    assert (verdict.kind, verdict.blamed) == ("exception", (6,))


@pytest.mark.parametrize(
    "line", ["rank 3 warning others of it, loss 2.1", "rank 3 errors are below", "rank 3 information: none"]
)
def test_words_about_a_rank_are_no_label(line, tmp_path):
    verdict = judge(tmp_path, [line, "RuntimeError: no such key"])

    assert verdict.blamed == ()
