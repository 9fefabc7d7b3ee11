"""The planner's speed on one core: layouts priced a second, and the whole search of a 405 B model on 16,384 H100.

The peer is the same cost model asked for one layout at a time, as planners that walk their space in a loop do.
Calculon (calculon-ai), the analytical planner that publishes such a loop, is not on PyPI (the package of that name is
another program), so that its rate is not measured here.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.result import Result, alternating_medians

ONE_BY_ONE = 300  # layouts that the loop prices in one round
TARGET_PER_S = 100_000
TARGET_SEARCH_S = 2.0


def run(arguments: list[str]) -> Result:
    """Measure pricing and searching, alternating; return medians, ratios and targets."""
    options = _options(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from meshwright.plan.analytic import price_layouts
    from meshwright.plan.search.explore import explore, price_in_chunks, space_of

    setting = _setting(options)
    grid = space_of(setting).grid
    step = max(1, len(grid) // ONE_BY_ONE)
    singles = [grid.take([index]) for index in range(0, len(grid), step)][:ONE_BY_ONE]
    contestants: dict[str, Callable[[], float]] = {
        "arrays": lambda: _cpu_s(lambda: price_in_chunks(setting, grid)) / len(grid),
        "one by one": lambda: _cpu_s(lambda: [price_layouts(setting, single) for single in singles]) / len(singles),
        "search": lambda: _cpu_s(lambda: explore(setting)),
        "search, wall": lambda: _wall_s(lambda: explore(setting)),
        "command": lambda: _wall_s(lambda: _command(options)),
    }
    medians, samples = alternating_medians(contestants, options.rounds)
    study = explore(setting)
    rows = [
        _row("price: arrays", 1 / medians["arrays"], "layouts/s", f">= {TARGET_PER_S:,}", samples["arrays"]),
        _row("price: one by one", 1 / medians["one by one"], "layouts/s", "", samples["one by one"]),
        _row("price: ratio", medians["one by one"] / medians["arrays"], "x", "", []),
        _row("search, processor time", medians["search"], "s", f"< {TARGET_SEARCH_S:g}", samples["search"]),
        _row("search, wall time", medians["search, wall"], "s", f"< {TARGET_SEARCH_S:g}", samples["search, wall"]),
        _row("search, from the shell", medians["command"], "s", "", samples["command"]),
    ]
    notes = [
        f"{options.model} on {options.gpus:,} GPUs of {options.cluster}, global batch {options.global_batch:,} x "
        f"{setting.seq_len:,} tokens, one core",
        f"{study.legal:,} legal layouts, {study.priced:,} prices computed (axis orders included); best: "
        f"{study.best.layout}",
        "Calculon (calculon-ai) is not on PyPI: not measured",
    ]
    return Result("planner: layouts priced and searched", rows, notes)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks planner", description=__doc__)
    parser.add_argument("--model", default="llama3-405b")
    parser.add_argument("--cluster", default="dgx-h100")
    parser.add_argument("--gpus", type=int, default=16384)
    parser.add_argument("--global-batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args(arguments)


def _setting(options: argparse.Namespace) -> Any:
    from meshwright.hardware import load_catalogue
    from meshwright.plan.request import PlanRequest, setting_of
    from meshwright.workload.models import load_model

    request = PlanRequest(
        model=load_model(options.model),
        cluster=options.cluster,
        gpus=options.gpus,
        global_batch=options.global_batch,
        seq_len=None,
    )
    return setting_of(request, load_catalogue())


def _command(options: argparse.Namespace) -> None:
    words = [sys.executable, "-m", "meshwright", "plan", "--model", options.model, "--cluster", options.cluster]
    words += ["--gpus", str(options.gpus), "--global-batch", str(options.global_batch), "--json"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _cpu_s(call: Callable[[], object]) -> float:
    """Return the seconds that the one core worked for us, whatever else runs on the machine."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _wall_s(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _row(name: str, value: float, unit: str, target: str, samples: list[float]) -> dict[str, Any]:
    spread = (max(samples) - min(samples)) / statistics.median(samples) if samples else 0.0
    return {"what": name, "value": value, "unit": unit, "target": target, "spread_percent": 100 * spread}
