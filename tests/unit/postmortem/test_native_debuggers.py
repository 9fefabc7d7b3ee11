"""Stacks of native debuggers (gdb, eu-stack, lldb): who is in a collective, who is elsewhere, who tells nothing."""

import pytest

from meshwright.postmortem.inputs import read_all
from meshwright.postmortem.nouns.facts import StackTrace, of

from .made import judge

SPINS = ["0x00007f10aa0b2b00 in fi_cq_read () from /opt/lib/libfabric.so.1", "poll_all (ep=0x55) at progress.cpp:71"]
C10D = [
    *SPINS,
    "c10d::ProcessGroupXCCL::allreduce(std::vector<at::Tensor>&, c10d::Options const&) () from /v/libxpu.so",
]
FIRST = [
    *(*SPINS, "0x00007f10aa0b2c00 in c10d::ProcessGroupGloo::allgather(at::Tensor&) () from /v/libcpu.so"),
    "c10d::ProcessGroupXCCL::(anonymous namespace)::makeComm(int) ()",
    "c10d::ProcessGroupXCCL::allreduce(at::Tensor&) ()",
]
CCL = ["ccl_executor::wait(ccl_request const*) ()", "ccl_coll_create(ccl_coll_param&) ()", "ccl_allreduce(void*) ()"]
MPI = ["0x00002aaaab08ff28 in poll_dispatch () from /l/libopen-pal.so.6", "PMPI_Allreduce () from /l/libmpi.so.12"]
NCCL = ["__GI___sched_yield () at ../sysdeps/yield.S:120", "ncclGroupEnd () from /l/libnccl.so.2", "pncclAllReduce ()"]
ENGINE = ["pthread_cond_wait () from /l/libc.so.6", "torch::autograd::Engine::execute(int) () from /v/libcpu.so"]
READS = ["0x00007f10aa0b2d00 in __GI___libc_read (fd=9, nbytes=4096) at read.c:26", "_Py_read ()", "main ()"]
UNKNOWN = ["0x00007f10aa0b2e00 in ?? () from /l/libcuda.so.1", "?? ()", "main ()"]
POLLS = ["__GI___poll (fds=0x7f, nfds=1) at poll.c:29", "main ()"]


def gdb(rank, frames, *, pid=None):
    """What `gdb -batch` prints of the main thread."""
    command = f'$ gdb -p {pid or 5100 + rank} -batch -ex "thread 1" -ex bt   # RANK={rank}'
    return [
        command,
        "[Thread debugging using libthread_db enabled]",
        *numbered(frames),
        f"[Inferior 1 (process {pid})]",
    ]


def numbered(frames):
    return [f"#{at:<3}{frame}" for at, frame in enumerate(frames)]


def all_threads(frames):
    """The same of all threads, the main one last, a helper's of NCCL before it."""
    helper = ["__GI___poll (fds=0x7f) at poll.c:29", "ncclProxyService (_args=0x55) at proxy.cc:1437", "clone ()"]
    heading = 'Thread {0} (Thread 0x7f10aa0b2b0{0} (LWP 771{0}) "python"):'
    return [heading.format(2), *numbered(helper), "", heading.format(1), *numbered(frames)]


def elfutils(pid, frames):
    """What `eu-stack -p` prints, the main thread first."""
    rows = [frame if frame.startswith("0x") else f"0x00007f10aa0b2b00 {frame}" for frame in frames]
    rows = [row.replace(" in ", " ") for row in rows]
    return [
        f"PID {pid} - process",
        f"TID {pid}:",
        *numbered(rows),
        f"TID {pid + 1}:",
        *numbered(["0x00007f1000 clone"]),
    ]


def lldb(frames):
    names = [frame.rsplit(" in ", 1)[-1] for frame in frames]
    rows = [f"    frame #{at}: 0x00007f10aa0b2b00 libx.so`{name} + 29" for at, name in enumerate(names)]
    return ["* thread #1, name = 'python', stop reason = signal SIGSTOP", *rows]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown, verdict.collective


WAITS = {"c10d": C10D, "the first call of a group": FIRST, "oneCCL": CCL, "MPI": MPI, "NCCL": NCCL}


@pytest.mark.parametrize("frames", WAITS.values(), ids=WAITS)
def test_all_ranks_whose_native_stacks_are_in_one_collective_are_stuck_in_it(frames, tmp_path):
    files = {f"bt_rank{rank}.txt": gdb(rank, frames) for rank in range(4)}
    assert named(judge(tmp_path, files)) == ("stuck", (), False, "all_reduce")


