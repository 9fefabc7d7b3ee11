"""Costs of the nodes of a captured graph: measured on this machine, or counted in FLOPs."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils.flop_counter import FlopCounterMode

from ...device import forked_generators, synchronize

ROUNDS = 5  # passes that are timed, after one that is not


class NodeCost(NamedTuple):
    """Cost of one node for one micro-batch."""

    forward_s: float  # or FLOPs
    held_bytes: int  # that it keeps for backward and no node before it keeps


class _Watched(fx.Interpreter):
    """Run a graph node by node, each in `around(node)`."""

    def __init__(self, module: fx.GraphModule, around: Callable[[fx.Node], Any]) -> None:
        super().__init__(module)
        self._around = around

    def run_node(self, n: fx.Node) -> Any:
        with self._around(n):
            return super().run_node(n)


def measured(module: fx.GraphModule, example: tuple[Tensor, ...]) -> dict[str, NodeCost]:
    """Return the median seconds of each node over a few passes, and the bytes that it holds."""
    times: dict[str, list[float]] = {}

    @contextmanager
    def timed(node: fx.Node) -> Iterator[None]:
        start = time.perf_counter()
        yield
        synchronize(example[0].device)
        times.setdefault(node.name, []).append(time.perf_counter() - start)

    for _ in range(ROUNDS + 1):
        _run(module, timed, example)
    held = _held(module, example)
    return {name: NodeCost(statistics.median(each[1:]), held.get(name, 0)) for name, each in times.items()}


def costs_by_node(module: fx.GraphModule, example: tuple[Tensor, ...]) -> dict[str, NodeCost]:
    """Return the FLOPs of each node's matrix products and convolutions, and the bytes that it holds."""
    counter = FlopCounterMode(display=False)
    flops: dict[str, int] = {}

    @contextmanager
    def count(node: fx.Node) -> Iterator[None]:
        before = counter.get_total_flops()
        yield
        flops[node.name] = counter.get_total_flops() - before

    with counter:
        _run(module, count, example)
    held = _held(module, example)
    return {name: NodeCost(float(value), held.get(name, 0)) for name, value in flops.items()}


def _held(module: fx.GraphModule, example: tuple[Tensor, ...]) -> dict[str, int]:
    """Return the bytes of the storages that each node is the first to keep for backward."""
    weights = {tensor.untyped_storage()._cdata for tensor in (*module.parameters(), *module.buffers())}
    kept: dict[int, Tensor] = {}  # tensors are kept alive, so that no storage is counted twice
    found: dict[str, int] = {}

    @contextmanager
    def watch(node: fx.Node) -> Iterator[None]:
        def pack(tensor: Tensor) -> Tensor:
            key = tensor.untyped_storage()._cdata
            if key not in weights and key not in kept:
                kept[key] = tensor
                found[node.name] = found.get(node.name, 0) + tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    _run(module, watch, example)
    return found


def _run(module: fx.GraphModule, around: Callable[[fx.Node], Any], example: tuple[Tensor, ...]) -> None:
    """Run forward once with gradients; buffers (running statistics) and random numbers are as before afterwards."""
    buffers = [buffer.clone() for buffer in module.buffers()]
    with forked_generators(example[0].device):
        _Watched(module, around).run(*example)
    for buffer, before in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(before)
