"""`report` on traces beside HolisticTraceAnalysis and beside plain unions of the raw intervals: shares, time, memory.

The last row is `doctor --logs` on the log of a job of 1,024 ranks, of which one did not come (wanted: under 5 s).

Every set of tests/unit/traces/data is read, those given as arguments too, and a long trace that is made here (--long
MEGABYTES). HolisticTraceAnalysis runs in the interpreter that --hta names, which need not be this project's own (`pip
install HolisticTraceAnalysis` there). Shares are percent of the typical step; those of HolisticTraceAnalysis are of the
whole trace of its first rank, for it has no steps there. Time and peak memory are of a process that reads the long
trace alone.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import Result, alternating_medians
from meshwright.errors import InputError
from meshwright.timeline import Interval, length_s, overlap_s
from meshwright.traces.model import RankTrace, Window
from meshwright.traces.names import communicates
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

DATA = Path(__file__).parents[1] / "tests" / "unit" / "traces" / "data"
KEYS = ("compute", "exposed_comm", "hidden_comm", "idle")
ROUNDS = 3
OURS = """
import json, resource, sys, time
from pathlib import Path
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
begun = time.perf_counter()
summarized(read_traces([Path(sys.argv[1])]))
took = time.perf_counter() - begun
print(json.dumps([{"s": took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}]))
"""
THEIRS = """
import json, pathlib, resource, sys, time
from hta.trace_analysis import TraceAnalysis
found = []
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    files = sorted(path.glob("*.json*")) if path.is_dir() else [path]
    begun = time.perf_counter()
    try:
        analysis = TraceAnalysis(trace_files={rank: str(file) for rank, file in enumerate(files)})
        parts = analysis.get_temporal_breakdown(visualize=False)
        shares = {"compute": float(parts["compute_time_pctg"][0]), "idle": float(parts["idle_time_pctg"][0])}
    except (Exception, SystemExit) as error:
        shares = {"error": type(error).__name__}
    took, peak = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found.append(shares | {"s": took, "peak": peak})
