"""Fit the planner's constants to the published runs; print errors by family, fitted and with layout clusters left out.

`--write` stores the constants and error bands in the package and docs/generated/validation.md; `--gains` measures first
what each constant brings on left-out rows (minutes).
"""

import argparse
import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks import unfitted
from benchmarks.calibration import own_notes, own_section, with_own_runs
from benchmarks.memory_rows import section
from benchmarks.planner_bars import bars_section
from benchmarks.result import GENERATED, Result
from benchmarks.validation_page import page
from meshwright.hardware import Catalogue, load_catalogue
from meshwright.plan.analytic.coefficients import GENERIC, STRANGERS, UNSEEN, Book, Errors, book
from meshwright.plan.analytic.fitted_range import kinds_seen, seen
from meshwright.plan.analytic.quantities import Array
from meshwright.plan.fitting.fit import Fitted, cluster, fit_constants, folds, predicted_s
from meshwright.plan.tables.batch import Batch, batch_of
from meshwright.plan.tables.runs import RunRow, read_rows, seen_of
from meshwright.plan.validate import known_models

PUBLISHED = Path("tests/external/published")
TABLES = ("training_runs.csv", "training_runs_2.csv")
DATA = Path("src/meshwright/plan/analytic/data")
FOLDS, GAIN_FOLDS = 8, 2
REFITS, GAIN_REFITS = 8, 1  # iterations from the constants of all runs
LIKE = 60  # rows of a team that weigh one each; teams of more weigh less a row, down to the root
EXPERTS_WEIGHT = 0.2  # of a run with experts: releases differ by a third, and what they differ in is not stated
SWEEP_LAYOUTS = 4

Part = tuple[npt.NDArray[np.bool_], Array]  # which rows it is, and the constants that the other rows give


@dataclass(frozen=True)
class Study:
    """The runs that are fitted to, as arrays, with how much each counts."""

    rows: list[RunRow]
    batch: Batch
    measured_s: Array
    weights: Array
    trusted: Array
    everything: list[RunRow]
    reasons: dict[str, str]

    @property
    def families(self) -> list[str]:
        """Family of each row; runs of experts apart."""
        return [row.family + (" (experts)" if _experts(row) else "") for row in self.rows]


def study(known: Book) -> Study:
    """Return the published runs with full inputs."""
    catalogue = load_catalogue()
    everything = published(catalogue, known)
    doubts = tomllib.loads((PUBLISHED / "distrusted.toml").read_text())
    rows = [
        row
        for row in everything
        if row.run and row.measured_step_time_s and row.family not in doubts["families"] and not _partial(row)
    ]
    trusted = np.array([row.id not in doubts["rows"] for row in rows])
    counts = Counter(team_of(row) for row in rows)
    share = np.array([(LIKE / max(counts[team_of(row)], LIKE / 3)) ** 0.5 for row in rows])
    experts = np.array([EXPERTS_WEIGHT if _experts(row) else 1.0 for row in rows])
    return Study(
        rows=rows,
        batch=batch_of([row.run for row in rows if row.run], catalogue, known),
        measured_s=np.array([row.measured_step_time_s for row in rows]),
        weights=share * experts * trusted,
        trusted=trusted,
        everything=everything,
        reasons={**doubts["rows"], **{f: f"family {f}: {why}" for f, why in doubts["families"].items()}},
    )


def published(catalogue: Catalogue, known: Book, *, strangers: bool = False) -> list[RunRow]:
    """Return the rows of all tables of published runs."""
    models = known_models()
    return [row for t in TABLES for row in read_rows(PUBLISHED / t, catalogue, known, models, strangers=strangers)]


def team_of(row: RunRow) -> str:
    """Return whose runs a row is one of: families of one team and stack are left out together."""
    return row.family.split("_")[0]


def by_fold(
    known: Book, data: Study, start: Array, count: int, *, fixed: Sequence[str] = (), iterations: int = REFITS
) -> list[Part]:
    """Return, for each part of the layout clusters, its rows and the constants that all other rows give."""
    dealt = folds(data.rows, count)
    return [
        (out, _fit(known, data, ~out, start=start, fixed=fixed, iterations=iterations).values)
        for out in (dealt == fold for fold in range(count))
    ]


def left_out(data: Study, parts: Sequence[Part]) -> Array:
    """Return the log error of each row, predicted by constants that never saw its layout cluster."""
    errors = np.zeros(len(data.rows))
    for out, values in parts:
        errors[out] = np.log(predicted_s(data.batch.take(out), values) / data.measured_s[out])
    return errors


