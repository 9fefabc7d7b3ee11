"""Faults that a job outlived, and records of a job that runs on: nobody is to blame for them."""

import json

import pytest

from testkit.hanging_jobs import ALL_OF_FOUR, entry

from .made import answer, judge, timed_out, told

NONE = answer("none")
BEGUN_NS = 1_795_168_800_000_000_000  # 2026-11-20 10:00 UTC
STEPS = [f"[2026-11-20 10:{n // 6:02}:{n % 6 * 10:02}] step: {n}  loss: 2.{n}" for n in range(60)]
FLAP = [
    "[Fri Nov 20 10:02:31 2026] mlx5_core 0000:9a:00.0 ibp154s0: Port: 1 Link DOWN",
    "[Fri Nov 20 10:02:31 2026] mlx5_core 0000:9a:00.0: Port module event: module 0, Cable unplugged",
]
BACK = [
    "[Fri Nov 20 10:02:40 2026] mlx5_core 0000:9a:00.0: Port module event: module 0, Cable plugged",
    "[Fri Nov 20 10:02:44 2026] mlx5_core 0000:9a:00.0 ibp154s0: Port: 1 Link ACTIVE",
]


def dumped(last, *, open_=True, late_s=0.0):
    """A rank's record of calls 1 to `last`, one each second, the last of them open."""
    entries = []
    for number in range(1, last + 1):
        state = "started" if open_ and number == last else "completed"
        begun_ns = BEGUN_NS + int((number + late_s) * 1e9)
        call = entry(number - 1, number, "all_reduce", 1000, 1000, state)
        ended_ns = None if state == "started" else begun_ns + 1000
        entries.append(
            {
                **call,
                "time_created_ns": begun_ns,
                "time_discovered_started_ns": begun_ns + 10,
                "time_discovered_completed_ns": ended_ns,
            }
        )
    told_ = {"version": "2.9", "pg_config": ALL_OF_FOUR, "entries": entries}
    return json.dumps(told_)


def snapshot(**others):
    """Records of four ranks, rank 2's written when it had come to call 36, the others' in call 40."""
    files = {f"fr/nccl_trace_rank_{rank}.json": dumped(40) for rank in (0, 1, 3)}
    return {**files, "fr/nccl_trace_rank_2.json": dumped(36, open_=False), **others}


def test_a_record_that_was_written_before_the_others_blames_nobody(tmp_path):
    verdict = judge(tmp_path, snapshot())

    assert verdict.blamed == ()
    assert verdict.unknown
    assert any("rank 2" in what for what in verdict.missing)


def test_a_call_that_stands_open_in_an_older_record_blames_nobody(tmp_path):
    assert judge(tmp_path, snapshot(**{"fr/nccl_trace_rank_2.json": dumped(36)})).blamed == ()


def test_records_of_a_job_whose_steps_go_on_show_no_fault(tmp_path):
    assert told(judge(tmp_path, snapshot(**{"train.log": STEPS})), NONE) == NONE


def test_the_steps_may_be_printed_with_the_clock_of_an_american(tmp_path):
    local = [line.replace("2026-11-20", "11/20/2026") for line in STEPS]

    assert told(judge(tmp_path, snapshot(**{"train.log": local})), NONE) == NONE


@pytest.mark.parametrize("hours", [-8, 1, 9])
def test_the_steps_may_be_printed_in_the_time_of_another_zone(tmp_path, hours):
    local = [line.replace(" 10:", f" {10 + hours:02}:") for line in STEPS]

    assert told(judge(tmp_path, snapshot(**{"train.log": local})), NONE) == NONE


def test_steps_that_end_with_the_records_do_not_excuse_the_rank_that_did_not_come(tmp_path):
    files = {f"nccl_trace_rank_{rank}.json": dumped(40) for rank in (0, 1, 3)}
    behind = dumped(39, open_=False)

    verdict = judge(tmp_path, {**files, "nccl_trace_rank_2.json": behind, "train.log": STEPS[:4]})

    assert told(verdict, answer("absent", 2, 40)) == answer("absent", 2, 40)


def test_records_of_calls_in_flight_in_a_job_that_runs_on_show_no_fault(tmp_path):
    files = {f"nccl_trace_rank_{rank}.json": dumped(40) for rank in range(4)}

    assert told(judge(tmp_path, {**files, "train.log": STEPS}), NONE) == NONE


def test_a_cable_that_was_plugged_again_is_no_fault(tmp_path):
    assert judge(tmp_path, {"job.log": STEPS[:20], "n7.dmesg": [*FLAP, *BACK]}).kind == "none"


def test_a_link_that_failed_between_two_steps_of_a_log_is_no_fault(tmp_path):
    assert judge(tmp_path, {"job.log": STEPS, "n7.dmesg": FLAP}).kind == "none"


def test_a_link_that_failed_after_the_last_step_is_one(tmp_path):
    assert judge(tmp_path, {"job.log": STEPS[:15], "n7.dmesg": FLAP}).kind == "network"


def test_a_port_that_came_back_is_no_fault(tmp_path):
    event = "n7:88:90 [1] NCCL WARN NET/IB : mlx5_1:1 Got async event : port active"

    assert judge(tmp_path, [*STEPS[:3], event]).kind == "none"


