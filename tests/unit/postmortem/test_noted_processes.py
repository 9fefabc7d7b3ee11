"""Notes of people on whose process is which, and numbers in the names of dumps that are a clock's or a process's."""

import pytest

from .made import judge, timed_out
from .test_whose_stacks import LOADS, REDUCES, dump

PIDS = (7101, 7102)
WAITS = [timed_out(rank, 5) for rank in (1, 2, 3)]
SAVES = "__write (libpthread-2.28.so)"
TABLE = [
    "$ ps -o pid,stat,wchan:20,cmd -p 7101,7102",
    "  PID STAT WCHAN                CMD",
    " 7101 Dl   rpc_wait_bit_killable python fit.py",
    " 7102 Rl   -                    python fit.py",
]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def both(*, inner=(SAVES, REDUCES)):
    return [line for pid, call in zip(PIDS, inner, strict=True) for line in dump(pid, "python fit.py", call)]


NOTES = {
    "numbers on the host": "# py-spy, pids: 7101 = local rank 0, 7102 = local rank 1 (the rest looks like 1)",
    "ranks": "# pid 7101 -> rank 0, pid 7102 -> rank 1",
    "the rank first": "rank 0: pid 7101, rank 1: pid 7102",
    "in brackets": "# pids: 7101 (rank 0), 7102 (rank 1)",
    "of one alone": "# pid 7101 is rank 0, the others wait in a barrier",
    "short": "# py-spy of rank0=7101 rank1=7102",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_on_several_processes_tells_their_ranks(note, tmp_path):
    verdict = judge(tmp_path, {"spy.txt": [note, *both(), *TABLE], "job.log": WAITS})

    assert named(verdict) == ("host", (0,), False)


NO_NOTES = {
    "of hosts": "# pids: 7101 = node rank 0, 7102 = node rank 1",
    "in a group": "# pids: 7101 = tp rank 0, 7102 = tp rank 1",
    "two of one number": "# pids: 7101 = local rank 0, 7102 = local rank 0",
    "no comment": "7101 = local rank 0, by py-spy",
}


@pytest.mark.parametrize("note", NO_NOTES.values(), ids=NO_NOTES)
def test_a_note_that_counts_something_else_tells_no_rank(note, tmp_path):
    verdict = judge(tmp_path, {"spy.txt": [note, *both(), *TABLE]})

    assert verdict.blamed == ()


def test_numbers_on_one_of_two_hosts_are_no_ranks(tmp_path):
    waits = [timed_out(rank, 5) for rank in range(16) if rank not in {0, 8}]

    verdict = judge(tmp_path, {"spy.txt": [NOTES["numbers on the host"], *both(), *TABLE], "job.log": waits})

    assert verdict.kind == "absent"


@pytest.mark.parametrize("name", ["spy_0330.txt", "spy-12.txt"])
def test_a_number_in_the_name_of_the_dumps_of_two_processes_is_no_rank(name, tmp_path):
    verdict = judge(tmp_path, {name: both(inner=(LOADS, REDUCES)), "job.log": WAITS})

    assert set(verdict.blamed) <= {0}


def test_the_hour_in_the_name_of_one_dump_is_no_rank(tmp_path):
    verdict = judge(tmp_path, {"spy_0330.txt": dump(7101, "python fit.py", LOADS), "job.log": WAITS})

    assert set(verdict.blamed) <= {0}


STEPS = [f"2026-11-20 13:{minute:02}:00 step {minute} loss 1.0" for minute in range(60)]


@pytest.mark.parametrize(("name", "kind"), [("spy-1330.txt", "none"), ("spy-1430.txt", "data"), ("spy.txt", "data")])
def test_a_job_trains_on_after_the_hour_in_the_name_of_its_dumps(name, kind, tmp_path):
    lines = [
        line
        for rank in range(4)
        for line in dump(90 + rank, f"python fit.py --rank {rank}", (REDUCES, LOADS)[rank == 2])
    ]

    assert judge(tmp_path, {name: lines, "job.log": STEPS}).kind == kind


def environment(*lines):
    return ["$ tr '\\0' '\\n' < /proc/7101/environ | grep RANK", *lines]


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        (["RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=4"], 0),
        (["PATH=/bin", "LOCAL_RANK=0", "RANK=8"], 8),
        (["RANK=2"], None),
        (["LOCAL_RANK=3", "RANK=1"], None),
        (["total 8", "RANK=0", "LOCAL_RANK=0"], None),
    ],
    ids=["one host", "another host", "may count hosts", "counts hosts", "of something else"],
)
def test_the_environment_of_a_process_one_name_a_line_tells_its_rank(lines, rank, tmp_path):
    waits = [timed_out(other, 5) for other in (1, 2, 3, 4, 5, 6, 7, *range(9, 16), *([8] if rank != 8 else [0]))]
    files = {"shell.txt": [*dump(7101, "python fit.py", LOADS), *environment(*lines)], "job.log": waits}

    verdict = judge(tmp_path, files)

    assert verdict.kind == ("data" if rank is not None else "absent")
    assert verdict.blamed == (0 if rank is None else rank,)


