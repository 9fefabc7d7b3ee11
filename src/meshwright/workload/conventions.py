"""What a training stack does, as facts: in which type things travel and are held, what is sent how often.

`ENGINE` is what `parallel/` does, and `engine(precision)` the same where its forward runs in another type. Other
stacks do what `Conventions()` says, but for what `STACKS` says of them; their fitted constants are in
`plan/cost/data`. Every fact is a number, or an array with one for each run of a table.
"""

import msgspec

from .program import Number

SINGLE_BYTES, HALF_BYTES = 4, 2


class Conventions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts about a stack; switches are 1 for yes and 0 for no.

    Types: bytes of an element of what travels, and of what is held for each parameter. The defaults are what most
    published stacks do: half precision with master weights, Megatron-LM's sends and sums, torchtitan's pipelines.
    """

    weight_bytes: Number = HALF_BYTES  # of a weight that is gathered
    gradient_bytes: Number = SINGLE_BYTES  # of a gradient that travels, and of its sum over micro-batches
    residual_bytes: Number = HALF_BYTES  # of activations between layers, and as they enter products
    product_bytes: Number = HALF_BYTES  # of what products return
    optimizer_bytes: Number = 12  # of a parameter's moments, and of its master copy where there is one
    reshards: Number = 0  # ZeRO in a pipeline: weights are gathered and gradients scattered in each micro-batch
    whole_halves: Number = 0  # ZeRO 2, 3 under schedule=zb: a stage's weights and gradients are whole in between
    sends_cut: Number = 1  # sends between stages are cut over tp
    keys_ring: Number = 1  # cp: keys and values pass round a ring beside attention, twice backwards; 0: gathered before
    routed_cut: Number = 1  # ep: under sequence parallelism rows to the experts are cut over tp
    router_messages: Number = 0  # ep: counts of rows travel first; under tp what the router chose is joined
    gather_waits: Number = 0  # ZeRO 1: the weights are waited for after the update; 0: they come beside the forward
    stops_early: Number = 0  # recomputation ends before the last sum of a layer, whose result nobody needs


ENGINE = Conventions(
    weight_bytes=SINGLE_BYTES, residual_bytes=SINGLE_BYTES, product_bytes=SINGLE_BYTES, optimizer_bytes=8,
    reshards=1, whole_halves=1, sends_cut=0, keys_ring=0, routed_cut=0, router_messages=1, gather_waits=1,
    stops_early=1,
)  # fmt: skip


def engine(precision: str = "float32") -> Conventions:
    """Return what our own engine does: in half precision products alone return fewer bytes (autocast)."""
    if precision in {"float32", "fp32"}:
        return ENGINE
    return msgspec.structs.replace(ENGINE, product_bytes=HALF_BYTES)


OWN = "meshwright"
STACKS = {  # published ones that do otherwise than most
    name: Conventions(gradient_bytes=HALF_BYTES)
    for name in ("vtrainm", "vtrains", "fms")
}  # fmt: skip


def conventions_of(stack: str, precision: str = "bf16") -> Conventions:
    """Return the facts of a stack, of ours those of a precision; of one that nobody described, those of most."""
    return engine(precision) if stack == OWN else STACKS.get(stack, Conventions())
