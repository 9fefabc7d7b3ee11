"""The type that weights are held in, and the way to the loss, as roles of the cost model: what a run says of itself.

Of frozen weights in few bits, embedding, output and norms stay as they are, and a matrix has its full width while it
multiplies.
"""

from collections.abc import Iterable, Mapping

from ...errors import InputError, nearest
from ...workload.conventions import EVERY_SECOND, FROZEN_BYTES, HALF_STATES, OWN
from ...workload.elements import HALF_BYTES, SINGLE_BYTES
from .optimizers import ADAM_BYTES

BITS_AND_BYTES = frozenset({"nf4", "nf4-nested", "int8"})  # types that its layers hold, one scale for some weights
WEIGHTS = ("fp32", "bf16", *FROZEN_BYTES)
# Rows of logits at once, and parts of a micro-batch, where a loss never has all. Logits of the rows that Liger's fused
# kernel takes are about as large as what enters them (src/liger_kernel/ops/fused_linear_cross_entropy.py): of 16,384
# rows of Qwen2.5 7B it takes 512. torchtitan and torchtune have eight parts.
FUSED_ROWS = 512.0
PARTS = 8.0
LOSSES: Mapping[str, Mapping[str, float]] = {
    "whole": {"loss_chunks": 1.0, "loss_rows": 0.0},
    "compiled": {"loss_chunks": 1.0, "loss_rows": 0.0, "logit_bytes": float(SINGLE_BYTES)},
    # logits as products return them, their softmax and two gradients alike
    "half": {"loss_chunks": 1.0, "loss_rows": 0.0, "logit_bytes": 4.0 * HALF_BYTES},
    "chunked": {"loss_chunks": PARTS, "loss_rows": 0.0},
    "fused": {"loss_chunks": 1.0, "loss_rows": FUSED_ROWS},
}
# A stack that nobody described has one kernel for its loss ("compiled"). Who says "whole" or "chunked" of it has
# PyTorch's own loss, as FSDP2's engines do.
OF_TORCH = {name: float(getattr(EVERY_SECOND, name)) for name in ("logit_bytes", "parallel_logit_bytes")}
BY_TORCH = frozenset({"whole", "chunked"})
UNPACKED = "frozen weights unpack at the memory's rate, in one kernel each time"


def weight_roles(name: str, master_bytes: float, *, adapters: bool, where: str) -> dict[str, float]:
    """Return the roles that the type of the weights settles; {} where none is named.

    "bf16" has gradients and moments in half precision and no master copy; "fp32" such a copy, or weights that are it.
    InputError for an unknown type, and for frozen weights in few bits without `adapters` to train.
    """
    plain = name.lower()
    if not plain:
        return {}
    if plain not in WEIGHTS:
        raise InputError(f"{where}: {name!r}: no such type ({nearest(plain, WEIGHTS)})")
    if plain in FROZEN_BYTES:
        if not adapters:
            raise InputError(f"{where} {plain}: weights in so few bits are frozen; expected adapters as well (LoRA)")
        return {"base_bytes": FROZEN_BYTES[plain]}
    if plain == "bf16":
        return {name: float(value) for name, value in {**HALF_STATES, "gradient_bytes": 2}.items()}
    if master_bytes:
        return {"master_bytes": master_bytes}
    single = float(SINGLE_BYTES)
    return {
        "shares_single": 1.0, "gradient_bytes": single, "held_gradient_bytes": single, "master_bytes": single,
        "optimizer_bytes": single + ADAM_BYTES,
    }  # fmt: skip


def loss_roles(name: str, *, where: str, stranger: bool = False) -> dict[str, float]:
    """Return the roles that the way to the loss settles; {} where none is named, InputError for an unknown one.

    `stranger`: the stack is one that nobody described, whose loss is PyTorch's where it is no kernel's.
    """
    plain = name.lower()
    if not plain:
        return {}
    if plain not in LOSSES:
        raise InputError(f"{where}: {name!r}: no such loss ({nearest(plain, LOSSES)})")
    found = dict(LOSSES[plain])
    if stranger and plain in BY_TORCH:
        return found | OF_TORCH
    return found | {"parallel_logit_bytes": found["logit_bytes"]} if "logit_bytes" in found else found


def is_said(roles: Iterable[str]) -> tuple[bool, bool]:
    """Return whether roles of a run say how its weights are held, and how its logits exist."""
    names = frozenset(roles)
    return not names.isdisjoint({"master_bytes", "base_bytes"}), "loss_rows" in names


def check_own(stack: str, flags: Mapping[str, str]) -> None:
    """Raise InputError where a stack is our own engine, which holds single precision and has logits as it has them."""
    told = next((flag for flag, value in flags.items() if value), "")
    if told and stack == OWN:
        raise InputError(f"{told}: not of our own engine; expected --stack NAME, such as accelerate")
