"""Tables of processes with their memory, taken again and again: whose memory filled its host."""

import pytest

from .made import judge

READY = [f"[box] rank {rank} pid {600 + rank} ready" for rank in range(4)]
BROKE = [f"[rank{rank}]: RuntimeError: Connection closed by peer [10.0.0.{rank}]:1" for rank in (0, 1, 3)]


def free(used):
    return [
        "               total        used        free      shared  buff/cache   available",
        f"Mem:           500Gi       {used}Gi        1Gi        1Gi        1Gi       {499 - used}Gi",
        "Swap:             0B          0B          0B",
    ]


def top(used):
    return [
        f"MiB Mem : 512000.0 total,   1024.0 free, {used * 1024}.0 used,   1024.0 buff/cache",
        f"MiB Swap:      0.0 total,      0.0 free,      0.0 used. {(499 - used) * 1024}.0 avail Mem",
    ]


def snapshot(sizes, head=free):
    """One table; `sizes` are the GiB of ranks 0 to 3, None for one that is gone."""
    rows = [
        f"    {600 + rank} me  20   0  180.1g {size:.1f}g   9.1g R 101.0  8.7   2:33.40 python"
        for rank, size in enumerate(sizes)
        if size is not None
    ]
    columns = "    PID USER  PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND"
    return [*head(sum(size or 0 for size in sizes)), columns, *rows]


@pytest.mark.parametrize("head", [free, top])
@pytest.mark.parametrize(
    ("last", "after", "blamed"),
    [
        ([30, 30, 400, 30], [30, 30, None, 30], (2,)),
        ([30, 30, 200, 30], [30, 30, None, 30], ()),  # there was enough left
        ([120, 120, 125, 125], [120, 120, None, 125], ()),  # all had as much
        ([30, 30, 400, 30], [None, None, None, None], ()),  # the job ended
        ([30, 30, 400, 30], [30, 30, 410, 30], ()),  # it still runs
    ],
)
def test_who_held_most_of_a_full_memory_and_is_gone_was_killed_for_it(head, last, after, blamed, tmp_path):
    tables = [line for sizes in ([30, 30, 90, 30], last, after) for line in snapshot(sizes, head)]

    verdict = judge(tmp_path, {"watch.log": tables, "job.log": [*READY, *BROKE]})

    assert (verdict.blamed if verdict.kind == "host_memory" else ()) == blamed


def grows(*sizes):
    """Tables without a head in which one process has this share of 100 GiB, another stays at 4 GiB."""
    columns = "  PID USER      PR  NI    VIRT    RES    SHR S  %CPU %MEM     TIME+ COMMAND"
    row = "{pid} me        20   0   90.0g  {size:.1f}g   0.2g R  99.0 {size:.1f}   5:11.32 python3 fit.py"
    return [
        line
        for size in sizes
        for line in ("top - 14:02:11 up 12 days", columns, row.format(pid=701, size=4), row.format(pid=702, size=size))
    ]


LABELS = [f"[rank {rank}/2 pid {701 + rank}] 9000 images, 2 workers" for rank in (0, 1)]
KILLED = "subprocess.CalledProcessError: Command '['python3', 'fit.py', '--local_rank=0']' died with <Signals.{}>."


@pytest.mark.parametrize(
    ("sizes", "signal", "expected"),
    [
        ((9, 30, 61, 84), "SIGKILL: 9", ("host_memory", (1,))),
        ((9, 30, 61, 84), "SIGSEGV: 11", ("killed", ())),
        ((9, 20, 31, 34), "SIGKILL: 9", ("killed", ())),
        ((84, 84, 84, 84), "SIGKILL: 9", ("killed", ())),
        ((9, 61, 30, 84), "SIGKILL: 9", ("killed", ())),
    ],
    ids=["grows till it holds most", "ends by another signal", "holds little", "is as large as ever", "ups and downs"],
)
def test_who_grew_till_it_held_most_of_the_memory_is_who_was_killed(sizes, signal, expected, tmp_path):
    verdict = judge(tmp_path, {"top.txt": grows(*sizes), "job.out": [*LABELS, KILLED.format(signal)]})

    assert (verdict.kind, verdict.blamed) == expected


def test_who_grew_is_no_fault_where_nobody_was_killed(tmp_path):
    assert judge(tmp_path, {"top.txt": grows(9, 30, 61, 84), "job.out": LABELS}).kind == "none"
