"""Recomputation and sharding that rows leave unsaid, settled by the memory of their GPUs: the runs did run."""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...hardware import Catalogue
from ...layout import Recompute
from ...workload.recomputed import results_number
from ..analytic.coefficients import Book
from ..analytic.fits import OVER, fit_verdicts, trusts
from ..analytic.held_roles import is_said
from ..analytic.quantities import Array
from .batch import Batch, batch_of, memory_of
from .row_layout import NO_LAYOUT
from .runs import Run, RunRow

MOST_SHARDED = 3  # ZeRO stage
BY_NAME = "maxtext"  # engine whose checkpoints keep results by name
# what its recipes of dense models keep where all products are too many: remat_policy save_dot_with_context_except_mlp
# (AI-Hypercomputer/gpu-recipes:src/frameworks/a3ultra/maxtext-configs)
PROJECTIONS = {"results_kept": float(results_number(("qkv_proj", "context", "out_proj")))}


def settled_rows(rows: Sequence[RunRow], catalogue: Catalogue, known: Book) -> list[RunRow]:
    """Return the rows, each with the mildest recomputation and sharding under which it may fit.

    That is where a row states none of it, the stack was never measured, and what is assumed of it surely does not fit.
    The constants of measured stacks hold with what is assumed: tables of theirs say as little. A row that fits in no
    way stays as it is, and so does one that states no layout: tensor or pipeline parallelism may have made it fit. One
    that ran out of memory did not fit. A run that names no stack, and surely does not fit as ours, was another's, where
    it may fit as that.
    """
    found = _settled(rows, catalogue, known)
    others = [place for place, row in enumerate(found) if _ran(row) and row.as_stranger is not None]
    over = _over([run for place in others if (run := found[place].run) is not None], catalogue, known)
    strange = [
        msgspec.structs.replace(rows[place], run=rows[place].as_stranger)
        for place, too_large in zip(others, over, strict=True)
        if too_large
    ]
    settled = _settled(strange, catalogue, known)
    still = _over([run for row in settled if (run := row.run) is not None], catalogue, known)
    by_id = iter(zip(settled, still, strict=True))
    for place, too_large in zip(others, over, strict=True):
        if too_large:
            row, misfit = next(by_id)
            found[place] = found[place] if misfit else row
    return found


def _ran(row: RunRow) -> bool:
    """Return whether a row has something that was measured, and its run was not too large."""
    measured = (row.measured_step_time_s, row.measured_peak_memory_bytes, row.contradiction, row.open_rate)
    return row.run is not None and not row.ran_out and any(measured)


def _settled(rows: Sequence[RunRow], catalogue: Catalogue, known: Book) -> list[RunRow]:
    """Return the rows, each with the mildest of what its own stack may have done under which it may fit."""
    found = list(rows)
    places = [place for place, row in enumerate(rows) if _is_settled(row, known)]
    runs = [run for place in places if (run := rows[place].run) is not None]
    left = list(_over(runs, catalogue, known))
    for step in range(max((len(_milder(run, known)) for run in runs), default=0)):
        tried = [
            (index, ways[step])
            for index, run in enumerate(runs)
            if left[index] and len(ways := _milder(run, known)) > step
        ]
        over = _over([way for _, way in tried], catalogue, known)
        for (index, way), too_large in zip(tried, over, strict=True):
            if not too_large:
                left[index] = False
                found[places[index]] = msgspec.structs.replace(rows[places[index]], run=way)
    return found


def _is_settled(row: RunRow, known: Book) -> bool:
    return row.run is not None and not row.ran_out and _is_open(row.run, known)


def _is_open(run: Run, known: Book) -> bool:
    return known.fitted(run.stack) not in known.errors and NO_LAYOUT not in run.assumed and bool(_milder(run, known))


def _over(runs: Sequence[Run], catalogue: Catalogue, known: Book) -> Array:
    """Return which runs surely do not fit."""
    if not runs:
        return np.zeros(0, dtype=bool)
    batch = batch_of(runs, catalogue, known)
    return np.asarray(verdicts_of(runs, batch, known) == OVER)


def verdicts_of(runs: Sequence[Run], batch: Batch, known: Book) -> Array:
    """Return for each run the index of its word in `layout.FITS`, in the memory of a GPU."""
    pp = np.broadcast_to(batch.grid.pp, len(runs))
    trust = trusts(known, [(run.stack, is_said(run.facts), each) for run, each in zip(runs, pp, strict=True)])
    return np.asarray(fit_verdicts(memory_of(batch, known.values), batch.machine.memory_bytes, trust))


def _milder(run: Run, known: Book) -> list[Run]:
    """Return a run with less in memory than is assumed of it, the least change first."""
    layout = run.layout
    zeros: list[int] = [layout.zero]
    if f"ZeRO {layout.zero}" in run.assumed:
        zeros += [stage for stage in (1, MOST_SHARDED) if stage > layout.zero]
    again: list[tuple[Recompute, dict[str, float]]] = [(layout.recompute, {})]
    if f"recompute {layout.recompute}" in run.assumed and layout.recompute != "full":
        if layout.recompute == "none":
            again.append(("selective", {}))
        if layout.recompute == "none" and known.engine(run.stack) == BY_NAME and not run.architecture.experts:
            again.append(("selective", PROJECTIONS))
        again.append(("full", {}))
    ways = [(zero, recompute, facts) for recompute, facts in again for zero in zeros]
    return [_with(run, zero, recompute, facts) for zero, recompute, facts in ways[1:]]


def _with(run: Run, zero: int, recompute: Recompute, facts: dict[str, float]) -> Run:
    """Return a run with other sharding and recomputation than are assumed, and what is then assumed."""
    layout = run.layout
    told = {f"ZeRO {layout.zero}": f"ZeRO {zero}, {_refuted(layout.zero)}"} if zero != layout.zero else {}
    if recompute != layout.recompute:
        kept = " of all but attention's projections and result" if facts else ""
        told[f"recompute {layout.recompute}"] = f"recompute {recompute}{kept}, {_refuted(layout.recompute)}"
    return msgspec.structs.replace(
        run,
        layout=msgspec.structs.replace(layout, zero=zero, recompute=recompute),
        facts={**run.facts, **facts},
        assumed=tuple(told.get(text, text) for text in run.assumed),
    )


def _refuted(assumed: int | str) -> str:
    return f"since what is live with {assumed} is more than a GPU holds"


def unsaid_doubts(run: Run, known: Book) -> tuple[str, ...]:
    """Return one sentence where a row states no layout, and one where it leaves open how much is computed again.

    The second is of stacks that nobody measured: others' runs leave it as open.
    """
    found = ("layout: the row states none, and another may be faster or slower",) if NO_LAYOUT in run.assumed else ()
    if known.fitted(run.stack) in known.errors or not any(text.startswith("recompute") for text in run.assumed):
        return found
    return (*found, "recomputation: the row does not state it; all of it is up to a third of a step")
