"""The flight on one GPU: what this machine is, what it computes and copies, whether predictions hold, and beside whom.

Each part is a process of its own with its share of the time that is left. What a part printed is saved as soon as it
ends, and the flight goes on after one that failed. Without an accelerator every part runs all the same, with sizes of
a toy on the fake one of the tests, so that the program is known to work; the table then says that nothing was measured.

Options: --minutes N (default 9), --parts NAME,... (default all), --to DIR for what the parts print (default
build/gpu).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.result import Result, describe_machine
from meshwright import device
from testkit.fake.autoload import installed

Row = dict[str, Any]
MESHWRIGHT = "from meshwright.cli import main; main()"
MOST_RECORDING = 0.01  # of a step that our recorder may cost
TOY = ("model.hidden_size=32", "model.intermediate_size=48", "model.num_hidden_layers=2", "data.seq_len=32")


class Flight(NamedTuple):
    """Where a flight writes, and whether it measures."""

    folder: Path
    real: bool  # on an accelerator
    environment: dict[str, str]  # of every part's process

    def settings(self) -> list[str]:
        """Return the options of a training job: the default one, or that of a toy."""
        return [] if self.real else [word for each in TOY for word in ("--set", each)]

    def meshwright(self, *arguments: str, left_s: float, good: tuple[int, ...] = (0,)) -> str:
        """Return what a command of meshwright prints; Failed where it exits otherwise or does not end in time."""
        return self.python("-c", MESHWRIGHT, *arguments, left_s=left_s, good=good)

    def python(self, *arguments: str, left_s: float, good: tuple[int, ...] = (0,)) -> str:
        """Return what a Python program prints; Failed where it exits otherwise or does not end in time."""
        command = [sys.executable, *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=max(1.0, left_s), env=self.environment
            )
        except subprocess.TimeoutExpired:
            raise Failed("did not end in its time") from None
        if done.returncode not in good:
            raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        return done.stdout

    def device_name(self) -> str:
        """Return what the driver calls the device of this flight, as the programs of its parts see it."""
        code = "from meshwright import device; print(device.name())"
        return self.python("-c", code, left_s=60.0).splitlines()[-1]


class Failed(Exception):
    """A part's program ended otherwise than it should; the message is its last line."""


def environment(flight: Flight, left_s: float) -> list[Row]:
    """Write the report of the machine that may be sent to us."""
    path = flight.folder / "machine.json"
    flight.meshwright("doctor", "--report", str(path), left_s=left_s, good=(0, 1))  # 1: a check has found something
    found = json.loads(path.read_text())
    names = [each["name"] for each in found["accelerators"]]
    return [{"quantity": "devices", "value": ", ".join(names) or "none"}] + [
        {"quantity": name, "value": version} for name, version in found["versions"].items()
    ]


def topology(flight: Flight, left_s: float) -> list[Row]:
    """Show the machine's devices, links and traps."""
    found = json.loads(flight.meshwright("topo", "--json", left_s=left_s))
    return [{"quantity": name, "value": len(found[name])} for name in ("devices", "links", "warnings")]


def compute(flight: Flight, left_s: float) -> list[Row]:
    """Time matrix products and copies, hold the best against the datasheet, and write the curves as TOML."""
    rows, found = [], {}
    for what in ("compute", "memory"):
        rates = [
            json.loads(line)
            for line in flight.meshwright("bench", what, "--json", left_s=left_s / 2).splitlines()
            if line
        ]
        (flight.folder / f"{what}.json").write_text(json.dumps(rates, indent=1) + "\n")
        key, unit = ("flops_per_s", "TFLOP/s") if what == "compute" else ("copy_bytes_per_s", "TB/s copied")
        found[what] = [rate for rate in rates if key in rate]
        for dtype in dict.fromkeys(rate.get("dtype", "") for rate in found[what]):
            best = max(rate[key] for rate in found[what] if rate.get("dtype", "") == dtype)
            rows.append({"quantity": f"best {what} {dtype}".rstrip(), "value": best / 1e12, "unit": unit})
    machine = describe_machine()
    source = f"python -m benchmarks gpu, torch {machine['torch']}, commit {machine['commit'] or 'unknown'}"
    text = curves_toml(flight.device_name(), found["compute"], found["memory"], source)
    (flight.folder / "curves.toml").write_text(text)
    return rows


