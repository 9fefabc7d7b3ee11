"""Workload: what one training step computes, layer by layer."""

import math
from typing import Literal

import msgspec

from ..layout import Recompute

OperatorKind = Literal[
    "embedding",
    "rms_norm",
    "linear",
    "split_heads",
    "attention",
    "context_attention",  # of a rank of cp over keys and values of all; shape: as of attention, and the degree
    "add",
    "dropout",
    "swiglu",
    "cross_entropy",
    "compiled_layer",  # by torch.compile; shape: batch, length, hidden, query heads, key-value heads, intermediate
    "vocabulary_cross_entropy",  # of a rank of tp, which holds some columns of the logits
    "grad_norm",  # once a step; shape: tensors x parameters
    "adamw",  # the same
    "host_grad_norm",  # the same, of what lives in the host's memory, on its processors
    "host_adamw",
    "sharding",  # of a layer's parameters, what FSDP2 does besides its collectives; shape: tensors x ZeRO stage
    "recomputing",  # of a layer, what checkpointing does besides its forward; shape: operators x (1: selective)
    "resuming",  # what a rank that has waited, as before each action of a pipeline, takes longer; no shape
]

_KEPT = {"linear", "attention", "context_attention"}


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One operator of a micro-batch.

    `forward_flops` is its arithmetic; `model_flops` the part that counts towards model FLOPs (matrix products and
    attention; backward is twice that). `saved_bytes` is what it keeps for backward and no other operator keeps.
    """

    kind: OperatorKind
    shape: tuple[int, ...]
    forward_flops: int = 0
    model_flops: int = 0
    saved_bytes: int = 0
    # "bf16" where it runs under torch's autocast to that type, over weights of float32; "fp8", "fp8-emulated" where it
    # multiplies so besides
    autocast: str = ""

    @property
    def key(self) -> str:
        """Name of the operator with its shape, under which its time is stored: "linear[2048x192x320]", "...]:bf16"."""
        return f"{self.kind}[{'x'.join(map(str, self.shape))}]{':' * bool(self.autocast)}{self.autocast}"


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`count` equal layers: the operators of one of them in the order of the forward pass.

    Where torch.compile joins them, `compiled` is what it makes of them.
    """

    name: str
    operators: tuple[Operator, ...]
    parameters: int
    compiled: Operator | None = None
    count: int = 1
    recomputable: bool = False  # may keep only its input and compute the rest again in backward
    experts: int = 0  # that it has on all ranks together
    expert_parameters: int = 0  # of `parameters`: those of the experts that this rank holds

    @property
    def timed(self) -> tuple[Operator, ...]:
        """The operators whose times add up to that of one of the layers."""
        return (self.compiled,) if self.compiled else self.operators

    @property
    def saved_bytes(self) -> int:
        """Bytes of activations that one of the layers keeps for backward."""
        return sum(operator.saved_bytes for operator in self.operators)

    def run_again(self, recompute: Recompute) -> tuple[Operator, ...]:
        """Return the operators whose forward runs once more in backward.

        Selective recomputation keeps what matrix products and attention return; no compiled layer can.
        """
        if recompute == "none" or not self.recomputable:
            return ()
        if recompute == "full":
            return self.timed
        return tuple(operator for operator in self.operators if operator.kind not in _KEPT)


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One micro-batch of a model: its layers in order, and the shapes of its parameters."""

    name: str
    micro_batch: int
    seq_len: int
    layers: tuple[Layer, ...]
    parameter_shapes: tuple[tuple[int, ...], ...]
    schema: Literal["meshwright.workload/1"] = "meshwright.workload/1"

    @property
    def parameters(self) -> int:
        """Number of parameters; a tied tensor counts once."""
        return sum(math.prod(shape) for shape in self.parameter_shapes)

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.micro_batch * self.seq_len

    @property
    def precision(self) -> str:
        """Type in which products compute: "float32", or that of the operators' autocast, of several the narrowest."""
        found = {op.autocast for layer in self.layers for op in layer.operators} - {""}
        return next(iter(sorted(found - {"bf16"}) or found), "float32")

    @property
    def update(self) -> tuple[Operator, ...]:
        """The operators of the optimiser, once a step over all parameters."""
        shape = (len(self.parameter_shapes), self.parameters)
        return (Operator(kind="grad_norm", shape=shape), Operator(kind="adamw", shape=shape))

    @property
    def model_flops(self) -> int:
        """Model FLOPs of forward and backward of the micro-batch: three times the forward's."""
        return 3 * sum(layer.count * op.model_flops for layer in self.layers for op in layer.operators)

    @property
    def saved_bytes(self) -> int:
        """Bytes of activations kept for backward."""
        return sum(layer.count * layer.saved_bytes for layer in self.layers)
