"""Whose a dump of a stack is: by the command, the environment, a heading, the number on a host, the pod."""

import pytest

from .made import judge, timed_out

LOADS = "_try_get_data (torch/utils/data/dataloader.py:1251)"
REDUCES = "all_reduce (torch/distributed/distributed_c10d.py:2810)"


def dump(pid, command, inner):
    return [
        f"Process {pid}: {command}",
        "Python v3.12.3 (/usr/bin/python3.12)",
        "",
        f'Thread {pid} (active): "MainThread"',
        f"    {inner}",
        "    step (fit.py:9)",
        "    <module> (fit.py:20)",
        "",
    ]


def dumps(command, late=2, ranks=4, above=lambda rank: []):
    """Dumps of all ranks in one file, one of which loads data; `command` and `above` are of a rank."""
    return [
        line
        for rank in range(ranks)
        for line in [*above(rank), *dump(7000 + 13 * rank, command(rank), LOADS if rank == late else REDUCES)]
    ]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


COMMANDS = {
    "environment": lambda rank: f"python -u fit.py --bf16 (env LOCAL_RANK={rank} RANK={rank})",
    "option": lambda rank: f"python -u fit.py --rank {rank} --layers 4",
    "equals": lambda rank: f"python fit.py --global-rank={rank} --local_rank={3 - rank}",
    "task of SLURM": lambda rank: f"env SLURM_PROCID={rank} python fit.py",
    "engine": lambda rank: f"VLLM::Worker_TP{rank}",
    "number on the only host": lambda rank: f"python fit.py --local_rank={rank}",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_command_of_a_process_says_its_rank(command, tmp_path):
    assert named(judge(tmp_path, {"all.txt": dumps(command)})) == ("data", (2,), False)


VARIABLES = {
    "py-spy's": lambda rank: f"Env: RANK={rank} LOCAL_RANK={rank % 2}",
    "of a script": lambda rank: f"  environ: MASTER_PORT=29500 WORLD_SIZE=4 RANK={rank}",
}


@pytest.mark.parametrize("variables", VARIABLES.values(), ids=VARIABLES)
def test_a_line_of_variables_below_the_command_says_the_rank_of_the_dump(variables, tmp_path):
    lines = []
    for rank in (3, 0, 2, 1):
        head, *rest = dump(7000 + 13 * rank, "python fit.py --tp 2", LOADS if rank == 2 else REDUCES)
        lines += [head, variables(rank), *(line for line in rest if line)]

    assert named(judge(tmp_path, {"node-1/all.txt": lines})) == ("data", (2,), False)


def test_the_stack_of_the_missing_rank_says_more_than_its_last_words(tmp_path):
    locked = ["_acquire (filelock/_unix.py:42)", "acquire (filelock/_api.py:332)"]
    stack = [
        "Process 7013: python fit.py",
        "Env: RANK=2 LOCAL_RANK=0",
        'Thread 7013 (active): "MainThread"',
        *(
            f"    {frame}"
            for frame in [*locked, "hf_hub_download (huggingface_hub/file_download.py:99)", "step (fit.py:9)"]
        ),
    ]
    words = ["[rank2]: reading 12 of 40 shards"]
    waits = [timed_out(rank, 418) for rank in (0, 1, 3)]

    verdict = judge(tmp_path, {"train.log": [*words, *waits], "stacks.txt": stack})

    assert (verdict.kind, verdict.blamed, verdict.missing) == ("host", (2,), ())
    assert "acquire at fit.py:9" in verdict.because


HEADINGS = {
    "framed": lambda rank: [f"===== rank {rank} ====="],
    "hashes": lambda rank: [f"### global rank {rank} (pid {7000 + 13 * rank})"],
    "alone": lambda rank: [f"rank {rank}:"],
    "short": lambda rank: [f"== r{rank} =="],
    "short with its process": lambda rank: [f"--- R{rank} (pid {7000 + 13 * rank}) ---"],
    "with its command": lambda rank: [
        f"--- Rank {rank} on node n{rank // 2} ---",
        f"$ py-spy dump --pid {7000 + rank}",
    ],
}


@pytest.mark.parametrize("above", HEADINGS.values(), ids=HEADINGS)
def test_a_heading_above_a_dump_says_its_rank(above, tmp_path):
    lines = dumps(lambda rank: "python fit.py", above=above)

    assert named(judge(tmp_path, {"all.txt": lines})) == ("data", (2,), False)


def test_numbers_on_two_hosts_are_ranks_only_where_the_ranks_of_each_are_told(tmp_path):
    def asked(rank):
        return [f"$ ssh m{rank // 2} py-spy dump --pid {7000 + 13 * rank}"]

    lines = dumps(lambda rank: f"python fit.py --local_rank={rank % 2}", late=3, above=asked)

    assert judge(tmp_path / "unknown", {"all.txt": lines}).blamed == ()
    told = ["m0: ranks 0-1", "m1: ranks 2-3"]
    assert named(judge(tmp_path / "told", {"all.txt": lines, "job.out": told})) == ("data", (3,), False)


def test_a_pod_of_one_rank_is_that_rank(tmp_path):
    def asked(rank):
        return [f"$ kubectl exec -it bert-worker-{rank} -- py-spy dump --pid 21"]

    lines = dumps(lambda rank: "python fit.py", above=asked)
    told = [f"rank {rank} runs in pod bert-worker-{rank}" for rank in range(4)]

    assert named(judge(tmp_path, {"all.txt": lines, "job.out": told})) == ("data", (2,), False)


def test_a_file_of_dumps_is_of_the_host_that_its_name_tells(tmp_path):
    def of_host(host):
        inner = [LOADS if (host, rank) == (1, 0) else REDUCES for rank in range(2)]
        commands = [f"python fit.py --local_rank={rank}" for rank in range(2)]
        return [line for rank in range(2) for line in dump(9000 + 10 * host + rank, commands[rank], inner[rank])]

    files = {f"m{host}_spy.txt": of_host(host) for host in range(2)}

    assert judge(tmp_path / "unknown", files).blamed == ()
    told = {"job.out": ["m0: ranks 0-1", "m1: ranks 2-3"]}
    assert named(judge(tmp_path / "told", {**files, **told})) == ("data", (2,), False)


WAITING = (
    "[rank0]:[E1120 10:20:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600040 milliseconds"
    " before timing out."
)


def test_where_one_rank_waits_the_one_whose_stack_stands_in_its_data_is_who_is_missing(tmp_path):
    noted = ["$ py-spy dump --pid 913   # rank 3", *dump(913, "python -u fit.py", LOADS)]
    more = ["$ py-spy dump --pid 912   # rank 2", *dump(912, "python -u fit.py", LOADS)]
    others = {"rank0.log": ["[rank0]: step 8", WAITING], "rank3.log": ["[rank3]: step 8"]}

    assert named(judge(tmp_path, {**others, "spy.txt": noted})) == ("data", (3,), False)
    assert judge(tmp_path, {**others, "spy.txt": [*noted, *more]}).blamed == ()


def test_a_short_heading_above_several_dumps_is_of_a_round(tmp_path):
    lines = dumps(lambda rank: "python fit.py")

    assert judge(tmp_path, {"all.txt": ["== r0 ==", *lines, "== r1 ==", *lines]}).blamed == ()


def test_a_file_may_be_called_by_the_first_letter_of_its_rank(tmp_path):
    files = {f"r{rank}.pyspy.txt": dump(90 + rank, "python fit.py", (REDUCES, LOADS)[rank == 2]) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("data", (2,), False)


def test_a_note_in_a_file_that_is_named_after_its_rank_belongs_to_the_dump_below_it(tmp_path):
    def cut(rank):
        return [f"$ py-spy dump --pid {7000 + rank}   # RANK={rank}", f"    {REDUCES}", "    <module> (fit.py:20)"]

    files = {f"rank{rank}.txt": dump(7003, "python fit.py", LOADS) if rank == 3 else cut(rank) for rank in range(4)}

    assert named(judge(tmp_path, files)) == ("data", (3,), False)


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        (["# host n2 of n1..n2"], ("absent", (), True)),  # the larger numbers tell that there are smaller ones
        (["world_size=8"], ("absent", (), True)),
        (
            [line for rank in range(4) for line in dump(6000 + rank, f"python fit.py --rank {rank}", REDUCES)],
            ("stuck", (), False),
        ),
    ],
)
def test_that_half_of_the_ranks_wait_does_not_say_that_all_are_in_the_call(others, wanted, tmp_path):
    spied = [line for rank in range(4, 8) for line in dump(6000 + rank, f"python fit.py --rank {rank}", REDUCES)]
    verdict = judge(tmp_path, [*others, *spied])

    assert named(verdict) == wanted
    assert not verdict.unknown or any("ranks 0-3" in what for what in verdict.missing)


