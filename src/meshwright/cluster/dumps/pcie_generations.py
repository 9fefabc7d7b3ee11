"""Generations that the PCIe links of GPUs run at: low while a GPU idles, which saves power and is no fault."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

SHOWN = 8  # GPUs that a note names
_AT_WORK = re.compile(r"P[0-2]")  # states in which a GPU computes; the higher the number, the more it sleeps


class Generation(NamedTuple):
    """The generation at which a link runs, the highest that it can, and the performance state, "" if not known."""

    now: int
    most: int
    state: str = ""


def slower_generation(read: Callable[[str], str]) -> Generation | None:
    """Return the generation of a link that runs below its highest, by the facts of `nvidia-smi -q`; None elsewhere."""
    now, most = read("PCIe Generation.Current"), read("PCIe Generation.Max")
    if not re.fullmatch(r"[1-9]", now) or not re.fullmatch(r"[1-9]", most) or int(now) >= int(most):
        return None
    return Generation(int(now), int(most), read("Performance State"))


def generation_notes(slower: Mapping[int, Generation]) -> list[str]:
    """Return what to make of links below their highest generation: those of idle GPUs apart from those at work."""
    idle: dict[Generation, list[int]] = {}
    notes = []
    for gpu, found in slower.items():
        if _AT_WORK.fullmatch(found.state):
            notes.append(
                f"GPU{gpu} runs at PCIe generation {found.now} of {found.most} in state {found.state}, in which it is "
                "not asleep: read it again under load, and look at the slot if it stays"
            )
        else:
            idle.setdefault(found, []).append(gpu)
    for found, gpus in idle.items():
        shown = ", ".join(f"GPU{gpu}" for gpu in gpus[:SHOWN]) + (", ..." if len(gpus) > SHOWN else "")
        why = (
            f"idle (state {found.state}), which saves power and is no fault"
            if found.state
            else "as links of idle GPUs do"
        )
        notes.append(
            f"PCIe generation {found.now} of {found.most} on {shown}: {why}; under load it should be {found.most}"
        )
    return notes
