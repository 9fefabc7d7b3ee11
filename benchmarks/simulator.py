"""The simulator against formulas, SimGrid and the clock: accuracy, speed on one core, growth, bounds.

Beside real time: `python -m benchmarks simulated`. Each row is one target: what was found, and whether it is met.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Result

REFERENCE = Path(__file__).parents[1] / "tests" / "external" / "simgrid" / "reference.json"
ALPHA, RATE, SIZE = 5e-6, 1e9, 10**7
GIB = 2**30
SWITCH_ALPHA, SWITCH_RATE = 1e-6, 50e9  # two links of 0.5 us


def run(arguments: list[str]) -> Result:
    """Check every target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes longer than ten seconds")
    options = parser.parse_args(arguments)
    checks: list[Callable[[], list[dict[str, Any]]]] = [
        _formulas,
        _simgrid,
        _ring,
        _memory,
        _step,
        _folded,
        _switch,
        _bounded,
        _growth,
    ]
    rows: list[dict[str, Any]] = []
    for check in checks if options.quick else [*checks, _slowed]:
        rows += check()
        print(f"{rows[-1]['what']}: {rows[-1]['found']:.3g} {rows[-1]['unit']}", flush=True)
    notes = ["seconds: processor time on one core, whatever else runs; of everything from the schedule to the result"]
    return Result("simulator", rows, notes)


def _row(what: str, found: float, unit: str, target: float, note: str = "") -> dict[str, Any]:
    return {"what": what, "found": found, "unit": unit, "at_most": target, "met": found <= target, "note": note}


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    found = function()
    return time.process_time() - begun, found


def _formulas() -> list[dict[str, Any]]:
    from meshwright.collectives.pricing.formulas import closed_formula
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.collective import simulate_collective
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import named_traffic

    worst, count = 0.0, 0
    for name in ("ring", "partitioned_staggered", "staggered", "halving_doubling", "recursive_doubling"):
        for ranks in (2, 4, 8, 16, 32, 64, 128):
            formula = closed_formula(name, ranks)
            expected = formula.rounds * ALPHA + float(formula.sent_most) * SIZE / RATE
            topology = PricedNetwork(uniform(ranks, ALPHA, RATE))
            found = simulate_collective(named_traffic("all_reduce", name, ranks), topology, SIZE).result.time_s
            worst, count = max(worst, abs(found / expected - 1)), count + 1
    return [_row("closed formulas, no contention", worst, "relative", 1e-9, f"{count} cases")]


def _simgrid() -> list[dict[str, Any]]:
    from meshwright.simulate.native import run_activities
    from meshwright.simulate.problem import problem
    from meshwright.simulate.unroll import unroll
    from testkit.simgrid_cases import cases

    reference, worst = json.loads(REFERENCE.read_text()), 0.0
    for name, (topology, traffic, size_bytes, disturbance) in cases().items():
        end_s = run_activities(unroll(problem(traffic, topology, size_bytes, None, disturbance))).time_s
        worst = max(worst, abs(end_s / max(reference[name]) - 1))
    return [_row("SimGrid's plain flow model", worst, "relative", 0.02, f"{len(reference)} platforms")]


def _ring() -> list[dict[str, Any]]:
    from meshwright.collectives.catalogue import build_schedule
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.collective import simulate_collective
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import traffic_of

    topology = PricedNetwork(uniform(1024, ALPHA, RATE))
    taken_s, run = _timed(
        lambda: simulate_collective(
            traffic_of(build_schedule("all_reduce", "ring", 1024)), topology, GIB, method="exact", folding=False
        )
    )
    note = f"{run.result.simulated_transfers:,} transfers, the schedule written out, {run.result.method}"
    return [_row("ring on 1,024 devices, unfolded", taken_s, "s", 10, note)]


_MEASURED = """
import resource, sys
from meshwright.collectives.pricing.network import uniform
from meshwright.simulate.collective import simulate_collective
from meshwright.simulate.topology import PricedNetwork
from meshwright.simulate.traffic import named_traffic

def peak(ranks):
    topology = PricedNetwork(uniform(ranks, 1e-6, 50e9))
    traffic = named_traffic("all_reduce", "ring", ranks)
    result = simulate_collective(traffic, topology, 2**20, method="exact", folding=False).result
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, result.transfers

before, _ = peak(32)
after, transfers = peak(int(sys.argv[1]))
print(after - before, transfers)
"""


