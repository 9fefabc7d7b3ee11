"""Asynchronous data parallelism beside synchronous: equal losses, a straggler, a slow link, killed workers.

Parts (`--part`, default all): `equal` losses of staleness 0 and of local SGD with H = 1 beside those of DDP;
`straggler` one of four workers three times slower by a sleep; `link` two emulated nodes of two ranks with a 100 Mb/s
link (needs network namespaces); `quality` held-out loss after as many tokens; `faults` workers killed at random
instants. Each is a job of `meshwright train` as a user would start it; runs stay in `--runs` for a look at their
reports. Rows of other parts are kept. `--modes` picks some of a part's contestants, `--plot` draws the straggler's
losses into docs/.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.result import DOCS, Result, describe_machine, known_rows

RANKS = 4
SLOWNESS = 3.0
SYNC = {"mode": "sync"}
PATIENT = {"silence_s": 30.0}  # where no fault is tried, a late heartbeat is the machine's
MODES: dict[str, dict[str, Any]] = {
    "sync": SYNC,
    "s = 1": {"mode": "parameter_server", "staleness": 1, **PATIENT},
    "s = 4": {"mode": "parameter_server", "staleness": 4, **PATIENT},
    "s = inf": {"mode": "parameter_server", "staleness": "unbounded", **PATIENT},
    "H = 10": {"mode": "diloco", "sync_every": 10, **PATIENT},
    "H = 50": {"mode": "diloco", "sync_every": 50, **PATIENT},
}
ISLANDS = {"mode": "diloco", "sync_every": 50, "island": 2, **PATIENT}
AVERAGED = (  # no outer momentum, inner steps half as long
    ISLANDS | {"outer_learning_rate": 1.0, "outer_momentum": 0.0, "stream": False},
    {"learning_rate": 0.0017},
)
MEGABIT = 1e6 / 8
KILLS = 10


class Runner:
    """Runs jobs as subprocesses, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def config(self, name: str, settings: dict[str, Any], train: dict[str, Any], **other: dict[str, Any]) -> Path:
        """Write the job's file."""
        launch = {"ranks": RANKS, "layout": "dp=4,mbs=2", "backend": "gloo"} | other.pop("launch", {})
        sections = {"train": {"checkpoint_every": 0} | train, "launch": launch, "data_parallel": settings, **other}
        lines = []
        for section, keys in sections.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self, name: str, path: Path, *, pauses: str = "", prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start a job; with `prefix`, a launcher that starts each rank."""
        subprocess.run(["rm", "-rf", str(self.folder / name)], check=True)
        module = "meshwright.train" if prefix else "meshwright"
        command = [sys.executable, "-m", module, *(() if prefix else ("train",)), str(path)]
        environment = os.environ | {"MESHWRIGHT_PAUSE": pauses}
        log = (self.folder / f"{name}.log").open("w")
        arguments = [*prefix, *command, "--run-dir", str(self.folder / name)]
        return subprocess.Popen(arguments, stdout=log, stderr=log, text=True, env=environment)

    def run(self, name: str, path: Path, **options: Any) -> list[dict[str, Any]]:
        """Run a job to its end and return its rows."""
        process = self.start(name, path, **options)
        if process.wait():
            raise RuntimeError(f"{name} failed: {(self.folder / f'{name}.log').read_text()[-2000:]}")
        return self.rows(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows that a job has written so far."""
        path = self.folder / name / "metrics.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


def run(arguments: list[str]) -> Result:
    """Run the parts that were asked for."""
    parts = {"equal": equal, "straggler": straggler, "link": link, "quality": quality, "faults": faults}
    parser = argparse.ArgumentParser(prog="python -m benchmarks async")
    parser.add_argument("--part", choices=[*parts, "all"], default="all")
    parser.add_argument("--steps", type=int, default=0, help="of each run; default: the part's own")
    parser.add_argument("--modes", default="", help="contestants to run, separated by commas; others' last runs count")
    parser.add_argument("--runs", type=Path, default=Path("runs/async"))
    parser.add_argument("--sleep", type=float, default=0.1, help="seconds of each share that stand for an accelerator")
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args(arguments)
    runner = Runner(options.runs)
    rows: list[dict[str, Any]] = []
    commit = describe_machine()["commit"]
    for name, part in parts.items():
        if options.part in (name, "all"):
            # what else the machine does: at more than its cores, times are those of a machine shared with others
            told = {"commit": commit, "load_before": round(os.getloadavg()[0], 1)}
            rows += [{"part": name} | row | told for row in part(runner, options)]
        else:
            rows += [row for row in known_rows("async") if row["part"] == name]
    return Result(
        "Asynchronous data parallelism",
        rows,
        ["the default job, 4 ranks, global batch 8 sequences of 128 bytes"],
    )


