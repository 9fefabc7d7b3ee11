"""The search kept to what one engine can run: priced layouts that its rules refuse are set aside, with the count."""

from dataclasses import replace

import numpy as np

from ...errors import InputError
from ...jobs.emit.rules import allowed, broken
from ...units import counted
from ...workload.engines import EngineFacts, itself_with
from ..analytic.coefficients import book
from ..analytic.quantities import take_rows
from .explore import Priced


def restricted(priced: Priced, engine: EngineFacts) -> Priced:
    """Return the priced layouts that an engine can run; InputError, with its rules, where it can run none."""
    engine = itself_with(engine, (condition.name for condition in priced.setting.conditions))
    model = priced.setting.architecture
    sizes = (model.num_key_value_heads, model.num_hidden_layers)
    columns, compiled = priced.grid.columns(), priced.setting.compiled
    kept = np.flatnonzero(allowed(engine, columns, *sizes, compiled=compiled))
    if not len(kept) and len(priced.grid):
        rules = {rule: int(mask.sum()) for rule, mask in broken(engine, columns, *sizes, compiled=compiled).items()}
        told = "; ".join(f"{count:,} because {rule}" for rule, count in rules.items() if count)
        raise InputError(
            f"--engine {engine.name}: it can run none of {counted(len(priced.grid), 'layout')} that fit: {told}"
        )
    return replace(priced, grid=priced.grid.take(kept), prices=take_rows(priced.prices, kept))


def stack_of(engine: EngineFacts) -> str:
    """Return the stack whose fitted constants price an engine: the nearest that was measured."""
    known = book().stacks
    return next(name for name in engine.stacks if name in known)
