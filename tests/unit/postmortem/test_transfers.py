"""Stacks of pipelines whose ranks stand in sends and receives: circles, pairs that meet, partners without a stack."""

import pytest

from .made import WORLD, failed_at, judge, timed_out

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


@pytest.mark.parametrize("ahead", [0, 2])
def test_stages_that_wait_for_a_queue_of_received_tensors_are_a_circle_where_one_looks_the_other_way(ahead, tmp_path):
    def waits(rank):
        way = "backward" if rank == ahead else "forward"
        return [
            f"Process {900 + rank}: python -u pipe.py",
            f'Thread {900 + rank} (idle): "MainThread"',
            "    wait (threading.py:295)",
            "    remove (shared_queue.py:17)",
            "    recv (link.py:518)",
            f"    receive_tensors_{way} (stages.py:417)",
            "    run (pipe.py:21)",
        ]

    assert named(judge(tmp_path, files(*map(waits, range(4))))) == ("circle", (), False)


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


PIPE = "PG ID 4 PG GUID 11(PIPELINE_PARALLEL_GROUP)"


def stands_in(rank, call, helper, note=""):
    """A dump of a stage by Megatron's names, with a note that a person or a tool has put behind the helper's."""
    return [
        f"Process 70{rank}: python -u pretrain.py",
        f'Thread 70{rank} (active): "MainThread"',
        "    wait (torch/distributed/distributed_c10d.py:2187)",
        f"    {call} (torch/distributed/distributed_c10d.py:2189)",
        f"    {helper}{note} (megatron/core/pipeline_parallel/p2p_communication.py:450)",
        "    one_step (schedules/own.py:188)",
        "    <module> (pretrain.py:301)",
    ]


def watched(operation, *ranks, group=PIPE, seq=1):
    """The time-outs of stages in their first transfer: c10d counts from 1, and prints -1 before one has ended."""
    return [line for rank in ranks for line in (timed_out(rank, seq, operation), failed_at(rank, group, seq, seq, -1))]


@pytest.mark.parametrize("note", [("", ""), ("  dst=1", "  dst=0"), ("(dst=1)", "(dst=0)")])
def test_stages_that_both_send_are_a_circle_though_each_has_come_to_its_call_of_that_number(note, tmp_path):
    helpers = ["send_forward", "send_backward"]
    stages = [stands_in(rank, "send", helper, note[rank]) for rank, helper in enumerate(helpers)]

    assert named(judge(tmp_path, {**files(*stages), "job.log": watched("SEND", 0, 1)})) == ("circle", (), False)


def test_time_outs_of_both_stages_in_a_send_are_a_circle_without_stacks(tmp_path):
    assert named(judge(tmp_path, watched("SEND", 0, 1))) == ("circle", (), False)


def test_time_outs_in_sends_are_no_circle_where_a_rank_without_one_may_be_the_other_end(tmp_path):
    verdict = judge(tmp_path, ["[rank2]: compiling", *watched("SEND", 0, 1)])

    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_who_sends_in_a_circle_is_not_blamed_for_missing_from_the_call_of_others(tmp_path):
    stages = [stage(0, "send", 1), stage(1, "send", 0), *(stage(rank, "all_reduce", None) for rank in range(2, 6))]
    waits = [line for rank in range(2, 6) for line in (timed_out(rank, 8), failed_at(rank, WORLD, 8, 8, 7))]

    verdict = judge(tmp_path, {**files(*stages), "job.log": ["world_size=6", *waits]})

    assert named(verdict) == ("circle", (), False)


def test_a_stage_that_sends_to_one_that_reads_is_in_no_circle(tmp_path):
    reads = stands_in(1, "send", "send_backward")
    reads[2:5] = ["    read (torch/serialization.py:60)", "    load (resume.py:9)"]
    dumps = files(stands_in(0, "send", "send_forward", "  dst=1"), reads)

    assert judge(tmp_path, {**dumps, "job.log": watched("SEND", 0)}).kind != "circle"


def test_functions_of_ones_own_that_receive_tell_their_partner_by_an_argument(tmp_path):
    own = ["    recv_block (ring/comm.py:58)", "        Arguments:", "            src: {peer}", "            tag: 7"]
    stages = [stage(rank, "recv", 0, locals_=False) for rank in range(3)]
    ring = [
        [*dump[:5], *(line.format(peer=(rank - 1) % 3) for line in own), *dump[5:]] for rank, dump in enumerate(stages)
    ]

    verdict = judge(tmp_path, files(*ring))

    assert named(verdict) == ("circle", (), False)
    assert "rank 0 in recv from 2" in verdict.because


