"""The layouts that a search keeps: what the setting's stack can run, and what `--only` and `--not` leave."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from ..jobs.rules import allowed, misordered, refusals
from ..layout import Layout
from ..workload.architecture import Architecture
from ..workload.conventions import OWN
from ..workload.engines import ENGINES, VARIANTS, EngineFacts
from .analytic import Grid, Setting, book
from .analytic.conditions import kept
from .legality import unrunnable
from .space import in_every_order, runnable

XLA = "xla"  # trait of runs under JAX on GPUs
Mask = npt.NDArray[np.bool_]


def engine_of(stack: str) -> EngineFacts | None:
    """Return the engine that a stack runs on, or its own variant of that; None where its rules are not known."""
    known = book().stacks
    return VARIANTS.get(stack, ENGINES.get(known[stack].engine)) if stack in known else None


def can_run(setting: Setting, grid: Grid) -> Mask:
    """Return which layouts the setting's stack can run; all of them where its rules are not known."""
    if setting.stack == OWN:
        return runnable(grid)
    engine = engine_of(setting.stack)
    if engine is None or not len(grid):
        return np.ones(len(grid), dtype=bool)
    model = setting.architecture
    return allowed(engine, grid.columns(), model.num_key_value_heads, model.num_hidden_layers)


def in_its_orders(setting: Setting, grid: Grid) -> Grid:
    """Return each layout in every axis order that differs in effect and that the stack and the conditions allow."""
    every = in_every_order(grid)
    if not len(every):
        return every
    mask = kept(setting.conditions, every, only={"order"})
    engine = engine_of(setting.stack)
    if engine is not None:
        mask &= ~misordered(engine.orders, every.columns())
    return every if mask.all() else every.take(np.flatnonzero(mask))


def unlike_its_stack(stack: str, layout: Layout, model: Architecture, traits: Collection[str] = ()) -> Sequence[str]:
    """Return the rules of a stack's engine that a layout of a model breaks, in words; of ours what it cannot run.

    `traits` are what is written beside a run of a stack: under JAX its engine is MaxText.
    """
    if stack == OWN:
        return [problem] if (problem := unrunnable(layout)) else []
    engine = ENGINES["maxtext"] if XLA in traits else engine_of(stack)
    return [] if engine is None else refusals(engine, layout, model.num_key_value_heads, model.num_hidden_layers)


def narrowed_search(setting: Setting, grid: Grid) -> tuple[Grid, dict[str, int]]:
    """Return what the search is kept to, and how many layouts were left out for which reason."""
    left: dict[str, int] = {}
    mask = can_run(setting, grid)
    if not mask.all():
        left[f"that stack {setting.stack} cannot run"] = int((~mask).sum())
    asked = kept(setting.conditions, grid)
    if not asked.all():
        told = " ".join(condition.flag for condition in setting.conditions)
        left[f"outside {told}"] = int((mask & ~asked).sum())
    mask &= asked
    return (grid if mask.all() else grid.take(np.flatnonzero(mask))), left
