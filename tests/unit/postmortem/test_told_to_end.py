"""Processes that a launcher ends itself: torchrun after half a minute, ft_launcher where one makes no progress."""

import pytest

from .made import judge, summary

API = "torch/distributed/elastic/multiprocessing/api.py"
MONITOR = "[2026-11-20 10:19:0{rank}] [WARNING] [RankMonitorServer:{rank}] {said}"
SAID = [
    "Did not get subsequent heartbeat. Waited 900.00 seconds.",
    "Did not get initial heartbeat. Waited 1800.00 seconds.",
    "Section 'checkpointing' has been open for 911.21 seconds. Timeout is 900.00 seconds.",
    "Was out of section for 301.77 seconds. Timeout is 300.00 seconds.",
]


def told(rank):
    return f"W1120 10:20:27.400000 70 {API}:900] Sending process {5000 + rank} closing signal SIGTERM"


def killed(rank):
    return f"E1120 10:20:58.400000 70 {API}:874] failed (exitcode: -9) local_rank: {rank} (pid: {5000 + rank}) of x"


def stack(rank, *frames):
    return [f"--- RANK={rank} pid {5000 + rank}", f'Thread {5000 + rank} (idle): "MainThread"', *frames]


def test_who_was_told_to_end_before_it_was_killed_is_no_cause(tmp_path):
    assert not judge(tmp_path, [told(3), told(1), killed(3), *summary(3, -9)]).blamed


def test_who_was_killed_before_the_others_were_told_to_end_is_the_cause(tmp_path):
    verdict = judge(tmp_path, [told(1), told(2), killed(3), *summary(3, -9)])

    assert (verdict.kind, verdict.blamed) == ("killed", (3,))


def test_a_process_of_another_host_with_the_same_number_was_not_told_to_end(tmp_path):
    verdict = judge(tmp_path, [killed(3), told(3), told(1), *summary(3, -9)])

    assert (verdict.kind, verdict.blamed) == ("killed", (3,))


@pytest.mark.parametrize("said", SAID)
def test_a_monitor_that_saw_no_progress_of_its_rank_shows_no_cause(said, tmp_path):
    lines = [MONITOR.format(rank=rank, said=said) for rank in (2, 1, 3)]

    verdict = judge(tmp_path, [*lines, *summary(2, -9)])

    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_stacks_say_who_held_up_the_ranks_that_a_monitor_ended(tmp_path):
    wait = ["    barrier (torch/distributed/distributed_c10d.py:4628)", "    save (saving.py:40)", "    main (a.py:9)"]
    write = ["    write (torch/serialization.py:778)", "    save (saving.py:33)", "    main (a.py:9)"]
    stacks = [line for rank in range(4) for line in stack(rank, *(write if rank == 1 else wait))]
    lines = [MONITOR.format(rank=rank, said=SAID[0]) for rank in (3, 1, 2)]

    verdict = judge(tmp_path, {"job.log": [*lines, told(3), killed(3), *summary(3, -9)], "stacks.txt": stacks})

    assert (verdict.kind, verdict.blamed) == ("host", (1,))


def test_monitors_of_several_ranks_are_told_together_and_ask_for_stacks(tmp_path):
    verdict = judge(tmp_path, [MONITOR.format(rank=rank, said=SAID[0]) for rank in (4, 2, 3)])

    assert "monitors of 3 ranks (2-4)" in verdict.because
    assert "py-spy" in verdict.next[0]


def test_a_program_that_left_on_a_signal_was_ended_by_it(tmp_path):
    steps = [f" [2026-11-20 10:0{at}:00] iteration {at}00/ 9000 | lm loss: 2.1 |" for at in range(4)]
    verdict = judge(tmp_path, [*steps, "[exiting program after receiving SIGTERM.] datetime: 2026-11-20 10:06:00"])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("killed", (), False)
