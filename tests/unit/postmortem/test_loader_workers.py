"""A loader's worker that the kernel killed for memory: whose it was, by the error of the rank that lost it."""

from .made import answer, judge, raised, timed_out, told

WAITED = [timed_out(rank, 70) for rank in (0, 1)]
KERNEL = "Nov 20 10:05:00 node-a kernel: Out of memory: Killed process {} ({}) total-vm:9kB, anon-rss:61234567kB"


def lost(rank, *pids):
    """What torch raises in a rank whose loader misses workers and does not know why."""
    return raised(rank, f"RuntimeError: DataLoader worker (pid(s) {', '.join(map(str, pids))}) exited unexpectedly")


def judged(tmp_path, lines, pid, name="pt_data_worker"):
    return judge(tmp_path, {"train.log": [*lines, *WAITED], "node-a.kern": [KERNEL.format(pid, name)]})


def test_the_error_that_names_the_killed_worker_tells_whose_it_was(tmp_path):
    wanted = answer("host_memory", 6, 70)

    assert told(judged(tmp_path, lost(6, 8140, 8141), 8141), wanted) == wanted


def test_of_two_ranks_that_lost_workers_the_number_tells_which_ran_out_of_memory(tmp_path):
    wanted = answer("host_memory", 6, 70)

    assert told(judged(tmp_path, [*lost(3, 9002), *lost(6, 8141)], 8141), wanted) == wanted


def test_a_worker_of_a_container_is_of_the_one_rank_that_lost_one(tmp_path):
    wanted = answer("host_memory", 6, 70)

    assert told(judged(tmp_path, lost(6, 31), 8141), wanted) == wanted


def test_of_two_ranks_that_lost_workers_of_other_numbers_neither_is_named(tmp_path):
    verdict = judged(tmp_path, [*lost(3, 30), *lost(6, 31)], 8141)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host_memory", (), True)


def test_a_program_of_others_that_was_killed_for_memory_is_no_worker(tmp_path):
    verdict = judged(tmp_path, lost(6, 31), 8141, name="fluent-bit")

    assert (verdict.kind, verdict.blamed) == ("data", (6,))
