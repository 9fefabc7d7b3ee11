"""Measured peaks of memory beside predicted ones, and which runs the planner would have refused.

Rows of tests/external/published/memory_rows.csv by family; runs of training_runs.csv give their verdict alone, for
they ran. `--write` puts the tables into docs/generated/validation.md.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from benchmarks.pages import grid as table_of
from benchmarks.result import GENERATED, Result
from meshwright.hardware import Catalogue, load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, book
from meshwright.plan.analytic.coefficients import GENERIC, Book, coefficients
from meshwright.plan.analytic.fits import as_said, fit_verdicts, in_pipelines, memory_trust, word
from meshwright.plan.analytic.held_roles import is_said, loss_roles, weight_roles
from meshwright.plan.analytic.memory import peak_memory
from meshwright.plan.analytic.price import PRODUCT_BYTES
from meshwright.plan.analytic.quantities import Machine, ModelQuantities
from meshwright.plan.tables.row_machine import accelerator_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import Unpriced, known_models, predict
from meshwright.workload.adapters import trained_share
from meshwright.workload.architecture import Architecture
from meshwright.workload.models import load_model

FOLDER = Path(__file__).parents[1] / "tests/external/published"
UNSEEN = FOLDER / "memory_unseen.csv"
UNSEEN_2 = FOLDER / "memory_unseen_2.csv"
HEAD = "## Memory: predicted beside measured"
GIB = 2**30


LATER = (
    "78 more of 24 other sources were predicted at first sight, as a stranger would ask: 72 could be asked, 61 of"
    " them with a figure, and the errors were 19.1 % in the median, 78.6 % in the mean, 125 % for nine in ten; of"
    ' 61 that ran seven "do not fit", and one that ran out was promised. Most of it were facts of a run that '
    "could not be said: weights and moments in half precision alone, a loss in parts or one with the output, "
    "frozen weights in four bits. `--weights` and `--loss` say them now, five more stacks have theirs from their "
    "code, and of experts is kept what the code of Megatron-Core and torchtitan keeps. `memory_unseen_2.csv` has "
    "the rows whose settings can all be said, each with its error at first sight; below is what is predicted "
    "since. Not explained: what torch.compile leaves out of layers without recomputation (thunder, tune-05)."
)


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table with its prediction, in GiB."""

    id: str
    family: str
    layout: str
    full: bool  # all inputs are known, so that its error counts
    ran: bool
    reserved_GiB: float
    allocated_GiB: float
    measured_GiB: float | None  # reserved, or where `live` allocated
    fits: str
    live: bool = False

    @property
    def predicted_GiB(self) -> float:
        """What was predicted of the figure that was measured."""
        return self.allocated_GiB if self.live else self.reserved_GiB

    @property
    def error(self) -> float | None:
        """Predicted over measured bytes, less one; None where none were measured."""
        return self.predicted_GiB / self.measured_GiB - 1 if self.full and self.measured_GiB else None


def peaks(path: Path = FOLDER / "memory_rows.csv") -> list[Peak]:
    """Return every row of a table of measured peaks with its prediction."""
    catalogue, known = load_catalogue(), book()
    with path.open(newline="") as file:
        return [peak(line, path.parent / "models", catalogue, known) for line in csv.DictReader(file)]


def left_out() -> list[Peak]:
    """Return the rows of both tables as if nobody had measured their stacks: by generic facts, none of their own.

    Rows that shard their weights are priced as a stack on FSDP2, as `validate` prices a family that it does not know.
    Rows of Megatron-LM and NeMo are left out of them: the generic facts are theirs.
    """
    catalogue, known, found = load_catalogue(), book(), []
    for path in (FOLDER / "memory_rows.csv", UNSEEN):
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                if line["stack"] in {"megatron", "nemo"}:
                    continue
                stack = "sharded-since-2024" if "zero=3" in line["layout"] else "since-2024"
                split = Layout.parse(line["layout"], world_size=int(line["gpus"])).tp > 1
                sp = ",sp=1" if split and "sp=" not in line["layout"] else ""
                changed = {"stack": stack, "facts": "", "layout": line["layout"] + sp}
                found.append(peak({**line, **changed}, path.parent / "models", catalogue, known))
    return found


