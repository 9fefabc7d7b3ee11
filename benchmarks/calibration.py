"""How far a few measured steps of one's own bring the planner, on stacks that were left out of the fit.

Part of `python -m benchmarks fit_planner`. Runs of a family on one accelerator in one precision are its own; some of
them are drawn, the factors of `plan --calibrate` fitted to those, and the other runs predicted.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from meshwright.hardware import Catalogue
from meshwright.plan.analytic.coefficients import Book
from meshwright.plan.analytic.factors import FACTORS
from meshwright.plan.analytic.quantities import Array
from meshwright.plan.fitting.calibrate import NOISE, Steps, priors_of, sensitivity_of
from meshwright.plan.tables.batch import batch_of
from meshwright.plan.tables.runs import Run

COUNTS = (1, 2, 5)  # of measured steps
DRAWS = 24  # six leave a standard error of 0.2 (with experts 0.3) points on average over groups
LEAST = 4  # runs of a group
EXPERTS = " (experts)"
SPREADS = (0.0, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)  # of models' own paces, to choose from
MOST_ERROR = 0.35  # as a logarithm: a run further off counts as one so far off
Group = Mapping[str, float | int]


def with_own_runs(
    runs: Sequence[Run], measured_s: Array, trusted: Array, catalogue: Catalogue, known: Book, values: Array
) -> dict[str, dict[str, float | int]]:
    """Return, for each group of runs that one user might have, the mean error without and with some of them.

    `values` are those of the constants by other families alone.
    """
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        if trusted[index]:
            name = f"{run.family} {run.accelerator} {run.precision}{EXPERTS if run.architecture.experts else ''}"
            groups.setdefault(name, []).append(index)
    found = {}
    for name, members in groups.items():
        if len(members) >= LEAST:
            mine = [runs[index] for index in members]
            batch, prior = batch_of(mine, catalogue, known), priors_of(mine, known)
            found[name] = _errors(Steps([run.id for run in mine], mine, batch, measured_s[members], values, prior))
    return found


def _errors(steps: Steps) -> dict[str, float | int]:
    """Return the mean error of a group without a run of its own, and with one, two and five of them."""
    rng, everyone = np.random.default_rng(0), list(range(len(steps.runs)))
    found: dict[str, float | int] = {"runs": len(everyone), "none": _mean(steps.errors(steps.prior.mean, everyone))}
    found |= {_own(spread): value for spread, value in zip(SPREADS, _surprises(steps), strict=True)}
    for count in COUNTS:
        means = []
        for _ in range(DRAWS):
            mine = sorted(rng.choice(len(everyone), min(count, len(everyone) - 2), replace=False).tolist())
            rest = [index for index in everyone if index not in mine]
            means.append(_mean(steps.errors(steps.fitted(mine).x, rest)))
        found[str(count)] = float(np.mean(means))
    return found


def _surprises(steps: Steps) -> list[float]:
    """Return how unlikely the errors of a group are under each spread of models' own paces, without any run of it.

    The negative logarithm of the marginal likelihood, errors linear in the factors, over the root of the runs: a large
    group says more than a small one, its repeats do not.
    """
    errors = np.clip(steps.errors(steps.prior.mean, range(len(steps.runs))), -MOST_ERROR, MOST_ERROR)
    follows = sensitivity_of(steps.batch, steps.values, {name: np.ones(len(steps.runs)) for name in FACTORS})
    factors = follows * steps.prior.spread[: len(FACTORS)]
    same = np.equal.outer(steps.places, steps.places)
    found = []
    for spread in SPREADS:
        covariance = factors @ factors.T + spread**2 * same + NOISE**2 * np.eye(len(errors))
        cost = np.linalg.slogdet(covariance)[1] + errors @ np.linalg.solve(covariance, errors)
        found.append(float(cost / 2.0 / len(errors) ** 0.5))
    return found


def likeliest_spread(groups: Sequence[Group]) -> float:
    """Return the spread of models' own paces under which the errors of some groups are likeliest."""
    return min(SPREADS, key=lambda spread: sum(group[_own(spread)] for group in groups))


def _own(spread: float) -> str:
    return f"surprise at {spread:g}"


def own_notes(own: Mapping[str, Group]) -> list[str]:
    """Return the means over groups, without and with experts, in a sentence each."""
    found = []
    for what, experts in (("without", False), ("with", True)):
        groups = [group for name, group in own.items() if name.endswith(EXPERTS) == experts]
        if groups:
            shown = ", ".join(
                f"{100 * np.mean([g[key] for g in groups]):.1f} % with {key} of its own runs" for key in _columns()
            )
            found.append(f"stacks left out, {len(groups)} groups {what} experts: {shown}")
            found.append(f"likeliest spread of a model's own pace {what} experts: {likeliest_spread(groups):g}")
    return found


def own_section(own: Mapping[str, Group]) -> str:
    """Return the section of docs/generated/validation.md."""
    lines = [
        "## With your own runs",
        "",
        "A family is left out of the fit and priced as a stack that nobody measured; then one, two or five of its",
        f"runs on one accelerator in one precision, drawn {DRAWS} times, calibrate it (`plan --calibrate`). Mean error",
        "of the other runs, in %.",
        "",
        "| runs of | runs | none | 1 | 2 | 5 |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in own.items():
        lines.append(f"| {name} | {group['runs']} | {' | '.join(f'{100 * group[key]:.1f}' for key in _columns())} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in own_notes(own))])


def _columns() -> list[str]:
    return ["none", *map(str, COUNTS)]


def _mean(errors: Array) -> float:
    return float(np.abs(np.expm1(errors)).mean())
