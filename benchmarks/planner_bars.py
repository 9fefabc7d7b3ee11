"""The bars that the planner is held to, beside what the fit reached; what is missed is said with its reason."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.calibration import EXPERTS, Group
from benchmarks.pages import grid

Rows = Sequence[Mapping[str, Any]]
TOTALS = ("all dense", "all dense, trusted")
OWN_RUNS = "2"  # steps of one's own that calibrate a stack which nobody measured

EXPERT_RELEASES = (
    "recomputation, graphs of parts of a layer and which layers stay in more bits differ between recipes and are not "
    "stated (docs/cost-model.md)"
)
EXPERT_STEPS = "two runs of one model tell little of another's experts (docs/cost-model.md)"
REASONS = {
    "experts left out": EXPERT_RELEASES,
    "stacks unseen, experts": EXPERT_RELEASES,
    "two own runs, experts": EXPERT_STEPS,
    "worst family unseen, experts": EXPERT_RELEASES,
    "MLPerf left out": "Llama 8B in one micro-batch on 512 GPUs and on H100, whose submission is not tuned",
    "SimuMax left out": "its experts, whose small kernels wait for a host that no graph spares (docs/cost-model.md)",
    "two own runs, dense": (
        "sweeps over many layouts stay above it: titan and dgxc in fp8, bloom, both of vTrain (docs/cost-model.md)"
    ),
    "worst family unseen, dense": (
        "vTrain's single nodes, whose hosts launch more slowly than others of their time (launch_vtrain)"
    ),
}


def bars_section(table: Rows, own: Mapping[str, Group]) -> str:
    """Return a section of the page of validation: each bar, what was reached, and the reason of what is missed."""
    rows = []
    for name, bar, reached in _reached(table, own):
        met = reached <= bar
        rows.append(
            {
                "bar": name,
                "at most %": f"{bar:g}",
                "reached %": f"{reached:.1f}",
                "": "met" if met else "missed",
                "reason": "" if met else REASONS.get(name, "unexplained"),
            }
        )
    return "## The bars\n\n" + grid(rows)


def _reached(table: Rows, own: Mapping[str, Group]) -> list[tuple[str, float, float]]:
    families = [row for row in table if row["family"] not in TOTALS]
    dense = [row for row in families if not row["family"].endswith(EXPERTS)]
    experts = [row for row in families if row["family"].endswith(EXPERTS)]
    total = next(row for row in table if row["family"] == TOTALS[1])
    return [
        ("known stacks, dense left out", 4.5, total["left out"]),
        ("experts left out", 12.0, _mean(experts, "left out, trusted")),
        ("MLPerf left out", 5.0, _mean(_of(dense, "mlperf"), "left out, trusted")),
        ("SimuMax left out", 6.0, _mean(_of(families, "simumax"), "left out, trusted")),
        ("stacks unseen, dense", 9.0, _mean(dense, "stack unseen")),
        ("worst family unseen, dense", 15.0, max(row["stack unseen"] for row in dense)),
        ("stacks unseen, experts", 12.0, _mean(experts, "stack unseen")),
        ("worst family unseen, experts", 20.0, max(row["stack unseen"] for row in experts)),
        ("two own runs, dense", 5.0, _with_two(own, lambda name: not name.endswith(EXPERTS))),
        ("two own runs, experts", 8.0, _with_two(own, lambda name: name.endswith(EXPERTS))),
    ]


def _of(rows: Rows, team: str) -> Rows:
    return [row for row in rows if row["family"].startswith(team)]


def _mean(rows: Rows, column: str) -> float:
    """Return the mean over all runs of some families."""
    return float(np.average([row[column] for row in rows], weights=[row["runs"] for row in rows]))


def _with_two(own: Mapping[str, Group], wanted: Callable[[str], bool]) -> float:
    """Return the mean over groups of runs that one user might have."""
    return 100.0 * float(np.mean([group[OWN_RUNS] for name, group in own.items() if wanted(name)]))