def equal(runner: Runner, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare the losses of 20 steps: float32, on whatever the jobs run on (float64 and 1e-10 are in the tests)."""
    train = {"steps": options.steps or 20}
    plain = {"optimizer": {"kind": "sgd", "max_grad_norm": 0.0, "learning_rate": 0.1}}
    ours = {"launch": {"backend": "meshwright"}}  # sums in the order of the ranks, as the servers do
    pairs = {
        "staleness 0": (MODES["s = 1"] | {"staleness": 0}, ours),
        "local SGD, H = 1, plain SGD": (
            {"mode": "local_sgd", "sync_every": 1, "adapt": False, "stream": False, **PATIENT},
            ours | plain,
        ),
    }
    found = []
    for number, (name, (settings, other)) in enumerate(pairs.items()):
        losses = []
        for kind, mode in (("sync", SYNC), ("async", settings)):
            label = f"equal-{number}-{kind}"
            path = runner.config(label, mode, train, **{k: dict(v) for k, v in other.items()})
            losses.append([row["loss"] for row in runner.run(label, path)])
        worst = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
        found.append({"what": name, "relative_difference": worst})
    return found


def straggler(runner: Runner, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run each mode with one slow worker; a sleep in each share stands for an accelerator."""
    from meshwright.plan.search.asynchronous import AsynchronousMode, Surroundings, price_mode

    chosen = options.modes.split(",") if options.modes else list(MODES)
    found = []
    planned: dict[str, float] = {}
    sleeps = tuple(options.sleep * (SLOWNESS if rank == RANKS - 1 else 1) for rank in range(RANKS))
    pauses = ",".join(f"{rank}:{sleep:g}" for rank, sleep in enumerate(sleeps))
    around = Surroundings(parameters=0, compute_s=sleeps, bandwidth_bytes_per_s=1e9)
    for name, settings in MODES.items():
        known = set(AsynchronousMode.__struct_fields__)
        keys = {key: value for key, value in settings.items() if key in known}
        if keys.get("staleness") == "unbounded":
            keys["staleness"] = None
        planned[name] = price_mode(AsynchronousMode(**keys), around).step_time_s
        label = f"straggler-{name.replace(' ', '')}"
        if name in chosen:
            steps = options.steps or 15 * settings.get("sync_every", 0) or 150  # who is slow shows in the first rounds
            path = runner.config(label, settings, {"steps": steps, "validate_every": 50})
            runner.run(label, path, pauses=pauses)
        rows = runner.rows(label)
        if not rows or not runner.rows("straggler-sync"):
            continue
        found.append(
            {
                "what": name,
                "tokens_per_s": round(_tokens_per_s(rows)),
                "over_sync": round(_tokens_per_s(rows) / _tokens_per_s(runner.rows("straggler-sync")), 2),
                "planned_over_sync": round(planned["sync"] / planned[name], 2),
                "held_out_loss": round(rows[-1]["validation_loss"], 4),
                "staleness_mean": round(sum(r.get("staleness_mean", 0) for r in rows) / len(rows), 2),
                "staleness_max": max(r.get("staleness_max", 0) for r in rows),
            }
        )
    if options.plot:
        _plot(runner)
    return found


def link(runner: Runner, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run DDP on Gloo and DiLoCo over two emulated nodes with a slow link; compare bytes with the plan's."""
    from meshwright.plan.search.asynchronous import AsynchronousMode, Surroundings, run_bytes

    emulate = (
        sys.executable,
        "-m",
        "meshwright",
        "emulate",
        "--nodes",
        "2",
        "--ranks-per-node",
        "2",
        "--nic",
        "100Mbps",
    )
    found = []
    contestants = {
        "DDP on Gloo": (SYNC, 40),
        "DiLoCo H = 50": (MODES["H = 50"], 400),
        "in islands": (ISLANDS, 400),
        "averaged islands": (AVERAGED[0], 400),
    }
    base = 0.0
    for name, (settings, steps) in contestants.items():
        label = f"link-{name.replace(' ', '').replace('=', '')}"
        path = runner.config(label, settings, {"steps": options.steps or steps, "validate_every": 10**6})
        rows = runner.run(label, path, prefix=(*emulate, "--"))
        base = base or _tokens_per_s(rows)
        row = {
            "what": name,
            "tokens_per_s": round(_tokens_per_s(rows)),
            "over_ddp": round(_tokens_per_s(rows) / base, 2),
        }
        if settings is not SYNC:
            workers = RANKS // settings.get("island", 1)
            mode = AsynchronousMode(mode="diloco", sync_every=settings["sync_every"])
            around = Surroundings(
                parameters=_parameters(), compute_s=(0.1,) * workers, bandwidth_bytes_per_s=100 * MEGABIT
            )
            planned = run_bytes(mode, around, steps=len(rows), validations=0)
            measured = sum(r["moved_bytes"] for r in rows)
            row |= {
                "moved_MB": round(measured / 1e6, 2),
                "planned_MB": round(planned / 1e6, 2),
                "bytes_off_percent": round((measured / planned - 1) * 100, 2),
            }
        found.append(row)
    return found


def quality(runner: Runner, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the default job to its end, synchronously and as DiLoCo; the losses do not depend on the network.

    The default job's 26 rounds are too few for the outer momentum of the published setting, and half its batch is
    little for the learning rate of the whole: `AVERAGED` is what a short job on two nodes takes instead.
    """
    steps = options.steps or 1300
    contestants: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "DDP": (SYNC, {}),
        "DiLoCo H = 50": (MODES["H = 50"], {}),
        "in islands": (ISLANDS, {}),
        "averaged islands": AVERAGED,
    }
    found = []
    base = 0.0
    for name, (settings, optimizer) in contestants.items():
        label = f"quality-{''.join(character for character in name if character.isalnum())}"
        if not options.modes or name in options.modes.split(","):
            path = runner.config(label, settings, {"steps": steps, "validate_every": 100}, optimizer=optimizer)
            runner.run(label, path)
        rows = runner.rows(label)
        if not rows:
            continue
        loss = rows[-1]["validation_loss"]
        base = base or loss
        found.append({"what": name, "held_out_loss": round(loss, 4), "over_ddp": round(loss / base, 4)})
    return found


def faults(runner: Runner, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill a random worker at random instants of one run a mode; see when the others and the new one go on."""
    found = []
    modes = {
        "s = 4": {"mode": "parameter_server", "staleness": 4},
        "H = 5": {"mode": "diloco", "sync_every": 5},
    }
    for name, settings in modes.items():
        rng = random.Random(0)
        label = f"faults-{name.replace(' ', '')}"
        launch = {"max_restarts": KILLS}
        path = runner.config(label, settings, {"steps": options.steps or 4000, "validate_every": 10**6}, launch=launch)
        process = runner.start(label, path)
        gaps, returns = [], []
        _await(lambda label=label: len(runner.rows(label)) > 20, process, 200)
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.2, 1.5))
            rank = rng.randrange(RANKS)
            place = runner.folder / label / "ranks" / f"{rank}.json"
            _await(lambda place=place: _lives(place), process, 60)  # one that was killed before writes it anew
            before = len(runner.rows(label))
            joins = _joins(runner, label)
            start = time.monotonic()
            os.kill(json.loads(place.read_text())["pid"], signal.SIGKILL)
            # of the next row, part may have been done before
            gaps.append(_await(lambda n=before, label=label: len(runner.rows(label)) > n + 1, process, 60) - start)
            returns.append(_await(lambda n=joins, label=label: _joins(runner, label) > n, process, 60) - start)
        process.send_signal(signal.SIGTERM)
        found.append(
            {
                "what": f"{KILLS} kills, {name}",
                "others_go_on_s": round(max(gaps), 2),
                "median_s": round(sorted(gaps)[KILLS // 2], 2),
                "back_in_s": round(max(returns), 2),
                "exit_code": process.wait(),
            }
        )
    return found


def _await(condition: Any, process: subprocess.Popen[str], timeout_s: float) -> float:
    """Wait until something is so; return when it was."""
    end = time.monotonic() + timeout_s
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the run ended with {process.poll()}, or {timeout_s} s were over")
        time.sleep(0.02)
    return time.monotonic()


def _lives(place: Path) -> bool:
    return Path(f"/proc/{json.loads(place.read_text())['pid']}").exists()


def _joins(runner: Runner, label: str) -> int:
    texts = [path.read_text() for path in (runner.folder / label / "events").glob("*.jsonl")]
    return sum(text.count('"kind":"joined"') for text in texts)


def _tokens_per_s(rows: list[dict[str, Any]]) -> float:
    """Return the tokens a second after the first tenth of a run."""
    counted = rows[len(rows) // 10 :]
    tokens = sum(row["tokens_per_s"] * row["step_time_s"] for row in counted)
    return tokens / sum(row["step_time_s"] for row in counted)


def _parameters() -> int:
    from meshwright.train.asynchronous.predict import parameters
    from meshwright.train.job.config import JobConfig

    return parameters(JobConfig())


def _plot(runner: Runner) -> None:
    """Draw the straggler's losses over time and over tokens."""
    from benchmarks.plots import lines_svg

    over_time, over_tokens = {}, {}
    for name in MODES:
        rows = runner.rows(f"straggler-{name.replace(' ', '')}")
        if not rows:
            continue
        elapsed = tokens = 0.0
        points = []
        for row in rows:
            elapsed += row["step_time_s"]
            tokens += row["step_time_s"] * row["tokens_per_s"]
            points.append((elapsed, tokens / 1e3, row["loss"]))
        smooth = [sum(p[2] for p in points[max(0, i - 9) : i + 1]) / min(i + 1, 10) for i in range(len(points))]
        over_time[name] = [(p[0], loss) for p, loss in zip(points, smooth, strict=True)]
        over_tokens[name] = [(p[1], loss) for p, loss in zip(points, smooth, strict=True)]
    for label, series, x in (("time", over_time, "seconds"), ("tokens", over_tokens, "thousand tokens")):
        svg = lines_svg(series, x=x, y="training loss (mean of 10 steps), nats per token")
        (DOCS / f"asynchronous-{label}.svg").write_text(svg)
