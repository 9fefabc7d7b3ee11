"""Whose line it is: labels of programs' own logs, names of files, lists of processes, pods among their siblings."""

import pytest

from .made import answer, joined, judge, raised, timed_out, told

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.5 GiB is free."
OTHERS = [timed_out(rank, 9) for rank in (0, 1, 3)]
LABELS = [
    "2026-11-20 10:00:09 | rank 2 | ERROR | {}",
    "2026-11-20 10:00:09,123 - trainer - ERROR - rank2 - {}",
    "[2026-11-20 10:00:09][ERROR][rank=2] {}",
    "[2026-11-20T10:00:09.363Z] fa88a9df [rank=2] || {}",
    "[Rank 2] {}",
    "(rank 2) {}",
    "rank2: {}",
    "[INFO] [logging.py:96:log_dist] [Rank 2] {}",
]


@pytest.mark.parametrize("label", LABELS)
def test_a_label_in_front_of_a_line_is_its_rank(label, tmp_path):
    wanted = answer("device_memory", 2, 9)
    assert told(judge(tmp_path, [label.format(OOM), *OTHERS]), wanted) == wanted


@pytest.mark.parametrize("label", LABELS)
def test_a_traceback_behind_a_label_is_that_ranks(label, tmp_path):
    lines = [label.format(line.removeprefix("[rank2]: ")) for line in raised(2, "ValueError: bad batch")]
    wanted = answer("exception", 2, 9)
    assert told(judge(tmp_path, [*lines, *OTHERS]), wanted) == wanted


def test_a_place_in_a_group_of_c10d_is_no_label(tmp_path):
    group = "PG ID 3 PG GUID 9(pipe)"
    lines = [
        f"[E1120 10:20:00.1 ProcessGroupNCCL.cpp:632] [{group} Rank {place}] Timeout at NCCL work: 4, last enqueued"
        " NCCL work: 4, last completed NCCL work: 3."
        for place in (0, 1)
    ]
    assert not judge(tmp_path, lines).blamed


def test_a_rank_that_another_ones_file_speaks_of_does_not_take_the_file(tmp_path):
    others = {f"rank{rank}.log": [timed_out(rank, 9, prefix=False)] for rank in (0, 1, 2)}
    table = [f"rank {rank}: 12.3 GiB allocated" for rank in range(4)]
    wanted = answer("exception", 3, 9)
    verdict = judge(tmp_path, {**others, "rank3.log": [*table, *raised(3, "ValueError: bad batch")]})
    assert told(verdict, wanted) == wanted


@pytest.mark.parametrize("form", ["err.{}", "worker-{}.log", "gpu{}.txt", "job.stderr.{}"])
def test_files_with_a_number_for_each_rank_are_the_ranks(form, tmp_path):
    traceback = [line.removeprefix("[rank1]: ") for line in raised(1, "AssertionError: four images")]
    files = {form.format(rank): [timed_out(rank, 9, prefix=False)] for rank in (0, 2, 3)}
    wanted = answer("exception", 1, 9)
    assert told(judge(tmp_path, {**files, form.format(1): traceback}), wanted) == wanted


def test_files_that_count_from_one_are_nobodys_by_their_number(tmp_path):
    files = {f"worker_{number}.log": ["step 4 loss 2.0"] for number in range(1, 8)}
    traceback = [line.removeprefix("[rank1]: ") for line in raised(1, "AssertionError: four images")]
    assert not judge(tmp_path, {**files, "worker_8.log": traceback}).blamed


def test_files_of_hosts_with_several_ranks_each_are_no_ranks(tmp_path):
    lines = {
        f"worker-{host}.log": [timed_out(rank, 9, prefix=False) for rank in range(4 * host, 4 * host + 4) if rank != 5]
        for host in (0, 1)
    }
    wanted = answer("absent", 5, 9)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_a_file_of_another_number_than_the_rank_that_speaks_in_it_is_nobodys(tmp_path):
    traceback = [line.removeprefix("[rank1]: ") for line in raised(1, "AssertionError: four images")]
    files = {f"worker-{host}.log": [f"[rank{8 * host}]: step 4 loss 2.0"] for host in (0, 1)}
    verdict = judge(tmp_path, {**files, "worker-1.log": [*files["worker-1.log"], *traceback]})
    assert (verdict.kind, verdict.blamed) == ("exception", ())


