"""Faults of a job as a whole: an end from outside, locks, stores that are cut off, steps that slow down."""

import pytest

from .made import answer, failed_at, judge, timed_out, told

CLOSED = "[rank5]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
ENDED = "slurmstepd: error: *** JOB 77 ON node-a CANCELLED AT 2026-11-20T11:16:01{} ***"
WHYS = [" DUE TO TIME LIMIT", " DUE TO PREEMPTION", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", ""]
SERVES = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for {0}. 1/3 {0} joined."
CUT_OFF = (
    "[E1120 21:15:07.2 socket.cpp:1011] [c10d] The client socket has timed out after 600000ms while trying to connect"
    " to (node-a, 29500)."
)
ARRIVED = [
    "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from"
    " rank 0. Please check rank 0 logs for faulty rank.",
    "[/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:31188",
]
DONE = ["step 9 loss 1.0", "Training completed", "BrokenPipeError: [Errno 32] Broken pipe"]


def stack(pid, innermost):
    """What py-spy prints of a process that loads an extension."""
    return [
        f"Process {pid}: python train.py",
        "Python v3.11.7 (/usr/bin/python3.11)",
        "",
        f'Thread {pid} (idle): "MainThread"',
        f"    {innermost}",
        "    load (torch/utils/cpp_extension.py:1314)",
        "    <module> (train.py:66)",
    ]


def paced(rank, slow, *, clock=True):
    """The log of a rank that prints the parts of its steps; from its tenth on `slow` times longer."""
    lines = []
    for step in range(24):
        ratio, mhz = (slow, 345) if step >= 10 else (1.0, 1980)
        shown = f" gpu_clock={mhz}MHz" if clock else ""
        lines.append(f"rank={rank} step={step} fwd={0.5 * ratio:.2f} comm=0.06 total={0.06 + 1.5 * ratio:.2f}s{shown}")
    return lines


@pytest.mark.parametrize("why", WHYS)
def test_connections_that_break_after_a_job_was_cancelled_are_nobodys_fault(why, tmp_path):
    verdict = judge(tmp_path, ["[rank5]: step 7 loss 1.0", ENDED.format(why), CLOSED])
    assert told(verdict, wanted := answer("killed")) == wanted


def test_the_row_of_sacct_which_has_no_clock_hides_no_notice_that_has_one(tmp_path):
    rows = [
        "JobID           JobName      State ExitCode    Elapsed  Timelimit",
        "------------ ---------- ---------- -------- ---------- ----------",
        "77              lm-cpt    TIMEOUT      0:0 1-00:00:21 1-00:00:00",
    ]
    log = ["[rank5]: step 7 loss 1.0", ENDED.format(WHYS[0]), CLOSED]
    verdict = judge(tmp_path, {"a-sacct.txt": rows, "job.log": log})
    assert told(verdict, wanted := answer("killed")) == wanted


def test_links_that_break_after_a_time_limit_are_its_consequence_and_before_it_are_not(tmp_path):
    limit = ENDED.format(WHYS[0])
    warns = (
        "n2:9:8 [2] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.2.2.7<4> failed : connection abort"
    )

    assert judge(tmp_path / "after", ["[rank2]: step 7 loss 1.0", limit, warns]).kind == "killed"
    assert judge(tmp_path / "before", ["[rank2]: step 7 loss 1.0", warns, limit]).kind == "network"


def test_a_connection_that_broke_before_the_job_was_cancelled_stays_the_answer(tmp_path):
    verdict = judge(tmp_path, ["[rank5]: step 7 loss 1.0", CLOSED, ENDED.format(WHYS[0])])
    assert told(verdict, wanted := answer("network", unknown=True)) == wanted


@pytest.mark.parametrize("called", ["clients", "workers"])
def test_a_store_that_is_up_and_clients_that_do_not_reach_it_are_a_network_of_unknown_side(called, tmp_path):
    files = {"rank0.log": [SERVES.format(called)], "rank1.log": [CUT_OFF], "rank2.log": [CUT_OFF]}
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted := answer("network", unknown=True)) == wanted
    assert "node-a:29500" in verdict.because


def test_the_log_of_one_rank_of_a_failed_barrier_does_not_say_who_was_missing(tmp_path):
    verdict = judge(tmp_path, {"worker2.log": ["step 8 loss 1.0", *ARRIVED]})
    assert told(verdict, wanted := answer("absent", unknown=True)) == wanted
    assert verdict.collective == "monitored_barrier"


