"""Flags that Megatron-LM refuses beside each other: its command ends before a step is made.

Source: NVIDIA/Megatron-LM:megatron/training/arguments.py, validate_args.
"""

from math import prod

from ...errors import InputError
from ..draft import Draft
from ..keys import Keys, as_whole


def refuse_flags(draft: Draft, keys: Keys) -> None:
    """Raise InputError, naming both flags, for two that contradict each other."""
    half, other = (keys.switch(name, default=False) for name in ("bf16", "fp16"))
    if half and other:
        raise _contradiction(keys, "bf16", "fp16")
    if keys.word("fp8-format", "fp8") and keys.word("fp4-format", "fp4"):
        eight, four = keys.find("fp8-format", "fp8") or "", keys.find("fp4-format", "fp4") or ""
        raise _contradiction(keys, eight, four)
    positions, length = keys.whole("max-position-embeddings"), keys.whole("seq-length", "encoder-seq-length")
    if positions and length and positions < length:
        raise InputError(f"{keys.where}: max-position-embeddings {positions} is less than seq-length {length}")
    if keys.switch("use-torch-fsdp2", default=False):
        for axis in ("pp", "ep"):
            if draft.get(axis) > 1:
                raise InputError(f"{keys.where}: use-torch-fsdp2 contradicts {draft.origin(axis)}")
    _check_rings(draft, keys)
    group = keys.whole("microbatch-group-size-per-virtual-pipeline-stage", least=1)
    if group is not None:
        draft.batch["group"] = (group, keys.told("microbatch-group-size-per-virtual-pipeline-stage"))
    if "tp-overlap" in draft.traits and not (draft.switches.get("sp") and draft.get("tp") > 1):
        draft.traits.remove("tp-overlap")
        draft.note("tp-comm-overlap: Megatron refuses it without sequence parallelism; priced without it")


def _check_rings(draft: Draft, keys: Keys) -> None:
    """Raise InputError where the sizes of rings within rings do not multiply to the context parallelism."""
    named = keys.raw("hierarchical-context-parallel-sizes")
    sizes = [as_whole(one) for one in (named if isinstance(named, list) else str(named or "").split())]
    known = [size for size in sizes if size]
    if not known or len(known) != len(sizes):
        return
    if prod(known) != draft.get("cp"):
        told = " x ".join(map(str, known))
        raise InputError(f"{keys.where}: hierarchical-context-parallel-sizes {told} contradicts {draft.origin('cp')}")
    draft.ignore(f"hierarchical-context-parallel-sizes {' x '.join(map(str, known))}: priced as one ring")


def _contradiction(keys: Keys, one: str, other: str) -> InputError:
    return InputError(f"{keys.where}: {keys.name(one)} contradicts {keys.name(other)}: expected one of them")
