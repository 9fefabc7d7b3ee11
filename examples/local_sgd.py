"""Local SGD over a slow link: two nodes that exchange their weights rarely, against gradients in every step.

    python examples/local_sgd.py [STEPS]

Two emulated nodes are joined by 2 Mb/s (root or user namespaces are needed). The same small decoder trains with plain
synchronous data parallelism and with local SGD, which exchanges weights every 10 steps while it trains on. You see the
time of a step and the losses: close to each other, at a fraction of the time.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

NIC = "2Mbps"
MODES = {
    "synchronous": "",
    "local SGD": '[data_parallel]\nmode = "local_sgd"\nsync_every = 10\nsilence_s = 30\n',
}
JOB = """[model]
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 1
[train]
global_batch = 4
steps = {steps}
"""


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in MODES.items():
            job, run = Path(folder) / "job.toml", Path(folder) / name.replace(" ", "-")
            job.write_text(JOB.format(steps=steps) + settings)
            words = ["emulate", "--nodes", "2", "--nic", NIC, "--", sys.executable, "-m", "meshwright.train", str(job)]
            done = subprocess.run(
                [sys.executable, "-m", "meshwright", *words, "--run-dir", str(run)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            step_s = statistics.mean(row["step_time_s"] for row in rows[len(rows) // 2 :])
            print(f"{name:<12} {step_s:6.3f} s a step, loss {rows[0]['loss']:.2f} to {rows[-1]['loss']:.2f}")


if __name__ == "__main__":
    main()