@pytest.mark.parametrize(
    "lock",
    ["wait (torch/utils/file_baton.py:43)", "acquire (filelock/_api.py:331)", "acquire (torch/utils/_filelock.py:40)"],
)
def test_all_processes_behind_the_lock_of_a_build_blame_the_host_and_no_rank(lock, tmp_path):
    verdict = judge(tmp_path, {f"dump.{rank}": stack(900 + rank, lock) for rank in range(4)})
    assert told(verdict, wanted := answer("host")) == wanted


def test_processes_of_which_one_still_builds_do_not_wait_for_a_lock_that_was_left(tmp_path):
    lock = "wait (torch/utils/file_baton.py:43)"
    files = {f"dump.{rank}": stack(900 + rank, lock if rank else "build (ninja.py:9)") for rank in range(4)}
    assert "removed" not in judge(tmp_path, files).because


BATON = "wait (torch/utils/file_baton.py:43)"


@pytest.mark.parametrize("lock", [BATON, "acquire (filelock/_api.py:331)"])
def test_half_of_the_ranks_behind_a_lock_of_their_host_are_who_the_others_wait_for(lock, tmp_path):
    waits = "broadcast (torch/distributed/distributed_c10d.py:2208)"
    files = {f"rank{rank}.txt": stack(900 + rank, lock if rank > 1 else waits) for rank in range(4)}
    verdict = judge(tmp_path, files)
    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host", (2, 3), False)


def test_more_ranks_behind_a_lock_than_wait_elsewhere_are_not_named(tmp_path):
    waits = "barrier (torch/distributed/distributed_c10d.py:4308)"  # it may hold the lock
    files = {f"rank{rank}.txt": stack(900 + rank, BATON if rank else waits) for rank in range(4)}
    assert not judge(tmp_path, files).blamed


@pytest.mark.parametrize(("processes", "named"), [(2, (2, 3)), (1, ())])
def test_processes_behind_a_lock_are_the_ranks_that_are_not_seen_to_wait_if_as_many(processes, named, tmp_path):
    job = ["WORLD_SIZE=4", "[rank2]: Using /x/ext as PyTorch extensions root...", *(timed_out(r, 4) for r in (0, 1))]
    dumps = [line for at in range(processes) for line in stack(900 + at, BATON)]
    verdict = judge(tmp_path, {"job.out": job, "dumps.txt": dumps})
    assert (verdict.kind == "host", verdict.blamed) == (bool(named), named)


@pytest.mark.parametrize("last", ["exit code 0", "Exit status: 0", "job finished with exit code 0", "returncode 0"])
def test_a_training_that_ended_with_code_0_is_known_to_be_well(last, tmp_path):
    verdict = judge(tmp_path, [*DONE, last])
    assert told(verdict, wanted := answer("none")) == wanted
    assert [line.text for line in verdict.evidence] == [last]


@pytest.mark.parametrize("last", ["exit code 1", "exit code 01"])
def test_another_code_than_0_does_not_show_that_all_is_well(last, tmp_path):
    assert judge(tmp_path, [*DONE, last]).unknown


def test_steps_that_grow_alike_on_all_ranks_are_slow_and_nobodys_fault(tmp_path):
    verdict = judge(tmp_path, {f"rank{rank}.log": paced(rank, 4.5) for rank in range(4)})
    assert told(verdict, wanted := answer("slow")) == wanted
    assert "from 1980 to 345 MHz" in verdict.because


@pytest.mark.parametrize("ratios", [(4.5, 1.0, 1.0), (4.5, 2.0, 4.5), (1.2, 1.2, 1.2)])
def test_steps_that_do_not_grow_alike_or_hardly_grow_are_no_common_slowness(ratios, tmp_path):
    verdict = judge(tmp_path, {f"rank{rank}.log": paced(rank, ratio) for rank, ratio in enumerate(ratios)})
    assert told(verdict, wanted := answer("none", unknown=True)) == wanted


def test_hosts_at_both_ends_that_complain_of_each_other_leave_open_which_side_is_broken(tmp_path):
    line = (
        "node-{}:984:1357 [4] net_ib.cc:1984 NCCL WARN NET/IB : Got completion from peer 10.0.0.{}<44206> with"
        " status=12 opcode=0 len=0 vendor err 129 (Recv)"
    )
    verdict = judge(tmp_path, [line.format("a", 2), line.format("b", 1)])
    assert told(verdict, wanted := answer("network", unknown=True)) == wanted