def unseen(
    known: Book, data: Study, start: Array, parts: Sequence[Part]
) -> tuple[Array, Array, dict[str, dict[str, float | int]]]:
    """Return the log error of each row, its whole family left out and priced as a stack that nobody measured.

    First with nothing known of the family, then on a machine that is known: the constants of its hosts and links are
    those of the fits that saw other layout clusters on it, everything of the software is left out as before. Last, of
    each group of runs that one user might have, the error with some of them for a calibration.
    """
    own: dict[str, dict[str, float | int]] = {}
    errors, on_machine = np.zeros(len(data.rows)), np.zeros(len(data.rows))
    teams = np.array([team_of(row) for row in data.rows])
    catalogue = load_catalogue()
    strange = published(catalogue, known, strangers=True)
    runs = {row.id: row.run for row in strange if row.run}
    machine = np.array([constant.machine for constant in known.constants.values()])
    for team in dict.fromkeys(teams):
        out = teams == team
        found = _fit(known, data, ~out, start=start)
        theirs = [runs[row.id] for row in data.rows if team_of(row) == team]
        own |= with_own_runs(theirs, data.measured_s[out], data.trusted[out], catalogue, known, found.values)
        bare, equipped = (batch_of(theirs, catalogue, book) for book in (known, _on_machine(known, team)))
        errors[out] = np.log(predicted_s(bare, found.values) / data.measured_s[out])
        for part, values in parts:
            seen = np.where(machine, values, found.values)
            on_machine[out & part] = np.log(predicted_s(equipped.take(part[out]), seen) / data.measured_s[out & part])
    return errors, on_machine, own


def _on_machine(known: Book, family: str) -> Book:
    """Return the book in which unknown stacks run on this family's hosts and links."""
    stack = known.stacks.get(family, GENERIC)
    own = {r: name for r, name in stack.uses.items() if isinstance(name, str) and known.constants[name].machine}
    strangers = {
        name: msgspec.structs.replace(known.stacks[name], uses={**known.stacks[name].uses, **own}) for name in STRANGERS
    }
    return msgspec.structs.replace(known, stacks={**known.stacks, **strangers})


def gains(known: Book, data: Study, start: Array) -> dict[str, float]:
    """Return, for each constant, the points of left-out error that it saves beside its prior."""
    dense = np.array([not _experts(row) for row in data.rows])
    base = left_out(data, by_fold(known, data, start, GAIN_FOLDS, iterations=GAIN_REFITS))
    found = {}
    for name in known.names:
        errors = left_out(data, by_fold(known, data, start, GAIN_FOLDS, fixed=[name], iterations=GAIN_REFITS))
        rows = dense if name not in {"routing", "launch_moe", "ep_exposed", "scan"} else ~dense
        touched = rows & data.trusted & _uses(known, data, name)
        found[name] = 100.0 * float(_share(errors[touched]).mean() - _share(base[touched]).mean())
        print(f"  {name}: {found[name]:+.2f} points over {touched.sum()} runs")
    return found


def regrets(data: Study, errors: Array) -> list[tuple[str, int, float]]:
    """Return, for each sweep of layouts of one model, its size and how much slower the predicted best is."""
    sweeps: dict[str, list[int]] = {}
    for index, row in enumerate(data.rows):
        assert row.run is not None
        run = row.run
        name = (
            f"{row.family} {run.architecture.name} {run.gpus} GPUs, batch {run.global_batch} x {run.seq_len}, "
            f"{run.accelerator} {run.precision} {run.architecture.num_hidden_layers}x{run.architecture.hidden_size}"
            f"x{run.architecture.num_attention_heads}"
        )
        sweeps.setdefault(name, []).append(index)
    found = []
    for name, members in sweeps.items():
        layouts = {str(row.run.layout) for row in (data.rows[i] for i in members) if row.run}
        if len(layouts) >= SWEEP_LAYOUTS:
            measured = data.measured_s[members]
            best = int(np.argmin(measured * np.exp(errors[members])))
            found.append((name, len(layouts), float(measured[best] / measured.min() - 1.0)))
    return found