def unfolded_bytes(ranks: int) -> tuple[int, int]:
    """Return by how much the peak of a fresh process grows over a ring that is not folded, and its transfers."""
    said = subprocess.run([sys.executable, "-c", _MEASURED, str(ranks)], capture_output=True, text=True, check=True)
    grown, transfers = map(int, said.stdout.split())
    return grown, transfers


def _memory() -> list[dict[str, Any]]:
    grown, transfers = unfolded_bytes(1024)
    note = f"{grown / 1e6:.0f} MB for {transfers:,} transfers, whole process"
    return [_row("memory of a ring on 1,024 devices, unfolded", grown / transfers, "bytes a transfer", 170, note)]


def _step() -> list[dict[str, Any]]:
    from meshwright.cluster.builders import catalogue_cluster
    from meshwright.hardware import load_catalogue
    from meshwright.layout import Layout
    from meshwright.plan.analytic import Setting
    from meshwright.plan.search.simulated import simulate_plan
    from meshwright.workload.models import load_model

    def simulated() -> float:
        cluster = catalogue_cluster(load_catalogue(), "dgx-h100", gpus=16_384, fabric="rail-optimised")
        setting = Setting(
            architecture=load_model("llama3-405b").architecture, cluster=cluster, gpus=16_384, global_batch=2048,
            seq_len=8192,
        )  # fmt: skip
        layout = Layout(tp=8, pp=16, dp=128, schedule="1f1b")
        return max(span.end_s for span in simulate_plan(setting, layout).spans)

    taken_s, step_s = _timed(simulated)
    return [_row("training step of 16,384 GPUs", taken_s, "s", 10, f"llama3-405b, {step_s:.2f} s a step")]


def _tree(nodes_per_leaf: int, leaves_per_pod: int, pods: int, **slow: float) -> tuple[Any, Any, Any]:
    """Return traffic, topology and disturbance of a hierarchical all-reduce on a fat-tree of three levels."""
    from meshwright.cluster.builders import catalogue_cluster
    from meshwright.hardware import load_catalogue
    from meshwright.simulate.nodes import NodesTopology
    from meshwright.simulate.problem import Disturbance
    from meshwright.simulate.traffic import named_traffic

    nodes = nodes_per_leaf * leaves_per_pod * pods
    cluster = catalogue_cluster(
        load_catalogue(), "dgx-h100", nodes=nodes, fabric="fat-tree", nodes_per_leaf=nodes_per_leaf,
        leaves_per_group=leaves_per_pod, hop_latency_s=5e-7,
    )  # fmt: skip
    traffic = named_traffic("all_reduce", "hierarchical", 8 * nodes, ranks_per_node=8)
    return traffic, NodesTopology(cluster, 8 * nodes), Disturbance(**slow)  # type: ignore[arg-type]


def _folded() -> list[dict[str, Any]]:
    from meshwright.simulate.collective import simulate_collective

    def simulated() -> Any:
        traffic, topology, _ = _tree(20, 25, 25)
        return simulate_collective(traffic, topology, GIB).result

    taken_s, r = _timed(simulated)
    note = f"{r.transfers:,} transfers, {r.classes} classes of ranks, {r.method}"
    return [_row("hierarchical all-reduce, 100,000 devices", taken_s, "s", 10, note)]


def _switch() -> list[dict[str, Any]]:
    """Time what ASTRA-sim's analytical backend was given once (docs/simulator.md): a ring of 1 MiB over a switch."""
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.collective import simulate_collective
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import named_traffic

    def simulated() -> Any:
        topology = PricedNetwork(uniform(4096, SWITCH_ALPHA, SWITCH_RATE))
        return simulate_collective(named_traffic("all_reduce", "ring", 4096), topology, 2**20).result

    taken_s, r = _timed(simulated)
    note = f"{r.transfers:,} transfers, {r.classes} classes of ranks, {1e3 * r.time_s:.3f} ms simulated"
    return [_row("ring of 1 MiB over a switch, 4,096 devices", taken_s, "s", 1, note)]


def _slowed() -> list[dict[str, Any]]:
    from meshwright.simulate.collective import simulate_collective

    def simulated() -> Any:
        traffic, topology, slow = _tree(20, 25, 25, slow_share=0.01)
        return simulate_collective(traffic, topology, GIB, disturbance=slow).result

    taken_s, r = _timed(simulated)
    note = f"{r.transfers:,} transfers, {r.classes:,} classes, {r.method}, error bound {r.error_bound:.1e}"
    return [_row("the same with 1 % of its links slowed", taken_s, "s", 60, note)]


