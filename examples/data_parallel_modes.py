"""Every mode of data parallelism trains the same small decoder: they differ in who waits for whom, and what travels.

    python examples/data_parallel_modes.py [STEPS]

You see for each mode how many bytes the two ranks and the servers moved in all, how many steps old a gradient became at
most, and the loss of the last steps: asynchronous modes wait less, local ones and compression send less.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from meshwright.train.run.run_folder import RunFolder

PATIENT = {"silence_s": 30}  # a slow start of a process is no failure here
MODES: dict[str, dict[str, object]] = {
    "synchronous": {},
    "synchronous, int8 gradients": {"compression": "int8"},
    "synchronous, PowerSGD": {"compression": "powersgd", "powersgd_rank": 2},
    "parameter server, staleness 4, bf16": {"mode": "parameter_server", "staleness": 4, "wire": "bf16", **PATIENT},
    "local SGD, every 5 steps": {"mode": "local_sgd", "sync_every": 5, **PATIENT},
    "DiLoCo, every 10 steps, int8": {"mode": "diloco", "sync_every": 10, "wire": "int8", **PATIENT},
}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, mode) in enumerate(MODES.items()):
            run = RunFolder(Path(folder) / str(number))
            train(run, steps, mode)
            rows = run.metric_rows()
            stale = max(row.get("staleness_max", 0) for row in rows)
            loss = statistics.mean(row["loss"] for row in rows[-5:])
            print(
                f"{name:<37} {moved_bytes(run) / 1e6:6.2f} MB in {steps} steps, staleness {stale:.0f}, loss {loss:.2f}"
            )


def train(run: RunFolder, steps: int, mode: dict[str, object]) -> None:
    keys = {f"model.{key}": value for key, value in SMALL.items()}
    keys |= {f"data_parallel.{key}": value for key, value in mode.items()}
    keys |= {"train.global_batch": 4, "train.timeline_steps": steps}
    words = ["--run-dir", str(run.path), "--steps", str(steps), "--layout", "dp=2,mbs=2", "--backend", "gloo"]
    words += [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "train", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def moved_bytes(run: RunFolder) -> float:
    """Return what all ranks sent: counted by the servers, or a ring's share of what the timeline's all-reduces hold."""
    rows = run.metric_rows()
    if "moved_bytes" in rows[-1]:
        return sum(row["moved_bytes"] for row in rows)
    spans = [span for span in run.timeline("measured").spans if span.lane == "comm"]
    ranks = len({span.rank for span in spans})
    return sum(span.bytes for span in spans) * 2 * (ranks - 1) / ranks


if __name__ == "__main__":
    main()
