"""Does the planner choose right? Every layout of a small decoder on an emulated 2 x 4 cluster, beside its prediction.

For each NIC rate the ranks measure single operators (all ranks busy) and collectives along each axis of the mesh (all
groups of the axis at once); each layout is priced from those alone, as `meshwright train` prices it. Then the engines
that `meshwright train` runs take their steps, all layouts in turn. That is a round; medians of several count. Where all
layouts are slow in a turn, that is the machine's pace and no layout's own: it is taken out of what they took.

All of it takes three quarters of an hour. `--minutes 4` is one rate and one round: layouts are priced one after the
other for half of that time and run for the rest, and jobs that were not reached are named.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Result
from meshwright.layout import Layout

NODES, RANKS_PER_NODE = 2, 4
LAYOUTS = (
    *("dp=8,mbs=1", "dp=8,mbs=2", "dp=8,mbs=2,recompute=full", "dp=8,mbs=2,zero=1", "dp=8,mbs=2,zero=2"),
    *("dp=8,mbs=1,zero=3", "dp=8,mbs=2,zero=3", "tp=2,dp=4,mbs=2", "tp=2,dp=4,mbs=4", "tp=2,dp=4,mbs=4,sp=1"),
    *("tp=2,dp=4,mbs=4,zero=1", "tp=4,dp=2,mbs=8", "tp=4,dp=2,mbs=8,sp=1", "tp=4,dp=2,mbs=8,zero=3", "tp=8,mbs=16"),
    *("cp=2,dp=4,mbs=4", "cp=4,dp=2,mbs=8", "tp=2,dp=4,mbs=4,order=dp-tp-cp-pp", "pp=2,dp=4,mbs=1", "pp=2,dp=4,mbs=2"),
    *("pp=4,dp=2,mbs=1", "pp=4,dp=2,mbs=2", "tp=4,pp=2,mbs=4"),
)
MODEL = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128,
}
GLOBAL_BATCH, SEQ_LEN = 16, 128
CLEARLY = 3.0  # times the spread of repeats: layouts that differ by more are ordered


def run(arguments: list[str]) -> Result:
    """Run all layouts at every rate; return predicted and measured figures and the planner's verdicts."""
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for nic in options.nic:
        mine = _rows(nic, _emulated(nic, options))
        rows += mine
        notes += [f"{nic}: {line}" for line in judged(mine)]
        missed = [text for text in options.layouts if not any(same(text, row["layout"]) for row in mine)]
        notes += [f"{nic}: left out, since --minutes were over: {', '.join(missed)}"] if missed else []
        print(*notes[-4:], sep="\n", file=sys.stderr, flush=True)  # a rate takes a quarter of an hour
    return Result(f"a small decoder on {NODES} x {RANKS_PER_NODE} emulated ranks: predicted and measured", rows, notes)


def judged(rows: list[dict[str, Any]]) -> list[str]:
    """Return how good the planner was at one rate: its choice, its order, its errors."""
    chosen = min(rows, key=lambda row: row["predicted_ms"])
    best = min(rows, key=lambda row: row["measured_ms"])
    regret = chosen["measured_ms"] / best["measured_ms"] - 1
    right = pairs = 0
    for a, b in itertools.combinations(rows, 2):
        apart = abs(a["measured_ms"] - b["measured_ms"])
        if apart > CLEARLY * max(a["spread_ms"], b["spread_ms"]):
            pairs += 1
            right += (a["measured_ms"] < b["measured_ms"]) == (a["predicted_ms"] < b["predicted_ms"])
    errors = sorted(abs(row["error_percent"]) for row in rows)
    memory = sorted(abs(row["memory_error_percent"]) for row in rows)
    return [
        f"chosen {chosen['layout']}, {regret:.1%} behind the best measured ({best['layout']}); target 5 %",
        f"{right} of {pairs} clearly different pairs ordered right; target nine in ten",
        f"step time off by {statistics.median(errors):.0f} % in the median, {errors[-1]:.0f} % at worst; target 15, 25",
        f"peak memory off by {statistics.median(memory):.0f} % in the median, {memory[-1]:.0f} % at worst; target 10",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks planner_choice", description=__doc__)
    parser.add_argument("--nic", type=lambda text: text.split(","), default=["100Mbps", "1Gbps", "10Gbps"])
    parser.add_argument("--layouts", type=lambda text: text.split("|"), default=list(LAYOUTS), help="separated by |")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7, help="of each layout in a round")
    parser.add_argument("--operator-seconds", type=float, default=20.0, help="spent on timing operators in a round")
    parser.add_argument("--minutes", type=float, help="for one rate, 1Gbps unless said, and one round")
    options = parser.parse_args(arguments)
    if options.minutes is not None:
        options.rounds = 1
        options.nic = ["1Gbps"] if options.nic == parser.get_default("nic") else options.nic
        options.operator_seconds = min(options.operator_seconds, 6 * options.minutes)  # a tenth
        options.minutes /= len(options.nic)
        options.layouts = [text for first in range(3) for text in options.layouts[first::3]]  # of every kind first
    return options


