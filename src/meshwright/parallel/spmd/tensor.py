"""Tensor parallelism: layers cut over the ranks of tp, with sequence parallelism between them where asked for.

A *column* cut (weights by outputs) is followed by a *row* cut (weights by inputs): between them each rank works on its
own features or heads, and one sum joins them (Shoeybi et al. 2019, arXiv 1909.08053). With sequence parallelism what
lies outside such pairs (norms, residuals) is cut along the sequence, and the sum becomes a reduce-scatter and an
all-gather (Korthikanti et al. 2022, arXiv 2205.05198).

A model says how its layers are cut by a method `split_rules()`, from a layer's name inside the model to a rule;
`parallel.derive` finds the rules of a model that has no such method.
"""

import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InputError
from ...workload.functional import vocabulary_cross_entropy
from ..shard_placement import ShardPlacement, runs, shard_of
from .channel import AxisChannel, copied, gathered, scattered, summed

SEQUENCE_DIM = 1  # of activations [sequences, positions, features]


class Column(NamedTuple):
    """Cut a linear layer by its outputs, each section for itself."""

    sections: tuple[int, ...] = ()  # sizes of fused projections; none: one section


class RowParallel(NamedTuple):
    """Cut a linear layer by its inputs; outputs are summed."""


class Vocabulary(NamedTuple):
    """Cut an embedding by its rows; what a rank does not hold is 0, outputs are summed."""


class Attributes(NamedTuple):
    """Divide whole-number attributes of a module, such as its number of heads."""

    names: tuple[str, ...]


class Loss(NamedTuple):
    """Replace a module's attribute, a function (logits, targets) -> summed loss, by one of logits cut by columns."""

    name: str


class Parameters(NamedTuple):
    """Cut parameters (name, dim, sections) of a module that enters and leaves through its own attribute `seam`."""

    cuts: tuple[tuple[str, int, tuple[int, ...]], ...]


Rule = Column | RowParallel | Vocabulary | Attributes | Loss | Parameters


