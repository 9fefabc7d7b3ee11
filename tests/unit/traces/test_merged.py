"""Several ranks in one file, as scripts of many makes merge them: each is told, or the file is refused."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from meshwright.traces.usage import parts_of

RANKS, STEPS, HOST = 3, 4, 700
LATE = (0.0, 40.0, 15.0)  # microseconds by which the host of each rank begins its steps later


def event(cat, name, pid, ts, dur, tid=1, /, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def meta(name, pid, /, **args):
    return {"ph": "M", "name": name, "pid": pid, "tid": 0, "args": args}


def rank_events(rank, *, device=None, collectives=None):
    """Events of one rank as its own profiler writes them: correlations and device ids are those of every rank."""
    device = rank if device is None else device
    events = [meta("process_name", HOST + rank, name="python3"), meta("process_labels", HOST + rank, labels="CPU")]
    events += [meta("process_name", device, name="python3"), meta("process_labels", device, labels=f"GPU {device}")]
    link = 0
    for step in range(STEPS):
        start = 10_000.0 * step + LATE[rank]
        events.append(event("user_annotation", f"ProfilerStep#{step}", HOST + rank, start, 9900))
        done = 10_000.0 * step + 6000
        for name, begins, length in (
            ("gemm", start + 8, 3000 + 100 * rank),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", start + 3010 + 100 * rank, 0),
        ):
            link += 1
            args = collectives(rank) if collectives and not length else {}
            until = begins + length if length else done
            events.append(event("cuda_runtime", "cudaLaunchKernel", HOST + rank, begins - 5, 2, correlation=link))
            events.append(event("kernel", name, device, begins, until - begins, 7, correlation=link, device=device,
                                stream=7, **args))  # fmt: skip
    return events


def moved(events, change):
    return [one | {"pid": change(one["pid"])} for one in events]


def of_collectives(rank):
    return {"Collective name": "allreduce", "Process Group Ranks": "[4, 5, 6]", "Rank": rank, "Group size": 3}


def labelled(rank):
    return [*rank_events(rank), meta("process_labels", HOST + rank, labels=f"Rank {rank} python")]


def tagged(rank):
    return moved(rank_events(rank), lambda pid: f"[TP0{rank % 2}-DP0{rank // 2}] {pid}")


def two_degrees(rank):
    return [*rank_events(rank), meta("process_labels", HOST + rank, labels=f"DP rank 0, TP rank {rank}")]


def fused(rank):
    """TraceLens: ids of processes and correlations are offset, and each event says its rank."""
    found = moved(rank_events(rank, device=0), lambda pid: pid + 100_000 * (rank + 4))
    for one in found:
        one["args"] = one["args"] | {"rank": rank + 4}
    return found


def offset(rank):
    return moved(rank_events(rank, device=0), lambda pid: pid + 100_000 * rank)


def one_process(rank):
    """Composer: the rank is the id of every process."""
    return moved(rank_events(rank, device=0), lambda pid: rank)


def noted(rank):
    return [*moved(rank_events(rank, device=0), lambda pid: 90 + rank), meta("global_rank", 90 + rank, value=rank + 2)]


def indexed(rank):
    return [*moved(rank_events(rank, device=0), lambda pid: 90 + rank),
            meta("process_sort_index", 90 + rank, sort_index=rank)]  # fmt: skip


MERGED = {
    "labels of hosts": (labelled, [0, 1, 2], ""),
    "devices alone": (rank_events, [0, 1, 2], "in the order of their devices"),
    "collectives": (lambda rank: rank_events(rank, collectives=of_collectives), [4, 5, 6], ""),
    "tags of processes": (tagged, [0, 2, 1], "in the order of these names"),
    "two degrees": (two_degrees, [0, 1, 2], "in the order of these names"),
    "ranks of events": (fused, [4, 5, 6], ""),
    "offsets": (offset, [0, 1, 2], "by the offsets of their process ids"),
    "ids": (one_process, [0, 1, 2], "by their process ids"),
    "metadata": (noted, [2, 3, 4], ""),
    "sort index": (indexed, [0, 1, 2], "by process_sort_index"),
}


def written(path, parts, **head):
    path.write_text(json.dumps({**head, "traceEvents": [one for part in parts for one in part]}))
    return path


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("how", MERGED)
def test_the_ranks_of_a_merged_file_are_what_its_maker_named(tmp_path, how, backwards):
    make, wanted, note = MERGED[how]
    parts = [make(rank) for rank in range(RANKS)]
    found = read_traces([written(tmp_path / "merged.json", parts[::-1] if backwards else parts)])

    lengths = {
        cycles[0].rank: round(float(cycles[0].compute[0, 1] - cycles[0].compute[0, 0]) * 1e6) for cycles in found
    }
    assert lengths == {rank: 3000 + 100 * number for number, rank in enumerate(wanted)}
    assert [len(trace.windows) for (trace,) in found] == [STEPS] * RANKS
    said = " ".join(note for (trace,) in found for note in trace.notes)
    assert note in said
    assert bool(note) == bool(said)


@pytest.mark.parametrize("how", ["labels of hosts", "devices alone", "collectives"])
def test_each_device_is_joined_with_the_host_that_launched_its_kernels(tmp_path, how):
    make, wanted, _ = MERGED[how]
    found = read_traces([written(tmp_path / "merged.json", [make(rank) for rank in range(RANKS)])])

    begins = {trace.rank: trace.epoch_ns * 1e-3 + trace.windows[0].start_s * 1e6 for (trace,) in found}
    assert begins == pytest.approx(dict(zip(wanted, LATE, strict=True)), abs=0.01)


def test_ranks_follow_from_a_list_of_what_each_file_said(tmp_path):
    parts = [moved(rank_events(rank, device=0), lambda pid, rank=rank: 90 + rank) for rank in range(RANKS)]
    info = [{"rank": rank} for rank in (5, 3, 4)]
    found = read_traces([written(tmp_path / "merged.json", parts, distributedInfo=info)])

    assert [trace.rank for (trace,) in found] == [3, 4, 5]
    assert "as its distributedInfo lists them" in found[0][0].notes[0]


def test_who_is_late_is_told_of_a_merged_file_too(tmp_path):
    found = read_traces([written(tmp_path / "merged.json", [labelled(rank) for rank in range(RANKS)])])
    summary = summarized(found)

    assert len(summary.meetings.found) == STEPS
    assert summary.median.step_s == pytest.approx(10e-3)


def nothing(rank):
    return moved(rank_events(rank, device=0), lambda pid: 90 + rank)


def same_name(rank):
    return [*nothing(rank), meta("process_name", 90 + rank, name=f"node{rank} rank 0")]


def half_named(rank):
    return [*nothing(rank), *([meta("process_name", 90, name="rank 0")] if rank == 0 else [])]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (nothing, "3 processes with the same steps, and nothing says which rank each is"),
        (same_name, "3 processes that say they are rank 0 mark the same steps"),
        (half_named, "of which only some are named"),
        (lambda rank: rank_events(rank, device=0), "several ranks in one file"),  # devices have become one
    ],
)
def test_ranks_that_nothing_names_are_refused_with_the_reason(tmp_path, make, message):
    path = written(tmp_path / "merged.json", [make(rank) for rank in range(RANKS)])

    with pytest.raises(InputError, match=message) as caught:
        read_traces([path])
    assert "\n" not in str(caught.value)


def test_npus_whose_processes_name_their_ranks_are_kept_apart(tmp_path):
    events = []
    for rank in (1, 0):
        for at, name in enumerate(("Python", "Ascend Hardware")):
            events.append(meta("process_name", 10 * rank + at, name=f"rank {rank} {name}"))
        for step in (1, 2):
            start = 1000.0 * step
            events += [
                {"ph": "X", "name": f"ProfilerStep#{step}", "pid": 10 * rank, "tid": 1, "ts": start, "dur": 900},
                {"ph": "X", "name": "MatMul", "pid": 10 * rank + 1, "tid": 2, "ts": start, "dur": 300 + rank,
                 "args": {"Task Type": "AI_CORE"}},
            ]  # fmt: skip
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(events))

    found = read_traces([path])
    assert [(t.rank, round(float(t.compute[0, 1]) * 1e6)) for (t,) in found] == [(0, 300), (1, 301)]


@pytest.mark.parametrize("category", [{}, {"cat": "cpu_op"}], ids=["without a category", "as torch_npu writes them"])
def test_an_npu_that_idles_while_its_host_loads_data_waits_for_data(tmp_path, category):
    labels = ("Python", "Ascend Hardware", "Overlap Analysis")
    events = [meta("process_name", at, name=name) for at, name in enumerate(labels)]
    for step in (1, 2):
        start, host = 1000.0 * step, {"ph": "X", "pid": 0, "tid": 1} | category
        events += [
            host | {"name": f"ProfilerStep#{step}", "ts": start, "dur": 1000},
            host | {"name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "ts": start, "dur": 400},
            {"ph": "X", "name": "MatMul", "pid": 1, "tid": 2, "ts": start + 450, "dur": 500,
             "args": {"Task Type": "AI_CORE"}},
            {"ph": "X", "name": "Free", "pid": 2, "tid": 3, "ts": start, "dur": 450},
        ]  # fmt: skip
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))

    ((trace,),) = read_traces([path])

    data = parts_of(trace, trace.windows[1]).data
    assert round(float((data[:, 1] - data[:, 0]).sum()) * 1e6) == 400
