"""Errors without a rank, joined with the one that a launcher saw give up; shared memory that is full."""

import pytest

from .made import judge, summary, timed_out

ERROR = [
    "Traceback (most recent call last):",
    '  File "fit.py", line 4, in <module>',
    "    step()",
    "KeyError: 'tokens'",
]
ENDS = {
    "torchrun's summary": summary(3, 1, "To enable traceback see"),
    "its agent": [
        "E1120 10:20:58.1 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3"
        " (pid: 4411) of binary: /usr/bin/python"
    ],
    "a task of SLURM": ["srun: error: n1: task 3: Exited with exit code 1"],
    "a process of MPI": [
        "mpirun detected that one or more processes exited with non-zero status, thus causing the job to be ended.",
        "  Process name: [[1,1],3]",
        "  Exit code:    1",
    ],
    "Lightning": ["[rank: 3] Child process with PID 4411 terminated with code 1. Forcefully terminating all other"],
    "a launcher of one's own": ["supervisor: rank 3 exited with code 1", "supervisor: rank 0 was ended with code 0"],
}


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_traceback_in_another_file_is_of_the_rank_that_gave_up(end, tmp_path):
    verdict = judge(tmp_path, {"launcher.log": end, "crash.err": ERROR, "rank0.log": [timed_out(0, 5)]})

    assert named(verdict) == ("exception", (3,), False)
    assert any("KeyError" in line.text for line in verdict.evidence)


def test_a_traceback_above_the_words_of_its_launcher_is_of_the_rank_that_gave_up(tmp_path):
    agent = [line.replace("4411", "5003") for line in ENDS["its agent"]]
    host = [*ERROR, *agent, *ENDS["torchrun's summary"]]

    verdict = judge(tmp_path, {"node-a.log": host, "node-b.log": [timed_out(rank, 5) for rank in range(8, 12)]})

    assert named(verdict) == ("exception", (3,), False)
    assert any("KeyError" in line.text for line in verdict.evidence)


@pytest.mark.parametrize(
    "files",
    [
        {"crash.err": [*ERROR, *ERROR]},
        {"crash.err": ERROR, "other.err": ERROR},
        {"crash.err": ERROR, "rank3.log": [timed_out(3, 5)]},
        {"crash.err": [*ERROR, timed_out(1, 5, prefix=False).replace("[Rank 1]", "")]},
        {"crash.err": ERROR, "second.log": ["supervisor: rank 1 exited with code 1"]},
    ],
    ids=["twice", "in two files", "the rank waited", "another waits there", "two gave up"],
)
def test_a_traceback_that_may_be_anothers_has_no_rank(files, tmp_path):
    others = {"launcher.log": ["supervisor: rank 3 exited with code 1"], "rank0.log": ["step 1 loss 2"]}

    verdict = judge(tmp_path, {**others, **files})

    assert verdict.blamed == ()


def test_a_traceback_is_of_the_process_in_the_name_of_its_file_or_of_the_rank_that_its_log_names(tmp_path):
    workers = [
        f"(Controller pid=9) - (ip=10.0.0.1, pid={550 + rank}) world_rank={rank}, local_rank={rank}, node_rank=0"
        for rank in range(4)
    ]
    assert named(judge(tmp_path / "ray", {"driver.log": workers, "worker-ab12-0100-553.err": ERROR})) == (
        "exception",
        (3,),
        False,
    )
    pods = {f"bert-worker-{rank}.log": [f"RANK={rank} WORLD_SIZE=4 LOCAL_RANK=0"] for rank in range(4)}
    pods["bert-worker-3.log"] += ERROR

    assert named(judge(tmp_path / "pods", pods)) == ("exception", (3,), False)


FULL = [
    "OSError: [Errno 28] No space left on device: '/psm_0a1b2c3d'",
    "RuntimeError: cannot map a batch: /dev/shm is full",
    "Error while creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888)",
    "Error: failed to extend /dev/shm/nccl-aBcDeF to 33030532 bytes",
]


@pytest.mark.parametrize("error", FULL)
def test_shared_memory_that_is_full_is_memory_of_the_host(error, tmp_path):
    lines = [*ERROR[:-1], "RuntimeError: NCCL error: unhandled system error" if "nccl" in error else error]

    verdict = judge(tmp_path, {"rank0.log": ["step 1 loss 2"], "rank2.log": [*lines, *([error] * ("nccl" in error))]})

    assert named(verdict) == ("host_memory", (2,), False)


@pytest.mark.parametrize(("used", "kind"), [("64M     0 100%", "host_memory"), (" 1M   63M   2%", "data")])
def test_a_worker_that_ended_while_shared_memory_was_full_is_memory_of_the_host(used, kind, tmp_path):
    table = ["$ df -h /dev/shm", "Filesystem      Size  Used Avail Use% Mounted on", f"shm   64M   {used} /dev/shm"]
    lines = [*ERROR[:-1], "RuntimeError: DataLoader worker (pid 77) exited unexpectedly"]

    verdict = judge(tmp_path, {"rank0.log": ["step 1 loss 2"], "rank2.log": lines, "df.txt": table})

    assert named(verdict) == (kind, (2,), False)


@pytest.mark.parametrize(("second", "blamed"), [("[rank1]: begins", (1,)), ("[rank2]: begins", ())])
def test_a_traceback_is_of_the_one_rank_that_speaks_in_its_file_where_each_rank_has_one(second, blamed, tmp_path):
    verdict = judge(tmp_path, {"t-0.log": ["[rank0]: begins"], "t-1.log": [second, *ERROR]})

    assert (verdict.kind, verdict.blamed) == ("exception", blamed)


