"""Ranks of a host or pod that the text tells in words of its own: they are blamed together."""

import pytest

from meshwright.postmortem.inputs import read_all
from meshwright.postmortem.nouns.identities import AgentRanks

from .made import judge, timed_out

XID = "NVRM: Xid (PCI:0000:9c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DOWN = "[Fri Nov 20 10:02:31 2026] mlx5_core 0000:9a:00.0 mlx5_1: Port: 1 Link DOWN"
PREEMPTED = "2m   Normal   Preempted   pod/tune-workers-0-1-xk2vd   Preempted by pod 77aa on node pool-9"


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def broke(rank, peer):
    """What a rank prints whose peer went away."""
    return [
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or"
        " there was a network error, NCCL version 2.26.2",
        f"[rank{rank}]: socketProgress: Connection closed by remote peer {peer}<40230>",
    ]


def lost(rank, peer="10.9.0.3"):
    """NCCL's line on a completion with an error, on a host of two ranks."""
    return (
        f"dock-{rank // 2}:{40 + rank}:{90 + rank} [{rank % 2}] NCCL WARN NET/IB: Got completion from peer {peer}<4712>"
        " with status=12 opcode=0 len=0 vendor err 129 (Send)"
    )


TOLD = [
    ["dock-0: node_rank 0 ranks 0-1", "dock-1: node_rank 1 ranks 2-3"],
    ["hosts: dock-0 (ranks 0-1), dock-1 (ranks 2-3)"],
    ["ranks 0-1 on dock-0", "ranks 2-3 on dock-1"],
    ["[dock-0] node_rank=0 nproc=2 -> global ranks 0 1", "[dock-1] node_rank=1 nproc=2 -> global ranks 2 3"],
    ["dock-0: ranks [0 1]", "dock-1: ranks: 2 3"],
    ["NODE     ADDRESS    RANKS", "dock-0   10.9.0.2   0-1", "dock-1   10.9.0.3   2-3"],
    [f"2026-11-20 09:40:0{n} INFO node {n} = dock-{n}: global ranks [{2 * n}, {2 * n + 1}]" for n in (0, 1)],
    [f"rank {rank} runs on host dock-{rank // 2}" for rank in range(4)],
    ["dock-0 slots=2  # ranks 0-1, rack A (new switch)", "dock-1 slots=2  # ranks 2-3, rack B (old one)"],
    [f"[dock-{n // 2}] process group initialized: rank {n} / 4, local_rank {n % 2}" for n in range(4)],
    [f"dock-{n // 2}: local rank {n % 2}, global rank {n}/4 initialized" for n in range(4)],
    [
        f"2026-11-20,09:40:0{n} | dock-{n // 2} | INFO | Running with multiple processes. Device: cuda:{n % 2}."
        f"Process (global: {n}, local {n % 2}), total 4."
        for n in range(4)
    ],
    ["# dmesg of dock-0 (ranks 0-1, fabric IPoIB)", "# collected on dock-1, which has ranks 2-3 (ib0)"],
]
RANK_TABLES = [  # of servers by their addresses, behind the name of the host that prints them
    ["[2026-11-20 18:20:01][rack4-n1] rank table: server 10.9.0.2 devices 0-1 -> ranks 0-1,"
     " server 10.9.0.3 devices 0-1 -> ranks 2-3"],
    ["rank table:", "server 10.9.0.2: npus 0-1 -> ranks [0, 1]", "server 10.9.0.3: npus 0-1 -> ranks [2, 3]"],
]  # fmt: skip


@pytest.mark.parametrize("told", RANK_TABLES)
def test_a_table_of_ranks_tells_those_of_each_server_by_its_address(told, tmp_path):
    judge(tmp_path, told)

    hosts = {one.where.host: one.ranks for one in read_all([tmp_path]).facts if isinstance(one, AgentRanks)}

    assert hosts == {"10.9.0.2": (0, 1), "10.9.0.3": (2, 3)}


