"""Numbers on the command line have the bounds of those in files: finite, and no more ranks than there can be."""

import math
from typing import Any

import click

from ..quantities import MOST_RANKS, MOST_SEQUENCES
from .amounts import Whole

MOST = {"gpus": MOST_RANKS, "ranks": MOST_RANKS, "global_batch": MOST_SEQUENCES, "seq_len": 2**40}
MOST_OTHERS = 2**63 - 1  # seeds


def bounded(command: click.Command) -> click.Command:
    """Return the command, whose options now refuse NaN, the infinities and numbers without end.

    Whole numbers may have commas between thousands.
    """
    for option in command.params:
        if option.callback is None:
            option.callback = _checked
        kind = option.type
        if type(kind) is click.IntRange:
            option.type = Whole(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
    return command


def _checked(context: click.Context, option: click.Parameter, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise click.BadParameter(f"{value}: expected a finite number", context, option)
    if isinstance(value, int) and not isinstance(value, bool):
        most = MOST.get(option.name or "", MOST_OTHERS)
        if value > most:
            raise click.BadParameter(
                f"a number of {len(str(value))} digits: expected at most {most:,}", context, option
            )
    return value
