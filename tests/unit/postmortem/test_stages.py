"""Stages of a pipeline that wait for each other, by stacks in helpers that only send or only receive."""

import pytest

from .made import judge

STACK = """Process 50{rank}: python go.py
Thread 50{rank} (active): "MainThread"
    wait (torch/distributed/distributed_c10d.py:2434)
    _communicate (megatron/core/pipeline_parallel/p2p_communication.py:300)
    {helper} (megatron/core/pipeline_parallel/p2p_communication.py:400)
    one_step (schedules.py:1{rank})
    <module> (go.py:9)
"""


def stood(*helpers):
    return {f"pyspy_rank{rank}.txt": STACK.format(rank=rank, helper=helper) for rank, helper in enumerate(helpers)}


@pytest.mark.parametrize("of_each", [1, 2, 4])
def test_stages_that_all_receive_from_each_other_are_a_circle(tmp_path, of_each):
    helpers = ["recv_backward"] * of_each + ["recv_forward"] * of_each
    verdict = judge(tmp_path, stood(*helpers))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("circle", (), False)


@pytest.mark.parametrize(
    "helpers",
    [
        ("recv_backward", "recv_backward"),  # the next stage is not here
        ("recv_backward", "recv_backward", "send_backward", "recv_forward"),
        ("send_forward_recv_backward", "recv_forward"),
    ],
)
def test_stages_of_which_one_may_send_are_not_said_to_be_a_circle(tmp_path, helpers):
    assert judge(tmp_path, stood(*helpers)).kind != "circle"
