"""Hosts and pods that end as a whole: which ranks they had, and when that is not told."""

import pytest

from .made import judge, summary, timed_out

OOM = ["Name:             fit-worker-2", "    State:          Terminated", "      Reason:       OOMKilled"]
TOLD_TO_END = (
    "W0302 08:15:20.5 77 torch/distributed/elastic/agent/server/api.py:741] Received 15 death signal, stopping"
)


def met(node, nodes=3, per_host=4, label=""):
    ranks = list(range(node * per_host, (node + 1) * per_host))
    return [f"{label}  global_ranks={ranks}", f"{label}  global_world_sizes={[nodes * per_host] * per_host}"]


def broke(rank, clock="08:15:29.1", label=""):
    return (
        f"{label}[rank{rank}]:[E302 {clock} ProcessGroupNCCL.cpp:2068] [PG 0 (default_pg) Rank {rank}] Process group"
        " watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
    )


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def test_a_pod_that_ran_out_of_memory_is_all_the_ranks_that_its_agent_listed(tmp_path):
    labels = [f"[pod/fit-worker-{node}/pytorch] " for node in range(3)]
    lines = [line for node, label in enumerate(labels) for line in met(node, label=label)]

    verdict = judge(tmp_path, {"pods.log": [*lines, broke(1, label=labels[0])], "described.txt": OOM})

    assert named(verdict) == ("host_memory", (8, 9, 10, 11), False)


def test_a_pod_without_a_log_has_the_ranks_that_its_number_goes_on_to(tmp_path):
    logs = {f"fit-worker-{node}.log": [*met(node), broke(4 * node)] for node in range(2)}

    assert named(judge(tmp_path, {**logs, "described.txt": OOM})) == ("host_memory", (8, 9, 10, 11), False)


def test_a_pod_of_another_kind_of_name_has_the_ranks_that_all_others_leave(tmp_path):
    names = ["fit-master-0", "fit-worker-0"]
    logs = {f"{name}.log": [*met(node), broke(4 * node)] for node, name in enumerate(names)}
    table = [f"{name}   0/1     Error       0          59m" for name in names]

    verdict = judge(tmp_path, {**logs, "pods.txt": [*table, "fit-worker-1   0/1     OOMKilled   0          59m"]})

    assert named(verdict) == ("host_memory", (8, 9, 10, 11), False)


@pytest.mark.parametrize("alive", [broke(9), timed_out(9, 4)])
def test_a_pod_of_which_a_rank_lived_to_complain_is_not_blamed_as_a_whole(alive, tmp_path):
    logs = {f"fit-worker-{node}.log": [*met(node), broke(4 * node)] for node in range(2)}
    logs["fit-worker-2.log"] = [*met(2), alive]

    assert judge(tmp_path, {**logs, "described.txt": OOM}).blamed == ()


def test_of_consoles_that_are_glued_together_the_one_agent_that_was_told_to_end_lost_its_host(tmp_path):
    lines = [line for node in range(3) for line in met(node, label=f"w-{node} | ")]
    lines += [f"w-1 | {TOLD_TO_END}", broke(2, label="w-0 | "), broke(8, label="w-2 | ")]

    assert named(judge(tmp_path, lines)) == ("killed", (4, 5, 6, 7), False)


@pytest.mark.parametrize(("told", "clock"), [([0, 1, 2], "08:15:29.1"), ([1], "08:15:11.0")])
def test_agents_that_were_all_told_to_end_or_after_the_others_broke_off_are_not_blamed(told, clock, tmp_path):
    lines = [line for node in range(3) for line in met(node, label=f"w-{node} | ")]
    lines += [f"w-{node} | {TOLD_TO_END}" for node in told]

    verdict = judge(tmp_path, [*lines, broke(2, clock, "w-0 | "), broke(8, clock, "w-2 | ")])

    assert verdict.blamed == ()


