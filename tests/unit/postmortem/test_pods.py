"""Pods of Kubernetes, desync reports and aborted processes: whose fault it was, where other lines say so."""

import pytest

from meshwright.postmortem.inputs import examine_files

from .made import judge

WATCHDOG = (
    "[rank{rank}]:[E304 09:50:36.18{rank} ProcessGroupNCCL.cpp:609] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600024 "
    "milliseconds before timing out.\n"
)
DESCRIBED = """\
Name:             job-worker-1
Namespace:        train
Containers:
  pytorch:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Limits:
      nvidia.com/gpu:  {gpus}
    Environment:
      WORLD_SIZE:   {world}
      RANK:         2
"""
SUMMARY = """\
E0712 10:10:35.2 771 torch/distributed/elastic/api.py:869] failed (exitcode: -6) local_rank: 4 (pid: 784)
Root Cause (first observed failure):
[0]:
  time      : 2025-03-11_18:33:20
  host      : n3
  rank      : 4 (local_rank: 4)
  exitcode  : -6 (pid: 784)
  traceback : Signal 6 (SIGABRT) received by PID 784
"""


def named(verdict):
    return list(verdict.ranks) or [rank for rank in (verdict.rank,) if rank is not None]


def examined(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return examine_files([folder])


def test_a_pod_of_jax_is_the_process_in_its_environment_however_many_chips_it_has(tmp_path):
    described = DESCRIBED.format(gpus=4, world=9).replace("      RANK:  ", "      JAX_PROCESS_ID:  ")

    verdict = examined(tmp_path, describe=described)

    assert (verdict.kind, named(verdict)) == ("host_memory", [2])


def test_the_task_that_jax_no_longer_hears_is_the_one_process_that_was_killed_for_memory(tmp_path):
    killed = "14m Warning OOMKilling node/gke-9-r6vv Memory cgroup out of memory: Killed process 2214 (python3)"
    silent = "coordination_service.cc:954] /job:jax_worker/replica:0/task:{} heartbeat timeout.\n"

    verdict = examined(
        tmp_path, events=f"{killed} total-vm:9kB, anon-rss:9000000kB, file-rss:0kB\n", job=silent.format(5)
    )

    assert (verdict.kind, named(verdict)) == ("host_memory", [5])
    both = silent.format(5) + silent.format(6)
    assert named(examined(tmp_path, job=both)) == []


@pytest.mark.parametrize(("gpus", "ranks"), [(1, [2]), (8, [])])
def test_a_pod_of_one_process_is_the_rank_in_its_environment(tmp_path, gpus, ranks):
    waiting = WATCHDOG.format(rank=0) + WATCHDOG.format(rank=1)

    verdict = examined(tmp_path, master=waiting, describe=DESCRIBED.format(gpus=gpus, world=3 * gpus))

    assert verdict.kind == "host_memory"
    assert named(verdict) == ranks


def test_an_evicted_pod_is_the_rank_that_alone_speaks_in_the_log_of_its_name(tmp_path):
    said = "[rank3]: step 4000 loss 2.11\n"
    event = "14m Warning Evicted pod/bert-worker-2 The node was low on resource: ephemeral-storage. Threshold 10Gi\n"

    verdict = examined(tmp_path, **{"bert-worker-2": said, "bert-master-0": WATCHDOG.format(rank=0), "events": event})

    assert (verdict.kind, named(verdict)) == ("killed", [3])


@pytest.mark.parametrize(
    ("said", "other", "ranks"),
    [
        ("", 0, [3]),
        ("", 8, []),  # more ranks than its world: RANK counts hosts
        ("W1120 10:20:00 torch/distributed/run.py:793] torchrun\n", 0, []),  # which then counts hosts too
        ("W1120 10:20:00 torch/distributed/run.py:793] torchrun LOCAL_RANK=0 ", 0, [3]),
    ],
)
def test_the_environment_that_a_pod_prints_is_its_rank_where_it_counts_processes(tmp_path, said, other, ranks):
    said += "RANK=3 WORLD_SIZE=4 MASTER_ADDR=bert-master-0\nwriting shard 88\n"
    event = "14m Warning Evicted pod/bert-worker-2 The node was low on resource: ephemeral-storage. Threshold 10Gi\n"
    waiting = WATCHDOG.format(rank=other)

    verdict = examined(tmp_path, **{"bert-worker-2": said, "bert-master-0": waiting, "events": event})

    assert (verdict.kind, named(verdict)) == ("killed", ranks)


def test_a_log_that_bears_the_name_of_a_host_says_not_which_of_its_ranks_a_fault_of_the_host_befell(tmp_path):
    said = "[rank3]: step 4000 loss 2.11\n"
    fault = "Mar  4 09:40:31 node1 kernel: NVRM: Xid (PCI:0000:44:00): 79, pid=4711, GPU has fallen off the bus.\n"

    verdict = examined(tmp_path, node1=said, other=WATCHDOG.format(rank=0), kernel=fault)

    assert verdict.kind == "device"
    assert named(verdict) == []


def test_a_rank_that_never_joined_is_named_though_the_report_lists_the_others_as_a_range(tmp_path):
    report = (
        "[E ProcessGroupNCCL.cpp:1025] Desync debug report:\n"
        "\t - [3] Timeout at collective: ALLGATHER, #1\n"
        "\t - To our best knowledge, ranks [6] are the lagging ranks that caused this timeout. They never joined any "
        "collectives\n"
        "\t - Snapshot of ranks' latest states:\n\t   #1 started ranks:\n\t     [0-5, 7] started ALLGATHER\n"
    )

    verdict = examined(tmp_path, job=report)

    assert (verdict.kind, named(verdict)) == ("absent", [6])


def test_a_fault_of_a_device_befell_the_rank_that_it_aborted(tmp_path):
    fault = "HW Exception by GPU node-6 (Agent handle: 0x55d1) reason :GPU Hang\n"

    verdict = examined(tmp_path, job=fault + SUMMARY)

    assert (verdict.kind, named(verdict)) == ("device", [4])


def test_where_a_watchdog_spoke_an_abort_is_no_sign_of_a_device(tmp_path):
    fault = "HW Exception by GPU node-6 (Agent handle: 0x55d1) reason :GPU Hang\n"

    verdict = examined(tmp_path, job=fault + WATCHDOG.format(rank=1) + SUMMARY)

    assert 4 not in named(verdict)


def test_a_clock_before_the_name_of_a_pod_does_not_hide_its_traceback(tmp_path):
    said = {
        "eval-0": ["step 1", "step 2"],
        "eval-1": ["step 1", "Traceback (most recent call last):", "  f()", "KeyError: 7"],
    }
    rows = [f"2026-05-12 17:45:0{at} {pod}: {line}" for pod, lines in said.items() for at, line in enumerate(lines)]

    verdict = judge(tmp_path, {"job.log": rows})

    assert verdict.kind == "exception"
    assert verdict.because == "KeyError: 7"