def test_a_program_under_torchs_decorator_that_records_errors_is_a_rank_and_no_launcher(tmp_path):
    recorded = "    wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:355)"
    stages = [[*one[:-1], recorded, "    <module> (pipe.py:90)"] for one in (stage(0, "send", 1), stage(1, "send", 0))]

    assert named(judge(tmp_path, files(*stages))) == ("circle", (), False)


BEHIND = ["   # rank {}", "  <- rank {}", " (rank {})", "  ## rank {}, gpu-3", "   // global rank {}"]


def noted(note, pids=(71, 72, 73, 74)):
    """Dumps of four stages in one file, of which two send to each other, with a note behind each command."""
    moves = [("send", 1), ("send", 2), ("send", 1), ("recv", 2)]
    dumps = [stage(rank, *move, pid=pid) for rank, (move, pid) in enumerate(zip(moves, pids, strict=True))]
    return [line for rank, dump in enumerate(dumps) for line in (dump[0] + note.format(rank), *dump[1:])]


@pytest.mark.parametrize("note", BEHIND)
def test_notes_behind_the_commands_of_processes_tell_whose_stacks_they_are(note, tmp_path):
    verdict = judge(tmp_path, {"spy.txt": noted(note)})

    assert named(verdict) == ("circle", (), False)
    assert "rank 1 in send to 2; rank 2 in send to 1" in verdict.because


@pytest.mark.parametrize("note", ["", "  # tp rank {}", "  # rank 0 or rank 1", "  # ranks 0-3", "  # round {}"])
def test_notes_that_tell_no_rank_of_the_job_show_no_circle(note, tmp_path):
    assert judge(tmp_path, {"spy.txt": noted(note)}).unknown


def test_the_rank_in_a_command_counts_before_the_note_behind_it(tmp_path):
    lines = stage(1, "send", 0)
    files_ = {"a.txt": [f"{lines[0]} --rank 1   # rank 0", *lines[1:]], "spy_rank0.txt": stage(0, "send", 1)}

    assert named(judge(tmp_path, files_)) == ("circle", (), False)


@pytest.mark.parametrize("note", ["   # dst={}", " (dst={})"])
def test_sends_of_ones_own_that_wait_for_the_device_are_a_ring_where_a_note_tells_their_partners(note, tmp_path):
    logs = {
        f"rank{rank}.log": [
            f"[rank {rank}] step 9 rotates",
            "Thread 0x00007f00 (most recent call first):",
            '  File "/opt/lib/site-packages/torch/cuda/streams.py", line 95 in synchronize',
            f'  File "wheel.py", line 31 in send_now{note.format((rank + 1) % 3)}',
            '  File "fit.py", line 90 in <module>',
        ]
        for rank in range(3)
    }

    assert named(judge(tmp_path, logs)) == ("circle", (), False)


NOTES = ["# 0SEND_F1 to {peer}", "# isend, dst {peer}", "# sending to rank {peer}"]


@pytest.mark.parametrize("note", NOTES)
def test_a_comment_behind_a_frame_tells_to_whom_a_stage_sends(note, tmp_path):
    def stands(rank, peer):
        frames = [
            "wait (torch/distributed/distributed_c10d.py:611)",
            "_wait_batch_p2p (torch/distributed/pipelining/schedules.py:602)",
            f"_do (torch/distributed/pipelining/schedules.py:2310)   {note.format(peer=peer)}",
            "main (fit.py:9)",
        ]
        return [
            f"Process 88{rank}: python fit.py",
            f'Thread 88{rank} (active): "MainThread"',
            *(f"    {f}" for f in frames),
        ]

    ring = {f"spy_rank{rank}.txt": stands(rank, (rank + 1) % 3) for rank in range(3)}

    assert named(judge(tmp_path / "ring", ring)) == ("circle", (), False)
    chain = {f"spy_rank{rank}.txt": stands(rank, rank + 1) for rank in range(2)}
    assert judge(tmp_path / "chain", chain).kind != "circle"