def run(arguments: list[str]) -> Result:
    """Fit, print the errors by family, and write what `--write` asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fit_planner", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store constants, bands and docs/generated/validation.md")
    parser.add_argument(
        "--gains",
        action="store_true",
        help="measure what each constant brings on left-out rows, the others adjusting once",
    )
    options = parser.parse_args(arguments)
    known = book()
    data = study(known)
    best = fit_constants(known, data.batch, data.measured_s, data.weights)
    parts = by_fold(known, data, best.values, FOLDS)
    out = left_out(data, parts)
    strange, on_machine, own = unseen(known, data, best.values, parts)
    saved = gains(known, data, best.values) if options.gains else {}
    rows = table(data, best.errors, out, strange, on_machine)
    sweeps = regrets(data, best.errors)
    notes = [f"{len(known.names)} constants", *_sweep_notes(sweeps), *own_notes(own)]
    if options.write:
        _write_constants(known, best, saved)
        _write_errors(data, best.errors, out, strange, _reread(known, best, saved))
        write_seen(data)
        book.cache_clear()  # what follows is priced as it was written
        seen.cache_clear()
        text = page(_reread(known, best, saved), data, best.errors, out, strange, rows, sweeps)
        parts = (
            text.rstrip(),
            own_section(own),
            bars_section(rows, own).rstrip(),
            unfitted.section(unfitted.predicted()),
            section(),
        )
        (GENERATED / "validation.md").write_text("\n\n".join(parts) + "\n")
        notes.append("written: constants.toml, errors.toml, seen.toml, docs/generated/validation.md")
    return Result("error of the predicted step time on published runs, in %", rows, notes)


def table(data: Study, fitted: Array, out: Array, strange: Array, on_machine: Array) -> list[dict[str, object]]:
    """Return the errors by family and over all dense runs, with and without the distrusted rows."""
    families = np.array(data.families)
    dense = np.array([not _experts(row) for row in data.rows])
    groups = [(name, families == name) for name in dict.fromkeys(families)]
    groups += [("all dense", dense), ("all dense, trusted", dense & data.trusted)]
    rows: list[dict[str, object]] = []
    for name, members in groups:
        a, b, c, d = (_share(errors[members]) for errors in (fitted, out, strange, on_machine))
        kept = _share(out[members & data.trusted])
        rows.append(
            {
                "family": name,
                "runs": int(members.sum()),
                "fitted": _percent(a.mean()),
                "left out": _percent(b.mean()),
                "left out, trusted": _percent(kept.mean()),
                "median": _percent(np.median(b)),
                "nine in ten": _percent(np.quantile(b, 0.9)),
                "worst": _percent(b.max()),
                "stack unseen": _percent(c.mean()),
                "on a machine that is known": _percent(d.mean()),
            }
        )
    return rows


def _sweep_notes(sweeps: list[tuple[str, int, float]]) -> list[str]:
    values = [regret for _, _, regret in sweeps]
    return [f"{len(values)} layout sweeps: mean regret {100 * np.mean(values):.1f} %, worst {100 * max(values):.1f} %"]


def _fit(
    known: Book, data: Study, rows: Array, *, start: Array, fixed: Sequence[str] = (), iterations: int = REFITS
) -> Fitted:
    batch, measured, weights = data.batch.take(rows), data.measured_s[rows], data.weights[rows]
    return fit_constants(known, batch, measured, weights, start=start, fixed=fixed, iterations=iterations)


def _uses(known: Book, data: Study, name: str) -> Array:
    return np.asarray((data.batch.plan[0] == known.names.index(name)).any(axis=(1, 2)))


def _experts(row: RunRow) -> bool:
    return row.run is not None and row.run.architecture.experts > 0


def _partial(row: RunRow) -> bool:
    return row.run is not None and "micro-batch 1" in row.run.assumed


def _share(errors: Array) -> Array:
    return np.abs(np.exp(errors) - 1.0)


def _nine_in_ten(errors: Array) -> float:
    return round(float(np.quantile(_share(errors), 0.9)), 3)


def _percent(value: float) -> float:
    return round(100.0 * float(value), 1)


def _reread(known: Book, best: Fitted, saved: dict[str, float]) -> Book:
    values = dict(zip(known.names, best.values, strict=True))
    return msgspec.structs.replace(
        known,
        constants={
            name: msgspec.structs.replace(c, value=float(f"{values[name]:.4g}"), gain=saved.get(name, c.gain))
            for name, c in known.constants.items()
        },
    )


def _write_constants(known: Book, best: Fitted, saved: dict[str, float]) -> None:
    """Rewrite constants.toml with the values fitted and the gains measured."""
    lines = [
        "# The fitted constants of the cost model, written by `python -m benchmarks fit_planner --gains --write`.",
        "# prior: expected before any run is seen, with its spread as a logarithm; low, high: bounds from physics;",
        "# gain: points of mean error on left-out runs that use it, beside the constant held at its prior.",
    ]
    for name, constant in _reread(known, best, saved).constants.items():
        lines += ["", f"[{name}]", f'meaning = "{constant.meaning}"', f'unit = "{constant.unit}"']
        lines += ["machine = true"] if constant.machine else []
        numbers = ("value", "prior", "spread", "low", "high")
        lines += [f"{key} = {getattr(constant, key)!r}" for key in numbers]
        lines += [f"gain = {constant.gain:.2f}"] if constant.gain is not None else []
    (DATA / "constants.toml").write_text("\n".join(lines) + "\n")


def _write_errors(data: Study, fitted: Array, out: Array, strange: Array, refitted: Book) -> None:
    """Rewrite errors.toml; of stacks that nobody measured the runs that nobody fitted are asked too.

    Families of one table resemble each other more than they do the run of a stranger.
    """
    lines = ["# How far off each stack was: `python -m benchmarks fit_planner --write` writes this file. Shares."]
    stacks = np.array([row.family for row in data.rows])
    experts = np.array([_experts(row) for row in data.rows])
    for name in [*dict.fromkeys(stacks), UNSEEN]:
        members = data.trusted if name == UNSEEN else (stacks == name)
        held = strange if name == UNSEEN else out
        plain = members & ~experts if (members & ~experts).any() else members
        bands = [_nine_in_ten(held[some]) if some.any() else None for some in (plain, members & experts)]
        if name == UNSEEN:
            strangers = [unfitted.nine_in_ten(refitted, experts=own) for own in (False, True)]
            bands = [max(own or 0.0, other) for own, other in zip(bands, strangers, strict=True)]
        found = Errors(
            runs=int(members.sum()),
            fitted=round(float(_share(fitted[members]).mean()), 4),
            left_out=round(float(_share(held[members]).mean()), 4),
            band=bands[0] or 0.0,
            experts_band=bands[1],
        )
        told = {key: getattr(found, key) for key in found.__struct_fields__ if key != "times"}
        lines += ["", f"[{name}]"] + [f"{key} = {value!r}" for key, value in told.items() if value is not None]
    each = [f"{time} = {band!r}" for time, band in _bands_by_time(data, strange, refitted).items()]
    lines += [f"times = {{ {', '.join(each)} }}"]
    (DATA / "errors.toml").write_text("\n".join(lines) + "\n")


def _bands_by_time(data: Study, strange: Array, known: Book) -> dict[str, float]:
    """Return the band of the trusted runs without experts of each time, their whole families left out."""
    runs = {row.id: row.run for row in published(load_catalogue(), known, strangers=True) if row.run}
    times = np.array([runs[row.id].stack for row in data.rows])
    dense = data.trusted & np.array([not _experts(row) for row in data.rows])
    of_time = {time: dense & (times == time) for time in STRANGERS}
    return {time: _nine_in_ten(strange[mask]) for time, mask in of_time.items() if mask.any()}


def write_seen(data: Study) -> None:
    """Rewrite seen.toml: the rare kinds of layouts and of layers, the devices and the stacks of the trusted runs."""
    runs = [seen_of(row.run) for row, trusted in zip(data.rows, data.trusted, strict=True) if row.run and trusted]
    found = kinds_seen(runs, book())
    lines = ["# Fitted runs by kind of layout, by device and by stack: `python -m benchmarks fit_planner --write`"]
    lines += [f"expert_width = {found.expert_width}", f"further = {found.further}", "", "[kinds]"]
    lines += [f'"{kind}" = {count}' for kind, count in found.kinds.items()]
    lines += ["", "[mixers]", *(f"{kind} = {count}" for kind, count in found.mixers.items())]
    lines += ["", "[devices]", *(f"{name} = {count}" for name, count in found.devices.items())]
    lines += ["", "[stacks]", *(f"{name} = {json.dumps(devices)}" for name, devices in sorted(found.stacks.items()))]
    lines += ["", "[lengths]", *(f"{name} = {longest}" for name, longest in sorted(found.lengths.items()))]
    lines += ["", "[networks]", *(f"{name} = {slowest}" for name, slowest in sorted(found.networks.items()))]
    (DATA / "seen.toml").write_text("\n".join(lines) + "\n")


__all__ = ["Study", "cluster", "run"]
