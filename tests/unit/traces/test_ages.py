"""One job as profilers of many ages and makers write it: the parts of its step beside unions of the raw intervals."""

import json
import sqlite3

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from testkit.traced_meshes import parts_us

STEPS, STEP_US = 3, 1000
LANES = {"compute": [(150, 550), (800, 900)], "comm": [(500, 800)], "copy": [(102, 140)], "load": [(0, 100)]}
PARTS = ("compute", "exposed_comm", "hidden_comm", "data", "idle")
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NAMES_OF_NCCL = {
    "2.4": "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "2.8": "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "2.12": "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "2.19": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "2.27": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "symmetric": "ncclSymDevKernel_AllReduce_RSxLD_AGxST_bf16(ncclSymDevArgs)",
    "RCCL": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
}


def form(**chosen):
    """How a profiler calls its events: categories, names of calls, of streams, of the number of an operator."""
    plain = {"kernel": "kernel", "copy": "gpu_memcpy", "runtime": "cuda_runtime", "operator": "cpu_op"}
    plain |= {"step": "user_annotation", "launch": "cudaLaunchKernel", "nccl": "2.27", "external": "External id"}
    return plain | {"stream": "{}", "graph": False, "info": True, "extra": (), "whole": False, "base": 0} | chosen


EXTRA = (
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "dur": 5000},
    {
        "ph": "i",
        "s": "g",
        "name": "Iteration Start: PyTorch Profiler",
        "pid": "Traces",
        "tid": "Trace PyTorch Profiler",
    },
    {"ph": "X", "cat": "overhead", "name": "CUPTI Activity Buffer Request", "pid": -1, "tid": 0, "dur": 4000},
    {"ph": "X", "cat": "python_function", "name": "train.py(40): main", "pid": 100, "tid": 1, "dur": 5000},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:all_reduce", "pid": 0, "tid": 7, "dur": 3000},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 7, "dur": 3000},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 100, "tid": 1},
    {"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 0, "tid": 7},
    {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "args": {"GPU Utilization": 1.0}},
)
FORMS = {
    "torch 1.8": form(
        **{"kernel": "Kernel", "copy": "Memcpy", "runtime": "Runtime", "operator": "Operator", "step": "Operator"},
        **{"nccl": "2.4", "external": "external id", "stream": "stream {}", "info": False, "whole": True},
    ),
    "torch 1.10": form(
        **{"kernel": "Kernel", "copy": "Memcpy", "runtime": "Runtime", "operator": "Operator", "step": "Operator"},
        **{"nccl": "2.8", "external": "External id", "extra": EXTRA[:2], "whole": True},
    ),
    "torch 1.13": form(nccl="2.12", extra=EXTRA[:2]),
    "torch 2.1": form(nccl="2.19", extra=EXTRA[:4]),
    "torch 2.6": form(extra=EXTRA, launch="cuLaunchKernelEx", runtime="cuda_driver", base=1_790_000_000_000_000_000),
    "torch 2.9 with CUDA graphs": form(extra=EXTRA, graph=True, launch="cudaGraphLaunch"),
    "torch 2.13": form(extra=EXTRA, nccl="symmetric", base=1_790_000_000_000_000_000),
    "ROCm": form(launch="hipExtModuleLaunchKernel", nccl="RCCL", extra=EXTRA[:2]),
    "XPU": form(runtime="xpu_runtime", launch="urEnqueueKernelLaunch", nccl="oneccl_allreduce_kernel"),
    "MTIA": form(kernel="mtia_ccp_events", runtime="mtia_runtime", launch="launchKernel", nccl="hccl_all_reduce"),
    "PrivateUse1": form(kernel="privateuse1_kernel", runtime="privateuse1_runtime", nccl="hcom_allReduce__1_1"),
}