@pytest.mark.parametrize("told", TOLD)
def test_a_host_whose_port_went_down_is_all_its_ranks_where_the_text_tells_them(told, tmp_path):
    job = [*told, "2026-11-20 10:02:20 step 40 loss 2.1", lost(0), lost(1)]

    verdict = judge(tmp_path, {"job.out": job, "dmesg-dock-1.txt": [DOWN], "dmesg-dock-0.txt": ["[Fri Nov 20] up"]})

    assert named(verdict) == ("network", (2, 3), False)


COMMENTS = [
    "# this host = node 1 of 2, ranks 2-3 (IPoIB ib0)",
    "# this is node 1 (ranks 2-3, see the wiki)",
    "// this machine: ranks 2 to 3, mlx5_1 on port 1",
]


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_over_a_kernels_log_tells_the_ranks_of_the_host_whose_it_is(comment, tmp_path):
    down = "Nov 20 10:02:31 tray07 kernel: mlx5_core 0000:9a:00.0: mlx5_1: Port: 1 Link DOWN"
    job = ["world_size=4", "2026-11-20 10:02:20 step 40 loss 2.1", lost(0), lost(1)]

    verdict = judge(tmp_path, {"job.out": job, "kernel.txt": [comment, down]})

    assert named(verdict) == ("network", (2, 3), False)


@pytest.mark.parametrize(
    "job",
    [
        [*TOLD[0], "2026-11-20 18:02:20 step 40 loss 2.1", lost(0)],
        ["2026-11-20 10:02:20 step 40 loss 2.1", lost(0), lost(1)],
        [*TOLD[0], "dock-1: node_rank 1 ranks 4-5", "2026-11-20 10:02:20 step 40 loss 2.1", lost(0)],
    ],
    ids=["hours before", "nothing tells its ranks", "two lines tell it differently"],
)
def test_a_port_of_a_host_that_cannot_be_joined_blames_no_group(job, tmp_path):
    assert len(judge(tmp_path, {"job.out": job, "dmesg-dock-1.txt": [DOWN]}).blamed) <= 1


@pytest.mark.parametrize(
    "line",
    [
        "start.sh: JOB_COMPLETION_INDEX=1 NNODES=2 NPROC=4 -> global ranks 4-7",
        "JOB_COMPLETION_INDEX=1 GPUS_PER_NODE=4",
        "this pod runs ranks 4 to 7",
        "I1120 09:40:01 launching global ranks 4..7",
    ],
)
def test_a_preempted_pod_is_all_the_ranks_of_its_log_whatever_is_behind_its_name(line, tmp_path):
    files = {
        "tune-workers-0-0.log": [
            "start.sh: JOB_COMPLETION_INDEX=0 NPROC=4",
            *broke(0, "tune-workers-0-1.tune"),
            *broke(2, "tune-workers-0-1.tune"),
        ],
        "tune-workers-0-1.log": [line],
        "events.txt": [PREEMPTED],
    }

    assert named(judge(tmp_path, files)) == ("killed", (4, 5, 6, 7), False)


@pytest.mark.parametrize(("others", "blamed"), [(("master-0", "worker-0"), (8, 9, 10, 11)), (("worker-0",), ())])
def test_workers_of_a_job_with_a_master_follow_it_by_their_numbers(others, blamed, tmp_path):
    ranks = {"master-0": range(4), "worker-0": range(4, 8)}
    files = {
        f"bert-{pod}.log": [line for rank in ranks[pod] for line in broke(rank, "bert-worker-1")] for pod in others
    }
    files["events.txt"] = [PREEMPTED.replace("tune-workers-0-1-xk2vd", "bert-worker-1")]

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("killed", blamed)


