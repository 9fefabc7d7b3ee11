"""The backend beside an older commit of itself: small collectives and a DDP step between two ranks, launch by launch.

By default the commit is the last one in which ranks did not compare what they call: what all checks cost is seen.
Its package lies in a git worktree as long as the benchmark runs. A launch has one of the two; which one begins
alternates. Figures are medians over launches of the slower rank; `over_before` is the median of neighbours' ratios.
Options: --commit NAME, --launches N (of each).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.against_rank import RANKS
from benchmarks.result import Result

HERE = Path(__file__).resolve().parents[1]
BEFORE_THE_CHECKS = "6896c94"
PATIENCE_S = 300.0  # with a launch


def run(arguments: list[str]) -> Result:
    """Return one row for each call and the step."""
    parser = argparse.ArgumentParser(prog="benchmarks against")
    parser.add_argument("--commit", default=BEFORE_THE_CHECKS)
    parser.add_argument("--launches", type=int, default=12)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        older = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(older), options.commit)
        try:
            trees = {"before": older, "now": HERE}
            for tree in trees.values():
                _launch(tree)  # builds what is written in C
            launches: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
            for turn in range(options.launches):
                for name in list(trees)[:: -1 if turn % 2 else 1]:
                    launches[name].append(_launch(trees[name]))
        finally:
            _git("worktree", "remove", "--force", str(older))
    rows = [_row(name, launches) for name in launches["now"][0]]
    notes = [f"medians of {options.launches} launches of each in turns; {RANKS} ranks; before: commit {options.commit}"]
    return Result("beside an older commit", rows, notes)


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


def _launch(tree: Path) -> dict[str, float]:
    """Start the ranks over the package of a tree; return the seconds of each call on the slower one."""
    program, source = str(HERE / "benchmarks" / "against_rank.py"), str(tree / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source, "CUDA_VISIBLE_DEVICES": ""}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # the installed entry point may be of another commit
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, program]
        children = [subprocess.Popen([*command, str(rank), folder, source], env=environment) for rank in range(RANKS)]
        codes = [child.wait(PATIENCE_S) for child in children]
        if any(codes):
            raise SystemExit(f"a rank over {tree} failed")
        told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(RANKS)]
    return {name: max(one[name] for one in told) for name in told[0]}


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(HERE), *arguments], check=True, capture_output=True)
