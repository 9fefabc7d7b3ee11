"""Traces of calls of the kernel, environments of processes, and GPUs that a job is given in an order of its own."""

import json

import pytest

from .made import answer, judge, told

HOST = ["1", "CUDA_VISIBLE_DEVICES=3,2,1,0", "NODE_RANK=1", "LOCAL_WORLD_SIZE=4"]
ASKED = '$ echo $SLURM_NODEID; tr "\\0" "\\n" < /proc/5100/environ | egrep "^(CUDA_VIS|NODE_RANK|LOCAL_WORLD)"'
GPUS = [
    "# gpu         pid   type     sm    mem    enc    dec    command",
    *(f"    {gpu}        {5100 + gpu}     C     99      0      -      -    python3" for gpu in range(4)),
]
LOCKED = "fcntl(19, F_SETLKW, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=0, l_len=0}"
WAITS = f"[pid  5103] {LOCKED} <unfinished ...>"
HELPERS = "[pid  5190] futex(0x7f90b78ba28a, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, 0 <unfinished ...>"
PATH = "l-wx------ 1 u u 64 Nov 20 10:41 /proc/5103/fd/19 -> /lustre/u/extensions/adam/lock"
OTHER = ["$ strace -p 5101 -c -f & sleep 5; kill %1", " 98.11    4.120012           1   3120033           sched_yield"]


def traced(*calls):
    return ["$ timeout 20 strace -f -p 5103", "strace: Process 5103 attached with 9 threads", *calls, "", PATH]


def paste(*calls, host=HOST):
    return {"b2.txt": [ASKED, *host, "$ nvidia-smi pmon -c 1", *GPUS, *traced(*calls), *OTHER]}


def test_a_process_that_waits_for_a_lock_is_the_rank_of_its_gpu_in_the_order_that_the_job_is_given(tmp_path):
    verdict = judge(tmp_path, paste(HELPERS, WAITS))

    assert told(verdict, answer("host", 4)) == answer("host", 4)
    assert "/lustre/u/extensions/adam/lock" in verdict.because


def test_a_job_that_is_given_no_order_of_gpus_has_ranks_in_theirs(tmp_path):
    verdict = judge(tmp_path, paste(WAITS, host=[HOST[0], *HOST[2:]]))

    assert told(verdict, answer("host", 7)) == answer("host", 7)


RETURNS = {
    "with its thread": [f"[pid  5103] {LOCKED}) = 0"],
    "later": [WAITS, "[pid  5103] <... fcntl resumed>) = 0"],
    "and the process goes on": [WAITS, "[pid  5103] futex(0x7f90b78ba28a, FUTEX_WAIT, 0, NULL, 0 <unfinished ...>"],
    "of another thread": [WAITS.replace("5103", "5190")],
}


@pytest.mark.parametrize("calls", RETURNS.values(), ids=RETURNS)
def test_a_wait_for_a_lock_that_ends_or_is_a_helpers_shows_nothing(calls, tmp_path):
    assert judge(tmp_path, paste(*calls)).kind == "none"


def test_processes_that_all_wait_for_a_lock_are_not_blamed(tmp_path):
    files = paste(WAITS)
    files["b2.txt"] = [line for line in files["b2.txt"] if line not in OTHER]
    files["b2.txt"] += [line.replace("5103", "5101") for line in traced(WAITS)]

    assert not judge(tmp_path, files).blamed


def test_a_process_that_does_something_else_may_hold_the_lock_for_which_another_one_waits(tmp_path):
    files = paste(WAITS)
    files["b2.txt"] = [line.replace("sched_yield", "wait4") for line in files["b2.txt"]]

    assert not judge(tmp_path, files).blamed


def test_a_process_whose_trace_ends_in_a_poll_waits_for_others(tmp_path):
    files = paste(WAITS)
    polls = ["$ strace -p 5102", "strace: Process 5102 attached", "poll([{fd=9, events=POLLIN}], 1, -1"]
    files["b2.txt"] = [*(line for line in files["b2.txt"] if line not in OTHER), *polls]

    assert judge(tmp_path, files).blamed == (4,)


def test_a_gpu_that_the_job_is_not_given_has_no_rank(tmp_path):
    host = [HOST[0], "CUDA_VISIBLE_DEVICES=2,1", "NODE_RANK=1", "LOCAL_WORLD_SIZE=2"]

    assert not judge(tmp_path, paste(WAITS, host=host)).blamed


RANKS = {9125: 2, 9121: 3, 9122: 0, 9129: 1}  # by the number of the process


def stood(pid):
    """The dump of one process by `py-spy dump --json`: rank 2 reads, the others wait for it."""
    frames = [("read_index", "/srv/index.py", 40)] if RANKS[pid] == 2 else [("barrier", "torch/distributed/c10d.py", 9)]
    frames += [("evaluate", "/srv/fit.py", 31), ("<module>", "/srv/fit.py", 99)]
    told = [{"name": name, "filename": file, "short_filename": file, "line": line} for name, file, line in frames]
    return json.dumps([{"pid": pid, "thread_id": 1, "thread_name": "MainThread", "frames": told}], indent=1).encode()


def environment(rank, *, ends="\n", local=None):
    values = {"HOME": "/root", "RANK": rank, "LOCAL_RANK": rank if local is None else local, "WORLD_SIZE": 4}
    return "".join(f"{name}={value}{ends}" for name, value in values.items()).encode()


NAMES = {"9125.environ.txt": "{}.environ.txt", "environ_9125": "environ_{}", "9125/environ": "{}/environ"}


@pytest.mark.parametrize("ends", ["\n", "\0"], ids=["a line each", "as the kernel has it"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_the_environment_in_a_file_named_after_a_process_tells_the_rank_of_its_stack(name, ends, tmp_path):
    files = {f"{pid}.json": stood(pid) for pid in RANKS}
    files |= {name.format(pid): environment(rank, ends=ends) for pid, rank in RANKS.items()}

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host", (2,), False)


def test_the_environments_of_a_launchers_agents_tell_no_rank(tmp_path):
    files = {f"{pid}.json": stood(pid) for pid in RANKS}
    files |= {f"{pid}.environ": f"RANK={rank}\nWORLD_SIZE=4\n".encode() for pid, rank in RANKS.items()}

    assert judge(tmp_path, files).blamed == ()


def of_rank(rank, call):
    return {f"strace_rank{rank}.txt": [f"strace: Process {70 + rank} attached", call]}


def test_a_trace_in_a_file_named_after_a_rank_is_the_ranks(tmp_path):
    polled = "futex(0x7f90b78ba28a, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL"
    files = [of_rank(rank, "flock(6, LOCK_EX" if rank == 2 else polled) for rank in range(4)]

    verdict = judge(tmp_path, {name: lines for file in files for name, lines in file.items()})

    assert (verdict.kind, verdict.blamed) == ("host", (2,))


def test_traces_of_ranks_that_all_wait_for_a_lock_blame_nobody(tmp_path):
    files = [of_rank(rank, "flock(6, LOCK_EX") for rank in range(3)]

    assert not judge(tmp_path, {name: lines for file in files for name, lines in file.items()}).blamed