def test_a_node_that_failed_has_the_ranks_that_speak_in_its_log_where_all_are_heard(tmp_path):
    logs = {f"n{node}.log": [f"[rank{rank}]: step 5" for rank in (2 * node, 2 * node + 1)] for node in range(3)}
    seen = ["world_size=6", "srun: error: Node failure on n1"]

    assert named(judge(tmp_path / "all", {**logs, "job.out": seen})) == ("killed", (2, 3), False)
    logs["n2.log"].pop()
    assert judge(tmp_path / "but_one", {**logs, "job.out": seen}).blamed == ()


@pytest.mark.parametrize(("older", "blamed"), [([4, 5], (4, 5)), ([3, 4, 5], ())])
def test_the_host_with_another_version_of_nccl_than_the_rest_is_all_its_ranks(older, blamed, tmp_path):
    lines = [
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, invalid usage,"
        f" NCCL version {'2.19.3' if rank in older else '2.20.5'}"
        for rank in range(6)
    ]
    refused = "n:1:1 [0] NCCL WARN Mismatched NCCL version detected : rank 4 version 21903 rank 0 version 22005"

    verdict = judge(tmp_path, [*lines, refused])

    assert (verdict.kind, verdict.blamed) == ("exception", blamed)


@pytest.mark.parametrize(
    "told",
    [
        "+ torchrun --nnodes=3 --nproc_per_node=4 --node_rank={node} a.py",
        "NNODES=3 NODE_RANK={node} NPROC_PER_NODE=4 WORLD_SIZE=12",
    ],
)
def test_a_node_that_failed_has_the_ranks_of_its_number_as_its_launcher_was_told(told, tmp_path):
    logs = {f"n{node}.log": [told.format(node=node), *([broke(4 * node)] if node != 1 else [])] for node in range(3)}

    verdict = judge(tmp_path, {**logs, "job.out": ["srun: error: Node failure on n1"]})

    assert named(verdict) == ("killed", (4, 5, 6, 7), False)


@pytest.mark.parametrize("form", ["[{}] ", "{}: ", "{} | "])
def test_a_host_in_front_of_each_line_hides_no_summary_and_is_the_host_of_a_killed_process(form, tmp_path):
    kernel = (
        "Nov 20 10:20:39 node-a1 kernel: [812.1] Memory cgroup out of memory: Killed process 5006 (python)"
        " total-vm:291120332kB, anon-rss:207441020kB, file-rss:402112kB, shmem-rss:30411776kB, UID:10442"
    )
    ended = summary(6, -9, "Signal 9 (SIGKILL) received by PID 5006")
    lines = [form.format("node-a1") + line.replace("node-a", "node-a1") for line in ended]
    log = [form.format("node-b2") + "[rank1]: step 9 loss 2.0", *lines]

    assert named(judge(tmp_path, {"job.out": log, "kern.log": [kernel]})) == ("host_memory", (6,), False)


TAKEN = "14m   Normal   Preempted   pod/lux-worker-2   Preempted by pod 5f0b9e1c-3c41-4d0a-9a55-0f7c21b6c1aa on node n4"


@pytest.mark.parametrize(
    ("spoken", "ranks"),
    [
        ([("master-0", 0), ("worker-1", 2)], (3,)),
        ([("master-0", 1), ("worker-0", 2), ("worker-0", 3)], (6, 7)),
        ([("master-0", 0), ("worker-0", 3)], ()),
        ([("master-0", 0)], ()),
        ([("worker-1", 2)], ()),
    ],
    ids=["one each", "two each", "two or three", "the first only", "no master"],
)
def test_a_pod_of_a_job_with_a_master_has_the_ranks_by_its_number_that_fit_the_speakers(spoken, ranks, tmp_path):
    logs: dict[str, list[str]] = {}
    for pod, rank in spoken:
        logs.setdefault(f"lux-{pod}.log", []).append(broke(rank))

    assert judge(tmp_path, {**logs, "events.txt": [TAKEN]}).blamed == ranks
