"""Containers of one pod: what ends one that stands beside the one that trains ends no rank."""

import json

import pytest

from .made import judge, timed_out

KILLED = "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
RUNS = "    State:          Running\n"
GPU = "    Limits:\n      nvidia.com/gpu:  {}\n"
TRAINS = "  fit:\n{}" + GPU.format(1) + "    Environment:\n      RANK:  1\n"
BESIDE = "  log-shipper:\n{}" + GPU.format(0)
POD = "Name:   fit-worker-1\nContainers:\n"


def listed(killed, *, gpus="1"):
    """What `kubectl get pod -o json` says of a pod with two containers, one of which was killed."""
    ended = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    limits = {"fit": {"nvidia.com/gpu": gpus}, "log-shipper": {"memory": "64Mi"}}
    return {
        "kind": "Pod",
        "metadata": {"name": "fit-worker-1"},
        "spec": {"containers": [{"name": name, "resources": {"limits": limits[name]}} for name in limits]},
        "status": {
            "containerStatuses": [
                {**(ended if name == killed else {}), "name": name, "state": {"running": {"startedAt": "x"}}}
                for name in limits
            ]
        },
    }


def in_yaml(value, indent=0):
    """The lines of a value as kubectl writes YAML."""
    space, lines = " " * indent, []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{space}{key}:", *in_yaml(inner, indent + 2)]
        elif isinstance(inner, list):
            lines.append(f"{space}{key}:")
            for one in inner:
                rows = in_yaml(one, indent + 2)
                lines += [f"{space}- {rows[0].lstrip()}", *rows[1:]]
        else:
            lines.append(f"{space}{key}: {inner}")
    return lines


@pytest.mark.parametrize(
    "described",
    [
        POD + TRAINS.format(RUNS) + BESIDE.format(KILLED),
        POD + BESIDE.format(KILLED) + TRAINS.format(RUNS),
        json.dumps(listed("log-shipper"), indent=4),
        in_yaml(listed("log-shipper")),
    ],
    ids=["described", "before the trainer", "JSON", "YAML"],
)
def test_a_container_beside_the_one_with_the_gpus_is_no_ranks_end(described, tmp_path):
    verdict = judge(tmp_path, {"pod.txt": described, "train.log": [timed_out(0, 8)]})

    assert verdict.kind != "host_memory"


@pytest.mark.parametrize(
    "described",
    [
        POD + TRAINS.format(KILLED) + BESIDE.format(RUNS),
        json.dumps(listed("fit"), indent=4),
        in_yaml(listed("fit")),
    ],
    ids=["described", "JSON", "YAML"],
)
def test_the_container_with_the_gpus_that_was_killed_for_memory_is_named(described, tmp_path):
    verdict = judge(tmp_path, {"pod.txt": described})

    assert verdict.kind == "host_memory"
    assert "container fit" in verdict.because


def test_of_containers_without_accelerators_it_is_not_told_which_one_trains(tmp_path):
    described = POD + "  one:\n" + RUNS + "    Environment:\n      RANK: 1\n  two:\n" + KILLED

    verdict = judge(tmp_path, {"pod.txt": described})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host_memory", (), True)


def test_a_container_that_is_to_end_first_keeps_the_one_that_trains_from_its_start(tmp_path):
    described = "Name: fit-worker-1\nInit Containers:\n  fetch:\n" + KILLED + "Containers:\n" + TRAINS.format("")

    assert judge(tmp_path, {"pod.txt": described}).kind == "host_memory"


def test_the_pod_that_was_killed_for_memory_is_told_by_its_name(tmp_path):
    assert "pod fit-worker-1" in judge(tmp_path, {"pod.txt": POD + TRAINS.format(KILLED)}).because


OOM = (
    "Mar  3 {} ip-10-9-8-7 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods.slice/p4,"
    "task=python3,pid=771234,uid=0"
)
ENDED = [
    "E0303 09:30:11.2 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1"
    " (pid: 45) of binary: /usr/bin/python3",
    *("train.py FAILED", "Root Cause (first observed failure):", "[0]:", "  time      : 2026-03-03_09:30:11"),
    *("  host      : fit-worker-2", "  rank      : 5 (local_rank: 1)", "  exitcode  : -9 (pid: 45)"),
]
CLOSED = "[rank{}]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
JOB = {"fit-worker-0.log": [CLOSED.format(rank) for rank in range(4)], "fit-worker-2.log": ENDED}


@pytest.mark.parametrize("at", ["09:30:10", "01:30:09"], ids=["one clock", "another time zone"])
def test_a_kernel_that_the_job_does_not_know_killed_whom_a_pods_launcher_saw_killed_then(at, tmp_path):
    verdict = judge(tmp_path, {**JOB, "kern.log": [OOM.format(at)]})

    assert (verdict.kind, verdict.rank) == ("host_memory", 5), str(verdict)
    assert any("exitcode  : -9" in line.text for line in verdict.evidence)


OTHERS = {
    "killed at another time": [OOM.format("09:12:40")],
    "a kernel that does not say when": [OOM.partition("kernel: ")[2]],
    "not of a container": [OOM.format("09:30:10").replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE")],
}


@pytest.mark.parametrize("kernel", OTHERS.values(), ids=OTHERS)
def test_what_a_kernel_killed_that_nothing_joins_to_a_pod_names_no_rank(kernel, tmp_path):
    assert judge(tmp_path, {**JOB, "ip-10-9-8-7.kern.log": kernel}).rank is None
