"""Which algorithm a reduction between hosts takes: the cheapest by its closed figures, on links measured at start."""

import os
import statistics
import time
from dataclasses import dataclass

import torch

from ..collectives import algorithms
from ..collectives.formulas import closed_formula, names_with_formula
from ..collectives.schedule import Schedule
from ..errors import InputError, nearest
from .executor import Executor

ALGORITHM_VARIABLE = "MESHWRIGHT_ALGORITHM"
PROBES = 5
PROBE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Links:
    """What a message between hosts costs: `alpha_s`, and `beta_s_per_byte` with all ranks of a host sending at once."""

    alpha_s: float
    beta_s_per_byte: float


def measure(executor: Executor, schedule: Schedule) -> Links:
    """Return what the executor's links cost, from small and larger exchanges of everybody with everybody."""

    def seconds(size_bytes: int) -> float:
        tensor = torch.zeros(size_bytes // 4)
        samples = []
        for _ in range(PROBES):
            start = time.perf_counter()
            executor.all_reduce(tensor, schedule)
            samples.append(time.perf_counter() - start)
        return statistics.median(samples)

    small, large = seconds(4), seconds(PROBE_BYTES)
    return Links(small, max(0.0, large - small) / (PROBE_BYTES * (executor.ranks - 1)))


def forced_algorithm() -> str | None:
    """Return the name in `MESHWRIGHT_ALGORITHM`, or None; InputError if there is no such all-reduce."""
    name = os.environ.get(ALGORITHM_VARIABLE)
    if not name:
        return None
    if name not in algorithms.ALL_REDUCE:
        raise InputError(f"{ALGORITHM_VARIABLE}={name}: no such all-reduce ({nearest(name, algorithms.ALL_REDUCE)})")
    return name


def choose(links: Links, ranks: int, size_bytes: int) -> str:
    """Return the name of the all-reduce among `ranks` with the lowest price: rounds x alpha + sent bytes x beta.

    A rank that receives from several at once is charged for all of them, since they share its link.
    """
    forced = forced_algorithm()
    if forced is not None:
        return forced

    def price_s(name: str) -> float:
        figures = closed_formula(name, ranks)
        busiest = max(float(figures.sent_most), float(figures.received_at_once))
        return figures.rounds * links.alpha_s + busiest * size_bytes * links.beta_s_per_byte

    return min(sorted(names_with_formula()), key=price_s)
