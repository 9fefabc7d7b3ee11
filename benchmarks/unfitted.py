"""Published runs that no constant was fitted to, predicted beside measured.

Rows of unfitted_runs.csv and unfitted_runs_2.csv in tests/external/published, each with its source. `--write` puts the
tables into docs/generated/validation.md.
"""

import argparse
import csv
from typing import Any

import numpy as np

from benchmarks.memory_rows import FOLDER
from benchmarks.memory_rows import HEAD as NEXT
from benchmarks.pages import grid
from benchmarks.result import GENERATED, Result
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic import book
from meshwright.plan.analytic.coefficients import Book
from meshwright.plan.tables.runs import band_of, read_rows
from meshwright.plan.validate import Unpriced, known_models, predict

HEAD = "## Runs that nobody fitted"
TABLE, SECOND = "unfitted_runs.csv", "unfitted_runs_2.csv"


def predicted(table: str = TABLE) -> list[dict[str, Any]]:
    """Return every run of a table with its measured and its predicted step time."""
    catalogue, known = load_catalogue(), book()
    rows = read_rows(FOLDER / table, catalogue, known, known_models())
    with (FOLDER / table).open(newline="") as opened:
        first = {cells["id"]: float(cells["first_error"]) for cells in csv.DictReader(opened) if "first_error" in cells}
    found: list[dict[str, Any]] = []
    for row, outcome in zip(rows, predict(rows, catalogue, known), strict=True):
        if isinstance(outcome, Unpriced) or row.run is None or row.measured_step_time_s is None:
            found.append({"id": row.id, "family": row.family, "error %": None, "fits": "unpriced"})
            continue
        share = outcome.step_time_s / row.measured_step_time_s - 1
        found.append(
            {
                "id": row.id,
                "family": row.family + (" (experts)" if row.run.architecture.experts else ""),
                "GPUs": row.run.gpus,
                "measured s": f"{row.measured_step_time_s:.3f}",
                "predicted s": f"{outcome.step_time_s:.3f}",
                "error %": round(100 * share, 1),
                "band %": round(100 * outcome.error_band),
            }
            | ({"first %": first[row.id]} if row.id in first else {})
            | {"fits": outcome.fits}
        )
    return found


def nine_in_ten(known: Book, *, experts: bool) -> float:
    """Return the band that nine in ten runs of stacks without fitted ones are within, as their doubts widen it."""
    catalogue, models = load_catalogue(), known_models()
    beyond: list[float] = []
    for table in (TABLE, SECOND):
        rows = read_rows(FOLDER / table, catalogue, known, models)
        for row, outcome in zip(rows, predict(rows, catalogue, known), strict=True):
            run, measured = row.run, row.measured_step_time_s
            if isinstance(outcome, Unpriced) or run is None or measured is None or run.stack in known.errors:
                continue
            if experts == (run.architecture.experts > 0):
                doubts = (outcome.error_band or 0.0) - band_of(run, known)
                beyond.append(abs(outcome.step_time_s / measured - 1) - doubts)
    return round(float(np.quantile(beyond, 0.9)), 3)


def by_family(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the errors of each family, and of all, with how many are beyond their bands."""
    priced = [row for row in rows if row["error %"] is not None]
    found = []
    for name in [*dict.fromkeys(row["family"] for row in priced), "all"]:
        of_name = [row for row in priced if name in {row["family"], "all"}]
        errors = np.abs([row["error %"] for row in of_name])
        beyond = sum(abs(row["error %"]) > row["band %"] for row in of_name)
        shares = {"mean %": errors.mean(), "median %": np.median(errors), "worst %": errors.max()}
        figures = {key: f"{share:.1f}" for key, share in shares.items()}
        first = [abs(row["first %"]) for row in of_name if "first %" in row]
        figures |= {"first mean %": f"{np.mean(first):.1f}"} if first else {}
        found.append({"family": name, "runs": len(errors), "beyond band": beyond} | figures)
    return found


def section(rows: list[dict[str, Any]]) -> str:
    """Return the section of docs/generated/validation.md: the rows of `predicted`, then those of the second table."""
    second = predicted(SECOND)
    return "\n\n".join(
        (
            HEAD,
            "Written by `python -m benchmarks unfitted --write`. Runs of `unfitted_runs.csv`, collected after the "
            "constants were fitted: no constant has seen them. That Automodel's experts are multiplied in fused "
            "kernels that do as well as one product was decided after its runs here were seen. All of them ran.",
            grid(by_family(rows)).strip(),
            grid(rows).strip(),
            "Runs of `unfitted_runs_2.csv`, of other sources; `first %` is what the planner was off before anything "
            "was changed after them: what hides Megatron-LM's tensor parallelism, rows that a dispatcher sends once to "
            "each rank, norms of several operators, and bands of jobs beyond what any run had.",
            grid(by_family(second)).strip(),
            grid(second).strip(),
        )
    )


def run(arguments: list[str]) -> Result:
    """Return the errors of runs that nobody fitted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks unfitted", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/generated/validation.md")
    options = parser.parse_args(arguments)
    rows = predicted()
    if options.write:
        page = GENERATED / "validation.md"
        before, _, rest = page.read_text().partition(f"\n{NEXT}")
        before = before.partition(f"\n{HEAD}")[0].rstrip()
        page.write_text(f"{before}\n\n{section(rows)}\n\n{NEXT}{rest}")
    notes = [f"{one['family']}: {one['mean %']} % mean over {one['runs']} runs" for one in by_family(rows)]
    return Result("error of the predicted step time on runs that nobody fitted, in %", rows, notes)