class Seam:
    """Where activations enter and leave the cut layers: by sums, or by gathering and scattering the sequence."""

    def __init__(self, channel: AxisChannel, *, sequence: bool) -> None:
        self.channel, self.sequence = channel, sequence
        self._last: tuple[weakref.ref[Tensor], Tensor] | None = None

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of a column cut. Several of them on one input (query, key, value) enter once."""
        entered = self.entered(x)
        if entered is None:
            entered = gathered(x, self.channel, SEQUENCE_DIM) if self.sequence else copied(x, self.channel)
            self.keep(x, entered)
        return entered

    def leave(self, x: Tensor) -> Tensor:
        """Return the output of a row cut."""
        self.forget()
        return scattered(x, self.channel, SEQUENCE_DIM) if self.sequence else summed(x, self.channel)

    def column(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the product of a column cut: what enters, times this rank's rows of the weight."""
        return F.linear(self.enter(x), weight)

    def row(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the product of a row cut, times this rank's columns of the weight, as it leaves."""
        return self.leave(F.linear(x, weight))

    def entered(self, x: Tensor) -> Tensor | None:
        """Return what has entered for this input, None if it has not."""
        if self._last is not None and self._last[0]() is x and torch.is_grad_enabled() == self._last[1].requires_grad:
            return self._last[1]
        return None

    def keep(self, x: Tensor, entered: Tensor) -> None:
        """Keep what `enter` returned for input `x`, until `x` is freed or something has left."""
        self._last = (weakref.ref(x, self.forget), entered)

    def whole(self, x: Tensor) -> Tensor:
        """Return whole numbers that belong to what `enter` returned."""
        return self.channel.all_gather(x, SEQUENCE_DIM) if self.sequence else x

    def forget(self, _: object = None) -> None:
        """Let go of what has entered."""
        self._last = None


def split_tensors(
    module: nn.Module, rules: dict[str, Rule], seam: Seam, placements: dict[nn.Parameter, ShardPlacement]
) -> dict[nn.Parameter, ShardPlacement]:
    """Cut the layers of `module` that `rules` name; return the placements of all parameters after it.

    A parameter that two layers share is cut once and stays shared.
    """
    channel = seam.channel
    for name, rule in rules.items():
        layer = module.get_submodule(name)
        if isinstance(rule, Attributes):
            _divide(layer, rule.names, channel.size, name)
        elif isinstance(rule, Loss):
            setattr(layer, rule.name, lambda logits, targets: _split_cross_entropy(logits, targets, channel))
        elif isinstance(rule, Parameters):
            for kind, dim, sections in rule.cuts:
                _cut_weight(module, name, kind, dim, sections, channel, placements)
            layer.seam = seam  # type: ignore[assignment]
        else:
            _split_layer(module, name, layer, rule, seam, placements)
    placements = {p: placements[p] for p in module.parameters()}
    return {p: _replicated(at, channel, sequence=seam.sequence) for p, at in placements.items()}


def _replicated(at: ShardPlacement, channel: AxisChannel, *, sequence: bool) -> ShardPlacement:
    """Return the placement of a parameter that may be whole on every rank of tp."""
    if at.cuts:
        return at
    return at._replace(owner=at.owner and channel.index == 0, partial=sequence)


def _divide(layer: nn.Module, names: tuple[str, ...], parts: int, where: str) -> None:
    for name in names:
        value = getattr(layer, name)
        if value % parts:
            raise InputError(f"tp: {parts} does not divide {where}.{name} = {value}")
        setattr(layer, name, value // parts)


def _split_layer(
    module: nn.Module,
    name: str,
    layer: nn.Module,
    rule: Rule,
    seam: Seam,
    placements: dict[nn.Parameter, ShardPlacement],
) -> None:
    by_outputs, by_inputs = _dims(layer)
    if isinstance(rule, RowParallel):
        _cut_weight(module, name, "weight", by_inputs, (), seam.channel, placements)
        _set_forward(layer, _row_forward, seam)
    elif isinstance(rule, Vocabulary):
        _cut_weight(module, name, "weight", 0, (), seam.channel, placements)
        _set_forward(layer, _vocabulary_forward, seam)
    elif isinstance(rule, Column):
        _cut_weight(module, name, "weight", by_outputs, rule.sections, seam.channel, placements)
        if getattr(layer, "bias", None) is not None:
            _cut_weight(module, name, "bias", 0, rule.sections, seam.channel, placements)
        _set_forward(layer, _column_forward, seam)


def _dims(layer: nn.Module) -> tuple[int, int]:
    """Return the dims of a layer's weight that count its outputs and its inputs."""
    return (1, 0) if _transposed(layer) else (0, 1)


def _transposed(layer: nn.Module) -> bool:
    """Return whether this is a Conv1D of `transformers`, whose weight is [inputs, outputs]."""
    return type(layer).__name__ == "Conv1D"


def _cut_weight(
    module: nn.Module,
    name: str,
    kind: str,
    dim: int,
    sections: tuple[int, ...],
    channel: AxisChannel,
    placements: dict[nn.Parameter, ShardPlacement],
) -> None:
    """Put a cut parameter in the place of a whole one, wherever the module holds it."""
    whole: nn.Parameter = getattr(module.get_submodule(name), kind)
    if dim in placements[whole].cuts:
        return  # shared with a layer that has been cut
    sections = sections or (whole.shape[dim],)
    for size in sections:
        if size % channel.size:
            raise InputError(f"tp: {channel.size} does not divide {name}.{kind}'s {size} rows or columns")
    held = runs(sections, channel.index, channel.size)
    piece = nn.Parameter(shard_of(whole.detach(), dim, held), requires_grad=whole.requires_grad)
    placements[piece] = placements[whole].and_cut(dim, held)
    replace_parameter(module, whole, piece)


def replace_parameter(module: nn.Module, old: nn.Parameter, new: nn.Parameter) -> None:
    """Put `new` wherever a module of the tree holds `old`."""
    for holder in module.modules():
        for key, value in holder._parameters.items():
            if value is old:
                holder._parameters[key] = new


def _set_forward(layer: nn.Module, forward: Callable[..., Tensor], seam: Seam) -> None:
    layer.seam = seam  # type: ignore[assignment]
    layer.forward = types.MethodType(forward, layer)


def _outputs_by_inputs(layer: Any) -> Tensor:
    weight: Tensor = layer.weight.t() if _transposed(layer) else layer.weight
    return weight


def _column_forward(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = layer.seam.column(x, _outputs_by_inputs(layer))
    return y if layer.bias is None else y + layer.bias


def _row_forward(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = layer.seam.row(x, _outputs_by_inputs(layer))
    return y if layer.bias is None else y + layer.bias


def _vocabulary_forward(layer: Any, tokens: Tensor) -> Tensor:
    rows = layer.weight.shape[0]
    local = tokens - layer.seam.channel.index * rows
    absent = (local < 0) | (local >= rows)
    found = F.embedding(local.masked_fill(absent, 0), layer.weight)
    result: Tensor = layer.seam.leave(found.masked_fill(absent[..., None], 0))
    return result


def _split_cross_entropy(logits_NV: Tensor, targets_N: Tensor, channel: AxisChannel) -> Tensor:
    """Return the summed negative log-likelihood where each rank holds the logits of its part of the vocabulary."""

    def greatest(values_N: Tensor) -> Tensor:
        return channel.all_reduce(values_N, dist.ReduceOp.MAX)

    def total(values_N: Tensor) -> Tensor:
        return summed(values_N, channel)

    first = channel.index * logits_NV.shape[1]
    return vocabulary_cross_entropy(logits_NV, targets_N, first, greatest, total)