def chrome(form):
    """The job as a Chrome trace in one of the forms."""
    events, link = [{**one, "ts": 0} for one in form["extra"]], 0
    for step in range(STEPS):
        at = 10_000 + step * STEP_US
        host = {"ph": "X", "pid": 100, "tid": 1}
        events.append(
            {**host, "cat": form["step"], "name": f"ProfilerStep#{step}", "ts": at, "dur": STEP_US, "args": {}}
        )
        for begun, ended in LANES["load"]:
            events.append(
                {**host, "cat": form["step"], "name": LOADER, "ts": at + begun, "dur": ended - begun, "args": {}}
            )
        if form["graph"]:
            link += 1
            args = {"correlation": link, form["external"]: link}
            events.append(
                {**host, "cat": form["runtime"], "name": form["launch"], "ts": at + 101, "dur": 1, "args": args}
            )
        for lane, stream in (("copy", 21), ("compute", 7), ("comm", 20)):
            for begun, ended in LANES[lane]:
                link += 0 if form["graph"] else 1
                args = {"correlation": link, form["external"]: link}
                if not form["graph"]:
                    launch = {
                        "cat": form["runtime"],
                        "name": form["launch"],
                        "ts": at + begun - 1.5,
                        "dur": 1,
                        "args": args,
                    }
                    events.append({**host, **launch})
                    operator = {
                        "cat": form["operator"],
                        "name": "aten::mm",
                        "ts": at + begun - 2,
                        "dur": 2,
                        "args": args,
                    }
                    events.append({**host, **operator})
                name = {"copy": "Memcpy HtoD (Pinned -> Device)", "compute": "sm80_xmma_gemm_f16f16"}.get(lane)
                name = name or NAMES_OF_NCCL.get(form["nccl"], form["nccl"])
                own = {"ph": "X", "cat": form["copy" if lane == "copy" else "kernel"], "name": name, "pid": 0}
                own |= {"tid": form["stream"].format(stream), "ts": at + begun, "dur": ended - begun}
                events.append(own | {"args": args | {"device": 0, "stream": stream}})
    if form["whole"]:
        return {"schemaVersion": 1, "traceEvents": [one | {"ts": int(one["ts"])} for one in events]}
    head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": form["base"], "traceEvents": events}
    if form["info"]:
        head["distributedInfo"] = {
            "backend": "nccl",
            "rank": 0,
            "world_size": 2,
            "pg_count": 1,
            "nccl_version": "2.27.3",
        }
    return head


def agrees(summary, lanes=LANES):
    """Hold the parts of the step against unions of the raw intervals, in points of it."""
    median, true = summary.median, parts_us(lanes, 0, STEP_US)
    assert median.step_s * 1e6 == pytest.approx(STEP_US, rel=0.05)
    told = {part: 100 * getattr(median, f"{part}_s") / median.step_s for part in PARTS}
    assert told == pytest.approx({part: 100 * true[part] / STEP_US for part in PARTS}, abs=2.0)


@pytest.mark.parametrize("name", FORMS)
def test_traces_of_all_ages_and_makers_say_the_same(name, tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(chrome(FORMS[name])))

    summary = summarized(read_traces([path]))

    agrees(summary)
    assert summary.steps == STEPS


@pytest.mark.parametrize(
    "names",
    [
        ["profile_0.json", "profile_1.json", "profile_2.json", "profile_10.json"],  # accelerate
        ["rank0_trace.json", "rank1_trace.json", "rank2_trace.json", "rank10_trace.json"],  # torchtitan
        ["rank-0.json", "rank-1.json", "rank-2.json", "rank-10.json"],  # Megatron
        ["fit-train[rank 0].json", "fit-train[rank 1].json", "fit-train[rank 2].json", "fit-train[rank 10].json"],
        ["gpu_0.pt.trace.json", "gpu_1.pt.trace.json", "gpu_2.pt.trace.json", "gpu_10.pt.trace.json"],
        ["node0_900.1710.pt.trace.json", "node0_901.1710.pt.trace.json", "node0_902.1710.pt.trace.json",
         "node0_1000.1710.pt.trace.json"],
    ],
    ids=["accelerate", "torchtitan", "megatron", "lightning", "gpu", "tensorboard"],
)  # fmt: skip
def test_ranks_that_only_the_files_names_tell_are_in_natural_order(names, tmp_path):
    for number, name in enumerate(names):
        trace = chrome(form(info=False))
        for event in trace["traceEvents"]:
            event["name"] = event["name"].replace("sm80", f"rank{number}")
        (tmp_path / name).write_text(json.dumps(trace))

    ranks = read_traces([tmp_path])

    order = [next(name for name in cycles[0].computed.table if "gemm" in name).split("_")[0] for cycles in ranks]
    assert order == ["rank0", "rank1", "rank2", "rank3"]


def test_a_cuda_job_without_kernels_is_refused(tmp_path):
    trace = chrome(form())
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") not in {"kernel", "gpu_memcpy"}]
    (tmp_path / "rank0.json").write_text(json.dumps(trace))

    with pytest.raises(InputError, match="no kernel is in the trace"):
        read_traces([tmp_path / "rank0.json"])


# ---- nsys

