"""Chakra execution traces: what torch and MLCommons' tools write is read, and what is written reads back the same."""

import json
import pathlib

import pytest
import torch
from torch.profiler import ExecutionTraceObserver

from meshwright.errors import InputError
from meshwright.traces.formats.chakra import ESTIMATED, _messages
from meshwright.traces.formats.chakra_write import write_chakra
from meshwright.traces.formats.opening import Source
from meshwright.traces.formats.protobuf import field, fields, numbers, varint
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

DATA = pathlib.Path(__file__).parent / "data"


def attribute(name, kind, value):
    return field(10, field(1, name) + field(kind, value))


def graph(*nodes):
    """Return a file of nodes (id, name, type, duration, depends on, stream, extra attributes), none with a start."""
    messages = [field(1, "0.0.4")]
    for number, name, kind, duration, depends, stream, *extra in nodes:
        deps = field(5, b"".join(map(varint, depends))) if depends else b""
        device = attribute("is_cpu_op", 27, 0) + attribute("stream", 9, stream)
        messages.append(
            field(1, number) + field(2, name) + field(3, kind) + deps + field(7, duration) + device + b"".join(extra)
        )
    return b"".join(varint(len(message)) + message for message in messages)


def test_a_graph_without_starts_runs_as_soon_as_it_can(tmp_path):
    reduction = [attribute("comm_type", 9, 0), attribute("comm_size", 9, 4096), attribute("pg_name", 29, "dp")]
    path = tmp_path / "rank0.et"
    path.write_bytes(
        graph((3, "late", 4, 100, [1, 2], 7), (1, "gemm", 4, 400, [], 7), (2, "nccl", 7, 300, [1], 20, *reduction))
    )
    ((trace,),) = read_traces([path])
    median = summarized([[trace]]).median

    assert (median.step_s, median.compute_s, median.exposed_comm_s) == pytest.approx((800e-6, 500e-6, 300e-6))
    (call,) = trace.calls
    assert (call.name, call.bytes, call.group) == ("all_reduce", 4096, "dp")
    assert ESTIMATED in trace.notes


@pytest.mark.parametrize("name", ["t01_deepep.json", "t07_culprit", "t21_all_to_all.json"])
def test_what_was_written_reads_back_with_the_same_times(tmp_path, name):
    before = read_traces([DATA / name])
    after = read_traces(write_chakra(tmp_path, before))

    assert [cycles[0].rank for cycles in after] == [cycles[0].rank for cycles in before]
    for old, new in zip(before, after, strict=True):
        calls = [[(c.name, c.bytes, round((c.end_s - c.start_s) * 1e6)) for c in t[0].calls] for t in (old, new)]
        assert calls[0] == calls[1]
        assert (new[0].compute[:, 1] - new[0].compute[:, 0]).sum() == pytest.approx(
            (old[0].compute[:, 1] - old[0].compute[:, 0]).sum()
        )
        assert ESTIMATED not in new[0].notes


def test_what_was_written_keeps_what_came_before_what(tmp_path):
    (path,) = write_chakra(tmp_path, read_traces([DATA / "t30_gpu_only.json"]))
    found = [dict(fields(message)) for message in _messages(Source(path))][1:]

    times = {node[1]: (node[6], node[6] + node[7]) for node in found}
    depends = {node[1]: numbers(node[5]) for node in found if 5 in node}
    assert len(found) == 6
    assert depends == {n: [n - 1] if n == 2 else [n - 2, n - 1] for n in range(2, 7)}
    assert all(times[dep][1] <= times[number][0] for number, every in depends.items() for dep in every)


def test_the_trace_of_a_host_alone_is_said_to_have_no_times(tmp_path):
    path = tmp_path / "host.json"
    observer = ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    observer.stop()
    observer.unregister_callback()

    beside = Job(1)
    beside.step(0)
    beside.ranks[0].compute(1000)
    beside.write(tmp_path)
    for given in ([tmp_path], sorted(tmp_path.iterdir())):
        (note,) = summarized(read_traces(given)).notes
        assert note.startswith("1 file beside the traces is set aside: ")
        assert note.endswith("host.json")

    with pytest.raises(InputError, match=r"a Chakra trace of a host \(\d+ nodes, 0 communications\) has no times"):
        read_traces([path])


def test_a_host_and_a_device_that_were_linked_are_read(tmp_path):
    tensor = [[1, 1, 0, 1000, 2, "cuda:0"]]
    host = {"inputs": {"values": tensor}, "attrs": [{"name": "tid", "value": 1}], "inter_thread_dep": None}
    nodes = [
        {"id": 1, "name": "aten::mm", "ctrl_deps": None, "ts": 0, "inclusive_dur": 20, "exclusive_dur": 20, **host},
        {"id": 2, "name": "gemm", "ctrl_deps": 1, "ts": 20, "inclusive_dur": 300, "cat": "kernel", "stream": 7, **host},
        {"id": 3, "name": "gemm", "ctrl_deps": 1, "ts": 30, "inclusive_dur": 300, "cat": "kernel", "stream": 7, **host},
        {"id": 4, "name": "ncclDevKernel_AllReduce_Sum_bf16", "ctrl_deps": 1, "ts": 420, "inclusive_dur": 300,
         "cat": "kernel", "stream": 20, **host},
    ]  # fmt: skip
    path = tmp_path / "linked.json"
    path.write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    ((trace,),) = read_traces([path])
    median = summarized([[trace]]).median

    assert (median.compute_s, median.exposed_comm_s, median.hidden_comm_s) == pytest.approx((600e-6, 100e-6, 200e-6))
    assert trace.calls[0].bytes == 2000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (graph((1, "a", 4, 10, [2], 7), (2, "b", 4, 10, [1], 7)), "depend on one another in a circle"),
        (graph((1, "a", 4, 10, [], 7))[:-3], "cut off within a message"),
        (b"\x05hello", "not a Chakra execution trace"),
        (graph(), "no node of a device that lasts"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(tmp_path, data, message):
    path = tmp_path / "rank0.et"
    path.write_bytes(data)

    with pytest.raises(InputError, match=message):
        read_traces([path])
