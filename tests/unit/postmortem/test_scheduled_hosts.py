"""Hosts and pods that a scheduler numbers, whose ranks follow from their place, and the ones that it did not start."""

import pytest

from .made import judge
from .test_hosts import broke

FAILED = "srun: error: Node failure on m03"
COMPLAINTS = [broke(rank) for rank in (0, 5, 13)]
NODES = "SLURM_JOB_NODELIST=m[01-04]"
TORCHRUN = 'srun bash -c "torchrun --nnodes 4 --nproc_per_node 4 --node_rank \\$SLURM_NODEID --master_addr m01 fit.py"'
BY_TASK = "srun --ntasks-per-node=4 bash -c 'RANK=$SLURM_PROCID python fit.py'"


def named(verdict):
    return verdict.kind, verdict.blamed


TOLD = {
    "a list in the environment": [NODES, TORCHRUN],
    "the list of the job": ["JobId=8 JobName=fit", "   ReqNodeList=(null) NodeList=m[01-04]", TORCHRUN],
    "names that were asked for": ["+ scontrol show hostnames m[01-04]", "m01", TORCHRUN],
    "names that were printed": [
        '$ scontrol show hostnames "$SLURM_JOB_NODELIST"',
        *(f"m0{n}" for n in "1234"),
        TORCHRUN,
    ],
    "tasks that start one agent each": [NODES, TORCHRUN.replace("NODEID", "PROCID")],
    "a variable of the script": [
        NODES,
        "export NODE_RANK=${SLURM_NODEID}",
        "torchrun --nnodes=4 --nproc-per-node=4 --node-rank=$NODE_RANK fit.py",
    ],
    "a task for each rank": [NODES, BY_TASK],
    "the launcher of Hugging Face": [
        NODES,
        "srun accelerate launch --num_processes 16 --num_machines 4 --machine_rank $SLURM_PROCID fit.py",
    ],
    "as many as there are GPUs": [NODES, "WORLD_SIZE=16", TORCHRUN.replace("node 4", "node gpu")],
}


@pytest.mark.parametrize("lines", TOLD.values(), ids=TOLD)
def test_a_host_has_the_ranks_of_its_place_in_the_list(lines, tmp_path):
    assert named(judge(tmp_path, {"job.out": [*lines, *COMPLAINTS, FAILED]})) == ("killed", (8, 9, 10, 11))


UNTOLD = {
    "a rendezvous that numbers hosts as they come": [NODES, f"{TORCHRUN} --rdzv_backend c10d"],
    "tasks that go round the hosts": [NODES, BY_TASK.replace("--n", "--distribution=cyclic --n")],
    "more ranks than that": [NODES, "WORLD_SIZE=32", TORCHRUN],
    "several tasks, each of which would be a host": [NODES, f"{BY_TASK[:24]} {TORCHRUN.replace('NODEID', 'PROCID')}"],
    "two lists": [NODES, "SLURM_NODELIST=m[02-05]", TORCHRUN],
    "the first name alone": ["scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1", "m01", TORCHRUN],
    "ranks on another host than that": [NODES, TORCHRUN, "m03: ranks 0-3", "m01: ranks 8-11"],
}


@pytest.mark.parametrize("lines", UNTOLD.values(), ids=UNTOLD)
def test_a_list_that_does_not_lead_to_ranks_names_nobody(lines, tmp_path):
    assert not set(judge(tmp_path, {"job.out": [*lines, *COMPLAINTS, FAILED]}).blamed) & {8, 9, 10, 11}


INDEXED = "torchrun --nnodes=4 --nproc-per-node=4 --node-rank={} fit.py"
EVENT = "12m  Warning  NodeNotReady  pod/fit-workers-0-2-x9k2d  Node is not ready"


def pods(*, status="Running", job="fit-workers-0", others=()):
    ready = "1/1" if status == "Running" else "0/1"
    rows = [f"{job}-{n}-{s} 1/1 Running 0 58m 10.4.0.{n} n{n}a" for n, s in ((0, "b4c5d"), (1, "f6g7h"), (3, "j8k9l"))]
    return [
        "NAME READY STATUS RESTARTS AGE IP NODE",
        *rows,
        *others,
        f"{job}-2-x9k2d {ready} {status} 0 58m 10.4.0.2 n2a",
    ]