GLOBAL = 77 << 24
STRINGS = {1: "ampere_bf16_gemm", 2: NAMES_OF_NCCL["2.19"], 3: "cudaLaunchKernel_v7000", 4: LOADER, 5: "gemm"}
TABLES = {  # what each version adds to the columns that all have
    "2021.5": ({}, {}),
    "2023.4": ({"mangledName": "INTEGER", "gridX": "INTEGER", "graphNodeId": "INTEGER"}, {"jsonText": "TEXT"}),
    "2024.5": (
        {"greenContextId": "INTEGER", "graphId": "INTEGER", "graphNodeId": "INTEGER", "clusterX": "INTEGER"},
        {"uint64Value": "INTEGER", "jsonTextId": "INTEGER", "binaryData": "TEXT"},
    ),
    "2026.1": (
        {"greenContextId": "INTEGER", "graphId": "INTEGER", "launchType": "INTEGER", "priority": "INTEGER"},
        {"jsonTextId": "INTEGER", "domainId": "INTEGER", "color": "INTEGER"},
    ),
}
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def table(base, name, columns, rows):
    """Make a table with columns in the order of their names' first use, and fill it."""
    base.execute(f"CREATE TABLE {name} ({', '.join(f'{key} {kind}' for key, kind in columns.items())})")
    for row in rows:
        base.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def nsys(path, version, *, graphs=False):
    """The job as an export of one version of nsys, its kernels recorded singly or only as whole CUDA graphs."""
    more, more_ranges = TABLES[version]
    place = {"deviceId": "INTEGER", "contextId": "INTEGER", "streamId": "INTEGER", "correlationId": "INTEGER"}
    device = {"start": "INTEGER", "end": "INTEGER", **place, "globalPid": "INTEGER"}
    kernels, copies, calls, ranges, whole = [], [], [], [], []
    for step in range(STEPS):
        zero = 5_000_000 + step * STEP_US * 1000
        own = {"deviceId": 0, "contextId": 1, "globalPid": GLOBAL}
        for lane, stream, name in (("compute", 7, 1), ("comm", 20, 2)):
            for begun, ended in LANES[lane]:
                span = {"start": zero + begun * 1000, "end": zero + ended * 1000, "streamId": stream}
                link = 10 * step + len(kernels)
                kernels.append({**own, **span, "correlationId": link, "demangledName": name, "shortName": 5})
                call = {"start": span["start"] - 1500, "end": span["start"] - 500, "globalTid": GLOBAL + 5}
                calls.append({**call, "eventClass": 0, "correlationId": link, "nameId": 3})
        begun, ended = LANES["copy"][0]
        span = {"start": zero + begun * 1000, "end": zero + ended * 1000, "streamId": 21, "correlationId": 900 + step}
        copies.append({**own, **span, "bytes": 4096, "copyKind": 1})
        text = {"text": f"step {step}"} if version < "2024" else {"text": None, "textId": 100 + step}
        note = {"eventType": 59, "globalTid": GLOBAL + 5}
        ranges.append({"start": zero, "end": zero + STEP_US * 1000, **note, **text})
        begun, ended = LANES["load"][0]
        ranges.append({"start": zero + begun * 1000, "end": zero + ended * 1000, **note, "text": None, "textId": 4})
        span = {
            "start": zero + 150_000,
            "end": zero + 900_000,
            "streamId": 7,
            "correlationId": 800 + step,
            "graphId": 9,
        }
        whole.append({**own, **span})
    strings = STRINGS | {100 + step: f"step {step}" for step in range(STEPS)}
    with sqlite3.connect(path) as base:
        table(
            base, "StringIds", {"id": "INTEGER", "value": "TEXT"}, [{"id": k, "value": v} for k, v in strings.items()]
        )
        names = {"demangledName": "INTEGER", "shortName": "INTEGER"}
        if graphs:
            table(base, GRAPHS, device | {"graphId": "INTEGER"}, [*whole, whole[0] | {"start": 0, "end": 0}])
        else:
            table(base, "CUPTI_ACTIVITY_KIND_KERNEL", device | names | more, kernels)
            called = {"start": "INTEGER", "end": "INTEGER", "eventClass": "INTEGER", "globalTid": "INTEGER"}
            called |= {"correlationId": "INTEGER", "nameId": "INTEGER"}
            table(base, "CUPTI_ACTIVITY_KIND_RUNTIME", called, calls)
        table(base, "CUPTI_ACTIVITY_KIND_MEMCPY", device | {"bytes": "INTEGER", "copyKind": "INTEGER"}, copies)
        noted = {"start": "INTEGER", "end": "INTEGER", "eventType": "INTEGER", "text": "TEXT", "globalTid": "INTEGER"}
        table(base, "NVTX_EVENTS", noted | {"textId": "INTEGER"} | more_ranges, ranges)
    base.close()
    return path


@pytest.mark.parametrize("version", TABLES)
def test_exports_of_all_versions_of_nsys_say_the_same(version, tmp_path):
    agrees(summarized(read_traces([nsys(tmp_path / "rank0.sqlite", version)])))


def test_cuda_graphs_that_nsys_recorded_whole_are_no_idle_time_and_the_reader_is_told(tmp_path):
    summary = summarized(read_traces([nsys(tmp_path / "rank0.sqlite", "2026.1", graphs=True)]))

    agrees(summary, LANES | {"compute": [(150, 900)], "comm": []})
    assert "CUDA graphs" in str(summary.notes)
    assert "--cuda-graph-trace=node" in str(summary.notes)