def same(text: str, layout: str) -> bool:
    """Return whether a text means the layout of a row."""
    return str(Layout.parse(text, world_size=NODES * RANKS_PER_NODE)) == layout


def _emulated(nic: str, options: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """Run `work` on every rank of an emulated cluster; return what rank 0 found out about each layout, by round."""
    words = [sys.executable, "-m", "meshwright", "emulate", "--nodes", str(NODES)]
    words += ["--ranks-per-node", str(RANKS_PER_NODE), "--nic", nic, "--"]
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        job = {
            "layouts": options.layouts,
            "rounds": options.rounds,
            "steps": options.steps,
            "operator_s": options.operator_seconds,
            "seconds": None if options.minutes is None else 60 * options.minutes,
            "answer": str(answer),
        }
        words += [sys.executable, "-m", "benchmarks.planner_choice", json.dumps(job)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not answer.exists():
            raise SystemExit(f"the emulated ranks failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        found: list[list[dict[str, Any]]] = json.loads(answer.read_text())
        return found


def at_one_pace(taken_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times [..., turns, layouts] without the pace of each turn: that of the median layout, 1 in its median."""
    typical_s = np.median(taken_s.reshape(-1, taken_s.shape[-1]), axis=0)
    slowness = np.median(taken_s / typical_s, axis=-1, keepdims=True)
    return taken_s / slowness


def _rows(nic: str, rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    turns_s = at_one_pace(np.array([[item["taken_s"] for item in each] for each in rounds]).swapaxes(1, 2))
    for each, taken_s in zip(zip(*rounds, strict=True), np.moveaxis(turns_s, -1, 0), strict=True):
        predicted_s, predicted_bytes, measured_bytes = (
            statistics.median(item[name] for item in each)
            for name in ("predicted_s", "predicted_bytes", "measured_bytes")
        )
        measured_s, repeats_s = float(np.median(taken_s)), np.median(taken_s, axis=1)
        rows.append(
            {
                "nic": nic,
                "layout": each[0]["layout"],
                "predicted_ms": 1e3 * predicted_s,
                "measured_ms": 1e3 * measured_s,
                "spread_ms": 1e3 * float(np.ptp(repeats_s)),
                "error_percent": 100 * (predicted_s / measured_s - 1),
                "predicted_MiB": predicted_bytes / 2**20,
                "memory_error_percent": 100 * (predicted_bytes / measured_bytes - 1),
            }
        )
    return rows


def work(job: dict[str, Any]) -> None:
    """Measure, price and run on one rank of the emulated cluster; rank 0 writes the answer."""
    import torch.distributed as dist

    from benchmarks.planner_choice_rank import Rank
    from meshwright.bench.ranks.process import prepare_process

    prepare_process(1)
    dist.init_process_group("meshwright")
    rank = Rank(MODEL, GLOBAL_BATCH, SEQ_LEN, job["seconds"])
    found = [rank.round(job["layouts"], job["operator_s"], job["steps"]) for _ in range(job["rounds"])]
    if dist.get_rank() == 0:
        Path(job["answer"]).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work(json.loads(sys.argv[1]))
