"""Savings: how a job holds weights, moments and logits otherwise than its engine does, by the planner's names.

Readers say each with the words that told them; `settled` returns what holds beside the options and the adapters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..workload.conventions import FROZEN_BYTES
from .keys import Keys, Unknown

HALF, SINGLE = "bf16", "fp32"
SINGLE_MOMENTS = "adamw-fp32"
DTYPES = {
    **{"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"},
    **{"float32": "fp32", "fp32": "fp32", "float": "fp32", "float8": "fp8", "fp8": "fp8", "uint8": "fp8"},
}


@dataclass(slots=True)
class Savings:
    """The types of weights, the way to the loss and the optimiser that files say, each with the words that say it."""

    weights: tuple[str, str] = ("", "")  # as the planner's --weights has them; "": as the engine holds them
    loss: tuple[str, str] = ("", "")
    optimizer: tuple[str, str] = ("", "")
    single: str = ""  # words of an optimiser whose moments are in single precision beside weights of any type
    by_itself_half: bool = False  # whether the engine holds weights in half precision where nothing is said of them
    remarks: list[str] = field(default_factory=list)  # on moments, of which adapters have next to none


def dtype_of(keys: Keys, *names: str) -> str:
    """Return the type under the first of some keys that is set, by our name, "" for none and for one not known.

    A type of a Python file (`torch.bfloat16`) is known without running it.
    """
    key = keys.find(*names)
    value = None if key is None else keys.raw(key)
    text = value.reason if isinstance(value, Unknown) else str(value)
    return DTYPES.get(text.lower().rpartition(".")[2], "")


class Remarked(Protocol):
    """Lists of what was assumed, of what is not priced, and of remarks."""

    def assume(self, text: str) -> None:
        """Add to what was assumed."""

    def ignore(self, text: str) -> None:
        """Add to what is not priced."""

    def note(self, text: str) -> None:
        """Add a remark."""


def settled(said: Savings, asked: Mapping[str, str | None], remarked: Remarked, *, adapters: bool) -> dict[str, str]:
    """Return the fields of a Job that hold, by the options `asked` or else by the files; what differs is remarked.

    Weights in few bits hold beside `adapters` alone. Beside them weights in half precision are no saving, and what is
    said of single precision is of the adapters, which have it anyway: what is frozen is priced in half
    (huggingface/peft:src/peft/mapping_func.py, autocast_adapter_dtype).
    """
    files = {"weights": said.weights, "loss": said.loss, "optimizer": said.optimizer}
    found = {name: value for name, (value, _) in files.items()}
    for text in () if adapters else said.remarks:
        remarked.ignore(text)
    if found["weights"] in FROZEN_BYTES and not adapters:
        found["weights"] = ""
        why = "weights in so few bits are frozen, and no adapters beside them are priced"
        remarked.ignore(f"{said.weights[1]}: {why}; priced in the precision of the job")
    elif found["weights"] in {HALF, SINGLE} and adapters:
        found["weights"] = ""
    for name, value in asked.items():
        if value and found[name] and value.lower() != found[name]:
            remarked.assume(f"--{name} {value} in place of {files[name][1]}")
        found[name] = (value or found[name]).lower()
    half = found["weights"] == HALF or (said.by_itself_half and not found["weights"])
    if said.single and half and not adapters:
        if found["optimizer"]:
            remarked.ignore(f"{said.single}: moments in single precision beside weights in half are priced in half")
        else:
            found["optimizer"] = SINGLE_MOMENTS
    return found
