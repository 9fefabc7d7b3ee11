"""Synchronous training against a parameter server, with a straggler: who waits, and what not waiting costs.

    python examples/sync_against_async.py [STEPS]

The same small decoder trains on two ranks twice; a sleep in every share makes rank 1 four times slower than rank 0. You
see the time of a step, the loss, and how stale the gradients of the parameter server were: synchronous training goes at
the straggler's pace, the parameter server lets the fast rank do more of the work.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODES = {
    "synchronous": {"mode": "sync"},
    "parameter server": {"mode": "parameter_server", "staleness": "unbounded", "silence_s": 30},
}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
PAUSES = {0: 0.2, 1: 0.8}  # seconds of sleep a share, by rank; they outweigh the arithmetic


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"rank 0 takes {PAUSES[0]} s a share, rank 1 {PAUSES[1]} s; a step is two shares")
    with tempfile.TemporaryDirectory() as folder:
        for name, mode in MODES.items():
            rows = train(Path(folder) / name.replace(" ", "-"), steps, mode)
            step_s = statistics.mean(row["step_time_s"] for row in rows[2:])
            stale = max(row.get("staleness_max", 0) for row in rows)
            losses = f"{rows[0]['loss']:.2f} to {rows[-1]['loss']:.2f}"
            print(f"{name:<17} {step_s:5.2f} s a step, loss {losses}, staleness up to {stale}")


def train(run: Path, steps: int, mode: dict[str, object]) -> list[dict[str, float]]:
    """Train and return the rows of metrics.jsonl."""
    keys = {f"model.{key}": value for key, value in SMALL.items()}
    keys |= {f"data_parallel.{key}": value for key, value in mode.items()} | {"train.global_batch": 4}
    words = ["--run-dir", str(run), "--steps", str(steps), "--ranks", "2"]
    words += [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "train", *words],
        capture_output=True, text=True, check=False,
        env={**os.environ, "MESHWRIGHT_PAUSE": ",".join(f"{rank}:{time_s}" for rank, time_s in PAUSES.items())},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    main()
