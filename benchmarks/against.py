"""The backend beside an older commit of itself, launch by launch.

Without `--steps`: small collectives and a DDP step between two ranks; by default the commit is the last one in which
ranks did not compare what they call: what all checks cost is seen. With `--steps`: what users wait for, the steps of
the benchmark of that name and of the default job of `meshwright train`.
The older package lies in a git worktree as long as the benchmark runs. A launch has one of the two; which one begins
alternates. Figures are medians over launches of the slower rank; `over_before` is the median of neighbours' ratios.
Options: --commit NAME, --launches N (of each), --steps, --hidden 256 768.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.result import Result

HERE = Path(__file__).resolve().parents[1]
BEFORE_THE_CHECKS = "6896c94"
PATIENCE_S = 300.0  # with a launch
STEPS = (("ddp", 2), ("ddp", 4), ("fsdp2", 2), ("fsdp2", 4), ("1f1b", 2), ("1f1b", 4))


def run(arguments: list[str]) -> Result:
    """Return one row for each call and the step."""
    parser = argparse.ArgumentParser(prog="benchmarks against")
    parser.add_argument("--commit", default=BEFORE_THE_CHECKS)
    parser.add_argument("--launches", type=int, default=12)
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 768])
    options = parser.parse_args(arguments)
    measure = (lambda tree: _steps(tree, options.hidden)) if options.steps else _calls
    with tempfile.TemporaryDirectory() as folder:
        older = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(older), options.commit)
        try:
            trees = {"before": older, "now": HERE}
            for tree in trees.values():
                _launch(tree, 2, "ddp", 64)  # builds what is written in C
            launches: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
            for turn in range(options.launches):
                for name in list(trees)[:: -1 if turn % 2 else 1]:
                    launches[name].append(measure(trees[name]))
        finally:
            _git("worktree", "remove", "--force", str(older))
    rows = [_row(name, launches) for name in launches["now"][0]]
    notes = [f"medians of {options.launches} launches of each in turns; before: commit {options.commit}"]
    return Result("beside an older commit", rows, notes, keys=("call",))


def _row(name: str, launches: dict[str, list[dict[str, float]]]) -> dict[str, str | float]:
    """Return the figures of one call."""
    before, now = ([one[name] for one in launches[tree]] for tree in ("before", "now"))
    ratios = sorted(after / first for first, after in zip(before, now, strict=True))
    return {
        "call": name,
        "before_us": round(statistics.median(before) * 1e6, 2),
        "now_us": round(statistics.median(now) * 1e6, 2),
        "over_before": round(statistics.median(ratios), 3),
        "least": round(ratios[0], 3),
        "most": round(ratios[-1], 3),
    }


def _calls(tree: Path) -> dict[str, float]:
    """Return the seconds of small calls and of a DDP step, between two ranks."""
    return _launch(tree, 2)


def _steps(tree: Path, widths: list[int]) -> dict[str, float]:
    """Return the seconds of a step of each kind, number of ranks and width, and of the default job."""
    seconds = {
        f"{kind}, {ranks} ranks, hidden {hidden}": _launch(tree, ranks, kind, hidden)["step"]
        for kind, ranks in STEPS
        for hidden in widths
    }
    return seconds | {"default job, dp=2": _default_job(tree)}


def _launch(tree: Path, ranks: int, *kind: str | int) -> dict[str, float]:
    """Start the ranks over the package of a tree; return the seconds of each call on the slowest one."""
    program, source = str(HERE / "benchmarks" / "against_rank.py"), str(tree / "src")
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, program, str(rank), str(ranks), folder, source, *map(str, kind)] for rank in range(ranks)
        ]
        children = [subprocess.Popen(command, env=_environment(source)) for command in commands]
        codes = [child.wait(PATIENCE_S) for child in children]
        if any(codes):
            raise SystemExit(f"a rank over {tree} failed")
        told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]
    return {name: max(one[name] for one in told) for name in told[0]}


def _default_job(tree: Path) -> float:
    """Return the seconds of a step of the default job over two ranks, as its own verdict has them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "meshwright", "train", "--layout", "dp=2", "--steps", "80", "--json"]
        done = subprocess.run(
            [*command, "--backend", "meshwright", "--run-dir", str(Path(folder) / "run")],
            env=_environment(str(tree / "src")) | {"XDG_CACHE_HOME": folder},
            stdout=subprocess.PIPE, check=True, cwd=folder,
        )  # fmt: skip
    return float(json.loads(done.stdout)["measured"]["step_time_s"])


def _environment(source: str) -> dict[str, str]:
    """Return what a launch over the package in `source` has."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{source}{os.pathsep}{HERE}"}
    # the installed entry point may be of another commit
    return environment | {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(HERE), *arguments], check=True, capture_output=True)
