"""NeMo 2's own recipes that a file starts from without having them: what the published ones set, and what is asked for.

Source: NVIDIA/NeMo:nemo/collections/llm/recipes/{llama3_8b,llama31_8b,llama3_70b,llama31_70b,qwen25_7b}.py.
"""

import re
from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..draft import Draft
from ..keys import Keys
from ..launch import assignments_of, flags_of
from ..sources import plain_value

STRATEGY = "trainer.strategy."
DEGREES = {
    "tp": f"{STRATEGY}tensor_model_parallel_size",
    "pp": f"{STRATEGY}pipeline_model_parallel_size",
    "vp": f"{STRATEGY}virtual_pipeline_model_parallel_size",
    "cp": f"{STRATEGY}context_parallel_size",
    "sp": f"{STRATEGY}sequence_parallel",
}
LARGE: dict[str, Any] = {"tp": 4, "pp": 4, "vp": 5, "cp": 2, "sp": True}
SMALL: dict[str, Any] = {"tp": 1, "pp": 1, "vp": None, "cp": 2, "sp": False}
PRETRAINING: dict[str, dict[str, Any]] = {
    "llama3_8b": SMALL,
    "llama31_8b": SMALL,
    "qwen25_7b": {"tp": 2, "pp": 1, "vp": None, "cp": 1, "sp": False},
    "llama3_70b": LARGE,
    "llama31_70b": LARGE,
}
# arguments of recipes' functions, and the settings that they become
ARGUMENTS = {
    "tensor_parallelism": DEGREES["tp"],
    "pipeline_parallelism": DEGREES["pp"],
    "virtual_pipeline_parallelism": DEGREES["vp"],
    "context_parallelism": DEGREES["cp"],
    "sequence_parallelism": DEGREES["sp"],
    **{name: f"data.{name}" for name in ("seq_length", "global_batch_size", "micro_batch_size")},
    "precision": "trainer.plugins.precision",
}
REST: dict[str, Any] = {
    **{"data.seq_length": 8192, "data.global_batch_size": 512, "data.micro_batch_size": 1},
    **{"num_nodes": 1, "num_gpus_per_node": 8},
    **{"trainer.plugins.precision": "bf16-mixed", "optim.config.use_distributed_optimizer": True},
}
# of the batch, where a recipe has another one
BATCHES: dict[str, dict[str, Any]] = {
    "qwen25_7b": {"data.seq_length": 4096, "data.global_batch_size": 32, "data.micro_batch_size": 2},
}


def factory_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the recipe that `nemo llm pretrain --factory "llama3_8b(num_nodes=2)"` starts, with its arguments."""
    said = flags_of(arguments).get("factory", "")
    named = str(said[0] if isinstance(said, list) else said)  # overrides without dashes follow it
    kind = next((word for word in arguments if word in {"pretrain", "finetune"}), None)
    match = re.fullmatch(r"([A-Za-z_]\w*)(?:\((.*)\))?", named.strip("\"'"))
    if kind is None or match is None:
        return {}
    given = assignments_of([word.strip() for word in (match[2] or "").split(",")])
    return {"()": f"llm.{match[1]}.{kind}_recipe"} | {key: plain_value(value) for key, value in given.items()}


def recipe_name(keys: Keys) -> str:
    """Return the recipe that a configuration starts from and that is not at hand, empty where it starts from none."""
    name = str(keys.values.get("()", ""))
    return name if name.endswith("_recipe") else ""


def with_recipe(draft: Draft, keys: Keys) -> None:
    """Add what a published recipe sets and the file leaves as it is; InputError where the recipe is not known.

    A part that the file replaces as a whole (`recipe.data = ...`) keeps nothing of the recipe.
    """
    name = recipe_name(keys)
    if not name:
        return
    family = ".".join(name.split(".")[-2:-1])
    draft.model_name = draft.model_name or family or None
    published = PRETRAINING.get(family) if name.endswith("pretrain_recipe") else None
    for argument, key in ARGUMENTS.items():
        if argument in keys.values and key not in keys.values:
            keys.values[key] = keys.raw(argument)
    taken = []
    degrees = {DEGREES[part]: value for part, value in (published or {}).items()}
    for key, value in (degrees | REST | BATCHES.get(family, {})).items():
        if published is not None and key not in keys.values and not _replaced(keys, key):
            keys.values[key] = value
            taken += [] if value is None else [f"{key.rpartition('.')[2]} {value}"]
    if taken:
        draft.assume(f"{', '.join(taken)}: from {name} of NeMo 2")
    if missing := [] if published is not None else _missing(keys):
        told = ", ".join(missing)
        raise InputError(
            f"{keys.where}: takes {told} from {name}, which is not here: give its file, or say {missing[0]}=VALUE"
        )
    draft.assume(f"what {name} sets beyond this file is not known: NeMo's defaults are taken")
    if name.endswith("finetune_recipe") and str(keys.values.get("peft_scheme", "lora")).lower() not in {"none", "null"}:
        draft.adapters(f"peft_scheme lora of {name}", keys.whole("peft.dim", least=1))


def _replaced(keys: Keys, key: str) -> bool:
    """Whether the file makes the part of a recipe that has a key anew; one that it changes is named as the part is."""
    *parts, _ = key.split(".")
    heads = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return any(keys.values.get(f"{head}.()") not in {None, head.rpartition(".")[2]} for head in heads)


def _missing(keys: Keys) -> list[str]:
    """Return the settings that a file must say itself where the recipe that it starts from is not known."""
    needed = [DEGREES[part] for part in ("tp", "pp", "cp")] + ["data.micro_batch_size"]
    if (keys.whole(DEGREES["pp"]) or 1) > 1:
        needed.append(DEGREES["vp"])
    if (keys.whole(DEGREES["tp"]) or 1) > 1:
        needed.append(DEGREES["sp"])
    return [key for key in needed if key not in keys.values]
