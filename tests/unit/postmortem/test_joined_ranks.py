"""Evidence that is numbered otherwise than ranks are: what joins a process, a GPU, a host or a pod to its rank."""

import pytest

from .made import WORLD, failed_at, judge, signalled, timed_out

XID = "Xid (PCI:0000:ab:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def found(tmp_path, **files):
    """Return the kind and the ranks of the verdict on files, by names with `_` for a dot before the ending."""
    verdict = judge(tmp_path, {name.replace("_", ".", 1): lines for name, lines in files.items()})
    return verdict.kind, verdict.blamed


def test_of_two_hosts_with_a_gpu_at_one_address_the_host_that_a_rank_says_beside_it_decides(tmp_path):
    log = [
        f"{rank:2}: init: global rank {rank} of 4, host iota{rank // 2}, local rank {rank % 2}, NVIDIA H100 80GB HBM3"
        f" at 0000:{'9a' if rank % 2 else 'ab'}:00.0"
        for rank in range(4)
    ]
    kernel = [f"Nov  7 14:44:37 iota1 kernel: NVRM: {XID}"]

    assert found(tmp_path, job_log=log, dmesg_txt=kernel) == ("device", (2,))


SETUP = [f"[setup] rank={rank} pid={700 + rank} host=kap{rank // 2}" for rank in range(4)]
TREE = [
    "# ps -eo pid,ppid,stat,cmd --forest",
    "    PID    PPID STAT CMD",
    "    690       1 Sl   python /bin/torchrun --nnodes=2 --nproc_per_node=2 job.py",
    *("    702     690 Rl   python -u job.py", "    811     702 Sl   pt_data_worker"),
    *("    703     690 Rl   python -u job.py", "    812     703 Sl   pt_data_worker"),
]


@pytest.mark.parametrize(("pid", "ranks"), [(812, (3,)), (811, (2,)), (899, ())])
def test_a_killed_worker_of_a_loader_is_of_the_rank_that_started_it(pid, ranks, tmp_path):
    kernel = [f"Sep 18 22:29:58 kap1 kernel: Out of memory: Killed process {pid} (pt_data_worker) anon-rss:3657612kB"]

    assert found(tmp_path, job_log=SETUP, ps_txt=TREE, dmesg_txt=kernel) == ("host_memory", ranks)


def spawned(node, *, size=2):
    head = f"lam{node}: [2026-11-24 20:00:09,700] [INFO] [launch.py:1:main]"
    yield f"{head} nnodes=2, num_local_procs={size}, node_rank={node}"
    for local in range(size):
        command = f"['python', 'fit.py', '--local_rank={local}']"
        yield f"{head} process {500 + 10 * node + local} spawned with command: {command}"


SILENT = "Nov 24 21:18:15 lam1 kernel: nfs: server store9 not responding, still trying"
HELD = "Nov 24 21:20:26 lam1 kernel: INFO: task python3:{} blocked for more than 122 seconds."


@pytest.mark.parametrize(("pids", "ranks"), [((511,), (3,)), ((510, 511), (2, 3)), ((), ())])
def test_who_stands_in_a_call_of_the_host_whose_file_server_is_silent_is_to_blame(pids, ranks, tmp_path):
    log = ["lam0: [2026-11-24 20:00:09,700] [INFO] [launch.py:4:main] dist_world_size=4", *spawned(0), *spawned(1)]
    kernel = [SILENT, *(HELD.format(pid) for pid in pids)]

    assert found(tmp_path, job_log=log, dmesg_txt=kernel) == ("host", ranks)


def jax(pod, process, said):
    return [
        f"{pod} I1108 02:00:10.110322 distributed.py:157] Connecting to JAX distributed service on mu-s0-0:8476"
        f" (process_id={process}, num_processes=4)",
        *(f"{pod} {line}" for line in said),
    ]


TAKEN = "W1108 02:36:01.004980 google_guest: compute instance was preempted (metadata instance/preempted = TRUE)"


def test_a_preempted_pod_is_the_process_of_jax_that_speaks_below_its_label(tmp_path):
    pods = {"mu-s0-0": 0, "mu-s0-1": 1, "mu-s1-0": 2, "mu-s1-1": 3}
    log = [line for pod, rank in pods.items() for line in jax(pod, rank, [TAKEN] * (pod == "mu-s1-0"))]

    assert found(tmp_path, pods_log=log) == ("killed", (2,))


