"""Traces of torch.profiler, read, classified, and refused where they are none."""

import gzip
import json

import pytest

from meshwright.errors import InputError
from meshwright.report.kineto import read_profiles
from meshwright.report.traced import read_timeline, shares, trace_page
from meshwright.timeline import Span, Timeline, chrome_trace


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def gpu_step(number: int, start: float) -> list[dict]:
    """One step as Kineto writes it: launches on the host, kernels later on the device, one collective over backward."""

    def kernel(name, launch, ts, dur, correlation, tid=1, **args):
        correlation += 100 * number
        return [
            event("cuda_runtime", "cudaLaunchKernel", start + launch, 1, tid, correlation=correlation),
            event("kernel", name, start + ts, dur, 7, correlation=correlation, device=0, stream=7, **args),
        ]

    collective = {
        "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16",
        "Group size": 8, "Process Group Description": "dp",
    }  # fmt: skip
    return [
        event("user_annotation", f"ProfilerStep#{number}", start, 1000),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, 50, 7, bytes=4096),
        *kernel("gemm_forward", 5, 100, 200, 1),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start + 20, 10, 2),
        *kernel("gemm_backward", 25, 300, 300, 2, 2),
        *kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(Args<4096ul>)", 28, 500, 300, 3, 2, **collective),
        event("user_annotation", "Optimizer.step#AdamW.step", start + 40, 20),
        *kernel("multi_tensor_apply_kernel", 45, 850, 150, 4),
    ]  # fmt: skip


def write(path, events, **info):
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}))
    return path


def test_kernels_belong_to_the_phase_that_launched_them(tmp_path):
    path = write(tmp_path / "rank3.json", [*gpu_step(7, 0.0), *gpu_step(8, 1000.0)], rank=3, world_size=8)
    timeline = read_profiles([path])

    assert [(s.rank, s.lane, s.name, s.step) for s in timeline.spans if s.step == 7] == [
        (3, "data", "copy to the device", 7), (3, "compute", "forward", 7), (3, "compute", "backward", 7),
        (3, "comm", "all_reduce", 7), (3, "compute", "optimizer", 7),
    ]  # fmt: skip
    collective = next(span for span in timeline.spans if span.lane == "comm")
    assert (collective.bytes, collective.detail) == (2000, "8 ranks of dp")


def test_where_the_step_went_is_computed_from_unions(tmp_path):
    path = write(tmp_path / "rank0.json", [*gpu_step(0, 0.0), *gpu_step(1, 1000.0)], rank=0)
    found, page = trace_page(read_timeline([path]), "trace")

    assert found.step_time_s == pytest.approx(1e-3)
    assert found.compute_s == pytest.approx(650e-6)
    assert found.exposed_comm_s == pytest.approx(200e-6)  # 300 us, of which 100 under backward
    assert found.idle_s == pytest.approx(100e-6)
    assert "the largest loss is exposed communication (20%, most of it all_reduce)" in page.verdict


def test_operators_of_a_host_are_phases_too(tmp_path):
    events = [
        event("user_annotation", "ProfilerStep#0", 0, 1000),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100),
        event("cpu_op", "aten::stack", 10, 50),
        event("cpu_op", "aten::linear", 100, 200),
        event("cpu_op", "aten::addmm", 120, 100),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 320, 200),
        event("cpu_op", "c10d::allreduce_", 420, 50),
        event("user_annotation", "gloo:all_reduce", 430, 300, 2),
        event("user_annotation", "Optimizer.step#Adam.step", 800, 100),
        event("cpu_op", "aten::add_", 820, 50),
    ]
    timeline = read_profiles([write(tmp_path / "cpu.json", events)])

    assert [(s.name, round(s.start_s * 1e6), round(s.end_s * 1e6)) for s in timeline.spans] == [
        ("data", 0, 100), ("forward", 100, 300), ("backward", 320, 420), ("all_reduce", 430, 730),
        ("backward", 470, 520), ("optimizer", 800, 900),
    ]  # fmt: skip


def test_an_operator_whose_beginning_the_profiler_missed_is_left_out(tmp_path):
    base_us = 1.79e15  # Kineto writes the beginning as 0, the time since 1970 as its length, and all times from here on
    events = [event("cpu_op", "aten::mm", 1e6, 500), event("cpu_op", "aten::detach", -base_us, base_us + 1e6)]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": int(base_us * 1000), "traceEvents": events}))

    (span,) = read_profiles([path]).spans
    assert span.end_s - span.start_s == pytest.approx(500e-6, rel=0.01)


def test_ranks_without_a_mark_of_communication_are_said_to_have_none(tmp_path):
    operator = event("cpu_op", "aten::linear", 100, 200)
    paths = [write(tmp_path / f"{rank}.json", [operator], rank=rank) for rank in (0, 1)]
    _, page = trace_page(read_timeline(paths), "trace")

    assert "nothing in these traces is marked as communication" in str(page.sections)


def test_a_packed_trace_of_each_rank_makes_one_timeline(tmp_path):
    paths = []
    for rank in (0, 1):
        plain = write(tmp_path / "plain.json", gpu_step(0, 0.0), rank=rank)
        paths.append(tmp_path / f"rank{rank}.json.gz")
        paths[-1].write_bytes(gzip.compress(plain.read_bytes()))

    assert {span.rank for span in read_timeline(paths).spans} == {0, 1}


def test_a_timeline_of_ours_is_read_as_one(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(chrome_trace(Timeline((Span(0, "compute", "forward", 0.0, 1.0),), "simulated"))))
    timeline = read_timeline([path])

    assert timeline.source == "simulated"
    assert shares(timeline).compute_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "not a trace of torch.profiler"),
        ('{"traceEvents": 3}', "not a trace of torch.profiler"),
        ('{"traceEvents": []}', "no operator and no kernel"),
        ('{"traceEvents": [{"ph": "X", "ts": 1, "dur": -1}]}', "ts or dur"),
        ('{"traceEvents": [{"ph": "X", "ts": "x"}]}', "not a trace of torch.profiler"),
        ("[" * 100_000, "Recursion|recursion|too deeply"),
        ('{"traceEvents": [{"ph": "X", "ts": 1e999}]}', "out of range"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, text, reason):
    path = tmp_path / "trace.json"
    path.write_text(text)

    with pytest.raises(InputError, match=reason):
        read_timeline([path])


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.report.kineto.MAX_BYTES", 1000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 10**6))

    with pytest.raises(InputError, match="larger than 1000 bytes when unpacked"):
        read_timeline([path])


def test_two_traces_of_one_rank_are_refused(tmp_path):
    paths = [write(tmp_path / f"{name}.json", gpu_step(0, 0.0), rank=0) for name in "ab"]

    with pytest.raises(InputError, match=r"b\.json: rank 0 a second time"):
        read_timeline(paths)
