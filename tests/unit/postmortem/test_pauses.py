"""Pauses that one rank takes by itself, and for which the others say that they wait."""

import pytest

from .made import judge

COLLECTS = "gc: gen2 automatic collection during step {step} took {s:.2f} seconds (tracked objects 41,228,519)"
TITAN = "[GC] Performing periodic GC collection of step {step} took {s:.2f} seconds"
BLOCKED = "step {step}: blocked {s:.2f} s in reduce_scatter wait (fsdp)"


def log(rank, said):
    """The log of a rank over 60 steps; `said` are words on a step, each with its seconds."""
    lines = []
    for step in range(10, 70, 10):
        lines += [form.format(step=step, s=s) for at, form, s in said if at == step]
        lines.append(f"step: {step}  loss:  8.2  memory: 43.16GiB  tps: 6,954")
    return [f"[rank{rank}]:[titan] 2026-11-20 10:{n:02}:00 - root - INFO - {line}" for n, line in enumerate(lines)]


def logs(said):
    return {f"rank_{rank}.log": log(rank, said(rank)) for rank in range(4)}


def waits(rank, steps=(30, 60), s=13.3):
    return [(step, BLOCKED, s + rank / 100) for step in steps]


@pytest.mark.parametrize("form", [COLLECTS, TITAN], ids=["by its own handler", "in the trainer's words"])
def test_a_rank_that_collects_garbage_for_as_long_as_all_others_wait_is_late(form, tmp_path):
    own = [(30, form, 13.1), (60, form, 13.2)]

    verdict = judge(tmp_path, logs(lambda rank: own if rank == 2 else waits(rank)))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", (2,), False)
    assert "collects garbage for 13.2 s in 2 steps" in verdict.because


OTHERWISE = {
    "all collect at once": lambda rank: [(30, TITAN, 13.1), (60, TITAN, 13.2)],
    "two collect": lambda rank: [(30, COLLECTS, 13.1), (60, COLLECTS, 13.2)] if rank in {1, 2} else waits(rank),
    "once": lambda rank: [(30, COLLECTS, 13.1)] if rank == 2 else waits(rank, steps=(30,)),
    "the others wait longer": lambda rank: [(30, COLLECTS, 3.1), (60, COLLECTS, 3.2)] if rank == 2 else waits(rank),
    "in other steps": lambda rank: [(20, COLLECTS, 13.1), (50, COLLECTS, 13.2)] if rank == 2 else waits(rank),
    "and waits itself": lambda rank: (
        [(30, COLLECTS, 13.1), (60, COLLECTS, 13.2), *waits(2)] if rank == 2 else waits(rank)
    ),
    "nobody waits": lambda rank: [(30, COLLECTS, 13.1), (60, COLLECTS, 13.2)] if rank == 2 else [],
}


@pytest.mark.parametrize("said", OTHERWISE.values(), ids=OTHERWISE)
def test_a_collection_of_garbage_that_does_not_fit_the_waits_blames_nobody(said, tmp_path):
    assert judge(tmp_path, logs(said)).blamed == ()


def test_a_rank_of_which_no_wait_is_told_may_hold_up_the_others_too(tmp_path):
    own = [(30, COLLECTS, 13.1), (60, COLLECTS, 13.2)]

    verdict = judge(tmp_path, logs(lambda rank: own if rank == 2 else waits(rank) if rank else []))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", (), True)
