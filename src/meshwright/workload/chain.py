"""A workload as the chain of units that a pipeline is cut from: one for each layer, with its time and bytes."""

from collections.abc import Callable

from ..layout import Recompute
from ..pipelines import ChainUnit
from .conventions import engine
from .elements import UPDATED_BYTES
from .graph import Layer, Operator, Workload

Seconds = Callable[[Operator], tuple[float, float]]  # of forward and backward of an operator


def flops_as_seconds(operator: Operator) -> tuple[float, float]:
    """Return the seconds of an operator at 1 FLOP/s: backward computes two products for each one of forward."""
    return float(operator.forward_flops), 2.0 * operator.forward_flops


def chain_units(
    workload: Workload, seconds: Seconds = flops_as_seconds, *, recompute: Recompute = "none"
) -> list[ChainUnit]:
    """Return the units of a workload, in the order of the forward pass.

    The weights' part of backward is the half of the matrix products'. What `recompute` says runs forward again
    in backward; where that is all, a layer holds only its input.
    """
    rows, hidden = workload.tokens, workload.layers[0].operators[0].shape[-1]
    activation_bytes = int(engine(workload.precision).residual_bytes) * rows * hidden
    names = [
        f"{layer.name} {index}" if layer.count > 1 else layer.name
        for layer in workload.layers
        for index in range(layer.count)
    ]
    each = [layer for layer in workload.layers for _ in range(layer.count)]
    return [
        _unit(name, layer, seconds, activation_bytes if behind else 0, recompute)
        for name, layer, behind in zip(names, each, range(len(each) - 1, -1, -1), strict=True)
    ]


def _unit(name: str, layer: Layer, seconds: Seconds, output_bytes: int, recompute: Recompute) -> ChainUnit:
    times = [seconds(operator) for operator in layer.timed]
    forward_s = sum(time[0] for time in times)
    linear_s = sum(t[1] for t, op in zip(times, layer.timed, strict=True) if op.kind in {"linear", "embedding"})
    again_s = sum(seconds(operator)[0] for operator in layer.run_again(recompute))
    return ChainUnit(
        name,
        forward_s,
        sum(time[1] for time in times) + again_s,
        weight_s=linear_s / 2,
        state_bytes=UPDATED_BYTES * layer.parameters,
        held_bytes=output_bytes if recompute == "full" and layer.recomputable else layer.saved_bytes,
        output_bytes=output_bytes,
    )