def test_an_event_on_a_pod_is_of_the_process_of_jax_that_a_list_gives_it(tmp_path):
    pods = ("nu-job-0-0", "nu-job-0-1", "nu-job-1-0", "nu-job-1-1")
    log = [f"{pod}  TPU_WORKER_ID={n % 2} NODE_ID(process_id)={n} of 4" for n, pod in enumerate(pods)]
    events = [f"7m    Warning   NodeNotReady       pod/{pods[3]}   Node is not ready"]

    assert found(tmp_path, workers_log=log, kubectl_txt=events) == ("killed", (3,))


FULL = (
    "E1015 16:01:04.221 317 pjrt_client.cc:3086] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while"
)
LOST = (
    "2025-10-15 16:03:15.140058: E coordination_service.cc:1170] /job:jax_worker/replica:0/task:3 has been set to ERROR"
    " in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout."
)


@pytest.mark.parametrize(("number", "ranks"), [(3, (3,)), (13, ())], ids=["as the job counts", "otherwise"])
def test_an_error_in_the_file_of_a_task_is_of_that_process_where_jax_counts_tasks_so(number, ranks, tmp_path):
    files = {"task0_log": [LOST], f"task{number}_log": [f"{FULL} trying to allocate 1207 bytes."]}

    assert found(tmp_path, **files) == ("device_memory", ranks)


def listed(state, calls=None):
    """What a loop over the processes of four hosts prints; two of host pi1 stand in calls of the kernel."""
    calls = calls or {2: "nfs_setattr", 3: "nfs_start_io_read"}
    states = [f"{state if rank in calls else 'SNl'} {calls.get(rank, 'do_epoll_wait')}" for rank in range(8)]
    return [f"pi{rank // 2} {7000 + rank} RANK={rank} {told}   1-07:44" for rank, told in enumerate(states)]


LISTS = [
    (listed("DNl"), (2, 3)),
    (listed("SNl"), ()),
    (listed("DNl", {2: "nfs_setattr", 3: "blk_wait"}), ()),
    (listed("DNl", dict.fromkeys(range(5), "nfs_setattr")), ()),
    ([line.replace("RANK=3", "RANK=2") for line in listed("DNl")], ()),
]


@pytest.mark.parametrize(("lines", "ranks"), LISTS, ids=["two", "none", "other calls", "most", "RANK of hosts"])
def test_who_stands_in_calls_of_one_file_system_in_a_list_of_all_processes_is_held(lines, ranks, tmp_path):
    assert found(tmp_path, ps_txt=lines)[1] == ranks


def rendezvous(group_rank, ranks, restart):
    return [
        "I0730 14:00:02.000000 91 torch/distributed/elastic/agent/server/api.py:525] [default] Rendezvous complete for"
        " workers. Result:",
        *(
            f"  restart_count={restart}",
            f"  group_rank={group_rank}",
            "  local_ranks=[0, 1]",
            f"  global_ranks={ranks}",
        ),
    ]


RESTARTS = "I0730 14:03:41.000000 91 torch/distributed/elastic/agent/server/api.py:908] [default] Worker group FAILED."
OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB. GPU 0 has a total capacity of 39.39 GiB."


def test_the_log_of_a_local_rank_is_of_the_rank_that_its_hosts_agent_gave_it_in_that_attempt(tmp_path):
    restarts = f"{RESTARTS} 1/1 attempts left; will restart worker group"
    agents = {
        f"rho-{n}/agent.log": [
            *rendezvous(n, [2 * n, 2 * n + 1], 0),
            restarts,
            *rendezvous(1 - n, [2 - 2 * n, 3 - 2 * n], 1),
        ]
        for n in (0, 1)
    }
    logs = {f"rho-{n}/attempt_1/{local}/stderr.log": ["step 4 loss 2.1"] for n in (0, 1) for local in (0, 1)}
    verdict = judge(tmp_path, {**agents, **logs, "rho-1/attempt_1/1/stderr.log": ["step 4 loss 2.1", OUT]})

    assert (verdict.kind, verdict.blamed) == ("device_memory", (1,))


