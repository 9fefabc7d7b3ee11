"""Published runs that no constant was fitted to, predicted beside measured.

Rows of tests/external/published/unfitted_runs.csv, each with its source. `--write` puts the table into
docs/generated/validation.md.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.memory_rows import FOLDER
from benchmarks.memory_rows import HEAD as NEXT
from benchmarks.pages import grid
from benchmarks.result import GENERATED, Result
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic import book
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import Unpriced, known_models, predict

HEAD = "## Runs that nobody fitted"


def predicted() -> list[dict[str, Any]]:
    """Return every run with its measured and its predicted step time."""
    catalogue, known = load_catalogue(), book()
    rows = read_rows(FOLDER / "unfitted_runs.csv", catalogue, known, known_models())
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
                "fits": outcome.fits,
            }
        )
    return found


def by_family(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the errors of each family, and of all."""
    priced = [row for row in rows if row["error %"] is not None]
    found = []
    for name in [*dict.fromkeys(row["family"] for row in priced), "all"]:
        errors = np.abs([row["error %"] for row in priced if name in {row["family"], "all"}])
        shares = {"mean %": errors.mean(), "median %": np.median(errors), "worst %": errors.max()}
        found.append({"family": name, "runs": len(errors)} | {key: f"{share:.1f}" for key, share in shares.items()})
    return found


def section(rows: list[dict[str, Any]]) -> str:
    """Return the section of docs/generated/validation.md, of the rows of `predicted`."""
    return "\n\n".join(
        (
            HEAD,
            "Written by `python -m benchmarks unfitted --write`. Runs of `unfitted_runs.csv`, collected after the "
            "constants were fitted: no constant has seen them. That Automodel's experts are multiplied in fused "
            "kernels that do as well as one product was decided after its runs here were seen. All of them ran.",
            grid(by_family(rows)).strip(),
            grid(rows).strip(),
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