def test_workers_beside_a_master_do_not_count_from_its_rank(tmp_path):
    traceback = [line.removeprefix("[rank1]: ") for line in raised(1, "AssertionError: four images")]
    files = {"job-master-0.log": ["step 1 loss 2.0"], "job-worker-0.log": traceback, "job-worker-1.log": ["step 1"]}
    assert not judge(tmp_path, files).blamed


PS = [
    "    PID    PPID STAT     ELAPSED WCHAN                  CMD",
    *(f"  {18801 + n}   18790 Rl      03:41:12 -       /opt/bin/python -u train.py --cfg a.yaml" for n in range(4)),
    "  18999   18801 Sl      03:41:12 -       /opt/bin/python -u train.py --cfg a.yaml",
    "  19000   18801 Sl      03:41:12 -       /opt/bin/python -u train.py --cfg a.yaml",
]
BLOCKED = "[411203.106122] INFO: task python:18803 blocked for more than 120 seconds."


def test_processes_of_one_launcher_are_the_ranks_in_their_order(tmp_path):
    wanted = answer("host", 2)
    assert told(judge(tmp_path, {"ps.txt": PS, "dmesg.txt": [BLOCKED]}), wanted) == wanted


def test_processes_of_one_host_of_several_are_no_ranks(tmp_path):
    files = {"ps.txt": PS, "dmesg.txt": [BLOCKED], "train.log": ["world_size=8"]}
    assert not judge(tmp_path, files).blamed


def ray(pid, text):
    return f"(RayTrainWorker pid={pid}, ip=10.0.0.5) {text}"


LISTED = [
    f"(TorchTrainer pid=600) - (node_id=3d{rank}, ip=10.0.0.5, pid={700 + rank}) world_rank={rank}, local_rank={rank},"
    " node_rank=0"
    for rank in range(4)
]
DIED = (
    "(raylet, ip=10.0.0.5) A worker died or was killed while executing a task by an unexpected system error. Worker ID:"
    " 1cb1 Node ID: 6e7f Worker IP address: 10.0.0.5 Worker port: 10258 Worker PID: 702 Worker exit type: SYSTEM_ERROR"
    " Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
)


def test_the_list_of_ray_train_says_which_rank_a_process_is(tmp_path):
    lines = [ray(702, line.removeprefix("[rank2]: ")) for line in raised(2, "ValueError: bad batch")]
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, [*LISTED, *lines]), wanted) == wanted


def test_a_worker_of_ray_that_alone_ended_is_the_rank(tmp_path):
    wanted = answer("killed", 2)
    assert told(judge(tmp_path, [*LISTED, DIED]), wanted) == wanted


@pytest.mark.parametrize("said", ["x", "step 4 loss 2.0", "WARNING: slow"])
def test_a_worker_of_ray_that_ended_is_the_rank_where_only_what_does_no_harm_was_folded(said, tmp_path):
    wanted = answer("killed", 2)
    folded = ray(701, f"{said} [repeated 3x across cluster]")
    assert told(judge(tmp_path, [*LISTED, folded, DIED]), wanted) == wanted


def test_the_error_with_which_ray_tells_a_driver_of_that_end_is_of_no_worker_that_waited(tmp_path):
    error = [
        "Traceback (most recent call last):",
        "ray.exceptions.RayTaskError(ActorDiedError): ray::Job.run() (pid=600, ip=10.0.0.5)",
        '  File "job.py", line 3, in run',
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tpid: 702",
        "\tip: 10.0.0.5",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
    ]
    wanted = answer("killed", 2)
    folded = ray(701, "step 4 loss 2.0 [repeated 3x across cluster]")
    assert told(judge(tmp_path, [*LISTED, folded, DIED, *error]), wanted) == wanted


LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"


@pytest.mark.parametrize(
    "more",
    [timed_out(2, 9), *(ray(701, f"{said} [repeated 3x across cluster]") for said in (timed_out(1, 9), LOST))],
    ids=["waited", "folded", "folded error"],
)
def test_a_worker_of_ray_that_may_have_waited_is_not_blamed(more, tmp_path):
    assert not judge(tmp_path, [*LISTED, more, DIED]).blamed


