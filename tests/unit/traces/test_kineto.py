"""Traces of torch.profiler, read, classified, and refused where they are none."""

import gzip
import json

import pytest

from meshwright.errors import InputError
from meshwright.report.pages.trace import trace_page
from meshwright.timeline import Span, Timeline, chrome_trace
from meshwright.traces.drawn_step import typical
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized


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


def reported(paths):
    ranks = read_traces(paths)
    summary = summarized(ranks)
    return summary.median, trace_page(ranks, summary, "trace")


def test_kernels_belong_to_the_phase_that_launched_them(tmp_path):
    path = write(tmp_path / "rank3.json", [*gpu_step(7, 0.0), *gpu_step(8, 1000.0)], rank=3, world_size=8)
    timeline = typical(read_traces([path]))

    assert sorted((round(s.start_s * 1e6), s.rank, s.lane, s.name) for s in timeline.spans) == [
        (0, 3, "data", "copy to the device"), (100, 3, "compute", "forward"), (300, 3, "compute", "backward"),
        (500, 3, "comm", "all_reduce"), (850, 3, "compute", "optimizer"),
    ]  # fmt: skip
    collective = next(span for span in timeline.spans if span.lane == "comm")
    assert (collective.bytes, collective.detail) == (2000, "8 ranks of dp")


def test_a_kernel_whose_id_is_that_of_a_collective_which_did_not_launch_it_computes(tmp_path):
    record = event("cpu_op", "record_param_comms", 26, 10, 2, **{"External id": 9, "Collective name": "allreduce"})
    events = [dict(one, args=dict(one["args"])) for one in gpu_step(0, 0.0)]
    for one in events:
        if one["name"] in ("gemm_forward", "multi_tensor_apply_kernel"):
            one["args"]["External id"] = 9

    median, _ = reported([write(tmp_path / "rank0.json", [*events, record], rank=0)])

    assert median.compute_s == pytest.approx(650e-6)
    assert median.hidden_comm_s == pytest.approx(100e-6)


def test_where_the_step_went_is_computed_from_unions(tmp_path):
    path = write(tmp_path / "rank0.json", [*gpu_step(0, 0.0), *gpu_step(1, 1000.0)], rank=0)
    found, page = reported([path])

    assert found.step_s == pytest.approx(1e-3)
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
    timeline = typical(read_traces([write(tmp_path / "cpu.json", events)]))

    assert sorted((round(s.start_s * 1e6), round(s.end_s * 1e6), s.lane, s.name) for s in timeline.spans) == [
        (-10, 90, "data", "data"), (90, 290, "compute", "forward"), (310, 410, "compute", "backward"),
        (420, 720, "comm", "all_reduce"), (460, 510, "compute", "backward"), (790, 890, "compute", "optimizer"),
    ]  # fmt: skip


def test_waiting_for_a_launch_of_a_collective_is_no_computation(tmp_path):
    events = [
        event("user_annotation", "ProfilerStep#0", 0, 1000),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 320, 200),
        event("cpu_op", "c10d::allreduce_", 420, 50),
        event("user_annotation", "gloo:all_reduce", 430, 300, 2),
        event("user_annotation", "Optimizer.step#Adam.step", 800, 100),
    ]
    found, _ = reported([write(tmp_path / "cpu.json", events)])

    assert found.compute_s == pytest.approx(250e-6)  # 100 + 50 of backward, 100 of the optimizer
    assert found.exposed_comm_s == pytest.approx(250e-6)
    assert found.hidden_comm_s == pytest.approx(50e-6)


def cpu_job(slow=None, steps=4, mark="cpu_op"):
    """Events of three ranks on processors: 20 ms of work, 12 of an all-reduce on another thread, 4 of the optimizer."""
    events = [[] for _ in range(3)]
    for step in range(steps):
        work = [30_000 if rank == slow else 20_000 for rank in range(3)]
        start, end = 100_000 * step, 100_000 * step + max(work) + 12_000
        for rank, found in enumerate(events):
            come = start + work[rank]
            found += [
                event("user_annotation", f"ProfilerStep#{step}", start, 100_000),
                event("cpu_op", "aten::mkldnn_convolution", start, work[rank]),
                event("cpu_op", "c10d::allreduce_", come, 40),
                event("cpu_op", "record_param_comms", come + 5, 30),
                event(mark, "gloo:all_reduce", come + 20, end - come - 20, 2),
                event("cpu_op", "_c10d_functional::wait_tensor", come + 60, end - come - 60),
                event("user_annotation", "Optimizer.step#SGD.step", end, 4000),
            ]
    return events


@pytest.mark.parametrize("mark", ["cpu_op", "user_annotation"])
def test_a_collective_that_a_profiler_calls_an_operator_is_no_computation(tmp_path, mark):
    paths = [write(tmp_path / f"{rank}.json", one, rank=rank) for rank, one in enumerate(cpu_job(mark=mark))]
    found, _ = reported(paths)

    assert (found.compute_s, found.exposed_comm_s) == pytest.approx((24e-3, 12e-3), rel=0.01)
    assert found.hidden_comm_s == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("slow", [None, 0, 2])
