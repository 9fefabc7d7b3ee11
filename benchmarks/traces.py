"""`report` on traces beside HolisticTraceAnalysis and beside plain unions of the raw intervals: shares, time, memory.

Every set of tests/unit/traces/data is read, those given as arguments too, and a long trace that is made here (--long
MEGABYTES). A tool runs in a process of its own; HolisticTraceAnalysis in the interpreter that --hta names (it need not
be the one of this project: `pip install HolisticTraceAnalysis`). Shares are percent of the typical step; those of
HolisticTraceAnalysis are of the whole trace of its first rank, for it has no steps there.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.result import Result
from meshwright.errors import InputError
from meshwright.timeline import length_s, overlap_s
from meshwright.traces.model import RankTrace
from meshwright.traces.names import communicates
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

DATA = Path(__file__).parents[1] / "tests" / "unit" / "traces" / "data"
OURS = """
import json, resource, sys, time
from pathlib import Path
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
begun = time.perf_counter()
summarized(read_traces([Path(sys.argv[1])]))
print(json.dumps({"s": time.perf_counter() - begun, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""
THEIRS = """
import json, resource, sys, time, pathlib
from hta.trace_analysis import TraceAnalysis
path = pathlib.Path(sys.argv[1])
files = sorted(path.glob("*.json*")) if path.is_dir() else [path]
begun = time.perf_counter()
analysis = TraceAnalysis(trace_files={rank: str(file) for rank, file in enumerate(files)})
parts = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
took = time.perf_counter() - begun
print(json.dumps({"s": took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
  "compute": float(parts["compute_time_pctg"][0]), "idle": float(parts["idle_time_pctg"][0]),
  "hidden_of_comm": float(overlap["comp_comm_overlap_pctg"][0])}))
"""


def run(arguments: list[str]) -> Result:
    """Read every set with each tool; return a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks traces")
    parser.add_argument("paths", nargs="*", type=Path, help="more files or folders")
    parser.add_argument("--hta", default=sys.executable, help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument(
        "--long", type=int, default=50, metavar="MEGABYTES", help="length of the trace that is made here"
    )
    options = parser.parse_args(arguments)
    sets = {path.name: path for path in sorted(DATA.iterdir()) if path.name not in {"steps", "real_runs"}}
    sets |= {f"real_runs/{path.name}": path for path in sorted((DATA / "real_runs").iterdir())}
    sets |= {f"steps/{path.name}": path for path in sorted((DATA / "steps").iterdir())}
    sets |= {str(path): path for path in options.paths}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rank0.json"
        _write_long(made, options.long * 10**6)
        rows = [
            row
            for name, path in {**sets, f"made here, {options.long} MB": made}.items()
            if (row := _row(name, path, options.hta))
        ]
    notes = ["shares in percent of the typical step; off: the largest difference from plain unions, in points"]
    if all(row["HTA s"] == "" for row in rows):
        notes.append(f"HolisticTraceAnalysis is not installed in {options.hta}, or reads none of these")
    return Result("report on traces", rows, notes)


def _row(name: str, path: Path, python: str) -> dict[str, Any] | None:
    try:
        ranks = read_traces([path])
    except InputError as error:
        return {"set": name, "culprit": f"refused: {str(error).rpartition(': ')[2]}"}
    summary = summarized(ranks)
    shares = {key: 100 * getattr(summary.median, f"{key}_s") / summary.median.step_s for key in KEYS}
    unions = _unions(path, ranks)
    ours, theirs = _measured(OURS, path, sys.executable), _measured(THEIRS, path, python)
    culprit = summary.culprit
    return {
        "set": name,
        "ranks": len(ranks),
        "step ms": round(summary.median.step_s * 1e3, 3),
        **{key.removesuffix("_comm"): round(share, 1) for key, share in shares.items()},
        "off": "" if unions is None else round(max(abs(unions[key] - shares[key]) for key in KEYS), 2),
        "culprit": "" if culprit is None else f"rank {culprit.rank}",
        "HTA compute": round(theirs["compute"], 1) if theirs else "",
        "HTA idle": round(theirs["idle"], 1) if theirs else "",
        "s": round(ours["s"], 2) if ours else "",
        "HTA s": round(theirs["s"], 2) if theirs else "",
        "MiB": round(ours["peak"] / 2**20) if ours else "",
        "HTA MiB": round(theirs["peak"] / 2**20) if theirs else "",
    }


KEYS = ("compute", "exposed_comm", "hidden_comm", "idle")


def _measured(program: str, path: Path, python: str) -> dict[str, float] | None:
    command = [python, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout.strip() else None


def _unions(path: Path, ranks: list[list[RankTrace]]) -> dict[str, float] | None:
    """Return the shares by plain unions over the raw events of one device a file, in the steps that `report` found."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if len(files) != len(ranks) or any(trace.device == "host" for cycles in ranks for trace in cycles):
        return None
    by_file = {trace.source: trace for cycles in ranks for trace in cycles}
    found: dict[str, list[float]] = {key: [] for key in KEYS}
    for file in files:
        if file.suffix != ".json":
            return None
        document = json.loads(file.read_bytes().decode("utf-8", "replace"))
        events = document["traceEvents"] if isinstance(document, dict) else document
        device = [
            e
            for e in events
            if str(e.get("cat", "")).lower().endswith(("kernel", "memcpy", "memset")) and e.get("dur", -1) >= 0
        ]
        if not device:
            return None
        trace, zero = by_file[str(file)], min(e["ts"] for e in device)
        kernels = [e for e in device if "em" not in e["cat"][-6:]]
        compute = [e for e in kernels if not (communicates(e["name"]) or "Collective name" in e.get("args", {}))]
        for window in trace.windows:
            cut = [
                [
                    (
                        max((e["ts"] - zero) * 1e-6, window.start_s),
                        min((e["ts"] + e["dur"] - zero) * 1e-6, window.end_s),
                    )
                    for e in kept
                ]
                for kept in (compute, [e for e in kernels if e not in compute], device)
            ]
            hidden = overlap_s(cut[0], cut[1])
            parts = (length_s(cut[0]), length_s(cut[1]) - hidden, hidden)
            waits = 0.0 if not len(trace.host.data) else None
            if waits is None:
                return None
            for key, part in zip(KEYS, (*parts, window.length_s - length_s(cut[2])), strict=True):
                found[key].append(100 * part / window.length_s)
    return {key: statistics.median(values) for key, values in found.items()}


def _write_long(path: Path, size_bytes: int) -> None:
    """Write a trace as Kineto prints it: operators, launches, kernels and a reduction now and then, in eight steps."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}, "traceEvents": [\n')
        begun, number = 0.0, 0
        for step in range(8):
            now = begun
            while file.tell() < size_bytes * (step + 1) / 8:
                number += 1
                file.write(",\n".join(json.dumps(event, indent=2) for event in _launched(number, now)) + ",\n")
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
    stream = 20 if reduces else 7
    return [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": now, "dur": 9.5, "args": ids | shapes},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": now + 2, "dur": 4, "args": ids},
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": now + 8, "dur": 30 if reduces else 15,
         "args": ids | {"device": 0, "stream": stream, "grid": [1024, 1, 1], "block": [256, 1, 1]}},
    ]  # fmt: skip