def test_a_pod_without_a_log_is_the_rank_that_its_siblings_lead_to(tmp_path):
    said = {f"bert-worker-{n}.log": [f"[rank{n + 1}]: step 10 loss 2.0", timed_out(n + 1, 9)] for n in (0, 2)}
    event = "3m  Warning  Evict  pod/bert-worker-1  Pod is evicted, because of preempt"
    wanted = answer("killed", 2, 9)
    assert told(judge(tmp_path, {**said, "events.txt": [event]}), wanted) == wanted


def test_a_row_of_the_table_of_pods_names_the_pod(tmp_path):
    files = {f"bert-{n}.log": [f"[rank{n}]: step 10 loss 2.0"] for n in range(3)}
    row = "bert-1   0/1   OOMKilled   0   3h2m"
    wanted = answer("host_memory", 1)
    assert told(judge(tmp_path, {**files, "pods.txt": ["NAME READY STATUS RESTARTS AGE", row]}), wanted) == wanted


def test_the_rank_that_torchrun_saw_killed_is_the_one_that_the_kernel_killed_in_its_container(tmp_path):
    kernel = "[Fri Nov 20 10:19:50 2026] Memory cgroup out of memory: Killed process 712904 (python) anon-rss:101220kB"
    summary = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-20_10:19:51",
        "  host      : job-1",
        "  rank      : 11 (local_rank: 3)",
        "  exitcode  : -9 (pid: 96)",
        "============",
    ]
    wanted = answer("host_memory", 11)
    assert told(judge(tmp_path, {"dmesg.txt": [kernel], "job-1.log": summary}), wanted) == wanted


CLOSED = [
    f"W0211 04:11:36.28{n} 71188 site-packages/torch/distributed/elastic/api.py:897] Sending process {100 + n} closing"
    " signal SIGTERM"
    for n in range(1, 4)
]
FAILED = (
    "E0211 04:11:36.5 71188 site-packages/torch/distributed/elastic/api.py:869] failed (exitcode: -6) local_rank: 0"
)


@pytest.mark.parametrize(
    "line",
    [
        "$ torchrun --nproc_per_node 4 train.py",
        "+ torchrun --nnodes=2 --nproc-per-node=2 --rdzv_backend=c10d train.py",
        "accelerate launch --multi_gpu --num_processes 4 train.py",
        "deepspeed --num_gpus=4 train.py",
        "distributed_backend=nccl All distributed processes registered. Starting with 4 processes",
        "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4",
        "| distributed init (rank 3): env://, gpu 3",
    ],
)
def test_a_job_whose_last_rank_is_silent_is_known_to_have_it(line, tmp_path):
    wanted = answer("absent", 3, 9)
    assert told(judge(tmp_path, [line, *(timed_out(rank, 9) for rank in range(3))]), wanted) == wanted


def test_the_processes_that_torchrun_ends_are_counted(tmp_path):
    lines = [*(timed_out(rank, 9) for rank in range(3)), *CLOSED, f"{FAILED} (pid: 100) of binary: python"]
    wanted = answer("absent", 3, 9)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_the_task_of_an_agent_is_no_rank(tmp_path):
    traceback = [f"1: {line.removeprefix('[rank1]: ')}" for line in raised(1, "ValueError: bad batch")]
    lines = [*(f"{rank // 4}: [rank{rank}]: step 4 loss 2.0" for rank in range(8)), *traceback]
    verdict = judge(tmp_path, lines)
    assert (verdict.kind, verdict.blamed) == ("exception", ())


def test_a_rank_of_a_host_is_the_one_that_it_was_seen_with(tmp_path):
    lines = [f"{host}: [default{n}]:[rank{4 * host + n}]: step 4 loss 2.0" for host in (0, 1) for n in range(4)]
    traceback = [f"1: [default2]:{line.removeprefix('[rank6]: ')}" for line in raised(6, "ValueError: bad batch")]
    wanted = answer("exception", 6)
    assert told(judge(tmp_path, [*lines, *traceback]), wanted) == wanted


SPAWNED = ["-- Process 1 terminated with the following error:", *(line[9:] for line in raised(1, "ValueError: bad"))]


def test_the_error_of_a_spawned_process_is_that_ranks(tmp_path):
    wanted = answer("exception", 1)
    assert told(judge(tmp_path, SPAWNED), wanted) == wanted


