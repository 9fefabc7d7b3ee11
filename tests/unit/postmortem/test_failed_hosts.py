"""Ranks of a host, node, pod or GPU that failed, by the other lines that tell them, and failures that name nobody."""

import pytest

from .made import answer, joined, judge, timed_out, told

CANCELLED = "slurmstepd: error: *** STEP 8.0 ON c01 CANCELLED AT 2026-11-20T10:30:00 DUE TO NODE FAILURE ***"
FAILED = "srun: error: Node failure on c03"
LOST = "{0}: [rank{0}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting."
ENDED = "8        job   NODE_FAIL    1:0"


def killed(node, *, per=2, what="Killed"):
    """What srun says of the tasks of a node."""
    return f"srun: error: c{node:02}: tasks {node * per}-{node * per + per - 1}: {what}"


def broke(*ranks, peer=""):
    """What ranks print whose peer went away, after NCCL's word on the `peer` where there is one."""
    completion = (
        "{0}: c{1:02}:7{0}:8{0} [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer {2}<56071>"
        " with error 12, opcode 0, len 0, vendor err 129 (Recv)"
    )
    error = (
        "{0}: [rank{0}]:[E1120 10:20:0{0}.1 ProcessGroupNCCL.cpp:2057] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Process"
        " group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network"
        " error"
    )
    lines = [[completion.format(rank, rank // 2, peer)] * bool(peer) + [error.format(rank)] for rank in ranks]
    return [line for own in lines for line in own]


def named(verdict):
    return verdict.kind, verdict.blamed


TASKS = {
    "tasks of each node": [FAILED, CANCELLED, *map(killed, range(1, 5))],
    "tasks in several lines": [
        FAILED,
        "srun: error: c03: task 6: Killed",
        "srun: error: c03: task 7: Killed",
        killed(1),
    ],
    "tasks that srun tells when it starts them": [
        *(f"srun: launching StepId=8.0 on host c{n:02}, 2 tasks: [{2 * n}-{2 * n + 1}]" for n in range(5)),
        FAILED,
    ],
    "a map with numbers below one another and what each host has": [
        *(f"rank {2 * n:2}-{2 * n + 1:2} on c{n:02}  (2x NVIDIA A100-SXM4-80GB)" for n in range(8)),
        FAILED,
    ],
    "numbers behind the names of hosts": [
        *(
            f"{rank}: c{rank // 2:02} SLURM_PROCID={rank} SLURM_LOCALID={rank % 2} pid 90{rank % 2}"
            for rank in range(10)
        ),
        FAILED,
    ],
}


@pytest.mark.parametrize("lines", TASKS.values(), ids=TASKS)
def test_the_tasks_of_a_node_that_failed_are_the_ranks_that_were_killed(lines, tmp_path):
    verdict = judge(tmp_path, {"job.err": [*lines, LOST.format(9)], "sacct.txt": [ENDED]})

    assert named(verdict) == ("killed", (6, 7))
    assert "c03" in verdict.because


def test_ranks_that_lose_a_node_minutes_before_slurm_notices_are_no_fault_of_the_network(tmp_path):
    log = [*broke(0, 4, 8, peer="10.0.0.3"), CANCELLED, FAILED, *map(killed, range(5))]

    assert told(judge(tmp_path, log), answer("killed")) == answer("killed", ranks=(6, 7))


def test_links_that_broke_an_hour_before_a_node_failed_are_the_fault_that_came_first(tmp_path):
    log = [*broke(0, 4, 8, peer="10.0.0.3"), CANCELLED.replace("T10", "T12"), FAILED, *map(killed, range(5))]

    assert named(judge(tmp_path, log)) == ("network", ())


SHOWN = {
    "slurmctld ends the job": ["[2026-11-20T10:30:00.021] Killing JobId=8 on failed node c03"],
    "slurmctld queues it again": ["[2026-11-20T10:30:00.021] requeue job JobId=8 due to failure of node c03"],
    "sinfo -R": ["REASON  USER  TIMESTAMP  NODELIST", "Not responding       slurm     2026-11-20T10:29:55 c03"],
    "scontrol show node": [
        "NodeName=c03 Arch=x86_64 CoresPerSocket=48",
        "   State=DOWN*+DRAIN ThreadsPerCore=1 TmpDisk=0",
        "   Reason=Not responding [slurm@2026-11-20T10:29:55]",
    ],
}


@pytest.mark.parametrize("lines", SHOWN.values(), ids=SHOWN)
def test_a_node_that_slurm_gave_up_is_the_one_for_which_it_ended_the_job(lines, tmp_path):
    log = ["rank map: c01: 0-1, c02: 2-3, c03: 4-5", *broke(0, 2), CANCELLED]

    assert named(judge(tmp_path, {"job.err": log, "node.txt": lines})) == ("killed", (4, 5))


OF_OTHERS = {
    "a node without ranks of the job": "Not responding       slurm     2026-11-20T10:29:55 x77",
    "several nodes": "Not responding       slurm     2026-11-20T10:29:55 c[02-03]",
    "a node that was down the day before": "Not responding       slurm     2026-11-19T10:29:55 c03",
    "a node that an operator drained": "bad fan              root      2026-11-20T10:29:55 c03",
}


@pytest.mark.parametrize("row", OF_OTHERS.values(), ids=OF_OTHERS)
def test_a_node_that_is_down_for_another_reason_names_nobody(row, tmp_path):
    log = ["rank map: c01: 0-1, c02: 2-3, c03: 4-5", *broke(0, 2), CANCELLED]

    assert named(judge(tmp_path, {"job.err": log, "sinfo.txt": [row]})) == ("killed", ())


UNTOLD = {
    "two nodes failed": [FAILED, FAILED.replace("c03", "c04"), *map(killed, range(5))],
    "a node that is only drained": ["srun: error: c09 is down", *map(killed, range(5))],
    "one of its ranks complains": [LOST.format(6), *broke(6), FAILED, *map(killed, range(5))],
    "tasks that are agents of torchrun": ["torchrun --nproc_per_node 4 go.py", FAILED, *map(killed, range(5))],
    "tasks whose labels stand before other ranks": ["3: [rank24]: begins", FAILED, *map(killed, range(5))],
    "one task of each node, which may have several ranks": [
        FAILED,
        *(f"srun: error: c{n:02}: task {n}: Killed" for n in range(5)),
    ],
}


@pytest.mark.parametrize("lines", UNTOLD.values(), ids=UNTOLD)
def test_where_the_tasks_of_a_failed_node_do_not_tell_its_ranks_nobody_is_named(lines, tmp_path):
    assert named(judge(tmp_path, [LOST.format(0), CANCELLED, *lines])) == ("killed", ())


PODS = [f"job-{number}: ranks {number * 2}-{number * 2 + 1}" for number in range(3)]
COMPLETION = (
    "job-0:88:99 [0] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<5486> with status=12"
    " opcode=0 len=0 vendor err 129 (Recv)"
)
BROKEN = [*PODS, COMPLETION, *broke(0)]
DOWN = "Nov 20 {1} {0} kernel: mlx5_core 0000:3b:00.0 ens3f0np0: Link down"
OF_POD = {
    "a file": {"job-2-dmesg.txt": [DOWN.format("ip-7", "10:19:41")]},
    "a folder": {"nodes/job-2/kern.log": [DOWN.format("ip-7", "10:19:41")]},
    "a comment": {"kernel.txt": ["# host of job-2, 10.0.0.7", DOWN.format("ip-7", "10:19:41")]},
}


@pytest.mark.parametrize("kernel", OF_POD.values(), ids=OF_POD)
def test_a_link_that_the_log_of_a_pods_host_shows_to_go_down_is_of_the_ranks_there(kernel, tmp_path):
    assert named(judge(tmp_path, {"job-0.log": BROKEN, **kernel})) == ("network", (4, 5))


NOT_OF_POD = {
    "of two hosts": [DOWN.format("ip-7", "10:19:41"), DOWN.format("ip-8", "10:19:41")],
    "of another pod": [DOWN.format("job-1", "10:19:41")],
    "down from the start": [DOWN.format("ip-7", "03:19:41")],
    "down after the ranks complained": [DOWN.format("ip-7", "10:49:41")],
}


@pytest.mark.parametrize("lines", NOT_OF_POD.values(), ids=NOT_OF_POD)
def test_a_kernels_log_that_tells_of_other_hosts_or_times_is_not_of_the_pod_that_it_is_named_after(lines, tmp_path):
    assert not set(judge(tmp_path, {"job-0.log": BROKEN, "job-2-dmesg.txt": lines}).blamed) & {4, 5}


def test_a_gpu_that_failed_in_the_log_of_a_pods_host_is_of_the_rank_in_that_pod(tmp_path):
    ranks = [joined(rank, 6, bus=f"{4 + rank % 2}4000", host=f"job-{rank // 2}") for rank in range(6)]
    fell = "Nov 20 10:09:21 ip-7 kernel: NVRM: Xid (PCI:0000:44:00): 79, pid=5001, GPU has fallen off the bus."
    log = [*ranks, *(timed_out(rank, 7) for rank in (0, 1, 2, 3, 5))]

    assert named(judge(tmp_path, {"job.log": log, "job-2-dmesg.txt": [fell]})) == ("device", (4,))


NAMES = ["m-master-0", "m-worker-0", "m-worker-1", "m-worker-2"]
EVICTED = [
    "Name:             m-worker-2",
    "Status:           Failed",
    "Reason:           Evicted",
    "Message:          The node was low on resource: ephemeral-storage. Threshold quantity: 5, available: 4Ki.",
]
PLACES = {
    "beside torchrun's number": [
        f"[train] group_rank {n} pod {pod} holds global ranks {2 * n},{2 * n + 1}" for n, pod in enumerate(NAMES)
    ],
    "behind a logger's words": [
        f"2026-11-20 09:12:38 | INFO     | launch:main:88 - pod {pod} runs global ranks {2 * n} and {2 * n + 1}"
        for n, pod in enumerate(NAMES)
    ],
    "each rank with its pod and its node": [
        f"rank={rank} local_rank={rank % 2} pod={NAMES[rank // 2]} node=ip-{rank // 2}" for rank in range(8)
    ],
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_an_evicted_pod_is_all_its_ranks(places, tmp_path):
    log = [*places, *(timed_out(rank, 7) for rank in range(6))]

    assert named(judge(tmp_path, {"master.log": log, "describe.txt": EVICTED})) == ("killed", (6, 7))


GROUPS = [f"[train] group rank {n} of tp group: pod {pod} ranks {2 * n},{2 * n + 1}" for n, pod in enumerate(NAMES)]
INNOCENT = {
    "ranks of the pod wait too": (PLACES["beside torchrun's number"], range(7), EVICTED),
    "a pod of another job": (
        PLACES["beside torchrun's number"],
        range(6),
        [line.replace("m-w", "other-w") for line in EVICTED],
    ),
    "numbers in a group of tensor parallelism": (GROUPS, range(6), EVICTED),
}


@pytest.mark.parametrize(("places", "waiting", "described"), INNOCENT.values(), ids=INNOCENT)
def test_an_evicted_pod_whose_ranks_are_not_told_or_lived_on_is_not_to_blame(places, waiting, described, tmp_path):
    verdict = judge(
        tmp_path, {"master.log": [*places, *(timed_out(rank, 7) for rank in waiting)], "describe.txt": described}
    )

    assert verdict.kind != "killed" or verdict.blamed == ()


def test_ranks_that_a_list_of_pods_has_and_that_say_nothing_are_not_in_the_call(tmp_path):
    two = {"a.txt": EVICTED, "b.txt": [line.replace("worker-2", "worker-1") for line in EVICTED]}
    log = [*PLACES["beside torchrun's number"], *(timed_out(rank, 7) for rank in range(4))]

    assert named(judge(tmp_path, {"master.log": log, **two})) == ("killed", ())


def clocks(slow_host=2, slow_gpu=3):
    """A table of the clocks of four GPUs on each of four hosts, of which one is slowed down."""
    rows = ["index, clocks.current.sm [MHz], clocks_event_reasons.hw_thermal_slowdown"]
    for host in range(4):
        for gpu in range(4):
            is_slow = (host, gpu) == (slow_host, slow_gpu)
            rows.append(f"n{host}: {gpu}, {765 if is_slow else 1755} MHz, {'Active' if is_slow else 'Not Active'}")
    return [f"n{host}: {rows[0]}" for host in range(4)] + rows[1:]


STEPS = [f"iteration {at}/ 400 | elapsed time per iteration (ms): {5100 if at < 15 else 9000}.0 |" for at in range(30)]
GPUS = {
    "a label and the GPU's number": ([f"{rank}: n{rank // 4} gpu {rank % 4}" for rank in range(16)], (11,)),
    "words with colons": (
        [f"{rank}: n{rank // 4}: local_rank={rank % 4} cuda:{rank % 4}" for rank in range(16)],
        (11,),
    ),
    "numbers of SLURM": ([f"n{rank // 4} SLURM_PROCID={rank} SLURM_LOCALID={rank % 4}" for rank in range(16)], (11,)),
    "GPUs in the other order": ([f"{rank}: n{rank // 4} gpu {3 - rank % 4}" for rank in range(16)], (8,)),
    "a table of GPUs in the other order": (
        ["rank host gpu", *(f"{rank} n{rank // 4} {3 - rank % 4}" for rank in range(16))],
        (8,),
    ),
    "ranks that go round the hosts": ([f"{rank}: n{rank % 4} gpu {rank // 4}" for rank in range(16)], (14,)),
    "processes that see one GPU each": ([f"{rank}: n{rank // 4} gpu 0" for rank in range(16)], (11,)),
    "other hosts": ([f"{rank}: z{rank // 4} gpu {rank % 4}" for rank in range(16)], ()),
}


@pytest.mark.parametrize(("places", "blamed"), GPUS.values(), ids=GPUS)
def test_a_slowed_gpu_of_a_host_is_the_rank_that_a_script_prints_beside_it(places, blamed, tmp_path):
    log = ["using world size: 16, data-parallel size: 16", *STEPS]

    verdict = judge(tmp_path, {"rank15.out": log, "hosts.txt": places, "clocks.txt": clocks()})

    assert named(verdict) == ("slow", blamed)


PRINTED = {
    "printed by each rank": lambda r: f"[c{r // 2:02}] rank {r} local_rank {r % 2} NVIDIA A100-SXM4-80GB",
    "with the number of ranks": lambda r: f"[c{r // 2:02}] rank {r}/10 (local_rank {r % 2}) torch 2.5.1 driver 550.54",
    "with the host in the line": lambda r: f"init: global_rank={r} local_rank={r % 2} hostname=c{r // 2:02} AMD MI300X",
    "with the accelerator": lambda r: f"c{r // 2:02} rank={r} gpu={r % 2} NVIDIA H100 80GB HBM3",
    "with its number in brackets": lambda r: f"rank {r}/10 on c{r // 2:02} (local rank {r % 2}): NVIDIA H100 80GB HBM3",
    "among others": lambda r: f"INFO rank={r} world=10 host=c{r // 2:02} local_rank={r % 2} cuda:{r % 2}",
    "by the name of the host alone": lambda r: f"[rank{r}] hostname: c{r // 2:02}",
    "between bars": lambda r: (
        f"2026-11-20 10:00:00,123 | rank {r} | c{r // 2:02} | cuda:{r % 2} | NVIDIA A100-SXM4-80GB"
    ),
    "with the ranks there": lambda r: (
        f"[c{r // 2:02}] node_rank={r // 2} starting local ranks 0-1 -> global ranks {r - r % 2}-{r - r % 2 + 1}"
    ),
    "with its GPUs": lambda r: f"c{r // 2:02}: local GPUs [0,1] are global ranks {r - r % 2},{r - r % 2 + 1}",
    "by the prolog": lambda r: f"prolog: 8 c{r // 2:02} 10.0.0.{r // 2} ranks {r - r % 2}-{r - r % 2 + 1}",
}


@pytest.mark.parametrize("line", PRINTED.values(), ids=PRINTED)
def test_the_ranks_that_lines_place_on_a_failed_node_were_killed(line, tmp_path):
    verdict = judge(tmp_path, {"job.err": [*map(line, range(10)), FAILED, CANCELLED]})

    assert named(verdict) == ("killed", (6, 7))


ELSEWHERE = {
    "ranks in groups": lambda r: f"[c{r // 2:02}] tp rank {r} local_rank {r % 2} NVIDIA A100-SXM4-80GB",
    "the host of rank 0": lambda r: f"[rank{r}] node c03 is the master",
    "hosts that ranks speak of": lambda r: f"[rank{r}] sends shard {r} to node c03",
}


@pytest.mark.parametrize("line", ELSEWHERE.values(), ids=ELSEWHERE)
def test_lines_that_do_not_say_where_a_rank_is_place_none_on_a_node(line, tmp_path):
    lines = list(map(line, range(10)))

    assert named(judge(tmp_path, {"job.err": [*lines, FAILED, CANCELLED]})) == ("killed", ())


ROWS = {
    "with partitions": "{gpu}       {gpu}     0x740c,   4602{gpu}  {temp}.0°C  396.0W  N/A, N/A, 0  {mhz}Mhz  1600Mhz"
    "  0%   auto  560.0W  81%    {busy}%",
    "of former years": "{gpu}    {temp}.0c  90.0W   {mhz}Mhz  1000Mhz  0%    auto  300.0W   63%    {busy}%",
}


def smi(form, *, host="n2", temp=94, mhz=500, busy=100):
    """What `rocm-smi` prints on a host with four GPUs, of which GPU 3 differs."""
    others = [form.format(gpu=gpu, temp=58 + gpu, mhz=1650, busy=99) for gpu in range(3)]
    return [f"{host}$ rocm-smi", "=== Concise Info ===", *others, form.format(gpu=3, temp=temp, mhz=mhz, busy=busy)]


@pytest.mark.parametrize("form", ROWS.values(), ids=ROWS)
def test_a_gpu_that_is_hot_and_far_slower_than_its_neighbours_is_that_of_its_rank(form, tmp_path):
    places = GPUS["a label and the GPU's number"][0]
    tables = {f"smi-n{host}.txt": smi(form, host=f"n{host}", **({} if host == 2 else EVEN_GPU)) for host in range(4)}
    log = ["using world size: 16, data-parallel size: 16", *STEPS]
    verdict = judge(tmp_path, {"rank15.out": log, "hosts.txt": places, **tables})

    assert (verdict.kind, verdict.blamed) == ("slow", (11,))
    assert "94 °C" in verdict.because


EVEN_GPU = {"temp": 60, "mhz": 1650}
NO_HEAT = {"as fast as the others": {"mhz": 1600}, "cool": {"temp": 61}, "idle": {"busy": 3}}


@pytest.mark.parametrize("how", NO_HEAT.values(), ids=NO_HEAT)
def test_a_gpu_that_is_not_both_hot_and_slow_at_work_is_not_slowed_down(how, tmp_path):
    table = smi(ROWS["of former years"], **how)
    assert "slows it down" not in judge(tmp_path, {"job.log": ["epoch 4"], "smi.txt": table}).because


def test_timers_that_name_a_rank_tell_more_than_a_hot_gpu_of_which_the_rank_is_not_known(tmp_path):
    times = dict.fromkeys((0, 1, 6), "fwd-bwd 830 | sync 1390 | data 2") | {5: "fwd-bwd 2170 | sync 45 | data 2"}
    logs = {f"rank{rank}.log": [f"[rank {rank}] step {n} | {own}" for n in range(6)] for rank, own in times.items()}
    verdict = judge(tmp_path, {**logs, "smi.txt": smi(ROWS["with partitions"])})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", (5,), False)
