"""Stacks of pipelines whose ranks stand in sends and receives: circles, pairs that meet, partners without a stack."""

import pytest

from .made import judge

HELPERS = {("send", 1): "send_act_forward", ("send", -1): "send_backward", ("recv", -1): "recv_forward"}


def stage(rank, operation, peer, *, locals_=True, helper="exchange", pid=None):
    """A dump of one stage; with its arguments where `locals_`."""
    pid = pid or 900 + rank
    told = [f"            {'dst' if operation == 'send' else 'src'}: {peer}"] if locals_ else []
    return [
        f"Process {pid}: python -u pipe.py --stages 3",
        "Python v3.12.3 (/usr/bin/python3.12)",
        "",
        f'Thread {pid} (active): "MainThread"',
        f"    {operation} (torch/distributed/distributed_c10d.py:2400)",
        *(["        Arguments:", "            tensor: <Tensor at 0x7f01>", *told] if locals_ else []),
        "    wrapper (torch/distributed/c10d_logger.py:83)",
        f"    {helper} (stages/exchange.py:40)",
        "    run (pipe.py:21)",
    ]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def files(*stages):
    return {f"spy_rank{rank}.txt": lines for rank, lines in enumerate(stages)}


def test_two_stages_that_send_to_each_other_are_a_circle_beside_others_that_wait(tmp_path):
    verdict = judge(tmp_path, files(stage(0, "send", 1), stage(1, "send", 0), stage(2, "recv", 1)))

    assert named(verdict) == ("circle", (), False)
    assert "rank 0 in send to 1; rank 1 in send to 0" in verdict.because


def test_a_ring_of_sends_is_a_circle(tmp_path):
    verdict = judge(tmp_path, files(*(stage(rank, "send", (rank + 1) % 3) for rank in range(3))))

    assert named(verdict) == ("circle", (), False)


def test_helpers_named_after_neighbours_show_a_circle_without_arguments(tmp_path):
    moves = [("send", 1), ("send", -1), ("recv", -1)]
    stages = [
        stage(rank, way, rank + step, locals_=False, helper=HELPERS[way, step])
        for rank, (way, step) in enumerate(moves)
    ]

    assert named(judge(tmp_path, files(*stages))) == ("circle", (), False)


def test_deepspeeds_helpers_show_a_circle(tmp_path):
    helpers = ["_exec_send_activations", "_exec_send_grads", "_exec_recv_activations"]
    stages = [stage(rank, helper.split("_")[2], 0, locals_=False, helper=helper) for rank, helper in enumerate(helpers)]

    verdict = judge(tmp_path, files(*stages))

    assert named(verdict) == ("circle", (), False)
    assert "rank 0 in send to 1; rank 1 in send to 0" in verdict.because


def test_stages_that_all_receive_are_a_circle(tmp_path):
    assert named(judge(tmp_path, files(*(stage(rank, "recv", 0, locals_=False) for rank in range(3))))) == (
        "circle",
        (),
        False,
    )


def test_a_pair_that_meets_is_stuck_and_nobody_is_blamed(tmp_path):
    verdict = judge(tmp_path, files(stage(0, "send", 1), stage(1, "recv", 0), stage(2, "recv", 1)))

    assert named(verdict) == ("stuck", (), False)


def test_a_partner_without_a_stack_is_not_blamed(tmp_path):
    verdict = judge(tmp_path, files(stage(0, "recv", 1), stage(1, "recv", 2)))

    assert named(verdict) == ("absent", (), True)
    assert "the stack of rank 2" in verdict.missing


@pytest.mark.parametrize("calls", [("send", "send", "recv"), ("recv", "recv", "all_reduce")])
def test_unlike_transfers_of_stages_blame_nobody(calls, tmp_path):
    stages = [stage(rank, call, 0, locals_=False) for rank, call in enumerate(calls)]

    assert judge(tmp_path, files(*stages)).blamed == ()


def test_a_stage_that_loads_data_while_others_receive_is_to_blame(tmp_path):
    loads = stage(0, "recv", 0, locals_=False)
    loads[4] = "    _try_get_data (torch/utils/data/dataloader.py:1251)"

    assert named(judge(tmp_path, files(loads, stage(1, "recv", 0), stage(2, "recv", 1)))) == ("data", (0,), False)


def test_receives_from_each_other_are_a_circle_where_a_line_above_names_the_processes(tmp_path):
    inner = "    wait (torch/distributed/distributed_c10d.py:2374)"
    stages = [stage(rank, "recv", 1 - rank, pid=9000 + rank) for rank in (0, 1)]
    lines = [line for one in stages for line in [*one[:4], inner, *one[4:]]]

    verdict = judge(tmp_path, {"spy.txt": ["# RANK=0 is pid 9000, RANK=1 is pid 9001. Unchanged.", *lines]})

    assert named(verdict) == ("circle", (), False)


def held(operation, peer, *, of="<P2PHandle op='{operation}' peer={peer} tag=7>"):
    """A dump of a stage that waits for the handle of a transfer in code of its own."""
    lines = stage(0, operation, peer, locals_=False)
    told = of.format(operation=operation, peer=peer)
    own = ["    wait (comm/p2p.py:88)", "        Arguments:", f"            self: {told}", "    move (comm/p2p.py:131)"]
    return [*lines[:4], *own, "    run (pipe.py:21)"]


HANDLES = [
    "<P2PHandle op='{operation}' peer={peer} tag=7>",
    "<comm.Request kind=i{operation}, src={peer}>",
    "Work(op=i{operation}, peer={peer}, tag=7)",
    "<RecvHandle peer={peer} at 0x7f01>",
]


@pytest.mark.parametrize("of", HANDLES)
def test_handles_of_ones_own_receives_show_a_ring(of, tmp_path):
    stages = {f"r{rank}.pyspy.txt": held("recv", (rank - 1) % 3, of=of) for rank in range(3)}

    verdict = judge(tmp_path, stages)

    assert named(verdict) == ("circle", (), False)
    assert "rank 0 in recv from 2" in verdict.because


def test_a_handle_that_a_function_at_work_keeps_does_not_say_that_it_waits(tmp_path):
    works = ["    step (optim/adam.py:40)", "    finish (comm/p2p.py:88)"]
    kept = ["        Locals:", "            request: <P2PHandle op='recv' peer=2 tag=7>"]
    stages = {f"r{rank}.txt": held("recv", rank - 1) for rank in (1, 2)}

    verdict = judge(tmp_path, {**stages, "r0.txt": [*held("recv", 0)[:4], *works, *kept, "    run (pipe.py:21)"]})

    assert named(verdict) == ("host", (0,), False)


def test_arguments_of_helpers_show_a_ring(tmp_path):
    waits = ["    wait (comm/p2p.py:88)", "    recv_activation (comm/p2p.py:90)", "        Arguments:"]
    stages = {
        f"r{rank}.txt": [*held("recv", 0)[:4], *waits, f"            src: {(rank + 1) % 3}", "    run (pipe.py:21)"]
        for rank in range(3)
    }

    assert named(judge(tmp_path, stages)) == ("circle", (), False)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([held("send", 1), held("recv", 0)], ("stuck", (), False)),
        ([held("recv", 1), held("recv", 2)], ("absent", (), True)),
    ],
    ids=["a pair that meets", "a partner without a stack"],
)
def test_handles_of_transfers_that_may_end_show_no_ring(stages, expected, tmp_path):
    assert named(judge(tmp_path, files(*stages))) == expected
