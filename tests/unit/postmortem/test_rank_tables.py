"""Tables and lists of people's own scripts that lead from a host or a process to its ranks."""

import pytest

from .made import judge, timed_out

NODE_FAILED = "srun: error: Node failure on oak-2"
OOM = "Nov 20 10:15:01 oak-2 kernel: Out of memory: Killed process 611 (python) total-vm:9kB, anon-rss:99614720kB\n"


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def broke(*ranks):
    """What ranks print whose peer went away."""
    return [
        f"[rank{rank}]:[E1120 10:20:0{rank}.1 ProcessGroupNCCL.cpp:2057] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        " Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a"
        " network error"
        for rank in ranks
    ]


def init(host, rank, device=0):
    return (
        f"{host}:70:90 [{device}] NCCL INFO ncclCommInitRank comm 0x55a rank {rank} nranks 6 cudaDev {device} nvmlDev"
        f" {device} busId 7000 commId 0x9f1 - Init COMPLETE"
    )


HOSTS = {
    "one line for all": ["OAK-1: no", "oak-1: RANKS 0-1   oak-2: RANKS 2-3   oak-3: RANKS 4-5"],
    "a list that says once that these are ranks": ["rank map: oak-1: 0-1, oak-2: 2-3, oak-3: 4-5"],
    "arrows": ["host -> ranks: oak-1 -> [0, 1] oak-2 -> [2, 3] oak-3 -> [4, 5]"],
    "a label and what the environment says": [
        f"[oak-{n + 1}] SLURM_NODEID={n} ranks {2 * n}..{2 * n + 1} MASTER_ADDR=oak-1 WORLD_SIZE=6" for n in range(3)
    ],
    "the number of a host and how many each has": [
        f"launching on oak-{n + 1}: NODE_RANK={n} NNODES=3 GPUS_PER_NODE=2 MASTER_ADDR=oak-1" for n in range(3)
    ],
    "a sentence": [
        f"Starting training on 3 nodes x 2 GPU. NODE_RANK={n}, ranks {2 * n}-{2 * n + 1} (host oak-{n + 1}, 10.0.0.{n})"
        for n in range(3)
    ],
    "DeepSpeed's mapping": [
        "[INFO] [launch.py:164:main] global_rank_mapping=defaultdict(<class 'list'>, {'oak-1': [0, 1], 'oak-2': [2, 3],"
        " 'oak-3': [4, 5]})"
    ],
    "NCCL's line of one rank of each host": [init(f"oak-{n + 1}", 2 * n) for n in range(3)],
}


@pytest.mark.parametrize("told", HOSTS.values(), ids=HOSTS)
def test_a_node_that_failed_is_all_its_ranks(told, tmp_path):
    verdict = judge(tmp_path, [*told, *broke(0, 5), NODE_FAILED])

    assert named(verdict) == ("killed", (2, 3), False)


FILES = {
    "hosts with slots": ["oak-1 slots=2", "oak-2 slots=2", "oak-3 slots=2"],
    "a table with commas": ["host,ranks", "oak-1,0-1", "oak-2,2-3", "oak-3,4-5"],
    "a row for each rank": ["rank host", *(f"{rank} oak-{rank // 2 + 1}" for rank in range(6))],
}


@pytest.mark.parametrize("told", FILES.values(), ids=FILES)
def test_a_file_of_its_own_tells_the_ranks_of_a_node(told, tmp_path):
    verdict = judge(tmp_path, {"job.out": [*broke(0, 5), NODE_FAILED], "placement.txt": told})

    assert named(verdict) == ("killed", (2, 3), False)


MPIRUN = "+ mpirun -np 6 -H oak-1:2,oak-2:2,oak-3:2 -x PATH python fit.py"


@pytest.mark.parametrize(
    "command", [MPIRUN, MPIRUN.replace("-H ", "--host "), "horovodrun -np 6 -H oak-1:2,oak-2:2,oak-3:2 python fit.py"]
)
def test_hosts_with_slots_in_a_launchers_command_have_its_ranks_in_a_row(command, tmp_path):
    assert named(judge(tmp_path, [command, *broke(0, 5), NODE_FAILED])) == ("killed", (2, 3), False)


@pytest.mark.parametrize(
    "command",
    [
        MPIRUN.replace("-x PATH", "--map-by node"),
        MPIRUN.replace("-np 6", "-np 3"),
        MPIRUN.replace("python", "torchrun --nproc_per_node 2"),
    ],
    ids=["ranks go round the hosts", "slots that are not used", "agents"],
)
def test_a_command_whose_ranks_are_in_another_order_does_not_tell_hosts(command, tmp_path):
    assert judge(tmp_path, [command, *broke(0, 5), NODE_FAILED]).blamed == ()