FORMS = {
    "one thread": lambda rank, frames: gdb(rank, frames),
    "all threads": lambda rank, frames: all_threads(frames),
    "elfutils": lambda rank, frames: elfutils(5100 + rank, frames),
    "lldb": lambda rank, frames: lldb(frames),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_rank_whose_native_stack_reads_while_the_others_are_in_a_collective_is_named(form, tmp_path):
    files = {f"bt_rank{rank}.txt": form(rank, READS if rank == 1 else C10D) for rank in range(4)}
    assert named(judge(tmp_path, files)) == ("host", (1,), False, "all_reduce")


def test_a_note_behind_gdbs_command_says_the_rank_of_each_stack_in_one_file(tmp_path):
    lines = [line for rank in range(4) for line in gdb(rank, READS if rank == 3 else CCL)]
    assert named(judge(tmp_path, lines)) == ("host", (3,), False, "all_reduce")


def test_a_native_stack_in_the_tokenizers_library_is_of_data(tmp_path):
    library = "/v/site-packages/tokenizers/tokenizers.abi3.so"
    frames = ["futex_wait () from /l/libc.so.6", f"rayon_core::sleep::Sleep::sleep () from {library}", "main ()"]
    files = {f"bt_rank{rank}.txt": gdb(rank, frames if rank == 3 else C10D) for rank in range(4)}
    assert named(judge(tmp_path, files)) == ("data", (3,), False, "all_reduce")


def test_a_library_below_a_folder_of_data_tells_nothing(tmp_path):
    frames = ["futex_wait () from /datasets/venv/libc.so.6", "main ()"]
    files = {f"bt_rank{rank}.txt": gdb(rank, frames if rank == 3 else C10D) for rank in range(4)}
    assert judge(tmp_path, files).blamed == ()


@pytest.mark.parametrize("frames", [UNKNOWN, POLLS], ids=["no names", "a poll of nobody's"])
def test_where_one_native_stack_tells_nothing_it_is_not_known_who_is_late(frames, tmp_path):
    files = {f"bt_rank{rank}.txt": gdb(rank, frames if rank == 1 else C10D) for rank in range(4)}
    verdict = judge(tmp_path, files)
    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("stuck", (), True)
    assert any("rank 1" in lack for lack in verdict.missing)


@pytest.mark.parametrize("frames", [ENGINE, ["__GI_raise ()", "__GI_abort ()", *C10D]], ids=["backward", "crashed"])
def test_who_waits_for_the_threads_of_its_backward_or_has_crashed_is_not_late(frames, tmp_path):
    files = {f"bt_rank{rank}.txt": gdb(rank, frames if rank == 1 else C10D) for rank in range(4)}
    assert judge(tmp_path, files).blamed == ()


def test_the_frames_that_torch_prints_below_an_error_are_no_stack_of_a_process_that_runs(tmp_path):
    frames = ["frame #0: c10::Error::Error(c10::SourceLocation) + 0x99 (0x7f10aa0b2b00 in /v/libc10.so)"]
    frames += ["frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout() + 0x1e1 (0x7f10aa0b2b99 in /v/libcuda.so)"]
    verdict = judge(tmp_path, {f"rank{rank}.log": ["epoch 3", *frames] for rank in range(4)})
    assert (verdict.kind, verdict.unknown) == ("none", True)


def at_prompt(frames, *, python=()):
    """What a person copies of a debugger's screen: no command that says the process."""
    below = ["(gdb) py-bt", "Traceback (most recent call first):", *python] if python else []
    return ["(gdb) bt", *numbered(frames), *below]


def test_stacks_that_were_asked_for_at_the_debuggers_prompt_are_read(tmp_path):
    files = {f"gdb_rank{rank}.txt": at_prompt(READS if rank == 2 else C10D) for rank in range(4)}
    assert named(judge(tmp_path, files)) == ("host", (2,), False, "all_reduce")


def test_a_second_stack_of_one_process_at_the_prompt_is_not_glued_to_its_first(tmp_path):
    python = ['  File "/v/torch/distributed/distributed_c10d.py", line 2900, in all_reduce']
    python += ['  File "/w/job.py", line 80, in average', '  File "/w/job.py", line 120, in <module>']
    (tmp_path / "gdb_rank1.txt").write_text("\n".join(2 * at_prompt(C10D, python=python)))
    found = of(read_all([tmp_path]).facts, StackTrace)
    assert [(stack.rank, len(stack.frames)) for stack in found] == 2 * [(1, len(C10D) + len(python))]
