"""Traces of JAX and of rocprof: devices by the names of processes, lines by the names of threads."""

import json

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def named(pid, process, **threads):
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}}
    for tid, name in threads.items():
        yield {"ph": "M", "pid": pid, "tid": int(tid[1:]), "name": "thread_name", "args": {"name": name}}


def span(pid, tid, start, length, name, **args):
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": length, "name": name, "args": args}


def gpu(pid, number, late=0):
    """Steps of 1 ms on a GPU of XLA: 600 us of computation, 300 us of an all-reduce, half of it beside."""
    threads = {"t1": "Stream #13(Compute)", "t2": "Stream #14(Collective)", "t3": "XLA Modules", "t4": "XLA Ops"}
    yield from named(pid, f"/device:GPU:{number}", **threads, t5="Source code")
    for step in range(4):
        at = step * 1000
        yield span(pid, 3, at, 750, "jit_train_step")
        yield span(pid, 4, at, 750, "dot.1")
        yield span(pid, 5, at, 750, "train.py:42")
        yield span(pid, 3, at + 900, 20, "jit_norm")
        yield span(pid, 1, at, 600 + late, "sm90_xmma_gemm_bf16", hlo_op="dot.1")
        yield span(pid, 2, at + 450 + late, 300 - late, NCCL, hlo_op="all-reduce-start.1")


def tpu():
    """Steps of 1 ms on a TPU: a loop of 600 us that holds 400 us of computation and 100 us of an all-gather's end."""
    yield from named(3, "/device:TPU:0", t1="Steps", t2="XLA Modules", t3="XLA Ops", t4="Framework Name Scope")
    yield from named(701, "/host:CPU", t9="python")
    for step in range(3):
        at = step * 1000
        yield span(3, 1, at, 900, str(step + 7))
        yield span(3, 2, at, 900, "jit_train_step(123)")
        yield span(3, 3, at, 600, "while.12")
        yield span(3, 3, at, 400, "fusion.3")
        yield span(3, 3, at + 400, 10, "all-gather-start.5")
        yield span(3, 3, at + 500, 100, "all-gather-done.5")
        yield span(3, 3, at + 600, 300, "all-reduce.3")
        yield span(3, 4, at, 900, "decoder")
        yield span(701, 9, at, 950, "train")


def queues():
    yield from named(6, "GPU0")
    yield from named(2, "CPU HIP API")
    for step in range(2):
        at = step * 1000
        yield {**span(2, 7, at, 10, "hipLaunchKernel"), "ts": str(at), "dur": "10"}
        yield {**span(6, 0, at, 500, "Cijk_Ailk_Bljk_HHS_BH", BeginNs="0"), "ts": str(at), "dur": "500"}
        yield span(6, 1, at + 400, 300, "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)")
        yield span(6, 0, at + 700, 50, "CopyHostToDevice")


def written(path, *events):
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": [event for part in events for event in part]}))
    return path


@pytest.mark.parametrize(
    ("events", "microseconds", "steps"),
    [
        (gpu(1, 0), (1000, 600, 150, 150, 250), 4),
        (tpu(), (1000, 400, 410, 0, 190), 3),
        (queues(), (1750, 1000, 400, 200, 250), 1),
    ],
    ids=["JAX on a GPU", "JAX on a TPU", "rocprof"],
)
def test_where_a_step_of_another_profiler_went(events, microseconds, steps, tmp_path):
    ranks = read_traces([written(tmp_path / "trace.json", events)])
    median = summarized(ranks).median

    found = (median.step_s, median.compute_s, median.exposed_comm_s, median.hidden_comm_s, median.idle_s)
    assert [round(value * 1e6) for value in found] == list(microseconds)
    assert len(ranks[0][0].windows) == steps


def test_devices_of_one_host_are_ranks_and_the_late_one_is_named(tmp_path):
    ranks = read_traces([written(tmp_path / "host0.trace.json", *(gpu(n + 1, n, 250 * (n == 2)) for n in range(4)))])

    assert len(ranks) == 4
    culprit = summarized(ranks).culprit
    assert culprit is not None
    assert culprit.rank == 2
    assert "its kernels take" in culprit.because


def test_devices_of_several_processes_are_not_called_those_of_one(tmp_path):
    for host in ("a", "b"):
        written(tmp_path / f"{host}.trace.json", *(gpu(n + 1, n) for n in range(2)))
    ranks = read_traces([tmp_path])

    assert "on 4 devices of 2 processes" in verdict_of(ranks, summarized(ranks))