def curves_toml(name: str, products: Sequence[Row], copies: Sequence[Row], source: str) -> str:
    """Return what one device was measured to reach, by shape and by size, as TOML with its source."""
    head = f"# rates that were measured on one device; none of them is a peak\ndevice = {json.dumps(name)}\n"
    lines = [head + f"source = {json.dumps(source)}"]
    for table, rates in (("products", products), ("copies", copies)):
        for rate in rates:
            values = "\n".join(f"{key} = {json.dumps(value)}" for key, value in rate.items())
            lines.append(f"[[{table}]]\n{values}")
    return "\n\n".join(lines) + "\n"


def training(flight: Flight, left_s: float) -> list[Row]:
    """Plan the default job on this machine, run it, and put prediction and measurement side by side."""
    return _predicted_and_measured(flight, flight.folder / "run", ["--recalibrate"], left_s)


def float8(flight: Flight, left_s: float) -> list[Row]:
    """Do the same in fp8, where the device multiplies it and torchao is installed: else `train` says what is lacking.

    The fake device has torchao emulate the products.
    """
    precision = "fp8" if flight.real else "fp8-emulated"
    options = ["--set", f"train.precision={precision}"]
    return _predicted_and_measured(flight, flight.folder / "run-fp8", options, left_s)


def _predicted_and_measured(flight: Flight, run: Path, options: Sequence[str], left_s: float) -> list[Row]:
    """Return a row for each part of a step of the default job with some options."""
    steps = "100" if flight.real else "12"
    flight.meshwright(
        *("train", "--ranks", "1", "--steps", steps, "--run-dir", str(run), *options),
        *flight.settings(),
        left_s=left_s,
    )
    predicted, measured = (json.loads((run / f"{name}.json").read_text()) for name in ("predicted", "measured"))
    rows = []
    for part in ("step_time_s", "forward_s", "backward_s", "optimizer_s", "peak_memory_bytes_per_gpu", "mfu"):
        if measured.get(part):
            error = predicted[part] / measured[part] - 1
            rows.append({"quantity": part, "value": measured[part], "predicted": predicted[part], "error": error})
    return rows


def transport(flight: Flight, left_s: float) -> list[Row]:
    """Let four ranks share the device: every algorithm held against a reference, the share of the memory's rate."""
    printed = flight.python("-m", "benchmarks.gpu_transport", left_s=left_s)
    found = json.loads(printed.splitlines()[-1])
    return [
        {"quantity": "algorithms that are exact between four ranks", "value": found["right"]},
        {"quantity": "all_reduce, share of the rate of a copy", "value": found["share"]},
    ]


def profile(flight: Flight, left_s: float) -> list[Row]:
    """Hold what `report` reads from a profiler's trace against our own timeline of the same steps."""
    folder = flight.folder / "profile"
    folder.mkdir(exist_ok=True)
    printed = flight.python("-m", "benchmarks.gpu_profile", str(folder), *flight.settings()[1::2], left_s=left_s)
    ours = json.loads(printed.splitlines()[-1])
    trace, page = folder / "rank0.pt.trace.json", folder / "trace.html"
    theirs = json.loads(flight.meshwright("report", str(trace), "--json", "--output", str(page), left_s=left_s))
    computing_s = sum(ours[part] for part in ("forward_s", "backward_s", "optimizer_s"))
    rows = [
        _beside("step under the profiler, by its trace", theirs["median"]["step_s"], ours["step_time_s"]),
        _beside("computing of that, by its trace", theirs["median"]["compute_s"], computing_s),
    ]
    cost = ours["recorder_on_s"] / ours["recorder_off_s"] - 1
    verdict = "within" if cost <= MOST_RECORDING else "above"
    remark = f"{verdict} the bound of {MOST_RECORDING:.0%}"
    return [*rows, {"quantity": "cost of our recorder, share of a step", "value": cost, "remark": remark}]


