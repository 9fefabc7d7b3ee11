"""Stacks of gdb and its likes: C above Python, several threads, several processes, helpers of ranks."""

import pytest

from .made import joined, judge

HEAD = ["[New LWP 911]", "[Thread debugging using libthread_db enabled]"]
REDUCES = [
    "0x00007f10a1b2c3d4 in ?? () from /usr/lib/libcuda.so.1",
    "0x00007f10a1b2c3d5 in cudaStreamSynchronize () from /opt/cuda/libcudart.so.12",
    "0x00007f10a1b2c3d6 in at::native::item(at::Tensor const&) () from /env/lib/libtorch_cuda.so",
]
SUMS = [
    "0x00007f10a1b2c3d4 in syscall () from /lib64/libc.so.6",
    "0x00007f10a1b2c3d7 in groupLaunch(ncclAsyncJob*) () from /usr/lib/libnccl.so.2",
    "0x00007f10a1b2c3d8 in ncclAllReduce () from /usr/lib/libnccl.so.2",
]
WRITES = ["__libc_write (nbytes=4096, buf=0x55, fd=9) at ../sysdeps/unix/sysv/linux/write.c:26"]
C10D = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
INSIDE = [
    "0x0000000000511b2d in _PyEval_EvalFrameDefault (tstate=<optimized out>, f=<optimized out>) at Python/ceval.c:3580",
    "0x0000000000511b2e in _PyFunction_Vectorcall (func=<optimized out>,\n    stack=0x7f) at Objects/call.c:436",
]
LOADS = [
    "Traceback (most recent call first):",
    "  <built-in method poll of select.poll object at remote 0x7f10>",
    '  File "/env/lib/python3.11/selectors.py", line 415, in select',
    "    fd_event_list = self._selector.poll(timeout)",
    '  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1133, in _try_get_data',
    "    data = self._data_queue.get(timeout=timeout)",
    '  File "fit.py", line 88, in <module>',
    "    for batch in loader:",
]


def numbered(frames):
    return [line for at, frame in enumerate(frames) for line in f"#{at}  {frame}".split("\n")]


def whole(pid, frames, *, head='Thread 1 (Thread 0x7f10a2 (LWP {pid}) "python"):'):
    """What `thread apply all bt` prints: a thread of the driver before the first one."""
    idle = numbered(
        ["0x00007f10a1b2c3d9 in poll () from /lib64/libc.so.6", "0x00007f10a1 in clone () from /lib64/c.so"]
    )
    other = head.format(pid=pid + 7).replace("Thread 1 ", "Thread 2 ").replace("python", "cuda-EvtHandlr")
    return [*HEAD, "", other, *idle, "", head.format(pid=pid), *numbered([*frames, *INSIDE]), ""]


FORMS = {
    "threads with names": lambda pid, frames: [f"$ gdb -p {pid} -batch -ex 'thread apply all bt'", *whole(pid, frames)],
    "threads without": lambda pid, frames: whole(pid, frames, head="Thread 1 (Thread 0x7f10a2 (LWP {pid})):"),
    "no thread library": lambda pid, frames: whole(pid, frames, head="Thread 1 (LWP {pid}):"),
    "one thread": lambda pid, frames: [f"$ gdb --batch --pid {pid} -ex bt", *HEAD, *numbered([*frames, *INSIDE])],
    "at its prompt": lambda pid, frames: [f"(gdb) attach {pid}", *HEAD, "(gdb) bt", *numbered(frames), "(gdb) detach"],
    "gstack": lambda pid, frames: [f"$ gstack {pid}", *whole(pid, frames)[2:]],
}


def of_eu_stack(pid, frames):
    bare = [f"0x00007f10a1b2c3d4 {frame.replace('(', ' ').split(' in ')[-1].split()[0]}" for frame in frames]
    return [f"PID {pid} - process", f"TID {pid + 5}:", "#0  0x00007f10a1b2c3d9 poll", f"TID {pid}:", *numbered(bare)]


