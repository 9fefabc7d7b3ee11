"""Flight records of jobs that move on: whose calls are the shortest, and what shows that a job went on after them."""

import pytest

from .made import DONE, answer, entry, groups, judge, records, timed_out, told

START_NS = 1_790_000_000 * 10**9
STEP_S = 2.0


def calls(waits_s, *, timing=True, step_s=STEP_S, group=("0", "default_pg")):
    """One rank's record of an all-reduce a step, which takes as long as it waits there and 10 ms more."""
    found = []
    for number, wait_s in enumerate(waits_s):
        created_ns = START_NS + int(number * step_s * 1e9)
        took_s = wait_s + 0.01
        times = {"time_created_ns": created_ns, "time_discovered_started_ns": created_ns}
        times["time_discovered_completed_ns"] = created_ns + int((took_s if not timing else took_s + 0.1) * 1e9)
        times |= {"duration_ms": took_s * 1e3} if timing else {}
        found.append(entry(number, number + 1, "all_reduce", 1000, 1000, "completed", group=group) | times)
    return found


def job(*waits_s, **options):
    """The records of four ranks, each with what it waits in each call."""
    return records({rank: calls(waits, **options) for rank, waits in enumerate(waits_s)})


LATE = {
    "timed by the device": job(*[[0.8] * 6] * 2, [0.0] * 6, [0.8] * 6),
    "looked at by the watchdog": job(*[[0.8] * 6] * 2, [0.0] * 6, [0.8] * 6, timing=False),
    "late to the first of two calls a step": job(*[[0.8, 0.0] * 5] * 2, [0.0, 0.0] * 5, [0.8, 0.0] * 5),
}


@pytest.mark.parametrize("files", LATE.values(), ids=LATE)
def test_the_rank_whose_calls_are_short_where_all_others_wait_is_late(files, tmp_path):
    assert judge(tmp_path, files).because.startswith("rank 2 comes last to")
    assert told(judge(tmp_path, files), wanted := answer("slow", 2)) == wanted


STEADY = {
    "all alike": job(*[[0.8] * 6] * 4),
    "each late in turn": job(*[[0.0 if step % 4 == rank else 0.8 for step in range(8)] for rank in range(4)]),
    "late by a hundredth of the step": job(*[[0.02] * 6] * 2, [0.0] * 6, [0.02] * 6),
    "less than the watchdog sees": job(*[[0.15] * 6] * 2, [0.0] * 6, [0.15] * 6, timing=False, step_s=0.3),
    "late three times": job(*[[0.8] * 3] * 2, [0.0] * 3, [0.8] * 3),
}


@pytest.mark.parametrize("files", STEADY.values(), ids=STEADY)
def test_nobody_is_late_where_waits_are_short_alike_or_pass_from_rank_to_rank(files, tmp_path):
    assert told(judge(tmp_path, files), wanted := answer("none", unknown=True)) == wanted


def test_the_first_stage_of_a_pipeline_is_no_straggler(tmp_path):
    stages = groups(g5=range(4))
    sent = [entry(9, 0, "send 0->1", 10, 10, "completed", group=("5", "pp"), pg_id=5, p2p=1)]
    files = records({rank: [*calls([0.0 if rank == 0 else 0.8] * 6), *sent] for rank in range(4)}, stages)

    assert judge(tmp_path, files).blamed == ()


DUMPED = [
    "[rank0]:[I1120 10:20:12.004118872 ProcessGroupNCCL.cpp:1781] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
    "ProcessGroupNCCL dumping nccl trace to /tmp/comm_lib_trace_rank_0",
    "[rank0]:[I1120 10:20:12.104118872 FlightRecorder.cpp:88] Finished writing Flight Recorder debug info to /tmp/r_0",
]
OPEN = records({rank: [*DONE, entry(4, 5, "all_reduce", 333, 333, "started")] for rank in range(4)})


@pytest.mark.parametrize("dumped", DUMPED)
def test_calls_that_were_open_when_a_record_was_written_of_a_job_that_ended_well_later_are_no_hang(dumped, tmp_path):
    log = [dumped, "{'loss': 1.14, 'epoch': 0.28}", "{'train_runtime': 5211.4, 'train_loss': 1.14, 'epoch': 1.0}"]
    verdict = judge(tmp_path, OPEN | {"train.log": log})

    assert told(verdict, wanted := answer("none")) == wanted
    assert verdict.evidence[0].text.startswith("{'train_runtime'")


ENDS = "{'train_runtime': 5211.4, 'train_loss': 1.14, 'epoch': 1.0}"


@pytest.mark.parametrize("log", [[ENDS, DUMPED[0]], [ENDS], [DUMPED[0], *(timed_out(r, 5) for r in range(4)), ENDS]])
def test_an_end_before_the_record_or_after_a_time_out_says_nothing_of_it(log, tmp_path):
    assert judge(tmp_path, OPEN | {"train.log": log}).kind == "stuck"
