"""Names of DeepSpeed configurations that are not at hand: the stage of ZeRO and the offload that they say.

Publishers name these files by it: hiyouga/LLaMA-Factory:examples/deepspeed (ds_z3_offload_config.json),
axolotl-ai-cloud/axolotl:deepspeed_configs (zero3_bf16_cpuoffload_params.json),
allenai/open-instruct:configs/ds_configs.
"""

import re
from pathlib import PurePath
from typing import Any

STAGE = re.compile(r"(?<![a-z])(?:zero|stage|z)[-_ ]?(?:stage[-_ ]?)?([0-3])(?!\d)")
OFFLOAD = frozenset({"offload", "offloading", "offloaded", "cpu", "cpuoffload"})
# what of the states is offloaded, where a name says more than that something is
PARTS = {
    **dict.fromkeys(("param", "params", "parameters"), "offload_param"),
    **dict.fromkeys(("optim", "optimizer"), "offload_optimizer"),
}
OFFLOADED = {"offload_param": "parameters", "offload_optimizer": "optimizer states"}
HALF = "bf16"  # a precision that a name says beside them
# words of a name that say nothing of the states; a name with any other word is not understood
EMPTY = frozenset({"accelerate", "cfg", "conf", "config", "configs", "deepspeed", "default", "ds", "hf", "no"})


def stage_by_name(path: str) -> tuple[dict[str, Any], str] | None:
    """Return the DeepSpeed settings that a path names, with what they are in words; None where it names no stage.

    A name with a word that is not understood ("partial", "fp8") names none, and neither does one with two stages.
    An offload of what its stage does not move ("zero2_offload_params") is not understood either.
    """
    stem = PurePath(path).stem.lower()
    stages = set(STAGE.findall(stem))
    words = set(re.findall(rf"{HALF}|[a-z]+|\d+", STAGE.sub(" ", stem)))
    away = bool(words & OFFLOAD) and "no" not in words
    of_states = {*PARTS, "all"} if away else set()  # words that mean nothing but beside an offload
    if len(stages) != 1 or words - EMPTY - OFFLOAD - of_states - {HALF}:
        return None
    stage = int(stages.pop())
    settings: dict[str, Any] = {"zero_optimization": {"stage": stage}}
    told = f"ZeRO {stage}"
    if HALF in words:
        settings[HALF] = {"enabled": True}
        told += f" in {HALF}"
    if away and stage:
        named = {PARTS[word] for word in words & PARTS.keys()}
        whole = {"offload_optimizer", "offload_param"} if stage == 3 else {"offload_optimizer"}
        if not named <= whole or ("all" in words and named):
            return None
        settings["zero_optimization"] |= {part: {"device": "cpu"} for part in named or whole}
        told += f" with offload of {OFFLOADED[min(named)]}" if len(named) == 1 else " with offload"
        told += " to host memory"
    return settings, told