MESH = "INFO - built device mesh DeviceMesh((dp=3, tp=3), device: 'cuda', stride: (3, 1))"
HOSTS_IN_ORDER = ["zeta.log", "beta.log", "iota.log"]  # not that of their names
WAITS = [  # the host's number in the job, the rank there, its place in a group, which of these, and in which call
    *((0, 0, 0, "17(mesh_dp)", 52), (2, 0, 2, "17(mesh_dp)", 52)),
    *((1, 1, 1, "31(mesh_tp)", 90), (1, 2, 2, "31(mesh_tp)", 90)),
]


def ranks_of(number):
    return [3 * number, 3 * number + 1, 3 * number + 2]


def behind_role(local, *lines):
    """The lines of a rank behind the label that torchrun puts before them in the log of its host."""
    return [f"[default{local}]:{line}" for line in lines]


def waits_on(number):
    """What the ranks of a host print; rank 3, the first of the second host, waits for nobody."""
    lines = [line for local in range(3) for line in behind_role(local, MESH)]
    for host, local, place, group, seq in WAITS:
        waited = timed_out(0, seq, place=place, prefix=False)
        counts = failed_at(0, f"PG ID 2 PG GUID {group}", seq, seq, seq - 1, place=place, prefix=False)
        lines += behind_role(local, waited, counts) if host == number else []
    return lines


def test_a_label_that_counts_on_a_host_is_the_rank_in_the_list_of_that_hosts_agent(tmp_path):
    logs = {name: [*rendezvous(n, ranks_of(n), 0), *waits_on(n)] for n, name in enumerate(HOSTS_IN_ORDER)}

    verdict = judge(tmp_path, logs)

    assert (verdict.kind, verdict.blamed) == ("absent", (3,))


def test_a_label_that_counts_on_a_host_is_the_rank_of_the_last_attempt(tmp_path):
    restarts = f"{RESTARTS} 1/1 attempts left; will restart worker group"
    logs = {
        name: [*rendezvous(2 - n, ranks_of(2 - n), 0), restarts, *rendezvous(n, ranks_of(n), 1), *waits_on(n)]
        for n, name in enumerate(HOSTS_IN_ORDER)
    }

    assert judge(tmp_path, logs).blamed == (3,)


def test_agents_of_several_hosts_in_one_log_do_not_tell_whose_a_label_is(tmp_path):
    agents = [line for n in range(3) for line in rendezvous(n, ranks_of(n), 0)]

    verdict = judge(tmp_path, {"all.log": [*agents, *(line for n in range(3) for line in waits_on(n))]})

    assert verdict.blamed == ()


GIVEN = [
    "[pdsh] sig0: export CUDA_VISIBLE_DEVICES=0,1,2,3",
    "[pdsh] sig1: export CUDA_VISIBLE_DEVICES=3,2,1,0",
    "global_rank_mapping=defaultdict(<class 'list'>, {'sig0': [0, 1, 2, 3], 'sig1': [4, 5, 6, 7]}) launch",
]
SLOW, USUAL = "345 MHz, 88, 0x0000000000000048, 100 %", "1410 MHz, 55, 0x0000000000000000, 40 %"
CLOCKS = [
    "index, pci.bus_id, clocks.current.sm [MHz], temperature.gpu, clocks_event_reasons.active, utilization.gpu [%]",
    *(f"{n}, 00000000:{n}7:00.0, {SLOW if n == 1 else USUAL}" for n in range(4)),
]


@pytest.mark.parametrize(("host", "ranks"), [("sig0", (1,)), ("sig1", (6,))])
def test_the_number_of_a_gpu_is_counted_among_the_ones_that_its_own_host_gives_to_the_ranks(host, ranks, tmp_path):
    log = ["[launch.py:1:main] nnodes=2", *GIVEN]

    assert found(tmp_path, job_log=log, **{f"smi-{host}_csv": CLOCKS}) == ("slow", ranks)


def labelled(task, local, text, rank=None):
    own = "" if rank is None else f"[rank{rank}]: "
    return f"{task}: [default{local}]:{own}{text}"


READS = (
    "2025-02-10,18:34:40 | WARNING | prefetch queue is empty for 600 s, still waiting for shards in next(dataloader)"
)
LOCKED = "WARNING filelock: Lock 1402 not acquired on /nfs/feat/index.lck, waiting 0.05 seconds ..."