COMMANDS = {
    "a Job's index": INDEXED.format("$JOB_COMPLETION_INDEX"),
    "as Kubernetes fills it in": INDEXED.format("$(JOB_COMPLETION_INDEX)"),
    "the end of the pod's name": INDEXED.format("${HOSTNAME##*-}"),
    "a variable of the script": "export NNODES=4 NPROC=4 NODE_RANK=$JOB_COMPLETION_INDEX",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_pod_that_is_gone_has_the_ranks_of_its_index(command, tmp_path):
    files = {"fit-workers-0-0.log": [command, broke(0)], "pods.txt": pods(), "events.txt": [EVENT]}

    assert named(judge(tmp_path, files)) == ("killed", (8, 9, 10, 11))


@pytest.mark.parametrize(
    ("command", "table"),
    [
        (INDEXED.format("$RANK_OF_MINE"), pods()),
        (COMMANDS["a Job's index"], pods(others=["fit-workers-1-0-b4c5d 1/1 Running 0 58m 10.4.0.9 n9a"])),
    ],
    ids=["another variable", "several Jobs, each of which counts from 0"],
)
def test_an_index_that_is_no_number_of_a_host_names_nobody(command, table, tmp_path):
    files = {"fit-workers-0-0.log": [command, broke(0)], "pods.txt": table, "events.txt": [EVENT]}

    assert judge(tmp_path, files).blamed == ()


LATE = (
    "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 12/16 clients joined."
)
SOCKETS = [f"m0{n}: torch.distributed.DistStoreError: Socket Timeout" for n in (1, 2, 4)]
LAUNCH = "srun: error: Task launch for {} failed on node m03: {}"
STARTED = {
    "a credential": [NODES, TORCHRUN, LAUNCH.format("StepId=8.0", "Job credential expired"), *SOCKETS],
    "a connection": [NODES, TORCHRUN, LAUNCH.format("8.0", "Communication connection failure"), *SOCKETS],
}


@pytest.mark.parametrize("lines", STARTED.values(), ids=STARTED)
def test_the_ranks_of_a_node_on_which_no_task_was_started_did_not_come(lines, tmp_path):
    verdict = judge(tmp_path, lines)

    assert named(verdict) == ("absent", (8, 9, 10, 11))
    assert "m03" in verdict.because


@pytest.mark.parametrize("status", ["Pending", "ImagePullBackOff", "ContainerCreating", "Init:0/1"])
def test_the_ranks_of_a_pod_that_has_not_started_did_not_come(status, tmp_path):
    log = [COMMANDS["a Job's index"], LATE]

    verdict = judge(tmp_path, {"fit-workers-0-0.log": log, "pods.txt": pods(status=status)})

    assert named(verdict) == ("absent", (8, 9, 10, 11))


@pytest.mark.parametrize(
    ("log", "table"),
    [
        ([COMMANDS["a Job's index"], LATE, "[rank9]: step 3"], pods(status="Pending")),
        ([COMMANDS["a Job's index"], LATE], [row.replace("1/1 Running", "0/1 Pending") for row in pods()]),
        ([COMMANDS["a Job's index"], "step 4"], pods(status="Pending")),
    ],
    ids=["a rank of it speaks", "none has started", "nobody waits"],
)
def test_a_pod_that_has_not_started_is_not_to_blame_where_more_than_it_is_missing(log, table, tmp_path):
    assert judge(tmp_path, {"fit-workers-0-0.log": log, "pods.txt": table}).blamed == ()


KEPT = {
    "an image": 'Failed      pod/{pod}   Failed to pull image "reg.example/fit:3": rpc error: code = NotFound',
    "no node": "FailedScheduling   pod/{pod}   0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
    "a volume": 'FailedMount   pod/{pod}   MountVolume.SetUp failed for volume "data" : not found',
}
BEGAN = "31m  Normal  Started  pod/fit-workers-0-{n}-x{n}   Started container trainer"


def kept(said, *, also=()):
    events = [f"4m1s  Warning  {said.format(pod='fit-workers-0-2-x2')}", *(BEGAN.format(n=n) for n in (0, 1, 3)), *also]
    return {"fit-workers-0-0.log": [COMMANDS["a Job's index"], LATE], "events.txt": events}


@pytest.mark.parametrize("said", KEPT.values(), ids=KEPT)
def test_the_ranks_of_a_pod_that_events_say_was_kept_from_its_start_did_not_come(said, tmp_path):
    assert named(judge(tmp_path, kept(said))) == ("absent", (8, 9, 10, 11))


def test_a_pod_that_started_in_the_end_is_not_missing(tmp_path):
    assert judge(tmp_path, kept(KEPT["an image"], also=[BEGAN.format(n=2)])).blamed == ()


MASTERS = [
    "RANK=0 WORLD_SIZE=4",
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
]
ROLES = ["fit-master-0", "fit-worker-0", "fit-worker-1", "fit-worker-2"]
ROLE_ROWS = [f"{pod}  {'0/1  Pending' if pod == ROLES[2] else '1/1  Running'}  0  33m" for pod in ROLES]


@pytest.mark.parametrize("form", ["{} RANK={}", "{} -> rank {}", "pod {} has rank {}"])
def test_a_list_of_ranks_is_no_word_of_the_pod_that_has_not_started(form, tmp_path):
    listed = [form.format(pod, rank) for rank, pod in enumerate(ROLES)]
    verdict = judge(tmp_path, {"master-0.log": MASTERS, "pods.txt": [*ROLE_ROWS, *listed]})

    assert named(verdict) == ("absent", (2,)), verdict.because


AGENT = "m{}: + torchrun --nnodes 4 --nproc_per_node 2 --node_rank {} --master_addr m0 fit.py"
RESET = "m{}: torch.distributed.DistNetworkError: Connection reset by peer"
LACKS = "m0: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. {}/4 clients joined."


def agents(*hosts, came=3, ends=RESET):
    """The logs of hosts whose first one waits for all in its store, each in a file of its own."""
    logs = {f"m{n}.log": [AGENT.format(n, n), ends.format(n)] for n in hosts if n}
    return {"m0.log": [AGENT.format(0, 0), LACKS.format(came)], **logs, "m2.log": ["m2: module load cuda"]}


def test_the_ranks_of_the_host_that_the_first_one_lacks_in_the_end_did_not_come(tmp_path):
    verdict = judge(tmp_path, agents(1, 3))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (4, 5), False), str(verdict)


