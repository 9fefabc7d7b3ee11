"""Changes that let a layout fit: more recomputation, smaller micro-batches, more sharding, the memory of the hosts."""

import itertools
from collections.abc import Iterator
from typing import get_args

import msgspec
import numpy as np

from ...layout import OFFLOADS, Layout, Recompute
from ...workload.engines import shares_key_heads
from ..analytic import Grid, Setting, price_layouts
from ..analytic.fits import SURE
from ..analytic.price import verdicts_in
from ..layouts.filters import unlike_its_stack
from ..layouts.legality import illegal
from .explore import row_of
from .study import PricedLayout

RECOMPUTES = get_args(Recompute)  # from none of it to all
MOST_ZERO = 3
KEYS = ("recompute", "mbs", "zero", "offload")


def that_fit(setting: Setting, layout: Layout, *, count: int = 3) -> tuple[PricedLayout, ...]:
    """Return layouts that differ from one in some of `KEYS` and fit: those with fewest changes, the fastest first.

    The ranks are split as before; rules of the stack's engine that the layout keeps are kept.
    """
    broken = _broken_rules(setting, layout)
    tried = [
        other for other in _changed(layout) if _is_legal(setting, other) and _broken_rules(setting, other) <= broken
    ]
    if not tried:
        return ()
    grid = Grid.of(tried)
    prices = price_layouts(setting, grid)
    fitting = np.flatnonzero(verdicts_in(setting, grid, prices) == SURE)
    numbers = {int(place): len(changes(layout, tried[place])) for place in fitting}
    nearest = [place for place, number in numbers.items() if number == min(numbers.values())]
    fastest = sorted(nearest, key=lambda place: float(prices.step_time_s[place]))[:count]
    return tuple(row_of(setting, grid, prices, place) for place in fastest)


def changes(layout: Layout, other: Layout) -> dict[str, str]:
    """Return the keys of another layout that differ from one, with their values."""
    return {key: str(getattr(other, key)) for key in KEYS if getattr(other, key) != getattr(layout, key)}


def _changed(layout: Layout) -> Iterator[Layout]:
    ways = (
        RECOMPUTES[RECOMPUTES.index(layout.recompute) :],
        [size for size in range(1, layout.mbs + 1) if layout.mbs % size == 0],
        range(layout.zero, MOST_ZERO + 1),
        OFFLOADS[OFFLOADS.index(layout.offload) :],
    )
    for values in itertools.product(*ways):
        try:
            other = msgspec.convert(msgspec.to_builtins(layout) | dict(zip(KEYS, values, strict=True)), Layout)
        except msgspec.ValidationError:  # keys that do not go together
            continue
        if other != layout:
            yield other


def _is_legal(setting: Setting, layout: Layout) -> bool:
    job = {"global_batch": setting.global_batch, "seq_len": setting.seq_len, "ranks": setting.gpus}
    return not illegal(layout, setting.architecture, **job, shared_heads=shares_key_heads(setting.stack))


def _broken_rules(setting: Setting, layout: Layout) -> set[str]:
    """Return the rules of its stack's engine that a layout breaks."""
    told = unlike_its_stack(
        setting.stack, layout, setting.architecture, precision=setting.precision, compiled=setting.compiled
    )
    return set(told)