def _bounded() -> list[dict[str, Any]]:
    """Check the bound against exact runs at 2,000 devices, also where links are shared and the bound is not tight."""
    from meshwright.cluster.builders import catalogue_cluster
    from meshwright.hardware import load_catalogue
    from meshwright.simulate.bounds import bounds
    from meshwright.simulate.native import run_activities
    from meshwright.simulate.nodes import NodesTopology
    from meshwright.simulate.problem import problem
    from meshwright.simulate.unroll import unroll

    rows = []
    for routing, oversubscription in (("ideal", 1.0), ("ecmp", 1.0), ("ecmp", 4.0)):
        traffic, _, slow = _tree(10, 5, 5, slow_share=0.01)
        cluster = catalogue_cluster(
            load_catalogue(), "dgx-h100", nodes=250, fabric="fat-tree", nodes_per_leaf=10, leaves_per_group=5,
            hop_latency_s=5e-7, oversubscription=oversubscription,
        )  # fmt: skip
        whole = problem(traffic, NodesTopology(cluster, 2000, routing=routing), GIB, None, slow)
        found = bounds(whole)
        exact_s = run_activities(unroll(whole)).time_s
        tolerance = 1e-9
        held = found.lower_s * (1 - tolerance) <= exact_s <= found.upper_s * (1 + tolerance)
        note = f"bounds {found.lower_s:.6f} to {found.upper_s:.6f} s {'hold' if held else 'BROKEN'}: {exact_s:.6f} s"
        what = f"error at 2,000 devices, {routing}, {oversubscription:g}:1 (the bound)"
        rows.append(_row(what, 1 - exact_s / found.upper_s, "relative", found.error + tolerance, note))
    return rows


def _growth() -> list[dict[str, Any]]:
    """Fit the exponent of time over flows; nothing folds, and but for the even ring nothing happens at one moment."""
    from meshwright.simulate.native import engine_name, run_activities
    from meshwright.simulate.problem import Disturbance

    rows = []
    for what, make, sizes in (
        ("a ring", _even_ring, (64, 128, 256, 512)),
        ("a ring with jitter", partial(_even_ring, disturbance=Disturbance(jitter=0.2)), (64, 128, 256, 512)),
        ("random messages, one a port", partial(_random_messages, at_once=1), (128, 256, 512, 1024, 2048)),
        ("random messages, four share a port", partial(_random_messages, at_once=4), (64, 128, 256, 512, 1024)),
    ):
        programs = [make(ranks) for ranks in sizes]
        tries = [
            [_timed(lambda program=program: run_activities(program))[0] for program in programs] for _ in range(15)
        ]
        flows, seconds = [program.activities for program in programs], np.min(tries, axis=0)
        exponent = float(np.polyfit(np.log(flows), np.log(seconds), 1)[0])
        each = ", ".join(f"{n:,}: {s / n * 1e6:.2f}" for n, s in zip(flows, seconds, strict=True))
        note = f"us a flow, by number of flows: {each}; {engine_name()}"
        rows.append(_row(f"time grows as flows to the power of: {what}", exponent, "exponent", 1.2, note))
        if math.isnan(exponent):
            raise SystemExit("no growth could be fitted")
    return rows


def _even_ring(ranks: int, disturbance: Any = None) -> Any:
    """Return the program of a ring all-reduce."""
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.problem import problem
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import named_traffic
    from meshwright.simulate.unroll import unroll

    network = PricedNetwork(uniform(ranks, ALPHA, RATE))
    return unroll(problem(named_traffic("all_reduce", "ring", ranks), network, GIB), disturbance)


def _random_messages(ranks: int, at_once: int) -> Any:
    """Return the program of 20 rounds in which each rank sends many messages of random sizes to random others."""
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.problem import problem
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import Pattern, Traffic
    from meshwright.simulate.unroll import unroll

    rng, rounds = np.random.default_rng(0), 20
    patterns = []
    for _ in range(rounds):
        src = np.tile(np.arange(ranks), at_once)
        dst = np.concatenate([rng.permutation(ranks) for _ in range(at_once)])
        share, away = rng.uniform(0.1, 1.0, len(src)), dst != src
        patterns.append(Pattern(src[away], dst[away], share[away], np.zeros(int(away.sum()), dtype=bool)))
    traffic = Traffic("send", "random", ranks, tuple(patterns), np.arange(rounds))
    return unroll(problem(traffic, PricedNetwork(uniform(ranks, ALPHA, RATE)), GIB))