def peak(line: Mapping[str, str], models: Path, catalogue: Catalogue, known: Book) -> Peak:
    """Return one row with its prediction; a layout that does not say has its stack's sequence parallelism."""
    file = models / f"{line['model']}.json"
    model = load_model(str(file) if file.exists() else line["model"]).architecture
    layout = Layout.parse(line["layout"], world_size=int(line["gpus"]))
    if layout.tp > 1 and "sp=" not in line["layout"]:
        layout = msgspec.structs.replace(layout, sp=known.stacks.get(line["stack"], GENERIC).sp or SP[line["stack"]])
    key = accelerator_of(catalogue, line["gpu"])
    capacity = catalogue.accelerators[key].memory_bytes
    nothing: Any = dict.fromkeys(("peak", "peak_half", "memory_rate", "gpus_per_node", "domain", "link_rate"), np.nan)
    machine = Machine(
        **nothing, node_rate=np.nan, product_bytes=PRODUCT_BYTES[line["precision"]], memory_bytes=capacity
    )
    grid = Grid.of([layout])
    c = coefficients(known, line["stack"], key, line["precision"])
    roles = roles_of(line, model, c.master_bytes)
    found = peak_memory(
        machine,
        replace(c, **roles),
        ModelQuantities.of(model),
        grid,
        seq_len=float(line["seq"]),
        global_batch=float(line["gbs"]),
        shard=grid.dp * grid.cp / grid.replicas,
    )
    live = line["what"] == "allocated"
    states, loss = is_said(roles)
    trust = as_said(memory_trust(known, line["stack"]), line["stack"], states=states, loss=loss)
    trust = in_pipelines(trust, known, line["stack"], grid.pp)
    measured = line["allocated_GiB" if live else "measured_GiB"]
    return Peak(
        id=line["id"],
        family=line["id"].partition("-")[0],
        layout=str(layout),
        full=line["what"] in {"reserved", "allocated"} and bool(measured),
        ran=line["ran"] == "1",
        reserved_GiB=float(found.reserved_bytes[0]) / GIB,
        allocated_GiB=float(found.allocated_bytes[0]) / GIB,
        measured_GiB=float(measured) if measured else None,
        fits=word(fit_verdicts(found, capacity, trust)[0]),
        live=live,
    )


def roles_of(line: Mapping[str, str], model: Architecture, master_bytes: Any) -> dict[str, float]:
    """Return what a row says of its run beside its stack: how weights and logits are held, adapters, and `facts`."""
    rank = int(line.get("lora_rank") or 0)
    found = weight_roles(line.get("weights", ""), float(master_bytes), adapters=rank > 0, where="weights")
    found |= loss_roles(line.get("loss", ""), where="loss")
    found |= {"trained": trained_share(model, rank)} if rank else {}
    return found | facts_of(line.get("facts", ""))


def facts_of(text: str) -> dict[str, float]:
    """Return what a row says of its run beside its stack: "selective_saves=1;logit_bytes=4"."""
    return {name: float(value) for name, _, value in (part.partition("=") for part in text.split(";") if part)}


SP = {
    "megatron": 1,
    "nemo": 1,
    "titan": 1,
    "torchtitan": 1,
    "deepspeed": 0,
}  # sequence parallelism, where the planner knows no constants of the stack


def by_family(rows: Iterable[Peak]) -> list[dict[str, Any]]:
    """Return errors and verdicts by family, and of all."""
    groups: dict[str, list[Peak]] = {}
    for row in rows:
        groups.setdefault(row.family, []).append(row)
    return [_summary(name, group) for name, group in {**groups, "all": [*rows]}.items()]


