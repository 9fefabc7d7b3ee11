"""A grid as text: rows are ranks, columns are ticks."""

from .grid import PipelineGrid
from .timing import StageTimes, timed


def picture(grid: PipelineGrid, times: StageTimes | None = None, *, tick_s: float = 1.0) -> str:
    """Return the grid over time: "." is a tick in which a rank idles, "-" one in which the action before it goes on.

    Without `times` forward takes one tick, backward two, and each half of a split backward one.
    """
    timing = timed(grid, times or StageTimes.even(grid.stages))
    ticks = round(timing.step_s / tick_s)
    width = max(len(str(action)) for action in timing.intervals)
    lines = []
    for rank, row in enumerate(grid.rows):
        cells = ["."] * ticks
        for action in row:
            start, end = (round(t / tick_s) for t in timing.intervals[action])
            cells[start:end] = [str(action), *["-"] * (end - start - 1)][: end - start]
        name = f"rank {rank}".ljust(len(f"rank {grid.ranks - 1}"))
        lines.append(f"{name}  " + " ".join(cell.ljust(width) for cell in cells).rstrip())
    return "\n".join([*lines, f"idle {timing.bubble_share:.1%} of the step"])