@pytest.mark.parametrize(("name", "ranks"), [("r8-stack.txt", (8,)), ("stack-8.txt", ()), ("r0-stack.txt", (0,))])
def test_a_name_that_says_rank_tells_more_than_the_number_on_the_host(name, ranks, tmp_path):
    lines = ["$ cat wchan", "INFO: task python:7101 blocked for more than 120 seconds."]
    waits = [timed_out(rank, 5) for rank in (1, 3, 6, 9, 12)]

    verdict = judge(tmp_path, {name: [*dump(7101, "python fit.py --local_rank=0", SAVES), *lines], "job.log": waits})

    assert named(verdict) == ("host", ranks, not ranks)


FORKED = "/usr/bin/python -c from multiprocessing.spawn import spawn_main; --multiprocessing-fork"
KILLED = "[812733.1] Memory cgroup out of memory: Killed process 54002 (python) total-vm:9kB, anon-rss:8000000kB"
WORDS = [f"2026-11-20 10:02:41 [rank {rank}] pid {12 + rank} device cuda:{rank}" for rank in range(2)]
ON_MACHINE = {
    "a comment behind the command": [
        "PID PPID COMMAND",
        *(f"{54001 + n} 53995 {FORKED}   # rank {n} ({12 + n} inside)" for n in range(2)),
    ],
    "an arrow behind the command": [
        "PID PPID COMMAND",
        *(f"{54001 + n} 53995 {FORKED}  <-- rank {n}" for n in range(2)),
    ],
    "its number on the host": ["PID PPID COMMAND", *(f"{54001 + n} 53995 {FORKED} (local rank {n})" for n in range(2))],
    "the numbers of its namespaces": [f"/proc/{54001 + n}/status:NSpid:\t{54001 + n}\t{12 + n}" for n in range(2)],
    "those of one process": ["Name:\tpython", "Pid:\t54002", "NSpid:\t54002\t700\t13"],
}


@pytest.mark.parametrize("table", ON_MACHINE.values(), ids=ON_MACHINE)
def test_a_process_that_the_kernel_killed_is_the_rank_of_its_number_on_the_machine(table, tmp_path):
    verdict = judge(tmp_path, {"job.log": WORDS, "top.txt": table, "dmesg.txt": [KILLED]})

    assert named(verdict) == ("host_memory", (1,), False)


@pytest.mark.parametrize(
    "table",
    [
        ["PID PPID COMMAND", *(f"{54001 + n} 53995 {FORKED}  # tp rank {n} (of 2)" for n in range(2))],
        ["NSpid:\t54002\t99"],
        [f"NSpid:\t54002\t{12 + n}" for n in range(2)],
    ],
    ids=["places in a group", "of another process", "of two processes"],
)
def test_a_process_whose_number_leads_to_no_rank_names_nobody(table, tmp_path):
    verdict = judge(tmp_path, {"job.log": WORDS, "top.txt": table, "dmesg.txt": [KILLED]})

    assert verdict.blamed == ()


SIGNAL = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"


@pytest.mark.parametrize(
    ("size", "hosts", "blamed"),
    [("World size: 2", (), (1,)), ("World size: 16", (), ()), ("World size: 2", ("m1", "m2"), ())],
    ids=["too small for a second host", "two of sixteen", "two hosts"],
)
def test_a_spawned_process_is_the_rank_of_its_number_where_the_job_has_one_host(size, hosts, blamed, tmp_path):
    ranks = int(size.split()[-1])
    words = [f"[rank {rank}] pid {12 + rank} begins" for rank in range(ranks)]
    words = [f"{line} on host {hosts[at]}" if hosts else line for at, line in enumerate(words)]

    verdict = judge(tmp_path, {"job.log": [size, *words, SIGNAL]})

    assert named(verdict)[:2] == ("killed", blamed)