def _summary(name: str, rows: list[Peak]) -> dict[str, Any]:
    errors = np.abs([row.error for row in rows if row.error is not None])
    shares = {"median": np.median, "mean": np.mean, "nine in ten": lambda e: np.quantile(e, 0.9), "worst": np.max}
    return {
        "family": name,
        "rows": len(rows),
        "measured": len(errors),
        **{f"{key} %": f"{100 * float(of(errors)):.1f}" if len(errors) else "" for key, of in shares.items()},
        "ran, does not fit": sum(row.ran and row.fits == "does not fit" for row in rows),
        "ran, may not": sum(row.ran and row.fits == "may not" for row in rows),
        "ran out": sum(not row.ran for row in rows),
        "ran out, fits": sum(not row.ran and row.fits == "fits" for row in rows),
    }


def _shown(row: Peak) -> dict[str, Any]:
    """Return one row of a table of peaks."""
    return {
        "id": row.id,
        "layout": row.layout,
        "figure": "allocated" if row.live else "reserved",
        "measured GiB": row.measured_GiB if row.ran else "ran out",
        "predicted GiB": f"{row.predicted_GiB:.2f}",
        "error %": "" if row.error is None else f"{100 * row.error:+.1f}",
        "fits": row.fits,
    }


def published() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the verdicts on the published runs by family, and the runs that would have been refused."""
    catalogue, known = load_catalogue(), book()
    rows = read_rows(FOLDER / "training_runs.csv", catalogue, known, known_models())
    priced = [one for one in predict(rows, catalogue, known) if not isinstance(one, Unpriced)]
    families = sorted({one.family for one in priced})
    found = []
    for name in [*families, "all"]:
        words = [one.fits for one in priced if name in {one.family, "all"}]
        found.append({"family": name, "rows": len(words)} | {w: words.count(w) for w in ("may not", "does not fit")})
    return found, [one.id for one in priced if one.fits == "does not fit"]


def section() -> str:
    """Return the section of docs/generated/validation.md."""
    rows, unseen, later = peaks(), peaks(UNSEEN), peaks(UNSEEN_2)
    runs, refused = published()
    refused = [*(row.id for row in (*rows, *later) if row.ran and row.fits == "does not fit"), *refused]
    return "\n\n".join(
        (
            HEAD,
            "Written by `python -m benchmarks memory_rows --write`. What the allocator held at its peak (reserved), "
            "predicted beside measured, of rows with all inputs; and what it says of rows that ran or ran out.",
            table_of(by_family(rows)).strip(),
            "Peaks of `memory_unseen.csv`, each with its source, were collected afterwards. Predicted at that time, "
            "before any fact was changed for them: median 9.7 %, mean 13.2 %, nine in ten 30.6 %. What mended most of "
            "it are facts of stacks, not fitted numbers: losses in parts or compiled, models of transformers that run "
            "operator by operator, gradients of DeepSpeed in half precision. Not explained: zero-10, the layout of "
            "zero-09 with another number of micro-batches; zero-08, which holds less than its logits; and what four "
            "pipelines of titan24 hold beyond weights, gradients and checkpoints.",
            table_of(by_family(unseen)).strip(),
            table_of(list(map(_shown, unseen))).strip(),
            LATER,
            table_of(by_family(later)).strip(),
            table_of(list(map(_shown, later))).strip(),
            "The published runs all ran. Where a run does not state its recomputation, and with full recomputation it "
            'would fit, the verdict is "may not".',
            table_of(runs).strip(),
            f"Ran, but does not fit for us: {', '.join(refused) or 'none'}.",
        )
    )


def run(arguments: list[str]) -> Result:
    """Return errors and verdicts by family."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory_rows", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/generated/validation.md")
    options = parser.parse_args(arguments)
    if options.write:
        page = GENERATED / "validation.md"
        page.write_text(page.read_text().partition(f"\n{HEAD}")[0].rstrip() + f"\n\n{section()}\n")
    runs, refused = published()
    total = runs[-1]
    notes = [f"published runs: {total}", f"refused: {', '.join(refused) or 'none'}"]
    every = [*peaks(), *peaks(UNSEEN), *peaks(UNSEEN_2)]
    return Result("error of the predicted peak, and verdicts", by_family(every), notes)
