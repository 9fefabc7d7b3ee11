"""Stacks that somebody asked a healthy job for: its steps, its end or a second dump show that nobody stands still."""

import pytest

from .made import judge
from .test_whose_stacks import LOADS, REDUCES, dump

BEFORE, AFTER = (
    [f"2026-11-20 10:{minute:02d}:00 step {minute} loss 2.0" for minute in minutes]
    for minutes in (range(5), range(5, 9))
)
WATCHED = [
    "Current thread 0x00007f1a (most recent call first):",
    '  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 1251 in _try_get_data',
    '  File "fit.py", line 9 in step',
]


def dumps(late, line=9):
    """Dumps of four processes, one of which loads data; all stand at one line of the program."""
    return [
        text.replace("fit.py:9", f"fit.py:{line}")
        for rank in range(4)
        for text in dump(7000 + rank, f"python fit.py --rank {rank}", LOADS if rank == late else REDUCES)
    ]


HEALTHY = {
    "steps after the dump": {"rank0.log": [*BEFORE, *WATCHED, *AFTER], "rank1.log": [*BEFORE, *AFTER]},
    "steps after it by the clock": {
        "spy.txt": ["$ date", "Fri Nov 20 10:04:30 UTC 2026", *dumps(2)],
        "job.log": [*BEFORE, *AFTER],
    },
    "a second dump elsewhere": {"spy1.txt": dumps(2), "spy2.txt": dumps(1, line=14), "job.log": BEFORE},
    "a good end": {"spy.txt": dumps(2), "job.log": [*BEFORE, "Training completed", "exit code: 0"]},
}


@pytest.mark.parametrize("files", HEALTHY.values(), ids=HEALTHY)
def test_a_job_that_trains_on_after_its_stacks_were_dumped_is_none(files, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("none", (), False)


HANGS = {
    "no steps after the dump": {"job.log": [*BEFORE, *dumps(2)]},
    "steps before it by the clock": {
        "spy.txt": ["$ date", "Fri Nov 20 10:44:30 UTC 2026", *dumps(2)],
        "job.log": [*BEFORE, *AFTER],
    },
    "a second dump alike": {"spy1.txt": dumps(2), "spy2.txt": dumps(2), "job.log": BEFORE},
    "the late one alone elsewhere": {
        "spy1.txt": dumps(2),
        "spy2.txt": [line.replace("_try_get_data", "_get_data") for line in dumps(2)],
        "job.log": BEFORE,
    },
}


@pytest.mark.parametrize("files", HANGS.values(), ids=HANGS)
def test_a_job_of_which_nothing_shows_that_it_went_on_is_judged_by_its_stacks(files, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("data", (2,))