def test_a_gpu_of_a_node_is_that_of_the_rank_in_the_pod_that_a_table_puts_there(tmp_path):
    init = [
        f"fit-worker-{pod}:{60 + gpu}:90 [{gpu}] NCCL INFO comm 0x5 rank {2 * pod + gpu} nranks 4 cudaDev {gpu} busId"
        f" {gpu + 8}c000 commId 0x7 - Init COMPLETE"
        for pod in range(2)
        for gpu in range(2)
    ]
    table = [f"fit-worker-{pod}   0/1   Error   0   19h   10.2.0.{pod}   rack-{pod + 7}   <none>" for pod in range(2)]
    kernel = [f"Nov 20 10:05:00 rack-8 kernel: {XID}"]

    verdict = judge(tmp_path, {"pods.log": init, "wide.txt": table, "node.txt": kernel})

    assert named(verdict) == ("device", (3,), False)


@pytest.mark.parametrize(("waits", "blamed"), [((), ()), ((0, 1, 2), (3,)), ((0, 1), ()), ((0, 1, 2, 3), ())])
def test_a_gpu_that_no_line_joins_is_of_the_one_rank_of_its_host_that_did_not_wait(waits, blamed, tmp_path):
    job = [*TOLD[0], *(timed_out(rank, 5) for rank in waits)]

    verdict = judge(tmp_path, {"job.out": job, "dock-1.dmesg.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]})

    assert (verdict.kind, verdict.blamed) == ("device", blamed)
    assert blamed or any("which of ranks 2, 3 uses that GPU" in lack for lack in verdict.missing)


@pytest.mark.parametrize(
    "line",
    [
        "waiting for ranks 2-3 of dock-1",
        "missing ranks: 2-3 (dock-1)",
        "tensor parallel group ranks [2, 3] dock-1",
        "dock-1: ranks 2-3 timed out",
    ],
)
def test_what_befell_ranks_does_not_say_where_they_are(line, tmp_path):
    (tmp_path / "job.out").write_text(f"{line}\n")

    assert not any(type(fact).__name__ == "AgentRanks" for fact in read_all([tmp_path]).facts)


SMI = {
    "nvidia-smi": "|   {n}  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off |                    0 |",
    "its rows": "{n}, 00000000:{bus}:00.0, 1980 MHz",
    "rocm-smi": "GPU[{n}]\t\t: PCI Bus: 0000:{bus}:00.0",
}


@pytest.mark.parametrize("row", SMI.values(), ids=SMI)
def test_a_table_of_a_hosts_gpus_says_which_of_its_ranks_a_gpu_is(row, tmp_path):
    table = ["$ ssh dock-1 rocm-smi", *(row.format(n=n, bus=bus) for n, bus in enumerate(("1B", "9C")))]

    verdict = judge(
        tmp_path, {"job.out": TOLD[0], "gpus.txt": table, "dock-1.dmesg": [f"[Fri Nov 20 10:05:00 2026] {XID}"]}
    )

    assert named(verdict) == ("device", (3,), False)


def test_of_two_pods_of_a_node_the_one_with_the_gpu_is_meant(tmp_path):
    init = [
        f"fit-{pod}:{60 + gpu}:90 [{gpu}] NCCL INFO comm 0x5 rank {2 * pod + gpu} nranks 4 cudaDev {gpu} busId"
        f" {8 - pod * 2 + gpu}c000 commId 0x7 - Init COMPLETE"
        for pod in range(2)
        for gpu in range(2)
    ]
    table = [f"fit-{pod}   0/1   Error   0   19h   10.2.0.{pod}   rack-8   <none>" for pod in range(2)]
    kernel = [f"Nov 20 10:05:00 rack-8 kernel: {XID}"]

    verdict = judge(tmp_path, {"pods.log": init, "wide.txt": table, "node.txt": kernel})

    assert named(verdict) == ("device", (1,), False)


def test_an_event_of_kubernetes_names_the_node_of_a_gpu(tmp_path):
    event = f"3m   Warning   XIDError   node/dock-1   {XID}"

    verdict = judge(tmp_path, {"job.out": TOLD[0], "events.txt": [event]})

    assert named(verdict) == ("device", (), True)
    assert any("which of ranks 2, 3 uses that GPU" in lack for lack in verdict.missing)


@pytest.mark.parametrize("by", ["its log", "its description"])
def test_a_description_of_a_pod_tells_that_it_was_preempted(by, tmp_path):
    described = ["Name:   tune-workers-0-1-xk2vd", "Node:   pool-9/10.0.0.3", "Events:"]
    described.append("  Normal  Preempted  3m    default-scheduler  Preempted by default/urgent on node pool-9")
    logs = {
        f"tune-workers-0-{node}.log": [f"NODE_RANK={node} NPROC_PER_NODE=2", *(broke(0, "x-1") if node == 0 else [])]
        for node in range(2)
    }

    if by == "its description":
        del logs["tune-workers-0-1.log"]
        described[2:2] = ["    Environment:", "      PET_NODE_RANK:       1", "      PET_NPROC_PER_NODE:  2"]

    assert named(judge(tmp_path, {**logs, "described.txt": described})) == ("killed", (2, 3), False)


@pytest.mark.parametrize("path", ["messages_dock-1.txt", "dock-1/var_log.txt", "kernel of dock-1.txt"])
def test_a_kernels_log_is_of_the_host_that_its_path_names(path, tmp_path):
    job = [*TOLD[0], "2026-11-20 10:02:20 step 40 loss 2.1", *broke(0, "10.9.0.3")]

    assert named(judge(tmp_path, {"job.out": job, path: [DOWN]})) == ("network", (2, 3), False)


def test_a_node_that_slurm_sets_down_is_all_its_ranks(tmp_path):
    down = "[2026-11-20T10:00:00.000] error: Nodes dock-1 not responding, setting DOWN"

    verdict = judge(tmp_path, {"job.out": [*TOLD[0], *broke(0, "10.9.0.3")], "slurmctld.log": [down]})

    assert named(verdict) == ("killed", (2, 3), False)


def test_a_host_that_is_none_of_the_jobs_has_nothing_to_do_with_it(tmp_path):
    job = [*TOLD[0], *(timed_out(rank, 5) for rank in range(3))]

    verdict = judge(tmp_path, {"job.out": job, "dock-7.dmesg": [f"[Fri Nov 20 10:05:00 2026] {XID}"]})

    assert (verdict.kind, verdict.blamed) == ("absent", ())


def test_a_node_that_no_line_joins_with_a_pod_may_be_any(tmp_path):
    verdict = judge(tmp_path, {"job.out": TOLD[0], "gpu-0931.dmesg": [f"[Fri Nov 20 10:05:00 2026] {XID}"]})

    assert named(verdict) == ("device", (), True)


@pytest.mark.parametrize(
    ("label", "ranks"), [("team.io/rank-range: 4-7", (4, 5, 6, 7)), ("team.io/rack-range: 4-7", ())]
)
def test_an_annotation_of_a_pod_tells_its_ranks(tmp_path, label, ranks):
    path = tmp_path / "describe.txt"
    path.write_text(f"Name:             tune-worker-1\nAnnotations:      {label}\n")
    told = [fact.ranks for fact in read_all([path]).facts if type(fact).__name__ == "AgentRanks"]
    assert told == [ranks] * bool(ranks)


def test_a_version_behind_the_ranks_of_a_pod_is_no_name_of_a_host(tmp_path):
    own = {
        f"job-{pod}.log": [
            f"job-{pod} ranks {2 * pod}-{2 * pod + 1} of 8, torch 2.5.1+cu121, NCCL 2.21.5",
            *(timed_out(rank, 9) for rank in (2 * pod, 2 * pod + 1)),
        ]
        for pod in (0, 1, 3)
    }

    verdict = judge(tmp_path, {**own, "events.txt": ["8m Warning NodeNotReady pod/job-2 Node is not ready"]})

    assert named(verdict) == ("killed", (4, 5), False)
