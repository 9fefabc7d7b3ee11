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


def synchronized(*helpers, world=None):
    """Stacks in one file of processes without ranks, each waiting for its device in a helper that blocks."""
    lines = []
    for number, helper in enumerate(helpers):
        lines += [
            f"Process 77{number}: python pipe.py",
            f'Thread 77{number} (active): "MainThread"',
            "    synchronize (torch/cuda/__init__.py:900)",
            "    move (stages/wire.py:14)",
            f"    {helper} (stages/wire.py:4{number})",
            "    <module> (pipe.py:70)",
            "",
        ]
    return {"stacks.txt": lines, "job.log": [f"world_size: {world or len(helpers)}"]}


@pytest.mark.parametrize(
    "helpers",
    [
        ("send_forward", "send_backward"),
        ("send_forward", "send_forward", "send_backward", "send_backward"),
        ("_exec_send_activations", "_exec_send_grads"),
        ("recv_backward", "recv_forward"),
        ("send_to_next", "send_to_prev"),
    ],
)
def test_stages_that_all_send_or_all_receive_are_a_circle_also_where_they_wait_for_the_device(tmp_path, helpers):
    verdict = judge(tmp_path, synchronized(*helpers))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("circle", (), False)


@pytest.mark.parametrize(
    "files",
    [
        synchronized("send_forward", "recv_forward"),
        synchronized("send_forward", "send_forward"),  # the last stage is not here
        synchronized("send_backward", "send_forward", world=4),
        synchronized("send_forward_recv_backward", "send_backward_recv_forward"),
        synchronized("send_metrics", "send_report"),
    ],
    ids=["a pair", "one way", "two of four", "both at once", "no neighbours"],
)
def test_stages_of_which_one_may_meet_another_are_not(tmp_path, files):
    assert judge(tmp_path, files).kind == "stuck"


def in_calls(*calls, world):
    """Stacks of processes without ranks that stand in calls of torch."""
    lines = []
    for number, call in enumerate(calls):
        lines += [
            f"Process 88{number}: python pipe.py",
            f'Thread 88{number} (active): "MainThread"',
            f"    {call} (torch/distributed/distributed_c10d.py:2400)",
            "    exchange (wire.py:20)",
            "    <module> (pipe.py:70)",
            "",
        ]
    return {"stacks.txt": lines, "job.log": [f"world_size: {world}"]}


@pytest.mark.parametrize("call", ["send", "recv"])
def test_all_processes_of_a_job_in_one_half_of_a_transfer_are_a_circle(tmp_path, call):
    assert judge(tmp_path, in_calls(call, call, world=2)).kind == "circle"
    assert judge(tmp_path, in_calls(call, call, world=3)).kind == "stuck"
    assert judge(tmp_path, in_calls("all_reduce", "all_reduce", world=2)).kind == "stuck"


def in_own(*stages):
    """Stacks of ranks in code of their own, each a list of calls, innermost first."""
    return {
        f"spy_r{rank}.txt": [
            f"Process 66{rank}: python pipe.py",
            f'Thread 66{rank} (active): "MainThread"',
            *(f"    {call} ({file}:9)" for call, file in calls),
            "    <module> (pipe.py:70)",
        ]
        for rank, calls in enumerate(stages)
    }


def waits(helper):
    return [("wait", "comm/p2p.py"), (helper, "comm/p2p.py")]


READS = [("read", "storage.py"), ("restore", "resume.py")]


def test_a_stage_that_reads_while_the_others_wait_in_helpers_of_their_own_is_to_blame(tmp_path):
    files = in_own(waits("recv_activation"), READS, waits("recv_grad"), waits("send_grad"))

    assert (verdict := judge(tmp_path, files)).kind == "host"
    assert verdict.blamed == (1,)


@pytest.mark.parametrize("other", ["recv_activation", "send_forward_recv_backward", "exchange"])
def test_a_stage_that_waits_like_others_in_their_helpers_is_not(other, tmp_path):
    verdict = judge(tmp_path, in_own(waits("recv_activation"), waits(other), waits("recv_grad"), waits("send_grad")))

    assert verdict.blamed == ()


def test_a_helper_that_computes_does_not_wait(tmp_path):
    files = in_own(*([[("pack", "comm/wire.py"), ("send_grad", "comm/p2p.py")]] * 2))

    assert judge(tmp_path, files).kind == "none"
