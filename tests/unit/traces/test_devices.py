"""Devices of other makers, and several devices or ranks in one file."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized


def event(cat, name, ts, dur, pid=0, tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(tmp_path, events, **head):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events}))
    return path


@pytest.mark.parametrize(
    ("kernel", "runtime"),
    [("kernel", "xpu_runtime"), ("mtia_ccp_events", "mtia_runtime"), ("privateuse1_kernel", "privateuse1_runtime"),
     ("hpu_op", "hpu_runtime"), ("Kernel", "Runtime"), ("a_device_of_tomorrow", "its_driver")],
)  # fmt: skip
def test_a_device_of_any_kind_is_read(tmp_path, kernel, runtime):
    events = [
        event(runtime, "launch", 0, 5, 100, 1, correlation=1),
        event(kernel, "gemm", 10, 600, stream=7, device=0, correlation=1),
        event(kernel, "oneccl_allreduce", 610, 300, stream=8, device=0),
        event("gpu_user_annotation", "nccl:all_reduce", 0, 5000, stream=7),
        event("cuda_sync", "Stream Wait Event", 0, 5000, stream=7),
    ]
    median = summarized(read_traces([written(tmp_path, events)])).median

    assert (median.compute_s, median.exposed_comm_s, median.idle_s) == pytest.approx((600e-6, 300e-6, 0))


def test_the_devices_of_one_process_are_kept_apart(tmp_path):
    events = [event("kernel", "gemm", 1000 * step, 400 + 200 * device, device, stream=7, device=device)
              for step in range(3) for device in (0, 1)]  # fmt: skip
    events += [event("user_annotation", f"ProfilerStep#{step}", 1000 * step, 1000, 9, 1) for step in range(3)]
    summary = summarized(read_traces([written(tmp_path, events)]))

    assert [(own.rank, own.device, round(own.compute_s * 1e6)) for own in summary.ranks] == [
        (0, "device 0", 400), (1, "device 1", 600),
    ]  # fmt: skip


def test_a_device_on_which_hardly_anything_ran_is_no_rank(tmp_path):
    events = [event("kernel", "gemm", 0, 9000, 1, stream=7, device=1), event("gpu_memset", "Memset", 0, 2, device=0)]
    ((trace,),) = read_traces([written(tmp_path, events, distributedInfo={"rank": 5})])

    assert (trace.rank, trace.label) == (5, "")
    assert trace.compute.tolist() == [[0, 0.009]]


def test_processes_whose_names_say_their_ranks_are_those_ranks(tmp_path):
    events = []
    for rank in (0, 1):
        pid = 1000 + rank
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"[rank {rank}] python"}})
        events.append(event("user_annotation", "ProfilerStep#0", 0, 1000, pid))
        events.append(event("kernel", "gemm", 0, 300 + 300 * rank, pid))

    summary = summarized(read_traces([written(tmp_path, events)]))
    assert [round(own.compute_s * 1e6) for own in summary.ranks] == [300, 600]


def test_ranks_that_were_merged_without_a_name_are_refused(tmp_path):
    events = [event("user_annotation", "ProfilerStep#0", 0, 1000, pid) for pid in (10, 20)]
    events.append(event("kernel", "gemm", 0, 300, 0))

    with pytest.raises(InputError, match="several ranks in one file"):
        read_traces([written(tmp_path, events)])


def test_a_kernel_launched_for_a_collective_communicates_whatever_its_name(tmp_path):
    record = {"Collective name": "reduce_scatter", "In msg nelems": 8, "dtype": "Float", "Group size": 4}
    events = [
        event("cpu_op", "record_param_comms", 0, 50, 100, 1, **{"External id": 7, **record}),
        event("cuda_runtime", "launch", 5, 5, 100, 1, correlation=1),
        event("kernel", "ring_kernel", 60, 300, stream=8, correlation=1, **{"External id": 7}),
        event("kernel", "gemm", 60, 900, stream=7, correlation=2, **{"External id": 8}),
    ]
    ((trace,),) = read_traces([written(tmp_path, events)])

    (call,) = trace.calls
    assert (call.name, call.bytes, call.group_size) == ("reduce_scatter", 32, 4)
    assert summarized([[trace]]).median.hidden_comm_s == pytest.approx(300e-6)


def test_without_numbers_the_record_around_the_launch_tells_but_not_of_the_copies_in_it(tmp_path):
    events = [
        event("user_annotation", "nccl:all_gather", 0, 100, 100, 1),
        event("cpu_op", "aten::copy_", 10, 20, 100, 1),
        event("cuda_runtime", "launch", 15, 5, 100, 1, correlation=1),
        event("kernel", "elementwise", 200, 100, stream=7, correlation=1),
        event("cuda_runtime", "launch", 50, 5, 100, 1, correlation=2),
        event("kernel", "ring_kernel", 300, 400, stream=8, correlation=2),
    ]
    ((trace,),) = read_traces([written(tmp_path, events)])

    assert [call.name for call in trace.calls] == ["all_gather"]
    assert summarized([[trace]]).median.compute_s == pytest.approx(100e-6)


def test_without_a_host_the_marks_of_the_device_are_its_steps(tmp_path):
    events = []
    for step in range(3):
        at = 1000 * step
        events += [
            event("kernel", "gemm", at, 600, stream=7),
            event("kernel", "ncclAllReduce", at + 600, 300, stream=8),
        ]
        events.append(event("gpu_user_annotation", f"ProfilerStep#{step}", at, 600, 0, 7, stream=7))
        events.append(event("gpu_user_annotation", f"ProfilerStep#{step}", at + 600, 300, 0, 8, stream=8))
    summary = summarized(read_traces([written(tmp_path, events)]))

    assert summary.marked
    assert summary.steps == 3
    assert (summary.median.step_s, summary.median.exposed_comm_s) == pytest.approx((1000e-6, 300e-6))


@pytest.mark.parametrize("rank", [10**30, 2**23, -1, "9" * 30, "²", " 5", True, [5]])
def test_a_rank_that_no_job_has_is_no_rank_and_the_name_of_the_file_tells(tmp_path, rank):
    events = [event("kernel", "gemm", 0, 500)]
    (tmp_path / "x").mkdir()
    path = written(tmp_path / "x", events, distributedInfo={"rank": rank}).rename(tmp_path / "rank7.json")
    ((trace,),) = read_traces([path])

    assert trace.rank == (5 if rank == " 5" else 7)