def test_names_that_srun_labels_are_the_hosts_of_its_tasks(tmp_path):
    names = [f"{rank}: oak-{rank // 2 + 1}" for rank in range(6)]

    verdict = judge(tmp_path, [*names, *(f"{line[5]}: {line}" for line in broke(0, 1, 4, 5)), NODE_FAILED])

    assert named(verdict) == ("killed", (2, 3), False)


UNTOLD = {
    "ranks before their hosts, which pair with neither": ["ranks 0-1 oak-1 ranks 2-3 oak-2 ranks 4-5 oak-3 end"],
    "numbers of ranks on each host": ["ranks per host: oak-1: 2, oak-2: 2, oak-3: 2"],
    "each host counts for itself": ["local ranks: oak-1: 0-1, oak-2: 0-1, oak-3: 0-1"],
    "GPUs of one process": [init(f"oak-{n + 1}", n) for n in range(3)],
    "two hosts for one rank": ["rank host", "0 oak-1", "0 oak-2", "1 oak-3"],
}


@pytest.mark.parametrize("told", UNTOLD.values(), ids=UNTOLD)
def test_nobody_is_named_where_the_ranks_of_a_node_are_not_told(told, tmp_path):
    verdict = judge(tmp_path, [*told, *broke(0, 5), NODE_FAILED])

    assert verdict.blamed == ()


PROCESSES = {
    "columns in a comment": [
        "# by the wrapper: host rank local_rank pid",
        *(f"oak-{rank // 2 + 1} {rank} {rank % 2} {610 + rank % 2}" for rank in range(4)),
    ],
    "commas": ["rank,hostname,pid", *(f"{rank},oak-{rank // 2 + 1},{610 + rank % 2}" for rank in range(4))],
    "a table with rules": [
        "| rank | pid | node |",
        "|------|-----|------|",
        *(f"| {rank} | {610 + rank % 2} | oak-{rank // 2 + 1} |" for rank in range(4)),
    ],
    "numbers first, as a viewer counts lines": [
        "rank  pid  node",
        *(f"{rank}  {610 + rank % 2}  oak-{rank // 2 + 1}" for rank in range(4)),
    ],
}


@pytest.mark.parametrize("table", PROCESSES.values(), ids=PROCESSES)
def test_a_process_that_the_kernel_killed_is_the_rank_of_a_table(table, tmp_path):
    log = [timed_out(rank, 9) for rank in range(3)]

    verdict = judge(tmp_path, {"job.log": log, "pids.txt": table, "oak-2.dmesg": [OOM.strip()]})

    assert named(verdict) == ("host_memory", (3,), False)