HEADED = {
    "RETURNN": "Unhandled exception <class 'ValueError'> in proc 7002.",
    "RETURNN with its thread": "Unhandled exception <class 'ValueError'> in thread <_MainThread(Main, 1)>, proc 7002.",
    "Loguru": "10:20:11 | ERROR | fit:f:9 - An error has been caught in function 'f', process 'Main' (7002), thread:",
}


@pytest.mark.parametrize("head", HEADED.values(), ids=HEADED)
def test_an_error_below_a_heading_that_names_a_process_is_of_its_rank(head, tmp_path):
    known = [f"ready: rank {rank} pid={7000 + rank}" for rank in range(4)]
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, [*known, head, "EXCEPTION", *SPAWNED[1:]]), wanted) == wanted


@pytest.mark.parametrize(
    "above",
    [[HEADED["RETURNN"], *(f"file {n}" for n in range(5))], ["Error: process 7002 exited with code 1"]],
    ids=["far above", "the end of another process"],
)
def test_an_error_that_is_not_of_the_process_that_is_named_above_it_is_nobodys(above, tmp_path):
    known = [f"ready: rank {rank} pid={7000 + rank}" for rank in range(4)]
    assert not judge(tmp_path, [*known, *above, *SPAWNED[1:]]).blamed


def test_the_error_of_a_process_that_one_of_several_hosts_spawned_is_nobodys(tmp_path):
    assert not judge(tmp_path, ["[rank11]: step 4 loss 2.0", *SPAWNED]).blamed


def test_the_error_of_an_actor_names_its_process_before_it_says_that_it_died(tmp_path):
    block = [
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tclass_name: RayTrainWorker",
        "\tpid: 702",
        "\tip: 10.0.0.5",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
    ]
    wanted = answer("killed", 2)
    assert told(judge(tmp_path, [*LISTED, *block]), wanted) == wanted


def test_ranks_of_two_hosts_that_count_alike_are_no_ranks_of_the_job(tmp_path):
    traceback = [f"[default2]:{line.removeprefix('[rank2]: ')}" for line in raised(2, "ValueError: bad batch")]
    steps = [f"[default{n}]:step 4 loss 2.0" for n in range(4)]
    verdict = judge(tmp_path, {"node0.log": steps, "node1.log": [*steps, *traceback]})
    assert (verdict.kind, verdict.blamed) == ("exception", ())


def test_a_rank_of_the_only_host_is_the_jobs(tmp_path):
    traceback = [f"[default2]:{line.removeprefix('[rank2]: ')}" for line in raised(2, "ValueError: bad batch")]
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, {"node0.log": traceback, "host.dmesg": ["[1.0] booted"]}), wanted) == wanted


def test_a_log_of_a_hosts_launcher_is_no_ranks(tmp_path):
    traceback = [line.removeprefix("[rank1]: ") for line in raised(1, "ValueError: bad batch")]
    agent = "E0211 04:11:36.5 71 torch/distributed/elastic/multiprocessing/api.py:869] torch.distributed.elastic failed"
    verdict = judge(tmp_path, {"err.0": [agent], "err.1": [*traceback, agent]})
    assert (verdict.kind, verdict.blamed) == ("exception", ())


NUMBERS = ["[{}] {}", "{:6}  {}", "{}\t{}", "{:4}| {}"]


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_of_lines_are_taken_off(form, tmp_path):
    traceback = [line.removeprefix("[rank2]: ") for line in raised(2, "ValueError: bad batch")]
    lines = [form.format(n, line) for n, line in enumerate([*(f"step {n} loss 2.0" for n in range(6)), *traceback], 98)]
    wanted = answer("exception", unknown=True)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_the_hour_of_a_clock_is_no_task(tmp_path):
    lines = [f"10:20:3{n} {line}" for n, line in enumerate(["step 4 loss 2.0", "step 5 loss 2.0", BLOCKED[16:]])]
    assert not judge(tmp_path, lines).blamed


