"""Stacks of ranks that all wait, of which a few do so in an evaluation that the others are not in."""

import pytest

from .made import judge

FORWARD = ["_sync_buffers (torch/nn/parallel/distributed.py:2140)", "forward (torch/nn/parallel/distributed.py:1630)"]
EVALUATES = ["synchronize (torch/cuda/streams.py:105)", *FORWARD, "evaluate (fit.py:77)", "main (fit.py:120)"]
TRAINS = ["item (fit.py:44)", "train_epoch (fit.py:44)", "main (fit.py:118)"]


def stacks(*, apart, ranks=4, few=EVALUATES, many=TRAINS):
    return {
        f"rank{rank}.txt": [
            f"Process {5100 + rank}: python fit.py",
            "Python v3.11.9 (/usr/bin/python3.11)",
            "",
            f'Thread {5100 + rank} (active): "MainThread"',
            *(f"    {frame}" for frame in (few if rank in apart else many)),
        ]
        for rank in range(ranks)
    }


def test_the_first_rank_that_evaluates_its_wrapped_model_alone_is_named(tmp_path):
    verdict = judge(tmp_path, stacks(apart={0}))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("desync", (0,), False)
    assert verdict.waiting == (1, 2, 3)
    assert "evaluate (fit.py:77)" in verdict.because


def test_another_rank_that_evaluates_may_only_be_ahead(tmp_path):
    verdict = judge(tmp_path, stacks(apart={2}))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("desync", (), True)
    assert "rank 2 alone in evaluate (fit.py:77)" in verdict.because


def test_an_evaluation_of_the_bare_model_keeps_nobody_by_its_forward(tmp_path):
    bare = ["synchronize (torch/cuda/streams.py:105)", "evaluate (fit.py:77)", "main (fit.py:120)"]

    assert judge(tmp_path, stacks(apart={0}, few=bare)).blamed == ()


def test_all_ranks_that_evaluate_are_no_few(tmp_path):
    assert judge(tmp_path, stacks(apart={0, 1, 2, 3})).blamed == ()


def test_a_function_of_c_that_waits_for_its_device_is_told_by_the_line_of_its_caller(tmp_path):
    verdict = judge(tmp_path, stacks(apart=set()))

    assert verdict.kind == "stuck"
    assert "waits for its device" in verdict.because


def test_a_programs_own_function_of_that_name_is_no_wait(tmp_path):
    own = ["item (fit.py:12)", "train_epoch (fit.py:44)", "main (fit.py:118)"]
    reduces = ["all_reduce (torch/distributed/distributed_c10d.py:2895)", "main (fit.py:9)"]

    assert judge(tmp_path, stacks(apart={1}, few=own, many=reduces)).blamed == (1,)


def spied(headings):
    frames = {
        0: ["send (torch/distributed/distributed_c10d.py:2391)", "send_forward (pp.py:61)"],
        1: ["send (torch/distributed/distributed_c10d.py:2391)", "send_backward (pp.py:83)"],
        2: ["recv (torch/distributed/distributed_c10d.py:2429)", "recv_forward (pp.py:52)"],
    }
    return [
        line
        for rank, heading in enumerate(headings)
        for line in (
            heading,
            f"Process {880 + rank}: python fit.py",
            "",
            f'Thread {880 + rank} (active): "MainThread"',
            *(f"    {frame}" for frame in frames[rank]),
            "",
        )
    ]


@pytest.mark.parametrize(
    "heading",
    [
        "--- PP stage {0} / rank {0}",
        "=== pp={0} rank {0} ===",
        "# pipeline stage {0} (rank {0})",
        "== rank {0}, tp 0 ==",
    ],
)
def test_a_place_in_the_mesh_beside_the_rank_hides_no_rank_of_a_stack(heading, tmp_path):
    verdict = judge(tmp_path, spied([heading.format(rank) for rank in range(3)]))

    assert (verdict.kind, verdict.blamed, verdict.waiting) == ("circle", (), (0, 1, 2))
    assert verdict.because.startswith("rank 0 in send to 1; rank 1 in send to 0")


def test_a_place_in_a_group_alone_is_no_rank(tmp_path):
    verdict = judge(tmp_path, spied([f"--- pp rank {rank}" for rank in range(3)]))

    assert verdict.waiting == ()
