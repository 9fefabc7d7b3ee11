"""docs/generated/validation.md: the constants, the errors by family and every published run, as the fit left them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pages import grid
from benchmarks.result import banner
from meshwright.plan.analytic import NOT_MODELLED
from meshwright.plan.analytic.coefficients import Book
from meshwright.plan.analytic.quantities import Array

if TYPE_CHECKING:
    from benchmarks.fit_planner import Study

OUTLIER = 0.12
HEAD = f"""\
# The planner on published runs

{banner("python -m benchmarks fit_planner --gains --write")}
The runs and their sources are in
`tests/external/published/training_runs.csv` and `training_runs_2.csv`, the model in `src/meshwright/plan/analytic/`.
`meshwright validate FILE` does the same for a table of your own.

A step is the micro-batches times the longest stage, the bubble of the schedule, what is exposed of gradients and
parameters, the update, and what the host adds:

    step = m t_max + (t_sum - t_max) / v + exposed data-parallel traffic + update + host
    t    = layers x (forward + backward + recomputation, exposed collectives included) + loss in the last stage + sends

Constants are fitted once for each accelerator and software stack, never for a run: least squares on the logarithm of
the step time, linear beyond two noises of 3 %, each constant held near its prior and within bounds from physics.
**Left out**: whole layout clusters (family, model, machines, degrees, sequence length) are predicted by constants that
never saw them, eight parts in turn. **Stack unseen**: a whole family (all of MLPerf, all of SimuMax) is left out and
priced as an unknown stack, its accelerators calibrated by the other families on them; **on a machine that is known**,
the constants of its hosts and links and the pace of its accelerators too (which their owner measures) come from other
layout clusters that ran there.
"""


def page(
    known: Book,
    data: "Study",
    fitted: Array,
    out: Array,
    strange: Array,
    table: Sequence[dict[str, Any]],
    sweeps: Sequence[tuple[str, int, float]],
) -> str:
    """Return the page as Markdown."""
    parts = [HEAD, "## Errors by family, in %\n", grid(table), _sweeps(sweeps), _constants(known), _not_modelled()]
    parts += [_outliers(data, fitted, out), _runs(data, fitted, out, strange), _unpriced(data)]
    return "\n".join(parts)


def _sweeps(sweeps: Sequence[tuple[str, int, float]]) -> str:
    values = [regret for _, _, regret in sweeps]
    rows = [
        {"sweep": n, "layouts": k, "regret %": round(100 * r, 1)} for n, k, r in sorted(sweeps, key=lambda s: -s[2])
    ]
    return (
        "## Which layout is best\n\nOver sweeps of four layouts or more of one model, machines and "
        f"batch, the layout predicted to be the fastest was {100 * np.mean(values):.1f} % slower than the fastest "
        f"measured, at worst {100 * max(values):.1f} %.\n\n" + grid(rows)
    )


def _constants(known: Book) -> str:
    rows = [
        {
            "constant": name,
            "value": f"{c.value:.3g} {c.unit}",
            "prior": f"{c.prior:.3g}",
            "bounds": f"{c.low:.3g} to {c.high:.3g}",
            "gain, points": "" if c.gain is None else f"{c.gain:+.2f}",
            "meaning": c.meaning,
        }
        for name, c in known.constants.items()
    ]
    return (
        f"## The {len(rows)} constants\n\nGain: what left-out runs that use it lose if it is held at its prior.\n\n"
        + grid(rows)
    )


def _not_modelled() -> str:
    return "## Not modelled\n\n" + "\n".join(f"- {item}" for item in NOT_MODELLED) + "\n"


def _outliers(data: "Study", fitted: Array, out: Array) -> str:
    rows = []
    for index in np.argsort(-np.abs(np.exp(fitted) - 1.0)):
        row = data.rows[int(index)]
        error = float(np.exp(fitted[index]) - 1.0)
        if abs(error) > OUTLIER and row.run is not None:
            why = data.reasons.get(row.id) or _why(row.family, row.run.architecture.experts > 0)
            rows.append({"run": row.id, "layout": str(row.run.layout), "error %": f"{100 * error:+.1f}", "why": why})
    return f"## Outliers\n\nRuns that the fit itself is more than {100 * OUTLIER:.0f} % off.\n\n" + grid(rows)


def _why(family: str, experts: bool) -> str:
    if experts:
        return "experts: CUDA graphs, offload and dropped tokens differ between releases and are not stated"
    return {
        "vtrains": "small model on one node: thresholds of NCCL's protocols between 4 and 32 MiB are smoothed over",
        "vtrainm": "TP = 2 or 4: from one micro-batch size to the next up to a third slower, in no order, unexplained",
        "bloom": "single snapshot at the second iteration; software changed between the days of the sweep",
        "bridge": "recomputation, graphs and offload are not stated",
    }.get(family, "unexplained")


def _runs(data: "Study", fitted: Array, out: Array, strange: Array) -> str:
    rows = []
    for index, row in enumerate(data.rows):
        run = row.run
        assert run is not None
        shares = (f"{100 * (np.exp(errors[index]) - 1.0):+.1f}" for errors in (fitted, out, strange))
        rows.append(
            {
                "run": row.id,
                "model": run.architecture.name,
                "machine": f"{run.gpus} {run.accelerator}",
                "layout": str(run.layout),
                "batch": f"{run.global_batch} x {run.seq_len} {run.precision}",
                "measured s": f"{data.measured_s[index]:.4g}",
                "fitted %": next(shares),
                "left out %": next(shares),
                "stack unseen %": next(shares),
            }
        )
    return "## Every run\n\n" + grid(rows)


def _unpriced(data: "Study") -> str:
    used = {row.id for row in data.rows}
    rows = [
        {"run": row.id, "why": row.reason or data.reasons.get(row.family) or "micro-batch or step time is not stated"}
        for row in data.everything
        if row.id not in used
    ]
    return "## Rows of the file that are not used\n\n" + grid(rows)
