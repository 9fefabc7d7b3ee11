"""Sections in which Composer's launcher prints what each rank wrote: their lines are that rank's."""

import pytest

from .made import judge

CRASHED = "ERROR:composer.cli.launcher:Rank 6 crashed with exit code 1."
RAISED = ["Traceback (most recent call last):", '  File "fit.py", line 7, in <module>', "    pick(row)"]
ERROR = "KeyError: 'image'"
WARNED = "UserWarning: the scheduler was stepped before the optimizer"


def section(rank, *lines, stream="STDERR", code=1, ends=True):
    return [
        f"Global rank {rank} (PID {90 + rank}) exited with code {code}",
        f"----------Begin global rank {rank} {stream}----------",
        *lines,
        *([f"----------End global rank {rank} {stream}----------"] if ends else []),
    ]


@pytest.mark.parametrize("ends", [True, False], ids=["whole", "cut"])
@pytest.mark.parametrize("stream", ["STDERR", "logs"])
def test_a_traceback_in_a_ranks_section_is_the_ranks(stream, ends, tmp_path):
    lines = [CRASHED, *section(2, WARNED, code=-15), *section(6, *RAISED, ERROR, stream=stream, ends=ends)]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("exception", (6,))
    assert ERROR in verdict.because


def test_what_stands_behind_a_cut_section_is_not_of_its_rank(tmp_path):
    lines = [CRASHED, *section(6, WARNED, ends=False), "Global rank 7 (PID 97) exited with code 1", *RAISED, ERROR]

    assert not judge(tmp_path, lines).blamed
