"""Recipes of eight bits with a scale for each row or block: what sources measure of their kernels beside fp8's.

`data/recipes.toml` holds them with their sources. A stack whose runs had such a recipe has a fitted constant in place
of the source's rate for layouts like theirs, which tensor parallelism cut; all others are priced with that rate, which
the answer says and its band is wider for.
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from ...files import convert


class ScalingRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One recipe."""

    of: str  # the precision whose peak, constants and bytes it has
    scales: str  # in words
    rate: float  # of products and their casts, beside those of `of`
    kept: float  # bytes of scales for each element that is kept in eight bits
    source: str
    trait: str = ""  # under which a stack names a constant of its own
    emulated: str = ""  # the precision that computes it where tensor cores take scales of blocks


@functools.lru_cache(maxsize=1)
def recipes() -> dict[str, ScalingRecipe]:
    """Return the recipes by their names, which are precisions."""
    text = resources.files(__package__).joinpath("data", "recipes.toml").read_text("utf-8")
    return {
        name: convert(one, ScalingRecipe, where=f"recipes.toml: {name}") for name, one in tomllib.loads(text).items()
    }


class RecipeUse(msgspec.Struct, frozen=True, kw_only=True):
    """How a precision is priced for a stack on a device."""

    precision: str  # whose constants apply
    rate: float = 1.0  # of a layer's products and their casts
    rate_cut: float | str = 1.0  # of products that tensor parallelism cuts: a number, or a constant's name
    kept: float = 0.0
    trait: str = ""  # of a run that says the same


def recipe_use(precision: str, of_stack: Mapping[str, Any], of_device: Mapping[str, Any]) -> RecipeUse:
    """Return how a precision is priced: as it is, unless it is a recipe's."""
    recipe = recipes().get(precision)
    if recipe is None:
        return RecipeUse(precision=precision)
    if recipe.emulated and f"product.{recipe.emulated}" in of_device:
        return RecipeUse(precision=recipe.emulated, kept=recipe.kept, trait=recipe.trait)
    own = str(of_stack[f"product*{recipe.trait}"]) if has_constant(recipe, of_stack) else recipe.rate
    return RecipeUse(precision=recipe.of, rate=recipe.rate, rate_cut=own, kept=recipe.kept, trait=recipe.trait)


def has_constant(recipe: ScalingRecipe, of_stack: Mapping[str, Any]) -> bool:
    """Return whether a stack names a constant for a recipe."""
    return bool(recipe.trait) and f"product*{recipe.trait}" in of_stack