@pytest.mark.parametrize("name", ["spy_rank6_and_rank0.txt", "rank0-rank6.txt", "rank6+rank0_spy.log"])
def test_a_file_named_after_several_ranks_is_none_of_theirs_alone(name, tmp_path):
    logs = [timed_out(rank, 5) for rank in range(8) if rank != 6]
    stacks = [line for rank in (6, 0) for line in dump(90 + rank, f"python fit.py --local_rank={rank}", LOADS)]
    stacks = [line.replace(LOADS, REDUCES) if at > len(stacks) // 2 else line for at, line in enumerate(stacks)]

    verdict = judge(tmp_path, {"job.log": logs, name: stacks})

    assert named(verdict) == ("data", (6,), False)


BAR = ["wait (/usr/lib/python3.12/threading.py:331)", "run (/opt/site-packages/tqdm/_monitor.py:60)"]
BACKWARD = ["_engine_run_backward (/opt/site-packages/torch/autograd/graph.py:824)"]
READS = ["read (/usr/lib/python3.12/ssl.py:1166)", "__getitem__ (/srv/shards.py:58)"]


def faulted(inner):
    """What faulthandler prints of a process with a bar, whose main thread stands in `inner`."""
    threads = (
        ("Thread 0x00007f61b2000640", BAR),
        ("Current thread 0x00007f61b204d740", [*inner, "main (/srv/fit.py:3)"]),
    )
    for head, frames in threads:
        yield f"{head} (most recent call first):"
        for frame in frames:
            function, _, at = frame.removesuffix(")").partition(" (")
            yield '  File "{}", line {} in {}'.format(*at.split(":"), function)
        yield ""


@pytest.mark.parametrize(
    ("stands", "answer"),
    [
        ({2: READS, 3: BACKWARD}, ("data", (2,), False)),
        ({2: READS, 3: READS}, ("absent", (), True)),
        ({2: BACKWARD, 3: BACKWARD}, ("stuck", (), False)),
    ],
    ids=["one", "both", "none"],
)
def test_the_one_that_reads_its_data_is_late_where_all_others_time_out_or_wait_by_their_stacks(
    stands, answer, tmp_path
):
    logs = {f"attempt_0/{rank}/stderr.log": [*faulted(BACKWARD), timed_out(rank, 9)] for rank in (0, 1)}
    logs |= {f"attempt_0/{rank}/stderr.log": list(faulted(inner)) for rank, inner in stands.items()}

    assert named(judge(tmp_path, logs)) == answer


HEADS = {
    "in brackets": "[2026-11-20 10:00:01,31{rank}] [INFO] [{pid}] fit: ",
    "behind the clock": "2026-11-20 10:00:01,31{rank} {pid} INFO ",
    "Google's": "I1120 10:00:01.31{rank}000 {pid} fit.py:20] ",
}
OWN_WORDS = {
    "Accelerate's": "accelerator.process_index={rank} local_process_index={rank} num_processes=4",
    "the environment": "RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=4",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("words", OWN_WORDS.values(), ids=OWN_WORDS)
def test_a_process_in_the_head_of_a_line_is_the_rank_that_it_says_it_is(head, words, tmp_path):
    pids = {0: 5121, 1: 5119, 2: 5118, 3: 5120}
    lines = [(head + words).format(rank=rank, pid=pid) for rank, pid in pids.items()]
    stands = ["gather (accelerate/utils/operations.py:371)", "all_reduce (torch/distributed/distributed_c10d.py:2800)"]
    for rank, pid in pids.items():
        frames = ["flock (rewards/cache.py:41)"] if rank == 1 else stands[::-1]
        dump = [f"Process {pid}: python fit.py", f'Thread {pid} (idle): "MainThread"', *(f"    {f}" for f in frames)]
        (tmp_path / f"pyspy.{pid}.txt").write_text("\n".join([*dump, "    <module> (fit.py:9)", ""]))

    assert named(judge(tmp_path, {"train.log": lines})) == ("host", (1,), False)


def test_a_number_in_the_head_of_several_ranks_lines_is_no_process(tmp_path):
    lines = [f"[4410] accelerator.process_index={rank} num_processes=3" for rank in range(3)]
    stack = ["Process 4410: python fit.py", 'Thread 4410 (idle): "MainThread"', "    sleep (fit.py:3)"]

    assert judge(tmp_path, {"train.log": lines, "pyspy.4410.txt": stack}).blamed == ()
