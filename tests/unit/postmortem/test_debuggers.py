"""Prompts of debuggers that were left in a program: who stands there keeps the others, and is stuck in its host."""

import pytest

from .made import judge, timed_out

AT = ["> /home/me/speech/losses.py(31)mask()", "-> if empty.all(): breakpoint()"]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def waits(*ranks):
    return [timed_out(rank, 9) for rank in ranks]


PROMPTS = {
    "pdb": [*AT, "(Pdb) "],
    "ipdb": ["> /home/me/speech/losses.py(31)mask()", "     30 ", "---> 31 x", "", "ipdb> "],
    "IPython": ["In [1]: "],
    "a debugger of the network": ["RemotePdb session open at 127.0.0.1:4444, waiting for connection ..."],
    "an editor's": ["Waiting for debugger to attach on port 5678"],
    "gdb, under which a rank was started": ["(gdb) "],
}


@pytest.mark.parametrize("shown", PROMPTS.values(), ids=PROMPTS)
def test_who_shows_a_prompt_is_stuck_in_its_host(shown, tmp_path):
    job = [f"[1,0]<stdout>:epoch 0 step {step} loss 2.0" for step in (1, 2)]
    job += [f"[1,2]<stdout>:{line}" for line in shown]
    job += [f"[1,{rank}]<stderr>:{line}" for rank, line in zip((0, 1, 3), waits(0, 1, 3), strict=True)]

    assert named(judge(tmp_path, job)) == ("host", (2,), False)


def test_a_prompt_without_a_rank_is_that_of_the_one_that_is_missing(tmp_path):
    first, *rest = waits(1, 2, 3)

    verdict = judge(tmp_path, ["rank0 INFO: step 50 loss 2.1", *AT, f"(Pdb) {first}", *rest])

    assert named(verdict) == ("host", (0,), False)
    assert "losses.py:31" in verdict.because


def test_the_rank_that_torchs_breakpoint_names_is_it(tmp_path):
    told = "Type 'up' to get to the frame that called dist.breakpoint(rank=3)"

    assert named(judge(tmp_path, [told, *waits(0, 1)])) == ("host", (3,), False)


INNOCENT = {
    "who went on": [
        "[rank0]: (Pdb) c",
        *(f"[rank0]: step {step} loss 2.0" for step in (5, 6, 7, 8)),
    ],
    "a debugger that was attached to a job that hung": ["$ gdb -p 4411", "(gdb) bt", "#0 0x0 in poll ()", "(gdb) quit"],
    "who speaks of a prompt": ["I looked for a (Pdb) prompt and found none"],
}


@pytest.mark.parametrize("lines", INNOCENT.values(), ids=INNOCENT)
def test_no_prompt_is_to_blame(lines, tmp_path):
    verdict = judge(tmp_path, [*lines, *waits(0, 1, 3)])

    assert named(verdict) == ("absent", (2,), False)


def dump(rank, *frames):
    return [
        f"--- rank {rank}: SIGUSR1 faulthandler ---",
        f"Current thread 0x00007f8be1c{rank}40 (most recent call first):",
        *frames,
        '  File "/home/me/speech/train.py", line 20 in main',
        '  File "/home/me/speech/train.py", line 31 in <module>',
        "",
    ]


BACKWARD = '  File "/env/lib/python3.11/site-packages/torch/autograd/__init__.py", line 267 in backward'
PDB = [
    '  File "/env/lib/python3.11/cmd.py", line 126 in cmdloop',
    '  File "/env/lib/python3.11/pdb.py", line 378 in _cmdloop',
]


def test_a_stack_in_a_debugger_is_the_host_whatever_called_it(tmp_path):
    item = '  File "/home/me/speech/data/loader.py", line 8 in __getitem__'
    lines = [line for rank in range(3) for line in dump(rank, *([*PDB, item] if rank == 1 else [BACKWARD]))]

    assert named(judge(tmp_path, {"faulthandler.txt": lines})) == ("host", (1,), False)


SPIED = [f"    {frame}" for frame in ("cmdloop (cmd.py:126)", "interaction (pdb.py:418)", "step (train.py:7)")]
ELSEWHERE = ["    _engine_run_backward (torch/autograd/graph.py:824)", "    main (train.py:9)"]


def spied(pid, frames):
    return [f"Process {pid}: python train.py", "Python v3.11.4", "", f'Thread {pid} (idle): "MainThread"', *frames]


STACKS = {
    "alone": {"spy_rank2.txt": spied(402, SPIED)},
    "whose process other lines name": {
        "dump.txt": spied(402, SPIED),
        "start.log": [f"rank {rank} pid {400 + rank}" for rank in range(4)],
    },
    "beside another's": {"spy_rank2.txt": spied(402, SPIED), "spy_rank1.txt": spied(401, ELSEWHERE)},
}


@pytest.mark.parametrize("late", [(), (0, 1)], ids=["no time-out", "two time-outs"])
@pytest.mark.parametrize("files", STACKS.values(), ids=STACKS)
def test_a_prompt_without_a_rank_is_that_of_the_one_whose_stack_is_in_a_debugger(files, late, tmp_path):
    job = ["[rank0]: world_size=8", *AT, "(Pdb) ", *waits(*late)]

    assert named(judge(tmp_path, {**files, "train.log": job})) == ("host", (2,), False)


def test_stacks_of_two_ranks_in_a_debugger_name_neither_for_one_prompt(tmp_path):
    files = {f"spy_rank{rank}.txt": spied(400 + rank, SPIED) for rank in (1, 2)}

    assert judge(tmp_path, {**files, "train.log": [*AT, "(Pdb) "]}).rank is None


def test_a_stack_in_a_debugger_is_told_as_one(tmp_path):
    def stack(rank, *frames):
        return [f"Process {80 + rank}: python fit.py", f'Thread {80 + rank} (idle): "MainThread"', *frames]

    prompt = [
        "    cmdloop (cmd.py:126)",
        "    interaction (pdb.py:357)",
        "    mask (losses.py:31)",
        "    fit (fit.py:8)",
    ]
    reduces = ["    all_reduce (torch/distributed/distributed_c10d.py:2810)", "    fit (fit.py:9)"]
    files = {f"rank{rank}.txt": stack(rank, *(prompt if rank == 1 else reduces)) for rank in range(4)}
    verdict = judge(tmp_path, files)

    assert named(verdict) == ("host", (1,), False)
    assert "rank 1 stands in a debugger's cmdloop (losses.py:31)" in verdict.because
    assert "PYTHONBREAKPOINT=0" in verdict.next[0]
