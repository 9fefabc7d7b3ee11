"""The search kept to what one engine can run: priced layouts that its rules refuse are set aside, with the count."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..jobs.engines import Engine, allowed, broken
from .cost import Grid
from .cost.coefficients import book
from .explore import Priced, take_prices


def restricted(priced: Priced, engine: Engine) -> Priced:
    """Return the priced layouts that an engine can run; InputError, with its rules, where it can run none."""
    kv_heads = priced.setting.architecture.num_key_value_heads
    columns = _columns(priced.grid)
    kept = np.flatnonzero(allowed(engine, columns, kv_heads))
    if not len(kept) and len(priced.grid):
        rules = {rule: int(mask.sum()) for rule, mask in broken(engine, columns, kv_heads).items()}
        told = "; ".join(f"{count:,} because {rule}" for rule, count in rules.items() if count)
        raise InputError(f"--engine {engine.name}: it can run none of {len(priced.grid):,} layouts that fit: {told}")
    return replace(priced, grid=priced.grid.take(kept), prices=take_prices(priced.prices, kept))


def _columns(grid: Grid) -> dict[str, npt.NDArray[Any]]:
    """Return a grid as arrays by name."""
    columns = {field.name: np.broadcast_to(getattr(grid, field.name), len(grid)) for field in fields(Grid)}
    columns["etp"] = np.broadcast_to(grid.expert_tp, len(grid))
    return columns


def stack_of(engine: Engine) -> str:
    """Return the stack whose fitted constants price an engine: the nearest that was measured."""
    known = book().stacks
    return next(name for name in engine.stacks if name in known)