ACCOUNTS = {
    "of sacct": [
        "JobID JobName State ExitCode Elapsed",
        "71 pretrain COMPLETED 0:0 03:00:00",
        "71.0 python COMPLETED 0:0 03:00:00",
    ],
    "of scontrol": ["   JobState=COMPLETED Reason=None Dependency=(null)"],
    "of sacct -P": ["71|pretrain|COMPLETED|0:0", "71.0|python|COMPLETED|0:0"],
    "of Kubernetes": [
        "NAME READY STATUS RESTARTS AGE",
        "pre-worker-0 0/1 Completed 0 3h",
        "pre-worker-1 0/1 Completed 0 3h",
    ],
    "of Ray": ["Job 'raysubmit_u7' succeeded"],
}


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=ACCOUNTS)
def test_a_job_that_ended_well_by_the_word_of_its_launcher_shows_no_fault(tmp_path, account):
    log = [line.split("] ")[1] for line in STEPS]

    assert told(judge(tmp_path, {"job.log": log, "n7.dmesg": FLAP, "account.txt": account}), NONE) == NONE


def test_a_step_of_the_job_that_failed_is_no_good_end(tmp_path):
    account = ["71 pretrain COMPLETED 0:0 03:00:00", "71.0 python FAILED 1:0 03:00:00"]

    assert judge(tmp_path, {"job.log": STEPS[:15], "n7.dmesg": FLAP, "account.txt": account}).kind == "network"


def test_the_end_of_one_job_does_not_excuse_who_kept_the_others_of_another_waiting(tmp_path):
    log = [timed_out(rank, 41) for rank in (0, 1, 3)]
    account = ["70 tokenize COMPLETED 0:0 00:10:00"]

    verdict = judge(tmp_path, {"job.log": [*log, "world_size=4"], "account.txt": account})

    assert verdict.kind == "absent"


def test_a_worker_that_ray_started_again_is_no_fault(tmp_path):
    killed = "(raylet) node_manager.cc:3193: 2 Workers (tasks / actors) killed due to memory pressure (OOM) at node"
    steps = [f"(Trainer pid=812) step:{n} - reward:0.{n}" for n in range(30)]

    assert judge(tmp_path, [*steps[:20], killed, *steps[20:]]).kind == "none"


def test_a_worker_that_ray_killed_and_after_which_nothing_came_is_one(tmp_path):
    killed = "(raylet) node_manager.cc:3193: 2 Workers (tasks / actors) killed due to memory pressure (OOM) at node"
    steps = [f"(Trainer pid=812) step:{n} - reward:0.{n}" for n in range(20)]

    assert judge(tmp_path, [*steps, killed]).kind == "host_memory"


STEPS_WITHOUT_CLOCK = [f"step: {n}  loss: 2.{n}" for n in range(60)]
MEMORY = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79"
    " GiB of which 141.25 MiB is free."
)


def without_clock(rank, seq):
    """A time-out of a torch that prints no clock."""
    return timed_out(rank, seq).replace("[E1120 10:20:00.100000000 ", "[E ")


KEPT_WAITING = [without_clock(rank, 41) for rank in (0, 1, 3, 4)]


def test_memory_that_ran_out_in_a_step_that_was_left_out_is_not_what_the_job_hangs_by(tmp_path):
    log = [*STEPS_WITHOUT_CLOCK[:20], MEMORY, *STEPS_WITHOUT_CLOCK[20:], "world_size=6", *KEPT_WAITING]

    assert 2 not in judge(tmp_path, [*log, without_clock(2, 41)]).blamed


@pytest.mark.parametrize("after", [[], [f"[rank2]: step 59 left out, try {n}" for n in range(20)]])
def test_memory_that_ran_out_in_the_last_step_is(tmp_path, after):
    log = [*STEPS_WITHOUT_CLOCK, MEMORY, *after, *KEPT_WAITING]

    assert judge(tmp_path, log).blamed == (2,)


def test_time_outs_after_which_the_job_made_many_steps_blame_nobody(tmp_path):
    log = [*STEPS_WITHOUT_CLOCK[:20], *KEPT_WAITING, "world_size=5", *STEPS_WITHOUT_CLOCK[20:]]

    assert judge(tmp_path, log).kind == "none"


@pytest.mark.parametrize(
    "log",
    [
        [*STEPS_WITHOUT_CLOCK, *KEPT_WAITING],
        [*STEPS_WITHOUT_CLOCK[:55], *KEPT_WAITING, *STEPS_WITHOUT_CLOCK[55:]],
        [line for wait in KEPT_WAITING for line in (*STEPS_WITHOUT_CLOCK[:30], wait)],
    ],
    ids=["at the end", "printed late", "one rank's log behind the other's"],
)
def test_time_outs_after_which_no_more_steps_are_made_count(tmp_path, log):
    assert judge(tmp_path, [*log, "world_size=5"]).blamed == (2,)


KILLED = ["2026-11-20 10:02:01,5 WARNING a step takes long", "srun: error: node-b: task 3: Killed"]


def test_a_rank_that_failed_before_many_later_steps_by_the_clock_is_not_to_blame(tmp_path):
    assert judge(tmp_path, [*STEPS[:13], *KILLED, *STEPS[13:]]).blamed == ()


def test_steps_that_a_program_prints_as_it_ends_do_not_excuse_what_failed_after_them(tmp_path):
    late = [line.replace(" 10:", " 09:") for line in STEPS]

    assert judge(tmp_path, [*late[:13], *KILLED, "world_size=8", *late[13:]]).blamed == (3,)


def test_connections_that_break_as_a_job_ends_well_are_no_fault(tmp_path):
    closed = "[rank1]: socketProgress: Connection closed by remote peer node-b<5349>"

    assert told(judge(tmp_path, {"job.log": [*STEPS, closed], "account.txt": ACCOUNTS["of sacct"]}), NONE) == NONE
