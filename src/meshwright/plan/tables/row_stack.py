"""The stack that prices a row: its family's, or a generic one of its time where nobody knows or names it."""

import re

from ...workload.conventions import OWN
from ..analytic.coefficients import STRANGERS, Book
from ..layouts.stacks import default_stack, find_stack, near_stack
from .cells import Cells, count_of, is_empty
from .columns import without_fsdp
from .row_layout import layout_of

UNFUSED = re.compile(r"(no|without) flash|flash attention (was )?not used|unfused", re.IGNORECASE)
FLASH = re.compile(r"\bflash[- _]?att(ention|n)", re.IGNORECASE)
FSDP = re.compile(r"\b(fsdp2?|hsdp)\b(?! shard)", re.IGNORECASE)  # PyTorch's, by its own name
MCORE, MEGATRON = "megatron", re.compile(r"\bmegatron[- _]?(core|lm)\b", re.IGNORECASE)
JAX = re.compile(r"MaxText|Pax(ML|ml)|\bJAX\b|^tpu")  # whose FSDP is XLA's
UNSEEN_BAND = "the band of a stack that nobody measured"


def stack_of_row(
    family: str, cells: Cells, default: tuple[str, str], known: Book, beside: str, assumed: list[str]
) -> str:
    """Return the stack that prices a row: its family's, the one of `default`, or a generic one of its time.

    A run with a year was somebody's, and not our own engine's. `default`: of rows without a family, and why that.
    """
    found = find_stack(family, known)
    if found is not None:
        return found
    stack, why = default
    named = is_empty(family) and stack in known.stacks
    generic = stack if named else stranger_of(cells, beside)
    if generic == STRANGERS[0] and not UNFUSED.search(beside):
        assumed.append("attention in kernels of its own steps (notes: flash attention, where it was fused)")
    if named:
        assumed.append(f"stack {stack}, since {why or 'family is empty'}")
        return stack
    if is_empty(family):
        assumed.append(f"stack {generic}, since family is empty and year is {cells['year']}: {UNSEEN_BAND}")
        return generic
    near = near_stack(family, known)
    hint = f" (did you mean {near}?)" if near else ""
    if generic == STRANGERS[-1] and (told := MEGATRON.search(beside)) and MCORE in known.stacks:
        assumed.append(f"family {family}{hint}: no such stack; facts of {MCORE}, since {told[0]} is named beside it")
        return MCORE
    assumed.append(f"family {family}{hint}: no such stack; generic facts of {generic}, {UNSEEN_BAND}")
    return generic


def is_dated(cells: Cells) -> bool:
    """Return whether a row tells whose software it ran, or of which time."""
    return not (is_empty(cells.get("family", "")) and is_empty(cells.get("year", "")))


def default_of_row(
    cells: Cells, engine: tuple[str, str], precision: str, known: Book, counts: tuple[int, int], further: int,
    accelerator: str, beside: str,
) -> tuple[str, str]:  # fmt: skip
    """Return the stack of a row that names none, and why it is that: its `engine`, or what `plan` takes.

    That is ours only for what ours runs, and of fp16, which ours does not train in, the one whose time it tells.
    `counts`: GPUs in all, and of a node.
    """
    if engine[0] or is_dated(cells):
        return engine
    if precision == "fp16":
        return stranger_of({**cells, "precision": precision}, beside), ""
    ours = known.stacks.get(OWN)
    layout = layout_of(cells, ours, *counts, [])[0] if ours else None
    return default_stack(precision, layout, further, accelerator=accelerator), ""


def stranger_of(cells: Cells, beside: str) -> str:
    """Return the stack that a run of an unknown one is taken for: by its year and what is written beside it.

    Training in fp16 and Megatron-DeepSpeed are taken for signs of the time before fused attention, where nothing names
    such a kernel, FSDP by its name for PyTorch's own kernels.
    """
    year = count_of(cells, "year", 2024)
    half = cells.get("precision", "").lower() == "fp16"
    old = year < 2023 or half or "megatron-deepspeed" in cells.get("notes", "").lower()
    if UNFUSED.search(beside) or (old and not FLASH.search(beside)):
        return STRANGERS[0]
    if year <= 2023:
        return STRANGERS[1]
    sharded = cells.get("zero_stage_fsdp", "")
    if FSDP.search(sharded) and not without_fsdp(sharded) and not JAX.search(beside):
        return STRANGERS[2]
    return STRANGERS[3]
