"""Simulated beside measured: collectives and training steps in a cluster in a box.

Each rank is a node of its own behind a NIC of `--nic`; messages go over TCP. The simulator is told what plain messages
and a lone computation take, measured in the same run, never a collective or a step: latency, rate, what a message costs
the cores that all nodes share, the burst of the shaped links, how much a socket buffers, the rate of a reduction, the
seconds of a computation on one rank while the others wait, and how many cores all ranks have when they compute at once.
All points take turns, and of each the best time counts, since whatever else runs on the machine only adds to it; what
is computed alone goes on for as long as it does in a step, so that others get as much of a chance to disturb it. Steps:
data parallel (computation on shared cores, then gradients bucket by bucket) and a pipeline (GPipe), both from a
StepProgram.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.algorithms import Bench, emulated, joined
from benchmarks.result import Result

WAYS = ("ring", "halving_doubling", "recursive_doubling", "partitioned", "tree", "parameter_server")
SIZES = tuple(2**exponent for exponent in (16, 18, 20, 21))
BUCKETS, BUCKET_SIZES = 4, (2**18, 2**20)
MICRO_BATCHES, ACTIVATION_SIZES = 4, (2**16, 2**19)
OFTEN = 3  # times a turn: steps, computations and small messages, which others disturb most
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 3, 6  # matrix products of a forward and a backward
PRODUCTS = FORWARD_PRODUCTS + BACKWARD_PRODUCTS
SIDE = 512  # of the matrices
SMALL_BYTES, IN_A_ROW = 2**18, 8


def run(arguments: list[str]) -> Result:
    """Measure and simulate every point; return them with the mean error of the logarithm of the ratio."""
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for ranks in options.ranks:
        report = emulated("benchmarks.simulated", ranks, options.nic, [options.sizes, options.rounds])
        rows += _rows(ranks, report)
        told = {key: float(f"{value:.3g}") for key, value in {**report["network"], **report["compute"]}.items()}
        notes.append(f"{ranks} ranks, what the simulator was told: {told}")
    notes += judged(rows)
    return Result(f"simulated beside measured, every rank a node with a NIC of {options.nic}", rows, notes)


def judged(rows: list[dict[str, Any]]) -> list[str]:
    """Return the errors of collectives and of steps."""
    notes = []
    for kind, chosen in (
        ("collectives", [row for row in rows if row["what"] in WAYS]),
        ("training steps", [row for row in rows if row["what"] not in WAYS]),
    ):
        errors = [abs(math.log(row["simulated_ms"] / row["measured_ms"])) for row in chosen]
        notes.append(
            f"{kind}: {len(errors)} points, mean absolute error of log(simulated / measured) "
            f"{100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.0f} % (target: 10 % in the mean)"
        )
    return notes


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulated", description=__doc__)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--nic", default="200Mbps")
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=8, help="turns of every point")
    return parser.parse_args(arguments)


def _rows(ranks: int, report: dict[str, Any]) -> list[dict[str, Any]]:
    from meshwright.collectives.pricing.network import uniform
    from meshwright.simulate.collective import simulate_collective
    from meshwright.simulate.step import simulate_step
    from meshwright.simulate.topology import PricedNetwork
    from meshwright.simulate.traffic import followed, named_traffic

    told = report["network"]
    costs = _costs(told)
    topology = PricedNetwork(uniform(ranks, told["latency_s"], told["bandwidth_bytes_per_s"]))
    rows = []
    for name, times in report["times_s"].items():
        for size, measured_s in times.items():
            calls = _calls(int(size))
            traffic = followed("all_reduce", name, ranks, [named_traffic("all_reduce", name, ranks)] * calls)
            found = simulate_collective(traffic, topology, int(size), costs=costs).result
            rows.append(_row(ranks, name, int(size), measured_s, found.time_s / calls))
    for name, measured_s in report["steps_s"].items():
        kind, each = name.rsplit(" ", 1)
        program = _program(kind, int(each), ranks, report["compute"])
        spans = simulate_step(program, topology, costs=costs).spans
        rows.append(_row(ranks, kind, int(each), measured_s, max(span.end_s for span in spans)))
    return rows


def _calls(size: int) -> int:
    return IN_A_ROW if size <= SMALL_BYTES else 1


def _row(ranks: int, what: str, size: int, measured_s: float, simulated_s: float) -> dict[str, Any]:
    return {
        "ranks": ranks, "what": what, "bytes": size, "measured_ms": measured_s * 1e3,
        "simulated_ms": simulated_s * 1e3, "error_percent": 100 * (simulated_s / measured_s - 1),
    }  # fmt: skip


def _costs(told: dict[str, float]) -> Any:
    from meshwright.simulate.problem import Costs

    handling_s = min(told["crowding_s"], told["latency_s"])
    return Costs(
        latency_s=told["latency_s"] - handling_s,
        handling_s=handling_s,
        burst_s=told["burst_s"],
        eager_bytes=told["eager_bytes"],
        reduce_bytes_per_s=told["reduce_bytes_per_s"],
    )


def _program(name: str, size: int, ranks: int, compute: dict[str, float]) -> Any:
    from meshwright.layout import Layout
    from meshwright.workload.program import Comm, Pass, Stage, StepProgram

    forward, backward = Pass(compute_s=compute["forward_s"]), Pass(compute_s=compute["backward_s"])
    cores = compute["cores"]
    if name == "data parallel":
        bucket = Comm(axis="dp", collective="all_reduce", bytes=size, algorithm="ring")
        stage = Stage.of(forward=forward, backward=backward, gradients=(bucket,) * BUCKETS)
        return StepProgram(layout=Layout(dp=ranks), micro_batches=1, stages=(stage,), cores=cores)
    stage = Stage.of(forward=forward, backward=backward, output_bytes=size)
    layout = Layout(pp=ranks, schedule="gpipe")
    return StepProgram(layout=layout, micro_batches=MICRO_BATCHES, stages=(stage,) * ranks, cores=cores)


def work(sizes: list[int], rounds: int) -> None:
    """Measure on one rank of the emulated cluster; rank 0 prints the report."""
    executor = joined()
    rank = executor.rank
    bench = Bench(executor)
    step = _Steps(executor)
    steps = {f"data parallel {size}": partial(step.data_parallel, size) for size in BUCKET_SIZES}
    steps |= {f"pipeline {size}": partial(step.pipeline, size) for size in ACTIVATION_SIZES}
    turns: dict[str, Any] = {
        "alone": lambda: step.compute(MICRO_BATCHES * PRODUCTS) if rank == 0 else None,
        "together": lambda: step.compute(MICRO_BATCHES * PRODUCTS),
        **steps,
    }
    points = {f"{name} {size}": step.all_reduce(name, size) for name in WAYS for size in sizes}
    large = {name: point for name, point in points.items() if _calls(int(name.split()[1])) == 1}
    often = turns | {name: point for name, point in points.items() if name not in large}
    networks: list[dict[str, float]] = []
    best: dict[str, float] = {}
    for _ in range(rounds):
        networks.append(bench.network() | bench.handling(*bench.small()))
        for name, operation in [*often.items()] * OFTEN + [*large.items()]:
            calls = _calls(int(name.split()[1])) if name in points else 1
            best[name] = min(best.get(name, math.inf), bench.timed(operation, 0.0, calls))
    network = _best(networks)
    network["eager_bytes"] = step.eager_bytes(bench, network["bandwidth_bytes_per_s"])
    report = {
        "network": network,
        "compute": _compute(best["alone"], best["together"], executor.ranks),
        "steps_s": {name: best[name] for name in steps},
        "times_s": {name: {size: best[f"{name} {size}"] for size in sizes} for name in WAYS},
    }
    if rank == 0:
        print("REPORT " + json.dumps(report), flush=True)
    bench.barrier()
    executor.transport.close()


def _compute(alone_s: float, together_s: float, ranks: int) -> dict[str, float]:
    """Return the seconds of a forward and a backward of one rank, and the cores that all of them have at once."""
    product_s = alone_s / (MICRO_BATCHES * PRODUCTS)
    return {
        "forward_s": FORWARD_PRODUCTS * product_s,
        "backward_s": BACKWARD_PRODUCTS * product_s,
        "cores": ranks * min(1.0, alone_s / together_s),
    }


def _best(found: list[dict[str, float]]) -> dict[str, float]:
    """Return of each figure the one that other programs disturbed least: the highest rate, the shortest time."""
    return {
        key: (max if key.endswith("_per_s") else statistics.median if key == "burst_s" else min)(
            run[key] for run in found
        )
        for key in found[0]
    }


class _Steps:
    """Training steps of one rank: matrix products and messages."""

    def __init__(self, executor: Any) -> None:
        import torch

        from meshwright.collectives.catalogue import build_schedule

        self._executor, self._build = executor, build_schedule
        self._rank, self._ranks = executor.rank, executor.ranks
        self._a, self._b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
        self._ring = build_schedule("all_reduce", "ring", self._ranks)
        self._tensors = {size: torch.zeros(size // 4) for size in (*BUCKET_SIZES, *ACTIVATION_SIZES)}

    def all_reduce(self, name: str, size: int) -> Callable[[], None]:
        """Return an all-reduce of a number of bytes."""
        import torch

        schedule, data = self._build("all_reduce", name, self._ranks), torch.zeros(size // 4)
        return lambda: self._executor.all_reduce(data, schedule)

    def eager_bytes(self, bench: Any, rate: float) -> float:
        """Return the largest message that its sender is rid of in less than half the time that the link needs."""
        import torch

        largest = 0.0
        for size in (2**exponent for exponent in range(14, 23)):
            data, took_s = torch.zeros(size // 4), math.inf
            for _ in range(3):
                bench.barrier()
                begun = time.perf_counter()
                if self._rank < 2:
                    self._executor.send(data, self._message(0, 1))
                spent_s = time.perf_counter() - begun if self._rank == 0 else 0.0
                took_s = min(took_s, bench.slowest(spent_s))
            if took_s > size / rate / 2:
                break
            largest = float(size)
        return largest

    def compute(self, products: int) -> None:
        """Multiply matrices."""
        for _ in range(products):
            self._a @ self._b

    def data_parallel(self, size: int) -> None:
        """Forward, backward, and the sum of one bucket after the other, by their bytes."""
        self.compute(FORWARD_PRODUCTS)
        self.compute(BACKWARD_PRODUCTS)
        for _ in range(BUCKETS):
            self._executor.all_reduce(self._tensors[size], self._ring)

    def pipeline(self, size: int) -> None:
        """GPipe: all forwards, then all backwards, with activations, by their bytes, and their gradients."""
        for _ in range(MICRO_BATCHES):
            self._pass(size, self._rank - 1, self._rank + 1, FORWARD_PRODUCTS)
        for _ in range(MICRO_BATCHES):
            self._pass(size, self._rank + 1, self._rank - 1, BACKWARD_PRODUCTS)

    def _pass(self, size: int, before: int, after: int, products: int) -> None:
        if 0 <= before < self._ranks:
            self._executor.send(self._tensors[size], self._message(before, self._rank))
        self.compute(products)
        if 0 <= after < self._ranks:
            self._executor.send(self._tensors[size], self._message(self._rank, after))

    def _message(self, src: int, dst: int) -> Any:
        return self._build("send", "direct", self._ranks, root=src, target=dst)


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