@pytest.mark.parametrize(
    "outer", ["2026-11-20T10:20:30.123456789Z {}", "job-1  | {}", "Nov 20 10:20:30 n1 job.sh[7]: {}"]
)
def test_tasks_of_srun_behind_another_prefix_are_ranks(outer, tmp_path):
    traceback = [f"2: {line.removeprefix('[rank2]: ')}" for line in raised(2, "ValueError: bad batch")]
    lines = [outer.format(line) for line in (*(f"{rank}: step 4 loss 2.0" for rank in range(4)), *traceback)]
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_tasks_that_speak_once_each_in_their_order_are_tasks(tmp_path):
    lines = [f"{rank}: ValueError: bad batch" if rank == 5 else f"{rank}: step 4 loss 2.0" for rank in range(8)]
    wanted = answer("exception", 5)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_a_file_named_after_a_rank_in_which_several_speak_of_one_call_is_not_that_ranks(tmp_path):
    lines = [timed_out(rank, 9, prefix=False) for rank in (0, 1, 2, 4, 5, 6, 7)]
    wanted = answer("absent", 3, 9)
    assert told(judge(tmp_path, {"log_globalrank-0.txt": ["world_size=8", *lines]}), wanted) == wanted


@pytest.mark.parametrize("outer", ["", "2026-11-20T10:20:30.123456789Z "])
def test_what_srun_says_itself_bears_no_task(outer, tmp_path):
    lines = [f"{2 * place + 1}: {timed_out(1, 9, place=place, prefix=False)}" for place in range(8) if place != 4]
    lines = [line.replace("NumelIn=10, NumelOut=10", "NumelIn=10, NumelOut=80") for line in lines]
    lines = [line.replace("ALLREDUCE", "_ALLGATHER_BASE") for line in lines]
    wanted = answer("absent", 9, 9)
    verdict = judge(
        tmp_path, [*lines, "srun: error: n4: task 5: Aborted (core dumped)", "srun: Terminating StepId=66.0"]
    )
    assert told(verdict, wanted) == wanted


def test_a_stack_behind_a_rank_of_a_host_is_that_of_the_rank_that_was_named_there(tmp_path):
    stack = ["Thread 0x00007f6b3d7fe740 (most recent call first):", '  File "/usr/lib/shutil.py", line 568 in copytree']
    stack += ['  File "/app/loop.py", line 402 in train', '  File "/app/loop.py", line 500 in <module>']
    lines = ["node-1 | [default0]:07/12/2024 06:03:26 - INFO - rank 8: copying the shard"]
    lines += [f"node-1 | [default0]:{line}" for line in stack]
    lines += [f"node-{rank // 8} | [default{rank % 8}]:{timed_out(rank, 9)}" for rank in range(16) if rank != 8]
    wanted = answer("host", 8, 9)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_a_rank_in_brackets_before_every_line_is_who_speaks(tmp_path):
    steps = [f"[{rank}] step {step} | fwd 0.3 s" for step in range(3) for rank in range(4)]
    traceback = [line.replace("[rank2]: ", "[2] ") for line in raised(2, "ValueError: bad batch")]
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, [*steps, *traceback]), wanted) == wanted


SMI = """GPU 00000000:{bus}:00.0
    Clocks Event Reasons
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
    Clocks
        SM                                : {clock} MHz
"""


@pytest.mark.parametrize(("world", "rank"), [(4, 1), (8, None)])
def test_a_gpu_that_is_slowed_down_by_heat_is_its_ranks(world, rank, tmp_path):
    gpus = [SMI.format(bus=bus, slow="Active" if bus == 65 else "Not Active", clock=585) for bus in (17, 65, 81, 93)]
    verdict = judge(tmp_path, {"smi.txt": "".join(gpus), "train.log": [f"world_size={world}", "step 1 loss 2.0"]})
    assert told(verdict, wanted := answer("slow", rank, unknown=rank is None)) == wanted


def test_nccl_says_which_rank_a_slowed_gpu_is(tmp_path):
    gpus = [SMI.format(bus=bus, slow="Active" if bus == 65 else "Not Active", clock=585) for bus in (17, 65, 81, 93)]
    verdict = judge(tmp_path, {"smi.txt": "".join(gpus), "train.log": [joined(11, 16, bus="65000")]})
    assert told(verdict, wanted := answer("slow", 11)) == wanted


def test_a_pod_that_was_preempted_is_nobodys_fault(tmp_path):
    event = "2m10s Normal Preempted pod/clip-worker-1 Preempted by pod c1f2 on node gpu-h-22"
    assert told(judge(tmp_path, [event]), wanted := answer("killed")) == wanted


