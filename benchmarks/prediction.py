"""Predicted beside measured step time of `meshwright train`: the default job and three others, at 1 and 2 ranks.

Each job is launched as a user launches it and calibrated anew, the rank counts alternating; the figure of a job is
the median over `--rounds` launches. There is no peer but the clock.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.result import Result

JOBS = {
    "default": [],
    "deeper": ["model.num_hidden_layers=12"],
    "wider": ["model.hidden_size=320", "model.num_attention_heads=5", "model.intermediate_size=960"],
    "longer": ["data.seq_len=512", "model.max_position_embeddings=512", "train.global_batch=4"],
}


def run(arguments: list[str]) -> Result:
    """Launch every job on every rank count, in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks prediction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(JOBS))
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    options = parser.parse_args(arguments)
    runs: dict[tuple[str, int], list[dict]] = {}
    for _ in range(options.rounds):
        for name in options.jobs:
            for ranks in options.ranks:
                runs.setdefault((name, ranks), []).append(_launch(JOBS[name], ranks, options.steps))
    rows = []
    for (name, ranks), outcomes in runs.items():
        errors = [o["predicted"]["step_time_s"] / o["measured"]["step_time_s"] - 1 for o in outcomes]
        rows.append(
            {
                "job": name,
                "ranks": ranks,
                "predicted_ms": statistics.median(o["predicted"]["step_time_s"] for o in outcomes) * 1e3,
                "measured_ms": statistics.median(o["measured"]["step_time_s"] for o in outcomes) * 1e3,
                "error_percent": statistics.median(errors) * 100,
                "worst_percent": max(errors, key=abs) * 100,
                "memory_error_percent": statistics.median(
                    o["predicted"]["peak_memory_bytes_per_gpu"] / o["measured"]["peak_memory_bytes_per_gpu"] - 1
                    for o in outcomes
                )
                * 100,
            }
        )
    return Result("predicted beside measured step time", rows, ["target: within 15 % of the measured median"])


def _launch(settings: list[str], ranks: int, steps: int) -> dict:
    """Run one job in a folder that is thrown away; return its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "meshwright", "train", "--json", "--recalibrate"]
        command += ["--run-dir", str(Path(folder) / "run"), "--ranks", str(ranks), "--steps", str(steps)]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