def test_the_rank_on_whose_processor_work_takes_longer_is_the_one_that_others_wait_for(tmp_path, slow):
    paths = [write(tmp_path / f"{rank}.json", one, rank=rank) for rank, one in enumerate(cpu_job(slow))]
    culprit = summarized(read_traces(paths)).culprit

    assert (culprit and culprit.rank) == slow
    if slow is not None:
        assert culprit.costs_s_per_step == pytest.approx(10e-3, rel=0.02)
        assert "aten::mkldnn_convolution most of it" in culprit.because


def test_an_operator_whose_beginning_the_profiler_missed_is_left_out(tmp_path):
    base_us = 1.79e15  # Kineto writes the beginning as 0, the time since 1970 as its length, and all times from here on
    events = [event("cpu_op", "aten::mm", 1e6, 500), event("cpu_op", "aten::detach", -base_us, base_us + 1e6)]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": int(base_us * 1000), "traceEvents": events}))

    assert reported([path])[0].compute_s == pytest.approx(500e-6, rel=0.01)


def test_ranks_without_a_mark_of_communication_are_said_to_have_none(tmp_path):
    operator = event("cpu_op", "aten::linear", 100, 200)
    paths = [write(tmp_path / f"{rank}.json", [operator], rank=rank) for rank in (0, 1)]
    _, page = reported(paths)

    assert "nothing in these traces is marked as communication" in str(page.sections)


def test_a_packed_trace_of_each_rank_makes_one_timeline(tmp_path):
    paths = []
    for rank in (0, 1):
        plain = write(tmp_path / "plain.json", gpu_step(0, 0.0), rank=rank)
        paths.append(tmp_path / f"rank{rank}.json.gz")
        paths[-1].write_bytes(gzip.compress(plain.read_bytes()))

    assert [cycles[0].rank for cycles in read_traces(paths)] == [0, 1]


def test_a_timeline_of_ours_is_read_as_one(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(chrome_trace(Timeline((Span(0, "compute", "forward", 0.0, 1.0),), "simulated"))))

    assert reported([path])[0].compute_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "no operator and no kernel"),
        ("", "is empty"),
        ('{"traceEvents": 3}', "no list of traceEvents"),
        ('{"traceEvents": []}', "no operator and no kernel"),
        ('{"traceEvents": [{"ph": "X", "ts": 1, "dur": -1}]}', "no operator and no kernel"),
        ('{"traceEvents": [{"ph": "X", "ts": "x", "dur": 1, "cat": "kernel"}]}', "no operator and no kernel"),
        ("[" * 100_000, "cut off|Recursion|recursion|too deeply"),
        ('{"traceEvents": [{"ph": "X", "ts": 1e999, "dur": 1, "cat": "kernel"}]}', "out of range|no operator"),
        ("no JSON at all", "no list of traceEvents"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, text, reason):
    path = tmp_path / "trace.json"
    path.write_text(text)

    with pytest.raises(InputError, match=reason) as caught:
        read_traces([path])
    assert "\n" not in str(caught.value)


def test_a_device_of_which_nothing_was_recorded_is_said_to_be_absent(tmp_path):
    events = [event("cpu_op", "aten::mm", 0, 50), event("cuda_runtime", "cudaLaunchKernel", 5, 4, correlation=1)]

    with pytest.raises(InputError, match="no kernel is in the trace; record it again"):
        read_traces([write(tmp_path / "rank0.json", events)])


def test_kernels_of_before_the_trace_do_not_move_the_steps_of_a_device_that_lags(tmp_path):
    """The host runs 100 ms ahead; what it launched before the profiler began has no launch in the trace."""
    events = [event("kernel", "gemm", 10_000 * i, 10_000, 7, correlation=900 + i, stream=7) for i in range(10)]
    for step in range(4):
        events.append(event("user_annotation", f"ProfilerStep#{step}", 5000 * step, 5000))
        for part in range(3):
            link = 10 * step + part
            events.append(event("cuda_runtime", "cudaLaunchKernel", 5000 * step + 100 * part, 5, correlation=link))
            start = 100_000 + 30_000 * step + 10_000 * part
            events.append(event("kernel", "gemm", start, 10_000, 7, correlation=link, stream=7))
    found, _ = reported([write(tmp_path / "rank0.json", events)])

    assert (found.step_s, found.compute_s) == pytest.approx((30e-3, 30e-3))


@pytest.mark.parametrize(
    ("name", "copied_s"),
    [("CopyHostToDevice", 50e-6), ("Memcpy HtoD (Pinned -> Device)", 50e-6), ("CopyDeviceToDevice", 0.0)],
)
def test_copies_to_the_device_are_no_computing_under_the_name_of_any_vendor(tmp_path, name, copied_s):
    events = [{**one, "name": name} if one["cat"] == "gpu_memcpy" else one for one in gpu_step(0, 0.0)]
    summary = summarized(read_traces([write(tmp_path / "rank0.json", events)]))

    assert summary.median.copied_s == pytest.approx(copied_s)


def test_one_rank_alone_does_not_tell_waiting_from_moving(tmp_path):
    summary = summarized(read_traces([write(tmp_path / "rank0.json", gpu_step(0, 0.0))]))

    assert "one rank's trace does not tell" in summary.finding.said
