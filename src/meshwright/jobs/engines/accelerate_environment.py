"""Variables that Accelerate takes a configuration from where its launcher has not set them: of FSDP and of DeepSpeed.

Source: huggingface/accelerate:src/accelerate/accelerator.py (a plugin is made where ACCELERATE_USE_FSDP or
ACCELERATE_USE_DEEPSPEED is true), utils/dataclasses.py (the plugins' fields) and utils/launch.py (their names).
"""

from collections.abc import Mapping
from typing import Any

from ..sources import plain_value

ON = frozenset({"1", "true", "yes", "y", "t", "on"})  # utils/environment.py, str_to_bool
PLACE = "accelerate."
USES = (  # a plugin's switch, its kind, the start of its variables, and where these stand in Accelerate's YAML
    ("ACCELERATE_USE_FSDP", "FSDP", "FSDP_", "fsdp_config.fsdp_"),
    ("ACCELERATE_USE_DEEPSPEED", "DEEPSPEED", "ACCELERATE_DEEPSPEED_", "deepspeed_config."),
    ("ACCELERATE_USE_MEGATRON_LM", "MEGATRON_LM", "MEGATRON_LM_", "megatron_lm_config.megatron_lm_"),
)
SAME = {"config_file": "deepspeed_config_file"}  # names that the YAML has otherwise
ALONE = {
    "ACCELERATE_MIXED_PRECISION": "mixed_precision",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps",
}


def accelerate_variables(environment: Mapping[str, str], *, launched: bool) -> dict[str, tuple[Any, str]]:
    """Return settings of Accelerate that a program's environment says, under full names, each with its variable.

    `launched`: Accelerate's own launcher starts the program, and sets precision and accumulation itself.
    """
    found: dict[str, tuple[Any, str]] = {}
    for switch, kind, start, place in USES:
        if environment.get(switch, "").strip().lower() not in ON:
            continue
        found[f"{PLACE}distributed_type"] = kind, switch
        for name, text in environment.items():
            if name.startswith(start):
                key = name.removeprefix(start).lower()
                found[f"{PLACE}{place}{SAME.get(key, key)}"] = plain_value(text), name
    for name, key in ALONE.items():
        if environment.get(name) and not launched:
            found[f"{PLACE}{key}"] = plain_value(environment[name]), name
    return found
