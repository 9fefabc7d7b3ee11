"""Optimisers, and modules that are recomputed, as roles of the cost model."""

from collections.abc import Sequence

from ...errors import InputError, nearest
from ...workload.elements import HALF_BYTES, LOW_BYTES, MOMENTS_BYTES, SINGLE_BYTES
from ...workload.recomputed import modules_number
from .step import UPDATE_BYTES

ADAM_BYTES = float(MOMENTS_BYTES)  # of a parameter's two moments
STATE_PASSES = 2.0  # an update reads and writes the moments
# bytes of a parameter's moments beside its master copy
MOMENTS = {
    **dict.fromkeys(("adamw", "adam", "adamw-fused", "adamw-fp32"), ADAM_BYTES),
    **{"adamw-bf16": 2.0 * HALF_BYTES, "adam8bit": 2.0 * LOW_BYTES},
    **dict.fromkeys(("lion", "muon", "sgd-momentum"), float(SINGLE_BYTES)),  # one moment
    **dict.fromkeys(("adafactor", "sgd"), 0.0),
}
PAGED, EARLY = "paged-", "-in-backward"  # what may stand before a name, and after it
MOMENTS |= {f"{PAGED}{name}": MOMENTS[name] for name in ("adamw", "adamw-fp32", "adam8bit", "lion")}  # bitsandbytes'
AS_HELD = frozenset({"adamw", "adam", "adamw-fused"})  # moments in the type that the stack gives them
LISTED = frozenset({"adamw", "adam"})  # torch's, which works on lists of tensors where its stack does not fuse it
UPDATE_LISTED = "torch's AdamW is not fused: it makes roots of all second moments at once (--optimizer adamw-fused)"
FOLLOWING = frozenset({"lion", "muon", "sgd-momentum"})  # moments have the type of the weights, as AdamW's
MUON = "muon"  # has one moment of a layer's matrices; embedding and output are AdamW's, as in all that implement it
FREE = {MUON: "Muon's products of matrices take no time"}


def moments_of(name: str, *, where: str) -> float:
    """Return the bytes of a parameter's moments beside its master copy.

    InputError, with the nearest, for a name that is not known; `where` says what gave it.
    """
    plain = name.lower().removesuffix(EARLY)
    if plain not in MOMENTS:
        raise InputError(f"{where}: {name!r}: no such optimiser ({nearest(plain, MOMENTS)})")
    return MOMENTS[plain]


def optimizer_assumed(name: str) -> tuple[str, ...]:
    """Return what is assumed of an optimiser by its name."""
    plain = name.lower().removesuffix(EARLY)
    found = [FREE[plain]] if plain in FREE else []
    found += (
        ["moments that are paged lie on the host, and their copies take no time"] if plain.startswith(PAGED) else []
    )
    return tuple(found)


def optimizer_roles(name: str, optimizer_bytes: float, *, where: str) -> dict[str, float]:
    """Return the roles that an optimiser settles; `optimizer_bytes` is what the stack holds under AdamW.

    "optimizer*" multiplies the role of that name. InputError, with the nearest, for a name that is not known; `where`
    says what gave it. A stack that holds less than AdamW's moments in single precision has them in half.
    """
    moments, early = moments_of(name, where=where), name.lower().endswith(EARLY)
    plain = name.lower().removesuffix(EARLY)
    paged, base = plain.startswith(PAGED), plain.removeprefix(PAGED)
    found = {"steps_early": 1.0} if early else {}
    found |= {} if plain in LISTED else {"roots_at_once": 0.0}
    if base in AS_HELD:
        return found | ({"paged_bytes": min(optimizer_bytes, ADAM_BYTES)} if paged else {})
    if optimizer_bytes < ADAM_BYTES and base in FOLLOWING:
        moments /= 2.0
    found |= {"paged_bytes": moments} if paged else {}
    found |= {"ends_moment_bytes": moments} if base == MUON else {}  # as many again: AdamW's second
    return found | {
        "optimizer_bytes": max(optimizer_bytes - ADAM_BYTES, 0.0) + moments,  # some stacks keep moments in half
        "optimizer*": 1.0 - STATE_PASSES * (ADAM_BYTES - moments) / UPDATE_BYTES,
    }


def module_roles(modules: Sequence[str], selective_saves: float, *, where: str) -> dict[str, float]:
    """Return the roles that named modules settle; InputError for a stack that recomputes products, not modules."""
    if selective_saves:
        raise InputError(f"{where}: this stack recomputes by operators, not by modules (megatron, bridge, nemo do)")
    return {"modules_again": float(modules_number(modules))}
