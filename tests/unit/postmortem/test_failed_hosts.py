"""Ranks of a host that failed, by what SLURM, a kernel's log and a table of processes say of it."""

import pytest

from .made import answer, judge, timed_out, told

CANCELLED = "slurmstepd: error: *** STEP 8.0 ON c01 CANCELLED AT 2026-11-20T10:30:00 DUE TO NODE FAILURE ***"
LOST = "9: [rank9]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting."


def killed(number):
    return f"srun: error: c{number:02}: tasks {number * 2}-{number * 2 + 1}: Killed"


def is_(verdict, wanted):
    return told(verdict, wanted) == wanted


def test_the_tasks_of_a_node_that_failed_are_the_ranks_that_were_killed(tmp_path):
    log = ["srun: error: Node failure on c03", CANCELLED, LOST, *map(killed, range(1, 6))]
    verdict = judge(tmp_path, {"job.err": log, "sacct.txt": ["8        6   NODE_FAIL    1:0"]})

    assert is_(verdict, answer("killed", ranks=(6, 7)))
    assert "c03" in verdict.because


@pytest.mark.parametrize(
    "notices", [["srun: error: Node failure on c03", "srun: error: Node failure on c04"], ["srun: error: c09 is down"]]
)
def test_of_several_nodes_that_failed_or_of_none_nobody_is_named(tmp_path, notices):
    verdict = judge(tmp_path, [*notices, CANCELLED, LOST, *map(killed, range(1, 6))])

    assert (verdict.kind, verdict.blamed) == ("killed", ())


PODS = [f"job-{number}: ranks {number * 2}-{number * 2 + 1}" for number in range(3)]
COMPLETION = (
    "job-0:88:99 [0] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<5486{}> with status=12"
    " opcode=0 len=0 vendor err 129 (Recv)"
)
ERROR = (
    "[rank0]:[E1120 10:20:40.1108 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 0] Exception (either"
    " an error or timeout) detected by watchdog at work: 5, last enqueued NCCL work: 6, last completed NCCL work: 4."
)
BROKEN = [*PODS, COMPLETION.format(1), ERROR, LOST.replace("9: [rank9]", "[rank0]")]
DOWN = "Nov 20 10:20:21 {} kernel: mlx5_core 0000:3b:00.0 ens3f0np0: Link down"


def test_a_link_that_the_log_of_a_pods_host_shows_to_go_down_is_of_the_ranks_there(tmp_path):
    verdict = judge(tmp_path, {"job-0.log": BROKEN, "job-2-dmesg.txt": [DOWN.format("ip-7")]})

    assert (verdict.kind, verdict.blamed) == ("network", (4, 5))


@pytest.mark.parametrize("lines", [[DOWN.format("ip-7"), DOWN.format("ip-8")], [DOWN.format("job-1")]])
def test_a_log_of_several_hosts_or_of_another_host_of_the_job_is_not_of_the_pod_that_it_is_named_after(tmp_path, lines):
    verdict = judge(tmp_path, {"job-0.log": BROKEN, "job-2-dmesg.txt": lines})

    assert verdict.blamed != (4, 5)


WAITING = [timed_out(rank, 7) for rank in (0, 1, 3)]
ROWS = [f"  70{rank} Rl   -             10:09 python -u go.py  (RANK={rank})" for rank in range(4)]
HELD = ROWS[2].replace("Rl   -       ", "Dl   io_sync_").replace("-u", "-B")


@pytest.mark.parametrize(
    "head", ["$ ps -eo pid,stat,wchan:30,etime,args | grep go.py", "  PID STAT WCHAN ELAPSED COMMAND"]
)
def test_a_rank_that_a_table_of_processes_shows_in_a_call_of_the_kernel_is_held_by_its_host(tmp_path, head):
    table = [head, *ROWS[:2], HELD, ROWS[3]]

    assert is_(judge(tmp_path, {"job.log": WAITING, "node.txt": table}), answer("host", 2, 7))


def test_local_numbers_of_a_table_of_processes_are_no_ranks(tmp_path):
    table = [row.replace("RANK", "LOCAL_RANK") for row in [*ROWS[:1], HELD.replace("702", "701"), *ROWS[2:]]]
    verdict = judge(tmp_path, {"job.log": WAITING, "node.txt": ["$ ps -eo pid,stat,wchan,etime,args", *table]})

    assert verdict.blamed in {(), (2,)}