OF_ROLES = ["torchrun --nnodes=2 --nproc_per_node=4 --role rank --tee 3 train.py"]


def in_roles(*lines, first=4):
    """Lines behind torchrun's prefix of a role, which counts on the host."""
    return [f"[rank{int(line[5]) - first}]:{line}" for line in lines]


def test_torchs_own_prefix_behind_that_of_a_role_is_the_rank(tmp_path):
    late = in_roles(*(timed_out(rank, 9) for rank in (4, 5, 7)))
    raises = in_roles(*raised(6, "ValueError: bad batch"))
    files = {"a.log": in_roles(*(timed_out(rank, 9) for rank in range(4)), first=0), "b.log": [*raises, *late]}
    wanted = answer("exception", 6, 9)
    assert told(judge(tmp_path, files), wanted) == wanted


def test_a_line_behind_the_prefix_of_a_role_alone_is_of_the_rank_that_it_was_seen_with(tmp_path):
    late = in_roles(*(timed_out(rank, 9) for rank in (4, 5, 6, 7)))
    fault = "[rank2]:RuntimeError: CUDA error: uncorrectable ECC error encountered"
    wanted = answer("device", 6, 9)
    assert told(judge(tmp_path, {"a.log": [*OF_ROLES, fault, *late]}), wanted) == wanted


def test_the_number_of_a_role_is_no_rank_where_there_are_several_hosts(tmp_path):
    error = [line.replace("]: ", "]:") for line in raised(2, "ValueError: bad batch")]
    verdict = judge(tmp_path, {"a.log": [*OF_ROLES, *error], "b.log": [timed_out(rank, 9) for rank in range(8)]})
    assert 2 not in {verdict.rank, *verdict.ranks}


def test_the_line_of_somebody_else_below_a_traceback_s_first_line_is_not_that_ranks(tmp_path):
    lines = ["[rank2]: Traceback (most recent call last):", "RuntimeError: CUDA error: uncorrectable ECC error"]
    assert not judge(tmp_path, lines).blamed


def test_the_lines_of_a_traceback_below_a_label_are_that_ranks(tmp_path):
    first, *rest = [line.removeprefix("[rank2]: ") for line in raised(2, "ValueError: bad batch")]
    chained = ["During handling of the above exception, another exception occurred:", first, *rest]
    lines = [f"2026-11-20 10:00:09 [rank 2] ERROR: {first}", *rest, *chained, "shutting down the pool"]
    wanted = answer("exception", 2, 9)
    assert told(judge(tmp_path, [*lines, *OTHERS]), wanted) == wanted


BOTH = [
    "rank {rank}/8 local_rank {local}",
    "RANK={rank} LOCAL_RANK={local}",
    "global rank: {rank}, local rank: {local}",
    "(local_rank={local}) trainer of rank {rank} is up",
]


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("first", [0, 4])
def test_a_number_on_a_host_is_the_rank_that_its_own_line_says(first, form, tmp_path):
    said = [f"[default{local}]: {form.format(rank=first + local, local=local)}" for local in range(4)]

    verdict = judge(tmp_path, [*said, "[default2]: ValueError: bad sample"])

    assert verdict.blamed == (first + 2,)


def test_a_number_on_a_host_of_which_two_ranks_are_said_is_none(tmp_path):
    said = [f"[default2]: {BOTH[0].format(rank=rank, local=2)}" for rank in (2, 6)]

    assert not judge(tmp_path, [*said, "[default2]: ValueError: bad sample"]).blamed


@pytest.mark.parametrize("line", ["node rank 1 local_rank 2", "local_rank 3 rank 7", "local_rank 2 of 4"])
def test_a_line_that_does_not_say_both_numbers_of_its_own_process_shows_nothing(line, tmp_path):
    verdict = judge(tmp_path, [f"[default2]: {line}", "[default2]: ValueError: bad sample"])

    assert verdict.blamed == (2,)


def test_of_hosts_that_number_their_processes_alike_each_log_tells_of_its_own(tmp_path):
    files = {
        f"n{host}.log": [f"rank {4 * host + local} is pid {700 + local}" for local in range(4)] for host in range(2)
    }
    files["n1.log"].append("srun: line 4: 702 Segmentation fault      python train.py")

    assert judge(tmp_path, files).blamed == (6,)
