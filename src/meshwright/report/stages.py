"""The memory of the stages of a pipeline, in one line."""

import itertools
from collections.abc import Sequence

from rich.console import Console

from ..plan.analytic.by_stage import StageMemory
from ..units import format_bytes


def show_stages(console: Console, stages: Sequence[StageMemory]) -> None:
    """Print the memory and layers of each stage of a pipeline, and which stage is the fullest; nothing for one stage.

    It is the fullest that the price of a layout counts.
    """
    if len(stages) < 2:
        return
    most = max(stage.allocated_bytes for stage in stages)
    fullest = [str(stage.stage) for stage in stages if format_bytes(stage.allocated_bytes) == format_bytes(most)]
    told = "" if len(fullest) == len(stages) else f"; the fullest: {', '.join(fullest)}"
    console.print(f"allocated on each stage: {stages_text(stages)}{told}", highlight=False, soft_wrap=True)


def stages_text(stages: Sequence[StageMemory]) -> str:
    """Return the memory and layers of each stage in one line, equal neighbours together."""
    parts = []
    for (text, layers), group in itertools.groupby(
        stages, lambda stage: (format_bytes(stage.allocated_bytes), stage.layers)
    ):
        same = [stage.stage for stage in group]
        places = f"{same[0]}" if len(same) == 1 else f"{same[0]}-{same[-1]}"
        parts.append(f"{places}: {text} ({layers:g} layers)")
    return ", ".join(parts)
