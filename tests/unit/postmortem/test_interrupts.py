"""Tracebacks of ranks that a person interrupted: where each stood, and whether it had stood there for long."""

import pytest

from .made import answer, judge, told

AGENT = (
    "^CW1120 10:{} 12 torch/distributed/elastic/agent/server/api.py:719] Received 2 death signal, shutting down workers"
)
STEPS = [f"2026-11-20 10:00:{second:02} step {second} loss 2.{second}" for second in range(30)]
REDUCES = [
    ("/ws/fit.py", 70, "main"),
    ("/opt/lib/python3.11/torch/distributed/distributed_c10d.py", 2810, "all_reduce"),
]
READS = [("/ws/fit.py", 60, "main"), ("/opt/lib/python3.11/torch/utils/data/dataloader.py", 1448, "_next_data")]


def interrupted(rank, calls, *, first=("/ws/fit.py", 90, "<module>"), above=()):
    """What a rank prints as Ctrl-C ends it."""
    frames = [f'  File "{file}", line {line}, in {function}' for file, line, function in (first, *calls)]
    lines = [*above, "Traceback (most recent call last):", *(row for one in frames for row in (one, "    run()"))]
    return [f"[rank{rank}]: {line}" for line in [*lines, "KeyboardInterrupt"]]


OTHERS = [line for rank in (0, 1, 3) for line in interrupted(rank, REDUCES)]


def test_who_stood_elsewhere_long_after_the_last_step_kept_the_others(tmp_path):
    verdict = judge(tmp_path, [*STEPS, AGENT.format("21:00.1"), *OTHERS, *interrupted(2, READS)])

    assert told(verdict, wanted := answer("data", 2)) == wanted


@pytest.mark.parametrize("steps", [STEPS, [step.partition(" 10:00:")[2] for step in STEPS]], ids=["soon", "no clock"])
def test_where_ranks_stood_as_a_job_was_interrupted_among_its_steps_blames_nobody(steps, tmp_path):
    verdict = judge(tmp_path, [*steps, AGENT.format("00:31.1"), *OTHERS, *interrupted(2, READS)])

    assert told(verdict, wanted := answer("data", unknown=True)) == wanted
    assert "rank 2 stands in _next_data" in verdict.because
    assert "py-spy" in verdict.missing[0]


WORKER = ("/opt/lib/python3.11/torch/utils/data/_utils/worker.py", 40, "_worker_loop")
NO_STACKS = {
    "of a loader's worker": interrupted(2, [WORKER]),
    "of a thread": interrupted(2, READS, first=("/usr/lib/python3.11/threading.py", 9, "_bootstrap")),
    "of the end of the process": interrupted(2, READS, above=["Exception ignored in: <function _exit>"]),
}


@pytest.mark.parametrize("lines", NO_STACKS.values(), ids=NO_STACKS)
def test_what_else_an_interrupt_ends_is_no_ranks_stack(lines, tmp_path):
    verdict = judge(tmp_path, [*STEPS, AGENT.format("21:00.1"), *OTHERS, *lines])

    assert "rank 2" not in verdict.because
    assert verdict.blamed == ()