def _beside(quantity: str, traced_s: float, recorded_s: float) -> Row:
    """Return the row of what a trace tells, with what our own timeline tells and how far that is off."""
    return {"quantity": quantity, "value": traced_s, "ours": recorded_s, "error": recorded_s / traced_s - 1}


def survival(flight: Flight, left_s: float) -> list[Row]:
    """Kill a training job with SIGKILL after its first checkpoint, and let it go on from there."""
    run, end = flight.folder / "killed", time.monotonic() + left_s
    steps = "400" if flight.real else "25"
    command = [
        *("train", "--ranks", "1", "--steps", steps, "--run-dir", str(run), "--set", "train.checkpoint_every=10"),
        *flight.settings(),
    ]
    job = subprocess.Popen(
        [sys.executable, "-c", MESHWRIGHT, *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=flight.environment,
    )  # fmt: skip
    try:
        while not list(run.glob("checkpoints/step-*/manifest.json")) and job.poll() is None:
            if time.monotonic() > end:
                raise Failed("no checkpoint in its time")
            time.sleep(0.05)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    flight.meshwright("train", "--resume", str(run), left_s=end - time.monotonic())
    losses = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if [row["step"] for row in losses] != list(range(int(steps))):
        raise Failed("steps are missing or doubled after the resume")
    return [{"quantity": "steps after a kill and a resume", "value": len(losses), "remark": "each once"}]


def contest(flight: Flight, left_s: float) -> list[Row]:
    """Train a decoder of 1 B parameters in bf16, compiled, beside plain PyTorch and transformers' Trainer."""
    from benchmarks.gpu_contest import STEPS, run

    toy = [] if flight.real else ["--steps", "2", "--batch", "2", "--tiny"]
    found = run(["--rounds", "1", *toy], flight.environment, left_s / len(STEPS))
    return [
        {
            "quantity": f"tokens/s of {row['contestant']}",
            "value": row["tokens_per_s"],
            "remark": row["remark"],
            "mfu": row["mfu"],
        }
        for row in found.rows
    ]


PARTS: dict[str, Callable[[Flight, float], list[Row]]] = {
    "environment": environment, "topology": topology, "compute": compute, "training": training, "float8": float8,
    "profile": profile,
    "transport": transport, "survival": survival, "contest": contest,
}  # fmt: skip


def run(arguments: list[str]) -> Result:
    """Fly all parts and return a row for each quantity."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--to", type=Path, default=Path("build/gpu"))
    options = parser.parse_args(arguments)
    real = bool(device.count())
    options.to.mkdir(parents=True, exist_ok=True)
    flight = Flight(options.to, real, dict(os.environ) if real else installed(options.to / "fake"))
    names, end, rows = options.parts.split(","), time.monotonic() + 60 * options.minutes, []
    for position, name in enumerate(names):
        left_s = (end - time.monotonic()) / (len(names) - position)
        start = time.monotonic()
        try:
            found = PARTS[name](flight, left_s)
        except (Failed, OSError, ValueError, KeyError) as error:
            found = [{"quantity": "", "value": "", "remark": f"failed: {type(error).__name__}: {error}"}]
        taken_s = time.monotonic() - start
        found = [{"part": name, **row} for row in found]
        (flight.folder / f"{name}.rows.json").write_text(json.dumps(found, indent=1) + "\n")
        rows += found if flight.real else [_tried(name, found, taken_s)]
    what = device.name() if flight.real else "no accelerator: nothing was measured"
    return Result("The flight on one GPU", rows, [what])


def _tried(name: str, found: list[Row], taken_s: float) -> Row:
    """Return the row of a part that has run where there is nothing to measure."""
    failed = [row["remark"] for row in found if str(row.get("remark", "")).startswith(("failed", "not measured"))]
    remark = (
        failed[0]
        if failed
        else f"not measured: no GPU; its program ran with toy sizes on the fake device in {taken_s:.0f} s"
    )
    return {"part": name, "quantity": "", "value": "", "remark": remark}