SAID = {
    "behind a label": [f"[Rank {rank}] pid={640 + rank}" for rank in range(4)],
    "as JSON": [f'{{"rank": {rank}, "hostname": "oak-1", "pid": {640 + rank}}}' for rank in range(4)],
    "all in one line": ["RANK=0 is pid 640, RANK=1 is pid 641, RANK=2 is pid 642, RANK=3 is pid 643"],
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_process_that_stands_in_a_call_of_the_kernel_is_the_rank_that_named_it(said, tmp_path):
    log = [*said, *(timed_out(rank, 9) for rank in (0, 1, 3))]
    hung = ["Nov 20 10:15:01 oak-1 kernel: INFO: task python:642 blocked for more than 122 seconds."]

    verdict = judge(tmp_path, {"job.log": log, "oak-1.dmesg": hung})

    assert named(verdict) == ("host", (2,), False)


def ray(line, pid):
    return f"(Trainer pid={pid}, ip=10.3.0.7) {line}"


def killed(workers):
    """What Ray's agent and its driver print of workers that were killed for memory."""
    return [
        f"(raylet, ip=10.3.0.7) {workers} Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers"
        " crashed due to other reasons at node (ID: 5bc, IP: 10.3.0.7) over the last time period.",
        *(ray(timed_out(rank, 9), 90 + rank) for rank in (0, 1)),
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "Memory on the node (IP: 10.3.0.7, ID: 5bc) where the task (actor ID: de8, name=Trainer_2, pid=92, memory"
        " used=58.20GB) was running was 957.61GB / 1007.52GB. Ray killed this worker (ID: 66) because of it.",
    ]


def test_whom_ray_killed_for_memory_is_told_by_its_driver_later(tmp_path):
    ready = [ray(f"[Rank {rank}] ready", 90 + rank) for rank in range(4)]

    verdict = judge(tmp_path, [*ready, *killed(workers=1)])

    assert named(verdict) == ("host_memory", (2,), False)


def test_a_bond_that_lost_all_its_ports_is_the_ranks_of_its_host_though_it_came_back_later(tmp_path):
    log = ["rank map: oak-1: 0-1, oak-2: 2-3", *broke(0, 1)]
    journal = [
        "Nov 20 10:19:20 oak-2 kernel: bond1: (slave ens1): link status definitely down, disabling slave",
        "Nov 20 10:19:21 oak-2 kernel: bond1: now running without any active interface!",
        "Nov 20 10:48:00 oak-2 kernel: bond1: active interface up!",
    ]

    assert named(judge(tmp_path, {"job.log": log, "oak-2.journal.txt": journal})) == ("network", (2, 3), False)


def test_a_bond_that_was_up_again_before_anybody_complained_is_not_to_blame(tmp_path):
    log = ["rank map: oak-1: 0-1, oak-2: 2-3", *(timed_out(rank, 9) for rank in (0, 2, 3))]
    journal = [
        "Nov 20 10:02:21 oak-2 kernel: bond1: now running without any active interface!",
        "Nov 20 10:05:00 oak-2 kernel: bond1: active interface up!",
    ]

    assert judge(tmp_path, {"job.log": log, "oak-2.journal.txt": journal}).kind == "absent"


SWITCH = "Nov 20 10:19:11 leaf7 switchd[88]: swp14 (to {host} mlx5_1): link down, remote fault"


@pytest.mark.parametrize(("host", "blamed"), [("oak-2", (2, 3)), ("elm-9", ())])
def test_a_port_of_a_switch_is_that_of_the_host_which_it_faces(host, blamed, tmp_path):
    log = ["rank map: oak-1: 0-1, oak-2: 2-3", *broke(0, 1)]

    verdict = judge(tmp_path, {"job.log": log, "leaf7.log": [SWITCH.format(host=host)]})

    assert (verdict.kind, verdict.blamed) == ("network", blamed)


DOWN = "[2026-11-20T10:15:02.771] error: Nodes {host} not responding, setting DOWN"


@pytest.mark.parametrize(("host", "said"), [("oak-2", ("killed", (2, 3), False)), ("elm-9", ("absent", (), True))])
def test_a_node_that_went_down_before_the_others_ran_out_of_time(host, said, tmp_path):
    log = ["rank map: oak-1: 0-1, oak-2: 2-3, oak-3: 4-5", *(timed_out(rank, 9) for rank in (0, 1, 4))]

    verdict = judge(tmp_path, {"job.log": log, "slurmctld.log": [DOWN.format(host=host)]})

    assert named(verdict) == said


def test_a_node_that_went_down_is_not_to_blame_where_a_rank_of_it_waits(tmp_path):
    log = ["rank map: oak-1: 0-1, oak-2: 2-3, oak-3: 4-5", *(timed_out(rank, 9) for rank in (0, 1, 2, 4))]

    verdict = judge(tmp_path, {"job.log": log, "slurmctld.log": [DOWN.format(host="oak-2")]})

    assert verdict.blamed == ()


def placed(rank, pid, more=""):
    """What a worker of Ray prints of itself; hosts number their processes alike."""
    ip, host = f"10.3.0.{1 + rank // 2}", f"oak-{rank // 2}"
    return f"(Trainer pid={pid}, ip={ip}) [Rank {rank}] world_size=4 tp_size=2 node={host} local_rank={rank % 2}{more}"


HELD = [f"[99.{pid}] INFO: task ray::Trainer:{pid} blocked for more than 120 seconds." for pid in (90, 91)]


@pytest.mark.parametrize("held", [HELD, HELD[:1], HELD[1:]], ids=["all of a host", "the first", "the second"])
def test_processes_of_a_host_that_stand_in_calls_of_the_kernel_are_all_named_and_no_others_of_their_numbers(
    held, tmp_path
):
    log = [placed(rank, 90 + rank % 2) for rank in range(4)]
    blamed = tuple(2 + n for n, line in enumerate(HELD) if line in held)

    assert named(judge(tmp_path, {"job.log": log, "dmesg-oak-1.txt": held})) == ("host", blamed, False)


@pytest.mark.parametrize("more", [" port=29500", " waited for it", " peer=3"])
def test_a_line_of_values_that_may_be_of_another_process_tells_no_host(more, tmp_path):
    log = [placed(rank, 90 + rank % 2, more) for rank in range(4)]

    assert judge(tmp_path, {"job.log": log, "dmesg-oak-1.txt": HELD}).blamed == ()