def test_of_two_groups_that_wait_for_one_rank_the_call_that_began_first_is_named(tmp_path):
    tensor, data = ("PG ID 5 PG GUID 34(TP)", "PG ID 3 PG GUID 14(DP)")
    early = [timed_out(rank, 900, place=rank).replace("20:00.1", "19:58.1") for rank in (0, 1, 3)]
    lines = [timed_out(rank, 8, "_REDUCE_SCATTER_BASE", 40, 10, place=rank // 4) for rank in (6, 10, 14)]
    lines += [failed_at(rank, data, 8, 8, 7, place=rank // 4) for rank in (6, 10, 14)]
    lines += [*early, *(failed_at(rank, tensor, 900, 900, 899, place=rank) for rank in (0, 1, 3))]
    verdict = judge(tmp_path, lines)
    assert (verdict.rank, verdict.collective, verdict.seq) == (2, "all_reduce", 900)


def came(rank, waited="Timed out waiting 60000ms for recv operation to complete"):
    """What gloo prints on a rank that came to a monitored barrier, and how its wait for rank 0 ended."""
    return [ARRIVED[0].replace("Rank 2", f"Rank {rank}"), f"[gloo/transport/tcp/unbound_buffer.cc:81] {waited}"]


FIRST_RANKS = {
    "all others ran out of time": ([1, 2, 3], [], answer("absent", 0)),
    "it prepares its data meanwhile": (
        [1, 2, 3],
        ["Map (num_proc=4):  70%|####   | 65/93 [6:39<4:31, 17.07 examples/s]"],
        answer("data", 0),
    ),
    "another did not come either": ([1, 3], [], answer("absent", unknown=True)),
    "it says whom it missed, who came too late": (
        [1, 2, 3],
        ["[Rank 0]: Rank 2 failed to pass monitoredBarrier in 60000 ms"],
        answer("absent", unknown=True),
    ),
    "nobody says how many there are, and data are prepared": (
        [1, 2, 3],
        ["Map (num_proc=4):  70%|####   | 65/93 [6:39<4:31, 17.07 examples/s]", "_"],
        answer("data", 0),
    ),
    "nobody says how many there are": ([1, 2, 3], ["_"], answer("absent", unknown=True)),
    "nobody says how many there are, and one more is missing": (
        [1, 3],
        ["Map (num_proc=4):  70%|####   | 65/93 [6:39<4:31, 17.07 examples/s]", "_"],
        answer("data", unknown=True),
    ),
    "it closed a connection": (
        [1, 2],
        came(3, "Connection closed by peer [10.0.0.2]:31"),
        answer("absent", unknown=True),
    ),
}


@pytest.mark.parametrize("case", FIRST_RANKS)
def test_the_first_rank_is_missing_from_a_monitored_barrier_where_all_others_waited_for_it(case, tmp_path):
    ranks, more, wanted = FIRST_RANKS[case]
    lines = ["" if "_" in more else "world_size=4", *(line for rank in ranks for line in came(rank)), *more]
    assert told(judge(tmp_path, lines), wanted) == wanted


BROKE = (
    "[rank{}]:[E1120 {}.5 ProcessGroupNCCL.cpp:542] [Rank {}] Collective WorkNCCL(SeqNum=41, OpType=ALLREDUCE,"
    " NumelIn=9, NumelOut=9, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process"
    " exited or there was a network error, NCCL version 2.21.5"
)


@pytest.mark.parametrize("why", WHYS)
def test_calls_that_break_after_a_job_was_cancelled_are_nobodys_fault(why, tmp_path):
    verdict = judge(tmp_path, [ENDED.format(why), *(BROKE.format(rank, "11:16:07", rank) for rank in (1, 4))])

    assert told(verdict, wanted := answer("killed", seq=41)) == wanted


@pytest.mark.parametrize("why", WHYS)
def test_a_job_that_was_cancelled_long_after_its_calls_broke_does_not_explain_them(why, tmp_path):
    verdict = judge(tmp_path, [*(BROKE.format(rank, "10:16:07", rank) for rank in (1, 4)), ENDED.format(why)])

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("network", None, True), str(verdict)
