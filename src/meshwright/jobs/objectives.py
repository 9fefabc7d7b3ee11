"""Objectives of fine-tuning that are no texts: answers that are compared, and answers that are made and rewarded.

Sources: hiyouga/LLaMA-Factory:src/llamafactory/hparams/finetuning_args.py (stage), huggingface/trl:trl/trainer (one
trainer for each), axolotl-ai-cloud/axolotl:src/axolotl/utils/schemas/enums.py (RLType).
"""

import re

from .draft import Draft
from .keys import Keys
from .shell.marks import shown
from .unsupported import HINT

# learnt from answers that are compared, or judged one by one beside a frozen copy of the model
COMPARED = frozenset({"dpo", "ipo", "simpo", "orpo", "cpo", "kto", "bco", "rm", "prm"})
# learnt from answers that the model makes while it is trained
MADE = frozenset({"ppo", "grpo", "gdpo", "rloo", "gkd", "rlhf", "dapo"})
SUPERVISED = frozenset({"sft", "pt", "pretrain", "pretraining", "cpt"})
STAGES = ("arguments.stage", "axolotl.rl")
TOLD = (
    "learns from answers that are compared (two sequences for each sample, often beside a frozen copy of the model): "
    "priced as training on one sequence for each"
)


def read_objective(draft: Draft, keys: Keys, program: str) -> None:
    """Say where answers are compared, which is priced as training on texts; InputError where they are made.

    What a program learns from is said by the stage of its trainer, else by its name.
    """
    stage = next((key for key in STAGES if _kind(keys, key) in COMPARED | MADE | SUPERVISED), None)
    if stage is not None:
        kind, told = _kind(keys, stage), f"{keys.told(stage)}:"
    else:
        name = shown(program).rpartition("/")[2]
        parts = set(re.split(r"[^a-z]+", name.removesuffix(".py").lower()))
        named = sorted(parts & (COMPARED | MADE))
        if not named or parts & SUPERVISED:
            return
        kind, told = named[0], f"{name}, by its name,"
    if kind in MADE:
        raise draft.refused(f"{told} learns from answers that are made while it trains, which is not read: {HINT}")
    if kind in COMPARED:
        draft.ignore(f"{told} {TOLD}")


def _kind(keys: Keys, key: str) -> str:
    value = keys.raw(key)
    return value.lower() if isinstance(value, str) else ""