COUNTED = {
    "two hosts are lacking": agents(1, 3, came=2),
    "a host whose log is not here may be it": agents(1),
    "a host that never shows that it came": agents(1, 3, ends="m{}: waiting"),
    "a host that could not reach the first": agents(
        1, 3, ends="m{}: The client socket has timed out after 900s while trying to connect to (m0, 29500)."
    ),
    "ranks that join, not hosts": {**agents(1, 3), "m0.log": [AGENT.format(0, 0), LACKS.format(7).replace("/4", "/8")]},
}


@pytest.mark.parametrize("files", COUNTED.values(), ids=COUNTED)
def test_a_store_that_lacks_one_names_nobody_where_it_may_be_another(files, tmp_path):
    assert judge(tmp_path, files).blamed == ()


SUMS = {
    "the job first": "$((JOB_INDEX * 3 + POD_INDEX))",
    "the pod first": "$(( $POD_INDEX + 3*$JOB_INDEX ))",
    "a variable": "$((JOB_INDEX * PODS + JOB_COMPLETION_INDEX))",
}
OF_SET = ["  parallelism: 3", "torchrun --nnodes=6 --nproc-per-node=2", "--node-rank={} fit.py"]


def taken(pod):
    table = [
        f"9m Normal Scheduled pod/fit-w-{j}-{p} Successfully assigned ml/fit-w-{j}-{p} to n{j}{p}"
        for j in (0, 1)
        for p in range(3)
    ]
    return {"events.txt": [*table, f"2m Normal Preempted pod/{pod}-x9k2d Preempted by pod 6e0b on node n9"]}


@pytest.mark.parametrize("counted", SUMS.values(), ids=SUMS)
def test_a_pod_of_a_set_of_jobs_has_the_ranks_of_the_sum_that_numbers_it(counted, tmp_path):
    files = {"set.yaml": [line.format(counted) for line in OF_SET], **taken("fit-w-1-1"), "fit-w-0-0.log": [broke(0)]}

    assert named(judge(tmp_path, files)) == ("killed", (8, 9))


@pytest.mark.parametrize(
    ("counted", "pod"),
    [("$((JOB_INDEX + POD_INDEX * 2))", "fit-w-1-1"), (SUMS["the job first"], "fit-head-0-0")],
    ids=["another sum", "a pod of another group of jobs"],
)
def test_a_sum_that_does_not_number_the_pods_of_jobs_in_order_names_nobody(counted, pod, tmp_path):
    files = {"set.yaml": [line.format(counted) for line in OF_SET], **taken(pod), "fit-w-0-0.log": [broke(0)]}

    assert judge(tmp_path, files).blamed == ()
