"""Options of closed sets that take others' names too: `--precision` those of PyTorch, `--optimizer` trainers'."""

from collections.abc import Callable
from typing import Any

import click

from .prose import say


def precision_option(text: str) -> Callable[[Any], Any]:
    """Return the option; its value is a precision of the cost model."""
    return click.option("--precision", metavar="NAME", default="bf16", callback=_named, help=text)


def _named(context: click.Context, option: click.Parameter, value: str) -> str:
    from ..plan.analytic.price import precision_named

    return value if context.resilient_parsing else precision_named(value)


def optimizer_of(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the planner's name of an optimiser that a trainer's name means ("paged_adamw_8bit"), and say so."""
    from ..jobs.optimizers import planner_name
    from ..plan.analytic.optimizers import EARLY, MOMENTS

    plain = value.lower()
    known = plain.removesuffix(EARLY) in MOMENTS
    found = None if known else planner_name(plain.removesuffix(EARLY))
    if found is None or found not in MOMENTS:
        return value  # what is not known is refused where it is priced, with the nearest
    found += EARLY if plain.endswith(EARLY) else ""
    say(f"note: --optimizer {value} is {found}", err=True)
    return found
