"""The best layouts once more, in the event simulator: every message on its links, every micro-batch in its place.

The closed formulas price all layouts; where they leave something out (rings that share a NIC, a transfer that arrives
late in the pipeline), the simulator of the same step sees it. The rank is then the simulator's; the prediction stays
the formulas', whose constants are fitted.
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ...errors import InputError
from ...layout import Layout
from ...timeline import Timeline
from ...units import format_time
from ..analytic import Setting
from .explore import MAX_ROWS, Priced, best_of_each_split, row_of
from .simulated import left_out_on_torus, simulate_plan
from .study import PricedLayout, Study


def refined(study: Study, setting: Setting, priced: Priced, count: int) -> Study:
    """Return the study with its `count` fastest layouts simulated and ranked by that.

    The fastest of each way to split the ranks are simulated first, then the next fastest of any, so that every row has
    been.
    """
    simulated = [
        replace(row_of(setting, priced.grid, priced.prices, index), simulated_s=step_s)
        for index in _chosen(priced, count)
        if (step_s := _simulated_s(setting, priced.grid.layout(index))) is not None
    ]
    if not simulated:
        return replace(study, warnings=(*study.warnings, "the simulator could not hold any of the fastest layouts"))
    simulated.sort(key=lambda row: row.simulated_s or 0.0)
    rows = tuple(_one_of_each_split(simulated))[:MAX_ROWS]
    lacking = tuple(f"not simulated: {text}" for text in left_out_on_torus(setting))
    study = replace(study, warnings=(*study.warnings, *lacking))
    return replace(study, rows=rows, reason=f"{study.reason} {_sentence(study, rows[0], simulated)}")


def _chosen(priced: Priced, count: int) -> list[int]:
    order = np.argsort(priced.prices.step_time_s, kind="stable")
    first = best_of_each_split(priced.grid, order)[: min(count, MAX_ROWS)]
    others = [index for index in order[:count].tolist() if index not in set(first.tolist())]
    return [*first.tolist(), *others[: max(0, count - len(first))]]


def _simulated_s(setting: Setting, layout: Layout) -> float | None:
    """Return the simulated step, or None where the simulator cannot hold the layout."""
    try:
        timeline: Timeline = simulate_plan(setting, layout)
    except InputError:
        return None
    return max(span.end_s for span in timeline.spans)


def _one_of_each_split(rows: list[PricedLayout]) -> Iterator[PricedLayout]:
    seen = set()
    for row in rows:
        layout = row.layout
        split = (layout.tp, layout.pp, layout.dp, layout.cp, layout.ep)
        if split not in seen:
            seen.add(split)
            yield row


def _sentence(study: Study, winner: PricedLayout, simulated: list[PricedLayout]) -> str:
    """Return what the simulator makes of the formulas' winner."""
    text = f"Of the {len(simulated)} fastest in the event simulator"
    assert winner.simulated_s is not None
    mine = format_time(winner.simulated_s)
    if winner.layout == study.best.layout:
        return f"{text} it stays the fastest ({mine})."
    first = next((row for row in simulated if row.layout == study.best.layout), None)
    beside = "cannot be held there" if first is None else f"takes {format_time(first.simulated_s or 0.0)}"
    return f"{text} {winner.layout} is the fastest ({mine}; {study.best.layout} {beside})."
