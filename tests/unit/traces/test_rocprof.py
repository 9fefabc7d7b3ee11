"""The JSON of rocprofv3, made after the schema of ROCprofiler-SDK's manual; traces that HolisticTraceAnalysis wrote."""

import gzip
import json

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

from .jobs import Job

MS = 1_000_000  # nanoseconds
GPU, CPU = 11, 7
KINDS = [{"kind": "NONE", "operations": []}, {"kind": "HIP", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]}]


def record(start_ms, end_ms, link, **more):
    times = {"start_timestamp": int(5e14 + start_ms * MS), "end_timestamp": int(5e14 + end_ms * MS)}
    return {"size": 1, "thread_id": 1, "correlation_id": {"internal": link, "external": 0}, **times, **more}


def kernel(start_ms, end_ms, link, number, queue=1):
    info = {"agent_id": {"handle": GPU}, "queue_id": {"handle": queue}, "kernel_id": number, "dispatch_id": link}
    return record(start_ms, end_ms, link, dispatch_info=info)


def process(pid=100):
    """Two steps of 10 ms: 1 ms of copy, 5 ms of compute, 3 ms of a collective of which 1 ms is hidden, 2 ms idle."""
    kernels, copies, calls, marks, texts = [], [], [], [], []
    for step in (0, 1):
        at, link = 10 * step, 10 * step
        copies.append(
            record(at, at + 1, link, src_agent_id={"handle": CPU}, dst_agent_id={"handle": GPU}, bytes=4 * 2**20)
        )
        kernels += [kernel(at + 1, at + 6, link + 1, 1), kernel(at + 5, at + 8, link + 2, 2, queue=2)]
        calls += [
            record(at + part / 100, at + part / 100 + 0.005, link + part, kind=1, operation=0) for part in (0, 1, 2)
        ]
        marks.append(record(at, at + 10, 900 + step))
        texts.append({"key": 900 + step, "value": f"step {step + 4}"})
    names = ["gemm_bf16(float*)", "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"]
    return {
        "metadata": {"pid": pid, "init_time": 1, "fini_time": 2},
        "agents": [{"id": {"handle": CPU}, "type": 1}, {"id": {"handle": GPU}, "type": 2}],
        "strings": {"buffer_records": KINDS, "marker_api": texts},
        "kernel_symbols": [
            {"kernel_id": at + 1, "kernel_name": name, "formatted_kernel_name": name} for at, name in enumerate(names)
        ],
        "buffer_records": {
            "kernel_dispatch": kernels, "memory_copy": copies, "hip_api": calls, "marker_api": marks, "hsa_api": [],
        },
    }  # fmt: skip


def test_kernels_copies_and_steps_of_rocprofv3_are_read(tmp_path):
    (tmp_path / "rank3_results.json").write_text(json.dumps({"rocprofiler-sdk-tool": [process()]}))
    summary = summarized(read_traces([tmp_path]))
    assert [rank.rank for rank in summary.ranks] == [3]
    assert (summary.steps, summary.marked) == (2, True)
    told = {key: round(getattr(summary.median, key) * 1e3, 6) for key in summary.median.__struct_fields__}
    assert told == {
        "step_s": 10, "compute_s": 5, "exposed_comm_s": 2, "hidden_comm_s": 1, "idle_s": 2,
        "data_s": 1, "copied_s": 1, "other_s": 0,
    }  # fmt: skip


def test_processes_of_one_file_are_ranks_in_the_order_of_their_devices_and_it_says_so(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process(100), process(101)]}))
    summary = summarized(read_traces([path]))
    assert [rank.rank for rank in summary.ranks] == [0, 1]
    assert any("in the order of their devices" in note for note in summary.notes)


DAMAGED = {
    "cut off": '{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [',
    "another type": '{"rocprofiler-sdk-tool": [{"agents": 3}]}',
    "empty": '{"rocprofiler-sdk-tool": []}',
    "a number of 65 bits": json.dumps({"rocprofiler-sdk-tool": [process()]}).replace(
        '"internal": 1,', f'"internal": {2**64},', 1
    ),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_of_rocprofv3_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_traces([path])
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_holistic_trace_analysis_adds_to_a_trace_changes_no_figure(tmp_path):
    job = Job(2)
    for step in range(3):
        job.step(step)
        for rank in job.ranks:
            rank.compute(20_000.0 + 8_000.0 * rank.number)
        job.meet()
    plain, added = tmp_path / "plain", tmp_path / "added"
    plain.mkdir(), added.mkdir()
    for path in job.write(plain):
        trace = json.loads(path.read_text())
        events = trace["traceEvents"]
        kernels = [event for event in events if event["cat"] == "kernel"]
        for at, event in enumerate(kernels):  # counters of queue length and bandwidth, arrows of the critical path
            counted = {"ph": "C", "pid": 1, "id": 0, "ts": event["ts"], "args": {"7": at, "bw_gbps": 1.5}}
            events.append(counted | {"name": "Queue Length", "cat": "queue"})
            arrow = {"cat": "critical_path", "name": "critical_path", "pid": 1, "tid": 7, "id": at, "ts": event["ts"]}
            events += [arrow | {"ph": "s"}, arrow | {"ph": "f", "bp": "e"}]
            event["args"]["critical"] = 1
        name = f"overlaid_critical_path_rank-{trace['distributedInfo']['rank']}_with_counters.json.gz"
        (added / name).write_bytes(gzip.compress(json.dumps(trace).encode()))
    before, after = (summarized(read_traces([folder])) for folder in (plain, added))
    assert after.ranks == before.ranks
    assert after.culprit == before.culprit is not None
