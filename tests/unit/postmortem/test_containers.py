"""Containers that Docker Compose writes into one log, side by side: each may be a job of its own."""

import pytest

from .made import judge, raised, summary


def steps(container, first, last):
    return [
        f"{container}  | 2026-11-20 10:{step:02}:00 INFO [rank 0/4] step {step} loss 3.1" for step in range(first, last)
    ]


def behind(container, lines):
    return [f"{container}  | {line}" for line in lines]


FAILED = [*behind("fit-b-1", [*raised(2, "KeyError: 'caption'"), *summary(2, 1)]), "fit-b-1 exited with code 1"]
BEGUN = [line for pair in zip(steps("fit-a-1", 0, 12), steps("fit-b-1", 0, 12), strict=True) for line in pair]
ENDS = ["fit-a-1  | training finished, saving weights", "fit-a-1 exited with code 0"]


def test_the_job_of_a_container_that_failed_is_judged_beside_one_that_trained_to_its_end(tmp_path):
    verdict = judge(tmp_path, [*BEGUN, *FAILED, *steps("fit-a-1", 12, 40), *ENDS])

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))


NOT_ITS_OWN = {
    "a job that starts anew without the container that it lost": ["fit-a-1  | Restarting worker group in agent"],
    "a job that lost one of its replicas": ["fit-a-1  | torchft: quorum of 1 replica"],
}


@pytest.mark.parametrize("lines", NOT_ITS_OWN.values(), ids=NOT_ITS_OWN)
def test_a_job_that_goes_on_without_the_container_that_failed_has_outlived_it(lines, tmp_path):
    verdict = judge(tmp_path, [*BEGUN, *FAILED, *lines, *steps("fit-a-1", 12, 40), *ENDS])

    assert verdict.kind == "none"


def test_a_container_that_makes_no_steps_after_the_end_of_another_is_of_its_job(tmp_path):
    last = behind("fit-a-1", raised(0, "RuntimeError: Connection closed by peer"))

    verdict = judge(tmp_path, [*BEGUN, *last, *FAILED, "fit-a-1 exited with code 0"])

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))