print("\\n" + json.dumps(found))
"""


HANG = """
import json, resource, sys, time
from pathlib import Path
from meshwright.postmortem.inputs import examine_files
begun = time.perf_counter()
verdict = examine_files([Path(sys.argv[1])])
took = time.perf_counter() - begun
assert (verdict.kind, verdict.rank) == ("absent", 517), verdict
print(json.dumps([{"s": took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}]))
"""


def run(arguments: list[str]) -> Result:
    """Read every set with each tool; return a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks traces")
    parser.add_argument("paths", nargs="*", type=Path, help="more files or folders")
    parser.add_argument("--hta", default=sys.executable, help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--long", type=int, default=50, metavar="MEGABYTES", help="of the trace that is made here")
    options = parser.parse_args(arguments)
    sets = {path.name: path for path in sorted(DATA.iterdir()) if path.name not in {"steps", "real_runs"}}
    sets |= {f"{name}/{path.name}": path for name in ("real_runs", "steps") for path in sorted((DATA / name).iterdir())}
    sets |= {str(path): path for path in options.paths}
    theirs = _program(THEIRS, options.hta, *sets.values())
    rows = [_row(name, path, theirs[at] if theirs else {}) for at, (name, path) in enumerate(sets.items())]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rank0.json"
        _write_long(made, options.long * 10**6)
        rows.append(_timed(made, options.hta, options.long))
        rows.append(_hang(Path(folder) / "train.log"))
    notes = [
        "shares in percent of the typical step; off: the largest difference from plain unions, in points; empty where "
        "the device waits for the data loader, which unions do not show, and for hosts",
        f"seconds: median of {ROUNDS} rounds in turns, each a process of its own",
    ]
    if not theirs:
        notes.append("HolisticTraceAnalysis was not installed")
    return Result("report on traces", rows, notes)


def _row(name: str, path: Path, theirs: dict[str, Any]) -> dict[str, Any]:
    beside = {f"HTA {key}": _told(theirs.get(key, theirs.get("error", ""))) for key in ("compute", "idle")}
    try:
        ranks = read_traces([path])
    except InputError:
        return {"set": name, "culprit": "refused", **beside}
    summary = summarized(ranks)
    shares = {key: 100 * getattr(summary.median, f"{key}_s") / summary.median.step_s for key in KEYS}
    unions, culprit = _unions(path, ranks), summary.culprit
    return {
        "set": name,
        "ranks": len(ranks),
        "step ms": round(summary.median.step_s * 1e3, 3),
        **{key.removesuffix("_comm"): round(share, 1) for key, share in shares.items()},
        "off": round(max(abs(unions[key] - shares[key]) for key in KEYS), 2) if unions else "",
        "culprit": "" if culprit is None else f"rank {culprit.rank}",
        **beside,
    }


def _told(value: float | str) -> float | str:
    return value if isinstance(value, str) else "" if math.isnan(value) else round(value, 1)


def _timed(path: Path, python: str, megabytes: int) -> dict[str, Any]:
    """Return seconds and peak memory of both tools on one long trace."""
    peaks: dict[str, float] = {}

    def measure(name: str, program: str, interpreter: str) -> float:
        found = _program(program, interpreter, path)
        peaks[name] = found[0]["peak"] if found else 0.0
        return found[0]["s"] if found else 0.0

    contestants = {
        "ours": lambda: measure("ours", OURS, sys.executable),
        "theirs": lambda: measure("theirs", THEIRS, python),
    }
    medians, _ = alternating_medians(contestants, ROUNDS)
    return {
        "set": f"made here, {megabytes} MB",
        "s": round(medians["ours"], 2),
        "HTA s": round(medians["theirs"], 2) or "",
        "MiB": round(peaks["ours"] / 2**20),
        "HTA MiB": round(peaks["theirs"] / 2**20) or "",
    }


def _hang(path: Path) -> dict[str, Any]:
    """Return how long the verdict on 10,000 lines of 1,024 ranks takes; InputError would end the benchmark."""
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=10, NumelOut=10,"
    lines = [f"[rank{rank}]: step {step} loss 2.1" for step in range(9) for rank in range(1024)]
    lines += [
        f"[rank{rank}]:[E1120 10:20:00.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] {said} Timeout(ms)=600000) ran for"
        " 600040 milliseconds before timing out."
        for rank in range(1024)
        if rank != 517
    ]
    path.write_text("\n".join(lines) + "\n")
    found = [_program(HANG, sys.executable, path)[0] for _ in range(ROUNDS)]
    return {
        "set": f"doctor --logs, {len(lines):,} lines of 1,024 ranks",
        "culprit": "rank 517",
        "s": round(statistics.median(one["s"] for one in found), 2),
        "MiB": round(max(one["peak"] for one in found) / 2**20),
    }


def _program(program: str, python: str, *paths: Path) -> list[dict[str, Any]]:
    """Return what a program printed of paths; nothing if it could not run."""
    command = [python, "-c", program, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


def _unions(path: Path, ranks: Sequence[Sequence[RankTrace]]) -> dict[str, float] | None:
    """Return the shares by plain unions over the raw events, in the steps that `report` found; None where it cannot."""
    traces = [trace for cycles in ranks for trace in cycles]
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if len(files) != len(traces) or any(file.suffix != ".json" for file in files):
        return None
    if any(trace.device == "host" or len(trace.host.data) for trace in traces):
        return None
    by_source = {trace.source: trace for trace in traces}
    found = [one for file in files for one in _shares_of_file(file, by_source[str(file)])]
    return {key: statistics.median(one[key] for one in found) for key in KEYS} if found else None


def _shares_of_file(file: Path, trace: RankTrace) -> list[dict[str, float]]:
    document = json.loads(file.read_bytes().decode("utf-8", "replace"))
    events = document["traceEvents"] if isinstance(document, dict) else document
    kinds = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
    device = [event for event in events if str(event.get("cat", "")).lower() in kinds and event.get("dur", -1) >= 0]
    if not device:
        return []
    zero = min(event["ts"] for event in device)
    lanes: tuple[list[Interval], list[Interval], list[Interval]] = ([], [], [])  # compute, communication, all
    for event in device:
        start, end = (event["ts"] - zero) * 1e-6, (event["ts"] + event["dur"] - zero) * 1e-6
        lanes[2].append((start, end))
        if event["cat"].lower() == "kernel":
            reduces = communicates(event["name"]) or "Collective name" in event.get("args", {})
            lanes[int(reduces)].append((start, end))
    return [_shares_of_window(lanes, window) for window in trace.windows]


def _shares_of_window(lanes: Sequence[Sequence[Interval]], window: Window) -> dict[str, float]:
    cut = [[(max(a, window.start_s), min(b, window.end_s)) for a, b in lane] for lane in lanes]
    compute, comm, every = ([(a, b) for a, b in lane if b > a] for lane in cut)
    hidden_s = overlap_s(compute, comm)
    parts_s = (length_s(compute), length_s(comm) - hidden_s, hidden_s, window.length_s - length_s(every))
    return {key: 100 * part_s / window.length_s for key, part_s in zip(KEYS, parts_s, strict=True)}


def _write_long(path: Path, size_bytes: int) -> None:
    """Write a trace as Kineto prints it: operators, launches, kernels and a reduction now and then, in eight steps."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}, "traceEvents": [\n')
        begun, number = 0.0, 0
        for step in range(8):
            now = begun
            while file.tell() < size_bytes * (step + 1) / 8:
                number += 1
                file.write("".join(json.dumps(event, indent=2) + ",\n" for event in _launched(number, now)))
                now += 20.0
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
            file.write(json.dumps(mark | {"ts": begun, "dur": now - begun}) + ("" if step == 7 else ",\n"))
            begun = now
        file.write("]}\n")


def _launched(number: int, now: float) -> list[dict[str, Any]]:
    reduces = number % 50 == 0
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)" if reduces else "gemm_bf16"
    ids = {"External id": number, "correlation": number}
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    place = {"device": 0, "stream": 20 if reduces else 7, "grid": [1024, 1, 1], "block": [256, 1, 1]}
    host = {"ph": "X", "pid": 1, "tid": 1}
    return [
        {**host, "cat": "cpu_op", "name": "aten::mm", "ts": now, "dur": 9.5, "args": ids | shapes},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": now + 2, "dur": 4, "args": ids},
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": place["stream"], "ts": now + 8,
         "dur": 30 if reduces else 15, "args": ids | place},
    ]  # fmt: skip
