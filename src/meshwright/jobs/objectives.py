"""Objectives of fine-tuning that are no texts: answers that are compared, and answers that are made and rewarded.

Sources: hiyouga/LLaMA-Factory:src/llamafactory/hparams/finetuning_args.py (stage), huggingface/trl:trl/trainer (one
trainer for each), axolotl-ai-cloud/axolotl:src/axolotl/utils/schemas/enums.py (RLType).
"""

import re

from ..units import counted
from .draft import Draft
from .keys import Keys
from .launch import Launch
from .shell.marks import shown
from .unsupported import HINT

# learnt from pairs of answers, chosen and rejected, which go through the model as two sequences of one batch
# (concatenated_forward of TRL's trainers and of OpenRLHF's, PairwiseDataCollatorWithPadding of LLaMA-Factory)
PAIRED = frozenset({"dpo", "ipo", "simpo", "orpo", "cpo", "rm"})
# learnt from pairs, or from answers that are judged one by one beside a frozen copy of the model
COMPARED = PAIRED | {"kto", "bco", "prm"}
WITHOUT_COPY = frozenset({"simpo", "orpo", "cpo", "rm", "prm"})  # which compare with no other model
# learnt from answers that the model makes while it is trained
MADE = frozenset({"ppo", "grpo", "gdpo", "rloo", "gkd", "rlhf", "dapo"})
SUPERVISED = frozenset({"sft", "pt", "pretrain", "pretraining", "cpt"})
STAGES = ("arguments.stage", "axolotl.rl", "arguments.trainer")  # the last is a class of TRL's in a program
COPY = "a frozen copy of the model beside it, its weights and its forward pass, is not priced"
AGAIN = "the forward pass of the model without its adapters is not priced"


def read_objective(draft: Draft, keys: Keys, program: str) -> None:
    """Count both answers of a pair as sequences, and say what is not priced; InputError where answers are made.

    What a program learns from is said by the stage of its trainer, else by its name.
    """
    stage = next((key for key in STAGES if _kind(keys, key) in COMPARED | MADE | SUPERVISED), None)
    if stage is not None:
        kind, told = _kind(keys, stage), f"{keys.told(stage)}:"
    else:
        kind, told = objective_by_name(program), f"{shown(program).rpartition('/')[2]}, by its name,"
    if kind in MADE:
        _refuse_shares(draft, keys, told)
        raise draft.refused(f"{told} learns from answers that are made while it trains, which is not read: {HINT}")
    compare_answers(draft, kind, told)


def compare_answers(draft: Draft, kind: str, told: str) -> None:
    """Count both answers of a pair as sequences, and say what is not priced; nothing for other ways to learn."""
    if kind in PAIRED:
        _count_pairs(draft)
        draft.note(f"{told} learns from pairs of answers: two sequences for each sample, in micro-batch and batch")
    if kind in COMPARED - WITHOUT_COPY:
        draft.ignore(f"{told} learns from answers that are compared: {AGAIN if draft.lora_rank else COPY}")


def named_program(launch: Launch | None) -> str:
    """Return the name of what a command starts: of TRL's own with the word that says what it learns from."""
    if launch is None:
        return ""
    word = launch.arguments[0] if launch.program == "trl" and launch.arguments else ""
    return f"trl {word}" if word else launch.program


def objective_by_name(program: str) -> str:
    """Return what a program learns from by the words of its name; "" for texts, and where it names several ways."""
    name = shown(program).rpartition("/")[2]
    if name == "trl reward":
        return "rm"
    parts = set(re.split(r"[^a-z]+", name.removesuffix(".py").lower()))
    named = sorted(parts & (COMPARED | MADE))
    return "" if not named or parts & SUPERVISED else named[0]


def _refuse_shares(draft: Draft, keys: Keys, told: str) -> None:
    """Raise InputError where the answers of a round are no whole groups, of one prompt each (TRL's grpo_config.py)."""
    group = keys.whole("arguments.num_generations", least=1)
    if group is None or draft.world is None or "mbs" not in draft.batch:
        return
    (micro, per_rank), (ranks, _) = draft.batch["mbs"], draft.world
    rounds = keys.whole("arguments.steps_per_generation", least=1) or draft.batch.get("steps", (1, ""))[0]
    product = f"{per_rank} x {counted(ranks, 'rank')} x {counted(rounds, 'pass')} = {micro * ranks * rounds} answers"
    if said := keys.whole("arguments.generation_batch_size", least=1):
        product = keys.told("arguments.generation_batch_size")
    if (said or micro * ranks * rounds) % group:
        raise draft.refused(f"{told} makes {product}, no multiple of {keys.told('arguments.num_generations')}")


def _count_pairs(draft: Draft) -> None:
    """Take the numbers of the batch as counts of pairs, of two sequences each."""
    for name in {"global", "local", "mbs"} & draft.batch.keys():
        count, told = draft.batch[name]
        draft.batch[name] = (2 * count, f"2 x {told}")


def _kind(keys: Keys, key: str) -> str:
    value = keys.raw(key)
    word = value.lower().removesuffix("trainer") if isinstance(value, str) else ""
    return "rm" if word == "reward" else word


def assume_full_rows(draft: Draft) -> None:
    """List that rows are priced as full where nothing puts several samples into one."""
    if draft.seq_len:
        draft.assume(f"rows of the full {draft.seq_len} tokens: nothing packs samples, so rows may be shorter")
