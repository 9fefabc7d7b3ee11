"""Ranks that ran out of data and ended: the others stand in a step that they never come to."""

import pytest

from .made import judge

BACKWARD = ["    _engine_run_backward (torch/autograd/graph.py:825)", "    backward (torch/_tensor.py:581)"]
OWN = ["    epoch (fit.py:31)", "    <module> (fit.py:60)"]
GONE = [
    "Error: Failed to get process executable name. Check that the process is running.",
    "Reason: No such file or directory (os error 2)",
]
FORBIDDEN = ["Error: Failed to open process - check if it is running.", "Reason: Operation not permitted (os error 1)"]


def begun(rank, batches):
    return f"[rank {rank}] cuda:{rank} pid {810 + rank} batches {batches}"


def asked(rank, lines, shown=""):
    """What a person sees who looks at the process of a rank."""
    return [f"$ py-spy dump --pid {810 + rank}{shown}", *lines]


def whole(rank, lines):
    head = [f"Process {810 + rank}: python fit.py", "Python v3.12.3 (/usr/bin/python3.12)", ""]
    return asked(rank, [*head, f'Thread {810 + rank} (active): "MainThread"', *lines])


def console(said, *, of_left=GONE, others=(0, 1, 3), shown=whole):
    """A console of four ranks, of which the third has fewer batches and says so, and the looks that somebody took."""
    lines = [begun(rank, 40 if rank == 2 else 44) for rank in range(4)]
    lines += [f"[rank {rank}] step 39 loss 1.2" for rank in range(4)]
    lines += [f"[rank 2] {text}" for text in said]
    for rank in range(4):
        lines += asked(2, of_left) if rank == 2 else shown(rank, [*BACKWARD, *OWN]) if rank in others else []
    return lines


def cut(rank, lines):
    return asked(rank, lines, " | tail -4")


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


SAID = {
    "epochs": ["all 1 epochs done, exiting"],
    "an epoch": ["epoch 0 finished after 40 batches"],
    "its data": ["dataloader exhausted at step 40"],
    "training": ["training finished"],
    "no more": ["no more batches in this shard"],
}


@pytest.mark.parametrize("shown", [whole, cut], ids=["whole", "the tail of a dump"])
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_rank_that_is_done_and_whose_process_is_gone_is_who_the_others_wait_for(said, shown, tmp_path):
    verdict = judge(tmp_path, console(said, shown=shown))

    assert named(verdict) == ("absent", (2,), False)
    assert verdict.waiting == (0, 1, 3)


def test_a_rank_that_says_that_it_exits_need_not_be_looked_for(tmp_path):
    verdict = judge(tmp_path, console(["epoch 0 done", "all epochs done: exit"], of_left=[]))

    assert named(verdict) == ("absent", (2,), False)


@pytest.mark.parametrize(
    "lines",
    [
        console(["epoch 0 done, 40 steps"], of_left=[]),
        console(["epoch 0 done, 40 steps"], of_left=FORBIDDEN),
        console(["all epochs done, exiting"], others=(0, 3)),
        console(["all epochs done, exiting", "step 40 loss 1.1"]),
        [f"[rank {rank}] all 1 epochs done, exiting" for rank in (2, 0, 1, 3)],
        [*(f"[rank {rank}] all 1 epochs done, exiting" for rank in (2, 0, 1)), "[rank 3] step 39 loss 1.2"],
        [f"[rank {rank}] epoch 0 done" for rank in range(4)] + console(["all epochs done, exiting"])[:-5],
    ],
    ids=["the first", "not allowed to look", "another unseen", "goes on", "all", "the last still runs", "half seen"],
)
def test_a_rank_that_may_merely_be_the_first_to_be_done_is_not_blamed(lines, tmp_path):
    assert judge(tmp_path, lines).blamed == ()


def test_the_tail_of_a_dump_that_shows_only_a_program_s_own_functions_says_nothing(tmp_path):
    lines = [line for rank in range(3) for line in (*whole(rank, [*BACKWARD, *OWN]), begun(rank, 8))]

    verdict = judge(tmp_path, [*lines, begun(3, 8), *asked(3, OWN, " | tail -2")])

    assert verdict.blamed == ()