@pytest.mark.parametrize(("text", "kind"), [(READS, "data"), (LOCKED, "host")])
def test_a_number_on_a_host_that_torch_never_names_is_counted_from_its_hosts_first_rank(text, kind, tmp_path):
    others = [(task, local) for task in (0, 1) for local in range(4) if (task, local) != (1, 3)]
    waits = [labelled(t, n, timed_out(4 * t + n, 5, prefix=False), 4 * t + n) for t, n in others]

    assert found(tmp_path, job_out=[labelled(1, 3, text), *waits]) == (kind, (7,))


def test_one_number_alone_does_not_tell_the_first_rank_of_a_host(tmp_path):
    waits = [labelled(task, 0, timed_out(4 * task, 5, prefix=False), 4 * task) for task in (0, 1)]

    assert found(tmp_path, job_out=[labelled(1, 3, READS), *waits])[1] == ()


def test_a_lock_that_was_given_in_the_end_holds_nobody(tmp_path):
    taken = ["[rank2]: acquiring lock /nfs/a.lck ...", "[rank2]: lock taken, 40 files indexed"]
    waits = [f"[rank{rank}]: {timed_out(rank, 5, prefix=False)}" for rank in (0, 1, 3)]

    assert found(tmp_path, job_log=[*taken, *waits]) == ("absent", (2,))


def test_a_machine_that_was_taken_back_is_no_single_ranks_where_its_label_has_several(tmp_path):
    log = [f"tau-{n}: NODE_RANK={n} NPROC_PER_NODE=2" for n in (0, 1)]

    assert found(tmp_path, job_log=[*log, f"tau-1 {TAKEN}"])[1] == ()


SHARES = [
    ("torchrun --nnodes 2 --nproc-per-node 4 (tau0 = ranks 0-3, tau1 = ranks 4-7, nothing else set)", (5,)),
    ("as submitted: tau1 -> ranks 4-7; tau0 -> ranks 0-3, by hand", (5,)),
    ("loads shards (tau0 = 0-3, tau1 = 4-7 of every epoch) on all ranks", ()),
    ("the replaced nodes (tau0 = ranks 0-3, tau1 = ranks 8-11, by ops)", ()),
]


@pytest.mark.parametrize(("line", "ranks"), SHARES, ids=["a command", "a note", "no ranks", "not all"])
def test_ranks_that_are_shared_out_in_rows_tell_where_they_are_whatever_else_their_line_says(line, ranks, tmp_path):
    log = [line, *(f"[rank{rank}]: step 4" for rank in range(8))]

    assert found(tmp_path, job_log=log, **{"smi-tau1_csv": CLOCKS}) == ("slow", ranks)


def test_a_host_in_the_names_of_files_joins_them_whatever_else_they_say(tmp_path):
    log = ["torchrun --nproc_per_node 4 --nnodes 2 --node_rank 1 --master_addr 10.7.0.11 fit.py", "[rank4]: step 4"]

    assert found(tmp_path, **{"train-node1_log": log, "smi-node1_csv": CLOCKS}) == ("slow", (5,))


LOST_TASK = (
    "2026-11-20 10:04:40.568412: E xla/coordination_service.cc:1170] /job:jax_worker/replica:0/task:2 has been set to"
    " ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout."
)
TAKEN = "I1120 10:02:51.002113 901 preemption_sync_manager.cc:340] Received preemption notice: SIGTERM caught"


@pytest.mark.parametrize(("told_so", "blamed"), [((2,), (2,)), ((0, 1, 2, 3), ())], ids=["it alone", "all"])
def test_a_machine_that_a_cloud_took_back_is_of_the_task_that_the_coordinator_lost(told_so, blamed, tmp_path):
    logs = {
        f"worker{rank}.log": [
            "I1120 10:02:01.000100 901 fit.py:3] step 4 loss 2.0",
            *([TAKEN] if rank in told_so else []),
        ]
        for rank in range(4)
    }
    logs["worker0.log"] += [LOST_TASK]

    verdict = judge(tmp_path, logs)

    assert (verdict.kind, verdict.blamed) == ("killed", blamed)


def test_a_call_that_one_rank_only_counts_is_told_by_the_others_that_name_it(tmp_path):
    lines = [*(line for rank in (0, 1, 2) for line in (timed_out(rank, 5), failed_at(rank, WORLD, 5, 5, 4)))]

    verdict = judge(tmp_path, [*lines, signalled(3, WORLD, 5, 4)])

    assert (verdict.kind, verdict.collective, verdict.seq) == ("stuck", "all_reduce", 5)