PROMPT = ["/opt/nmt/metric.py:9: RuntimeWarning: overflow", "> /opt/nmt/metric.py(10)score()", "-> check(x)", "(Pdb) "]
NUMBERED = ("log.{}.txt", "logs/worker_{}/out", "run-{}.log", "part{}.out")


def numbered(name, odd, *, ranks=4, place=None, shift=0):
    """The logs of ranks, named by number, of which one bears no rank."""
    logs = {name.format(rank + shift): [f"[{rank}] eval", timed_out(rank, 9)] for rank in range(ranks) if rank != place}
    return {**logs, name.format((ranks - 1 if place is None else place) + shift): odd}


@pytest.mark.parametrize("name", NUMBERED)
def test_a_log_without_a_rank_is_of_its_number_where_each_other_named_like_it_is(name, tmp_path):
    assert named(judge(tmp_path, numbered(name, PROMPT, place=2))) == ("host", (2,), False)


OTHERS = {
    "counted from 1": numbered("log.{}.txt", PROMPT, place=2, shift=1),
    "one log more than there are ranks": {
        **numbered("log.{}.txt", [timed_out(3, 9)], place=3),
        "log.4.txt": [*PROMPT, "world_size=4"],
    },
    "a rank that speaks elsewhere": {**numbered("log.{}.txt", PROMPT, place=2), "all.txt": [timed_out(2, 9)]},
    "one other alone": {"log.0.txt": [timed_out(0, 9)], "log.2.txt": PROMPT, "world.txt": ["world_size=8"]},
    "logs of hosts": {
        "log.0.txt": [timed_out(0, 9), timed_out(1, 9)],
        "log.1.txt": [timed_out(2, 9), timed_out(3, 9)],
        "log.2.txt": [*PROMPT, "world_size=6"],
    },
}


@pytest.mark.parametrize("files", OTHERS.values(), ids=OTHERS)
def test_the_number_of_a_log_is_no_rank(files, tmp_path):
    assert judge(tmp_path, files).blamed == ()


def block(host, rank, local, code, at, *others):
    """The summary of one host's torchrun: the first failure, and other ranks on it that ended with the same code."""
    fields = [
        (f"[{n}]:", f"  time      : 2026-11-20_{at}", f"  host      : {host}", f"  rank      : {r} (local_rank: {own})")
        for n, (r, own) in enumerate([*others, (rank, local)])
    ]
    codes = [*(code for _ in others), code]
    blocks = [
        [*own, f"  exitcode  : {c} (pid: {900 + n})"] for n, (own, c) in enumerate(zip(fields, codes, strict=True))
    ]
    body = [line for own in blocks[:-1] for line in own]
    return ["fit.py FAILED", "Failures:", *body, "Root Cause (first observed failure):", *blocks[-1], "=" * 50]


def full(gpu):
    return [
        *ERROR[:-1],
        f"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.91 GiB. GPU {gpu} has a total capacity of"
        " 63.98 GiB of which 1.12 GiB is free.",
    ]


ABORTED = ["[rank1]: ncclRemoteError: A call failed.", *block("m0", 1, 1, -6, "10:20:22")]


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ([*full(2), *block("m1", 6, 2, 1, "10:20:20")], 6),
        ([*full(0), *block("m1", 6, 2, 1, "10:20:20")], 6),
        ([*full(3), *block("m1", 6, 2, 1, "10:20:20", (7, 3))], 7),
    ],
    ids=["its GPU", "each calls its own GPU 0", "one of two, by its GPU"],
)
def test_memory_that_ran_out_on_a_host_is_of_the_rank_that_its_launcher_saw_give_up(lines, rank, tmp_path):
    verdict = judge(tmp_path, {"m0.log": ABORTED, "m1.log": lines})

    assert named(verdict) == ("device_memory", (rank,), False)


@pytest.mark.parametrize(
    "lines",
    [
        [*full(0), *block("m1", 6, 2, 1, "10:20:20", (7, 3))],
        [*full(3), *block("m1", 6, 2, 1, "10:20:20")],
        [*full(0), *full(0), *block("m1", 6, 2, 1, "10:20:20")],
        [*full(2), ENDS["its agent"][0].replace("local_rank: 3", "local_rank: 2")],
        [*full(2), *block("m1", 6, 2, 1, "10:20:40")],
    ],
    ids=["two gave up", "another's GPU", "twice", "no rank of the host is told", "another host's came before"],
)
def test_memory_that_may_have_run_out_on_another_rank_of_the_host_has_no_rank(lines, tmp_path):
    other = [*ABORTED, *ERROR, *block("m0", 1, 1, 1, "10:20:30")]

    verdict = judge(tmp_path, {"m0.log": other, "m1.log": lines})

    assert (verdict.kind, verdict.blamed) == ("device_memory", ())


@pytest.mark.parametrize("name", ["err.{}", "stderr-{}", "worker.{}.txt"])
def test_a_traceback_is_of_the_process_that_ends_the_name_of_its_file(name, tmp_path):
    pids = (2310, 2314, 2311, 2309)
    started = [f"launch: rank {rank} -> pid {pid}" for rank, pid in enumerate(pids)]
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4187"
    files = {name.format(pid): [*ERROR[:-1], ERROR[-1] if rank == 2 else lost] for rank, pid in enumerate(pids)}

    assert named(judge(tmp_path, {"launch.log": started, **files})) == ("exception", (2,), False)
