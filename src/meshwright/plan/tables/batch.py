"""Rows of runs as arrays: model, machine and layout of n rows at once, for the cost model and for its fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from ...hardware import Catalogue
from ..analytic.coefficients import ROLES, Book, Coefficients, gather_coefficients, index_plan, resolve_roles
from ..analytic.factors import adjusted
from ..analytic.memory import MemoryTerms, peak_memory
from ..analytic.price import PRODUCT_BYTES, half_peak_flops_per_s, peak_flops_per_s
from ..analytic.quantities import Array, Grid, Machine, ModelQuantities, Number, take_rows
from ..analytic.step import StepSeconds, step_s
from .runs import Run

T = TypeVar("T", Machine, ModelQuantities)


@dataclass(frozen=True, slots=True)
class Batch:
    """n runs: everything that the cost model needs but the values of its constants."""

    machine: Machine
    model: ModelQuantities
    grid: Grid
    seq_len: Array
    global_batch: Array
    shard: Array
    gpus: Array
    plan: tuple[Any, Array]  # which constants each row uses

    def take(self, rows: Any) -> "Batch":
        """Return some of the rows, by index or by mask."""
        return Batch(
            machine=take_rows(self.machine, rows),
            model=take_rows(self.model, rows),
            grid=self.grid.take(rows),
            seq_len=self.seq_len[rows],
            global_batch=self.global_batch[rows],
            shard=self.shard[rows],
            gpus=self.gpus[rows],
            plan=(self.plan[0][rows], self.plan[1][rows]),
        )


def batch_of(runs: Sequence[Run], catalogue: Catalogue, known: Book) -> Batch:
    """Return the arrays of some runs."""
    uses = [_uses(run, known) for run in runs]
    return Batch(
        machine=_stacked([machine_of_run(run, catalogue) for run in runs], Machine),
        model=_models([ModelQuantities.of(run.architecture) for run in runs]),
        grid=Grid.of([run.layout for run in runs]),
        seq_len=_array([run.seq_len for run in runs]),
        global_batch=_array([run.global_batch for run in runs]),
        shard=_array([run.shard for run in runs]),
        gpus=_array([run.gpus for run in runs]),
        plan=index_plan(known, uses),
    )


def _uses(run: Run, known: Book) -> list[float | list[str | float]]:
    """Return, for each role, the constants of a run's stack and machine, or what the row itself says."""
    found = resolve_roles(known, run.stack, run.accelerator, run.precision, run.traits)
    for role, entry in run.facts.items():
        place = ROLES.index(role.rstrip("*"))
        if role.endswith("*"):
            known_entry = found[place]
            found[place] = [*known_entry, entry] if isinstance(known_entry, list) else known_entry * float(entry)
        else:
            found[place] = [entry] if isinstance(entry, str) else entry
    return found


def batch_coefficients(batch: Batch, values: Array, factors: Mapping[str, Number] | None = None) -> Coefficients:
    """Return the coefficients of each row with these values of the constants, and with factors beside them."""
    return adjusted(gather_coefficients(batch.plan, np.append(values, 1.0)), factors or {})


def step_of(batch: Batch, values: Array, factors: Mapping[str, Number] | None = None) -> StepSeconds:
    """Return the terms of the step of each row with these values of the constants, and with factors beside them."""
    return step_s(
        batch.machine,
        batch_coefficients(batch, values, factors),
        batch.model,
        batch.grid,
        seq_len=batch.seq_len,
        global_batch=batch.global_batch,
        shard=batch.shard,
    )


def memory_of(batch: Batch, values: Array) -> MemoryTerms:
    """Return the memory of the fullest rank of each row."""
    return peak_memory(
        batch.machine,
        batch_coefficients(batch, values),
        batch.model,
        batch.grid,
        seq_len=batch.seq_len,
        global_batch=batch.global_batch,
        shard=batch.shard,
    )


def machine_of_run(run: Run, catalogue: Catalogue) -> Machine:
    """Return the machine of one run."""
    accelerator = catalogue.accelerators[run.accelerator]
    peaks = accelerator.peak_flops_per_s
    return Machine(
        peak=peak_flops_per_s(peaks, run.precision, where=run.accelerator) / run.cores,
        peak_half=half_peak_flops_per_s(peaks, run.precision, where=run.accelerator) / run.cores,
        product_bytes=PRODUCT_BYTES[run.precision],
        memory_rate=accelerator.memory_rate.number / run.cores,
        memory_bytes=accelerator.memory_bytes / run.cores,
        gpus_per_node=run.gpus_per_node,
        domain=run.domain,
        link_rate=run.link_bytes_per_s,
        node_rate=run.node_bytes_per_s,
        **run.host.of_gpu(run.gpus_per_node, run.gpus_per_node),
    )


def _array(values: Sequence[float]) -> Array:
    return np.array(values, dtype=float)


def _models(models: Sequence[ModelQuantities]) -> ModelQuantities:
    """Return models as arrays; where some train modules that predict further tokens, all have their layers' numbers."""
    plain = [replace(model, mtp_layers=None) for model in models]
    found = _stacked(plain, ModelQuantities)
    if all(model.mtp_layers is None for model in models):
        return found
    inner = [model.mtp_layers or alone for model, alone in zip(models, plain, strict=True)]
    return replace(found, mtp_layers=_stacked(inner, ModelQuantities))


def _stacked(items: Sequence[T], kind: type[T]) -> T:
    return kind(**{field.name: _column([getattr(item, field.name) for item in items]) for field in fields(kind)})


def _column(values: Sequence[Any]) -> Any:
    """Return the values of a field as an array; what no row of a table has, as a torus' sides, as it is."""
    return values[0] if values[0] is None or isinstance(values[0], tuple) else _array(values)
