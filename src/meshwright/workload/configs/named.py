"""Classes that files name (`architectures`), and the model types that they are of."""

import re
from collections.abc import Mapping
from typing import Any

from .composites import COMPOSITES
from .families import RECIPES

HEADS = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForMaskedLM",
    "LMHeadModel",
    "ForImageClassification",
    "ForPreTraining",
    "ForVisionText2Text",
    "ForCTC",
    "MTModel",
    "ModelLM",
    "ChatGLMModel",
    "Blip2Model",
    "InternVLChatModel",
)


def model_types() -> list[str]:
    """Return the model types that are understood."""
    return sorted({*RECIPES, *COMPOSITES})


def first_class(config: Mapping[str, Any]) -> str:
    """Return the class that a file names first, nothing where it names none."""
    given = config.get("architectures")
    return given[0] if isinstance(given, list) and given and isinstance(given[0], str) else ""


def type_of_class(config: Mapping[str, Any]) -> str | None:
    """Return the model type whose class a file names, None where none is known by that name."""
    plain = {re.sub("[_-]", "", name): name for name in model_types()}
    return plain.get(re.sub(f"({'|'.join(HEADS)})$", "", first_class(config)).lower())
