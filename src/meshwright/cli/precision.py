"""The option `--precision`: a closed set, whose names PyTorch's stand for too."""

from collections.abc import Callable
from typing import Any

import click


def precision_option(text: str) -> Callable[[Any], Any]:
    """Return the option; its value is a precision of the cost model."""
    return click.option("--precision", metavar="NAME", default="bf16", callback=_named, help=text)


def _named(context: click.Context, option: click.Parameter, value: str) -> str:
    from ..plan.analytic.price import precision_named

    return value if context.resilient_parsing else precision_named(value)
