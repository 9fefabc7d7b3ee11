"""Simulate one collective: traffic on a topology, exactly where that can be, else between bounds."""

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..collectives.pricing.figures import bus_factor
from ..timeline import Span, Timeline
from .bounds import bounds
from .fold import fold
from .native import engine_name, run_activities
from .problem import Costs, Disturbance, FlowProblem, problem
from .program import ActivityTimes
from .topology import Topology
from .traffic import Traffic
from .unroll import unroll

MOST_EVENTS = 6_000_000  # transfers that the event engine takes on by itself

Method = Literal["auto", "exact", "bounded"]


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated time of one collective of `bytes` bytes.

    `error_bound`: by how much, as a share, the true max-min time can lie below `time_s`; 0 where it is exact.
    """

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float  # as nccl-tests define it
    method: str
    error_bound: float
    transfers: int
    simulated_transfers: int  # after folding
    classes: int  # of ranks that behave alike
    not_modelled: tuple[str, ...] = ()


class SimulationRun(NamedTuple):
    """A result, the problem that was timed, and the times of its transfers, None where bounds were taken."""

    result: Simulated
    folded: FlowProblem
    outcome: ActivityTimes | None


def simulate_collective(
    traffic: Traffic, topology: Topology, size_bytes: int, *, costs: Costs | None = None,
    disturbance: Disturbance | None = None, method: Method = "auto", folding: bool = True,
) -> SimulationRun:  # fmt: skip
    """Simulate a payload of `size_bytes` (see collectives.figures for what the payload is).

    `exact` runs every transfer that folding leaves through the event engine; `bounded` takes fixed shares of each link
    and gives an upper bound; `auto` is exact up to MOST_EVENTS transfers. Raises InputError where a link is cut.
    """
    disturbance = disturbance or Disturbance()
    whole = problem(traffic, topology, size_bytes, costs, disturbance)
    folded = fold(whole) if folding and not disturbance.jitter else whole
    exact = method == "exact" or (method == "auto" and folded.transfers <= MOST_EVENTS) or bool(disturbance.jitter)
    outcome = run_activities(unroll(folded, disturbance)) if exact else None
    if outcome is not None:
        time_s, error, how = outcome.time_s, 0.0, f"events in {engine_name()}"
    else:
        found = bounds(folded)
        time_s, error = found.upper_s, found.error
        how = "fixed shares, exact here" if error < 1e-9 else "fixed shares, an upper bound"
    algbw = size_bytes / time_s if time_s else 0.0
    result = Simulated(
        collective=traffic.collective,
        algorithm=traffic.algorithm,
        ranks=traffic.ranks,
        bytes=size_bytes,
        time_s=time_s,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * bus_factor(traffic.collective, traffic.ranks),
        method=how,
        error_bound=error,
        transfers=traffic.transfers,
        simulated_transfers=folded.transfers,
        classes=len(folded.members),
        not_modelled=() if costs is not None and costs.latency_s is not None else topology.not_modelled,
    )
    return SimulationRun(result, folded, outcome)


def timeline(run: SimulationRun) -> Timeline:
    """Return the spans of an exact run: each transfer (each class of them) at its sender and at its receiver."""
    assert run.outcome is not None
    spans, at = [], 0
    name, folded = run.result.collective, run.folded
    for number, o in enumerate(folded.order):
        r = folded.rounds[o]
        for i in np.flatnonzero(~r.local):
            src, dst, size = int(r.src[i]), int(r.dst[i]), round(float(r.size_bytes[i]))
            start, end = float(run.outcome.start_s[at + i]), float(run.outcome.end_s[at + i])
            spans.append(Span(src, "comm", f"{name} send", start, end, bytes=size, detail=f"round {number} to {dst}"))
            spans.append(Span(dst, "comm", f"{name} recv", start, end, bytes=size, detail=f"round {number} from {src}"))
        at += len(r.src)
    return Timeline(spans=tuple(spans), source="simulated")