FORMS["eu-stack"] = of_eu_stack


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_who_writes_while_the_others_are_in_nccl_is_in_a_host_call(form, tmp_path):
    files = {f"rank{rank}.txt": form(4000 + rank, WRITES if rank == 2 else SUMS) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("host", (2,), False)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_processes_of_one_file_are_the_ranks_that_nccl_says(form, tmp_path):
    pids = {rank: joined(rank, 4).split(":")[1] for rank in range(4)}
    dumps = [line for r in range(4) for line in form(int(pids[r]), WRITES if r == 1 else REDUCES)]

    verdict = judge(tmp_path, {"gdb.txt": dumps, "job.log": [joined(rank, 4) for rank in range(4)]})

    assert named(verdict) == ("host", (1,), False)


def test_functions_of_python_follow_those_of_c(tmp_path):
    def dump(rank):
        asked = f"$ gdb -p {4000 + rank} -batch -ex bt -ex py-bt"
        return [asked, *HEAD, *numbered([*(REDUCES if rank != 3 else []), *INSIDE]), *(LOADS if rank == 3 else [])]

    assert named(judge(tmp_path, {f"rank{rank}.txt": dump(rank) for rank in range(4)})) == ("data", (3,), False)


def test_functions_of_python_alone_are_told_apart_by_threads(tmp_path):
    def dump(rank):
        inner = LOADS if rank == 3 else [LOADS[0], f'  File "{C10D}", line 9, in all_reduce', "    work.wait()"]
        idle = [LOADS[0], '  File "/env/lib/python3.11/threading.py", line 320, in wait', "    waiter.acquire()", ""]
        threads = [f"Thread {n} (Thread 0x7f1 (LWP {4000 + 10 * rank + n})):" for n in (2, 1)]
        return [f"Attaching to process {4001 + 10 * rank}", threads[0], *idle, threads[1], *inner]

    assert named(judge(tmp_path, {f"rank{rank}.txt": dump(rank) for rank in range(4)})) == ("data", (3,), False)


def test_a_debugger_that_knows_python_shows_its_functions_in_the_interpreters(tmp_path):
    inside = (
        "0x511b2d in _PyEval_EvalFrameDefault (f=Frame 0x55, for file /env/torch/utils/data/dataloader.py, line 9,"
        " in _try_get_data (self=<_Loader at remote 0x7f>), throwflag=0) at Python/ceval.c:3580"
    )
    files = {f"rank{rank}.txt": whole(4000 + rank, [inside] if rank == 0 else SUMS) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("data", (0,), False)


def test_a_thread_in_a_collective_tells_where_a_process_is_that_waits_for_its_threads(tmp_path):
    joins = numbered(["__pthread_clockjoin_ex (threadid=9) at pthread_join_common.c:145"])

    def dump(rank):
        frames = numbered(WRITES if rank == 2 else SUMS)
        if rank == 2:
            return [*HEAD, f'Thread 1 (Thread 0x7f (LWP {4000 + rank}) "python"):', *frames]
        own = [f'Thread 2 (Thread 0x7e (LWP {5000 + rank}) "tower"):', *frames, ""]
        return [*HEAD, *own, f'Thread 1 (Thread 0x7f (LWP {4000 + rank}) "python"):', *joins]

    assert named(judge(tmp_path, {f"rank{rank}.txt": dump(rank) for rank in range(4)})) == ("host", (2,), False)


def test_a_child_of_a_rank_is_no_rank(tmp_path):
    def dump(rank):
        return [f"$ gdb -p {4000 + rank} -batch -ex py-bt", *HEAD, *(LOADS if rank == 1 else numbered(REDUCES))]

    worker = [
        "$ ps -o pid,ppid,stat,cmd --ppid 4001",
        "    PID    PPID STAT CMD",
        "   4500    4001 S    python fit.py",
        "$ gdb -p 4500 -batch -ex bt",
        *numbered(["__lll_lock_wait () at lowlevellock.S:135", "cv::resize () from /env/cv2.so"]),
    ]
    files = {f"gdb_{4000 + rank}.txt": dump(rank) for rank in range(4)}
    log = [f"INFO: rank {rank} of 4, pid {4000 + rank}" for rank in range(4)]

    verdict = judge(tmp_path, {**files, "worker.txt": worker, "job.log": log})

    assert named(verdict) == ("data", (1,), False)


def test_nobody_is_named_where_a_stack_of_c_has_no_name_that_tells(tmp_path):
    polls = ["0x7f in poll () from /lib64/libc.so.6", "0x7f in ?? () from /opt/own/libown.so"]
    files = {f"rank{rank}.txt": whole(4000 + rank, {1: WRITES, 2: polls}.get(rank, SUMS)) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("host", (), True)


LEAVES = [
    "0x7f in pthread_cond_wait () from /lib64/libc.so.6",
    "0x7f in ncclCommDestroy () from /usr/lib/libnccl.so.2",
    "0x7f in c10d::ProcessGroupNCCL::shutdown() () from /env/libtorch_cuda.so",
]


def test_who_destroys_its_groups_does_not_come_to_the_call_of_the_others(tmp_path):
    files = {f"rank{rank}.txt": whole(4000 + rank, LEAVES if rank == 2 else SUMS) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("absent", (2,), False)


def test_all_who_destroy_their_groups_hang_there_together(tmp_path):
    files = {f"rank{rank}.txt": whole(4000 + rank, LEAVES) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("stuck", (), False)


def test_the_frames_of_a_crash_are_no_stack_of_a_process_that_hangs(tmp_path):
    crash = ["[rank0]: frames of the crash", *numbered(["0x7f in raise () from /lib64/libc.so.6", *SUMS])]

    assert judge(tmp_path, {"rank0.log": crash, "rank1.log": crash}).kind == "none"
