"""Pipeline schedules as data: which rank computes which stage of which micro-batch, in what order.

One grid serves the planner (time and memory), the simulator and the running engine.

- `grid`: the noun; `orders`: from a name to a grid; `draw`: as text
- `timing`: when each action runs; `formulas`: closed forms; `cut`: layers into stages
"""

from .cut import (
    SLACK,
    ChainUnit,
    Cut,
    StageTarget,
    best_cut,
    cost_of,
    equal_cut,
    even_stages,
    layers_before,
    links_of_cuts,
    stage_in_flight,
    stage_times,
)
from .draw import picture
from .formulas import bubble_share, in_flight
from .grid import Action, Kind, PipelineGrid, parse_grid
from .orders import SCHEDULES, broken_rule, schedule
from .timing import StageTimes, Timing, peak_in_flight, timed, timed_sharing

__all__ = [
    "SCHEDULES",
    "SLACK",
    "Action",
    "ChainUnit",
    "Cut",
    "Kind",
    "PipelineGrid",
    "StageTarget",
    "StageTimes",
    "Timing",
    "best_cut",
    "broken_rule",
    "bubble_share",
    "cost_of",
    "equal_cut",
    "even_stages",
    "in_flight",
    "layers_before",
    "links_of_cuts",
    "parse_grid",
    "peak_in_flight",
    "picture",
    "schedule",
    "stage_in_flight",
    "stage_times",
    "timed",
    "timed_sharing",
]
