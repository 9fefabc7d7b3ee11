"""Recipes of a stack's newest release: the switches that they set for a model, a machine and a precision.

A row of a table names its release, and `[traits]` of `data/stacks.toml` tell from it how the run differs from others of
its stack. A plan names none: it is asked of the newest release that the stack's measured runs have.
"""

import re

from ..analytic.coefficients import book

GRAPHED = "graphed"  # the trait of runs whose iteration is one graph


def graphed_by_recipe(stack: str, accelerator: str, model: str, precision: str) -> bool:
    """Return whether the newest release's recipe runs an iteration as one CUDA graph."""
    known = book()
    release = known.stacks[stack].release if stack in known.stacks else ""
    beside = f"{accelerator}; {model}; {release}; precision label {precision.upper()}"
    return bool(release) and re.search(known.traits[GRAPHED], beside) is not None


def recipe_of(stack: str, accelerator: str, model: str, precision: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the traits of a plan by that recipe, and in words what is assumed with them; nothing where it has none."""
    if not graphed_by_recipe(stack, accelerator, model, precision):
        return (), ()
    known = book().stacks[stack]
    told = (
        "an iteration is one CUDA graph, with experts in fused kernels and their rows on the way beside the other half "
        f"of a batch, as recipes of {known.title} {known.release} have it on {accelerator} in {precision}"
    )
    return (GRAPHED,), (told,)
