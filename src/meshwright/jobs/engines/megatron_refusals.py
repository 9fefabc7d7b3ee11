"""Flags that Megatron-LM refuses beside each other, or without each other: its command ends before a step is made.

Sources: NVIDIA/Megatron-LM:megatron/training/arguments.py (validate_args), yaml_arguments.py (validate_yaml) and
megatron/core (transformer/transformer_config.py, model_parallel_config.py), __post_init__.
"""

import re
from math import prod

from ...errors import InputError
from ..draft import Draft
from ..keys import Keys, Unknown, as_whole
from ..shell.marks import reasons

SHARDS = ("use-distributed-optimizer", "use-megatron-fsdp", "use-custom-fsdp")
# switches that Megatron takes beside one of others alone
NEEDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("overlap-param-gather", (*SHARDS, "optimizer dist_muon")),
    ("overlap-param-gather", ("overlap-grad-reduce",)),
    ("overlap-param-gather-with-optimizer-step", ("use-distributed-optimizer",)),
    ("overlap-param-gather-with-optimizer-step", ("overlap-param-gather",)),
    ("fp8-param-gather", (*SHARDS, "use-torch-fsdp2")),
    ("fp4-param-gather", ("fp4-format", "fp4")),
    ("optimizer-cpu-offload", ("use-precision-aware-optimizer",)),
    ("distribute-saved-activations", ("recompute-granularity full",)),
    ("recompute-granularity full", ("recompute-method block", "recompute-method uniform")),
)
# pairs of which it takes one alone
APART = (
    ("bf16", "fp16"),
    ("use-torch-fsdp2", "use-distributed-optimizer"),
    ("use-torch-fsdp2", "fp16"),
    ("recompute-granularity selective", "recompute-method"),
)


def refuse_flags(draft: Draft, keys: Keys, *, whole: bool) -> None:
    """Raise InputError, naming both flags, for two that contradict each other, or one that lacks what it needs.

    With `whole` a flag that is not there is off.
    """
    whole = whole and not keys.behind
    flags = Keys(keys.values, keys.where, flags=keys.flags)  # what is looked at here alone is not understood by it
    for one, other in APART:
        if _is_on(flags, one) and _is_on(flags, other):
            raise _contradiction(keys, one, other)
    for one, needed in NEEDS if whole else ():
        if _is_on(flags, one) and all(_is_on(flags, other) is False for other in needed):
            raise InputError(f"{keys.where}: {one} needs {' or '.join(needed)}")
    if whole:
        _check_experts(draft, keys)
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
    _check_virtual(draft, flags)
    group = keys.whole("microbatch-group-size-per-virtual-pipeline-stage", least=1)
    if group is not None:
        draft.batch["group"] = (group, keys.told("microbatch-group-size-per-virtual-pipeline-stage"))
    if "tp-overlap" in draft.traits and not (draft.switches.get("sp") and draft.get("tp") > 1):
        draft.traits.remove("tp-overlap")
        draft.note("tp-comm-overlap: Megatron refuses it without sequence parallelism; priced without it")


def take_ramp(draft: Draft, keys: Keys) -> None:
    """Take the start and the step of a batch that grows; its full size is priced.

    Raises InputError where it is not start, step and samples.
    """
    if "rampup-batch-size" not in keys:
        return
    draft.note("rampup-batch-size: the batch grows at first; the full batch is priced")
    named = keys.raw("rampup-batch-size")
    if isinstance(named, Unknown) or any(reasons(str(one)) for one in (named if isinstance(named, list) else [])):
        return
    said = [as_whole(one) for one in (named if isinstance(named, list) else re.findall(r"[^\s,\[\]]+", str(named)))]
    if len(said) != 3 or None in said:
        raise keys.wrong("rampup-batch-size", "three whole numbers: its start, its step and samples")
    if not keys.switch("decrease-batch-size-if-needed", default=False):
        start, more, _ = said
        draft.batch["ramp"] = (start or 0, f"rampup-batch-size {' '.join(map(str, said))} ({keys.where})")
        draft.batch["ramp-step"] = (more or 0, "")


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


def _check_virtual(draft: Draft, keys: Keys) -> None:
    """Raise InputError for virtual stages on two ranks without transfers that overlap, or by a YAML of arguments."""
    if draft.get("pp") != 2 or "vpp" not in draft.degrees:
        return
    apart = next((name for name in ("no-overlap-p2p-communication", "yaml-cfg") if _is_on(keys, name)), None)
    if apart is not None:
        told = f"{draft.origin('vpp')} on {draft.origin('pp')}"
        raise InputError(f"{keys.where}: {keys.name(apart)} contradicts {told}: expected more than two stages")


def _check_experts(draft: Draft, keys: Keys) -> None:
    """Raise InputError for expert parallelism in fp16, and beside tensor parallelism that leaves the sequence whole."""
    if draft.get("ep") > 1 and draft.precision == "fp16":
        raise InputError(f"{keys.where}: fp16 contradicts {draft.origin('ep')}")
    if draft.get("ep") > 1 and draft.get("tp") > 1 and not draft.switches.get("sp"):
        raise InputError(f"{keys.where}: {draft.origin('ep')} beside {draft.origin('tp')} needs sequence-parallel")


def _is_on(keys: Keys, text: str) -> bool | None:
    """Whether a flag is set and not off, or has the value behind its name; None where only the running job knows."""
    flag, _, value = text.partition(" ")
    found = keys.raw(flag)
    if isinstance(found, Unknown):
        return True if keys.flags and not value else None
    return str(found) == value if value else str(found).lower() not in {"none", "false", "0"}


def _contradiction(keys: Keys, one: str, other: str) -> InputError:
    return InputError(f"{keys.where}: {keys.name(one)} contradicts {keys.name(other)}: expected one of them")
