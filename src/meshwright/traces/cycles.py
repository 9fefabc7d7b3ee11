"""Cycles of a profiler: windows of the same ranks, minutes or hours apart, which figures over all steps blur."""

import statistics
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ..units import format_time
from .model import RankTrace

MOST_SAID = 4


def cycles_apart(ranks: Sequence[Sequence[RankTrace]], wanted: AbstractSet[int]) -> list[str]:
    """Return a note of how long a step takes in each cycle of the profiler; none where there is one cycle."""
    count = min(len(cycles) for cycles in ranks)
    if count < 2:
        return []
    said = []
    for place in range(count):
        windows = [window for cycles in ranks for window in cycles[place].windows if window.number in wanted]
        if windows:
            numbers = sorted({window.number for window in windows})
            which = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {numbers[0]} to {numbers[-1]}"
            lasts = format_time(statistics.median(window.length_s for window in windows))
            said.append(f"{which}, {lasts} each" if len(numbers) > 1 else f"{which}, {lasts}")
    more = f"; and {len(said) - MOST_SAID} more" if len(said) > MOST_SAID else ""
    return [f"the figures are over {count} windows of the profiler: {'; '.join(said[:MOST_SAID])}{more}"]
