"""Time of single operators, forward and backward, with every rank of the host busy at once.

Each operator runs as it does inside a step: several independent copies go forward one after the other, each keeping
what backward needs, then all go backward in reverse order. The copies together are larger than the caches, so that
weights and what backward needs are cold, as in a deep model; the activations that forward reads and the gradients that
backward reads are touched just before, as the operator next to them does. It is called as a module, and between two
calls other operators run, so that its code has left the innermost caches too; before what runs once a step, products
run for some milliseconds. Where ranks share cores, its processor time counts for as much longer as all of this work
together took by the clock.
"""

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..cluster.graph import OperatorTime
from ..device import CPU, cache_bytes, is_accelerator
from ..workload import functional
from ..workload.conventions import EMULATES
from ..workload.elements import UPDATED_BYTES
from ..workload.float8 import in_float8
from ..workload.graph import Operator, OperatorKind
from .cache_pollution import compute_at_length, run_others
from .compiled_layer import compiled_layer
from .cpu_clock import CpuClock
from .host_overhead.checkpointing import time_recomputing
from .host_overhead.fsdp import time_sharding
from .host_overhead.wake_up import time_resuming

COLD_BYTES = 64 * 2**20  # the copies of an operator together take at least this much, if a few of them do; on an
COLD_CACHES = 2  # accelerator whose cache is known, this multiple of it
MAX_COPIES = 16
MIN_ROUNDS, MAX_ROUNDS = 3, 60
AUTOCAST = {"": None, **dict.fromkeys(("bf16", *EMULATES), torch.bfloat16)}
# what products under autocast give to: their inputs are of its type, those of the others are residuals in float32
AFTER_PRODUCTS = {
    "split_heads",
    "attention",
    "context_attention",
    "swiglu",
    "cross_entropy",
    "vocabulary_cross_entropy",
}
ON_HOST: dict[str, OperatorKind] = {"host_adamw": "adamw", "host_grad_norm": "grad_norm"}
ONCE_A_STEP = {"adamw", "grad_norm"}  # after all layers
HOSTS = {"sharding", "recomputing", "resuming"}  # work of the host around operators, timed by functions of their own


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """One copy of an operator: its forward, and the tensors whose gradients backward computes (none: no backward)."""

    forward: Callable[[], tuple[Tensor, ...]]
    activations: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Activations and weights."""
        return self.activations + self.weights


def time_operators(
    operators: Sequence[Operator],
    *,
    ranks: int,
    threads: int,
    budget_s: float,
    device: torch.device,
    count: Callable[[], None] = lambda: None,
) -> list[OperatorTime]:
    """Return the median times of `operators` on this rank, the ranks of the default group in lockstep.

    Called on all ranks with the same arguments; blocks for about `budget_s`, longer where three rounds take longer.
    `count` is called after each operator.
    """
    pairs = {}
    end, clock = time.monotonic() + budget_s, CpuClock(device)
    # what is compiled comes last: that may take a minute, which the others would lack
    for position, operator in enumerate(sorted(operators, key=lambda operator: operator.kind == "compiled_layer")):
        share_s = max(0.0, end - time.monotonic()) / (len(operators) - position)
        pairs[operator] = _time(operator, share_s, device, clock)
        count()
    return [
        OperatorTime(
            operator=operator.key,
            ranks=ranks,
            threads=threads,
            forward_s=forward_s * clock.slowdown,
            backward_s=backward_s * clock.slowdown,
            slowdown=clock.slowdown,
        )
        for operator in operators
        for forward_s, backward_s in [pairs[operator]]
    ]


def _time(operator: Operator, budget_s: float, device: torch.device, clock: CpuClock) -> tuple[float, float]:
    if operator.kind in HOSTS and device.type != "cpu":
        return 0.0, 0.0  # the host of a GPU runs ahead of it
    if operator.kind == "sharding":
        tensors, zero = operator.shape
        return time_sharding(tensors, zero, budget_s, clock)
    if operator.kind == "recomputing":
        count, selective = operator.shape
        return time_recomputing(count, selective=bool(selective), budget_s=budget_s, clock=clock)
    if operator.kind in ON_HOST:
        plain, host = msgspec.structs.replace(operator, kind=ON_HOST[operator.kind]), CpuClock(CPU)
        forward_s, backward_s = _time(plain, budget_s, CPU, host)
        return forward_s * host.slowdown, backward_s * host.slowdown  # the device's clock knows nothing of the cores
    if operator.kind == "resuming":
        return time_resuming(run_others, clock), 0.0
    if operator.kind == "compiled_layer":
        torch._dynamo.reset()  # after the first shape of one function it compiles for shapes of any size, slower code
    with device:
        copies = [_make(operator)]
        size_bytes = sum(t.numel() * t.element_size() for t in copies[0].inputs) + operator.saved_bytes
        if operator.kind in ONCE_A_STEP:
            size_bytes = UPDATED_BYTES * operator.shape[1]
        count = max(2, min(MAX_COPIES, math.ceil(_cold_bytes(device) / max(1, size_bytes))))
        copies += [_make(operator) for _ in range(count - 1)]
    dist.barrier()
    _round(operator, copies, clock, device)  # allocates, loads code, settles thread pools
    samples: list[tuple[float, float]] = []
    end = time.monotonic() + budget_s
    while len(samples) < MIN_ROUNDS or (len(samples) < MAX_ROUNDS and time.monotonic() < end):
        with clock.counted():
            samples.append(_round(operator, copies, clock, device))
    forward_s = statistics.median(sample[0] for sample in samples)
    backward_s = statistics.median(sample[1] for sample in samples)
    return forward_s / count, backward_s / count


def _cold_bytes(device: torch.device) -> int:
    """Return how much the copies of an operator take together, so that none is in a cache when its turn comes."""
    cache = cache_bytes(device)
    return COLD_CACHES * cache if cache else COLD_BYTES


def _round(operator: Operator, copies: list[Copy], clock: CpuClock, device: torch.device) -> tuple[float, float]:
    """Return the seconds of all forwards and of all backwards."""
    forwards, backwards, outputs = [], [], []
    # the host of an accelerator runs ahead of it: its own caches do not show
    pollute = compute_at_length if operator.kind in ONCE_A_STEP and not is_accelerator(device) else run_others
    for copy in copies:
        pollute()
        with torch.no_grad():
            for activation in copy.activations:
                activation.mul_(1.0)
        module = _Module(copy.forward)
        with _precision(operator, device):
            start = clock.mark()
            outputs.append(module())
            forwards.append((start, clock.mark()))
    while outputs:
        inputs = copies[len(outputs) - 1].inputs
        output = outputs.pop()
        gradient = tuple(torch.ones_like(t) for t in output)
        start = clock.mark()
        if operator.kind == "add":  # backward of a residual is the sum of two gradients of its shape
            gradient[0].add_(inputs[0])
        elif inputs:
            torch.autograd.grad(output, inputs, gradient)
        backwards.append((start, clock.mark()))
        del output, gradient
    return clock.between_s(forwards), clock.between_s(backwards)


def _precision(operator: Operator, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of an operator's forward: weights are cast in each, as in each micro-batch."""
    dtype = AUTOCAST[operator.autocast]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


class _Module(nn.Module):
    def __init__(self, forward: Callable[[], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self._forward = forward

    def forward(self) -> tuple[Tensor, ...]:
        return self._forward()


def _make(operator: Operator) -> Copy:
    """Return one copy of the operator on fresh random inputs, on torch's current device."""
    shape = operator.shape
    half = AUTOCAST[operator.autocast] if operator.kind in AFTER_PRODUCTS else None
    given = functools.partial(_leaf, dtype=half)
    match operator.kind:
        case "linear":
            rows, inputs, outputs = shape
            return _product(rows, inputs, outputs, operator.autocast)
        case "rms_norm":
            x, w = _leaf(*shape), _leaf(shape[-1])
            return Copy(lambda: (functional.rms_norm(x, w, 1e-5),), (x,), (w,))
        case "add":
            x, y = torch.randn(shape), torch.randn(shape)
            return Copy(lambda: (x + y,), (x, y))
        case "dropout":
            x = _leaf(*shape)
            return Copy(lambda: (functional.seeded_dropout(x, 0.1, range(len(x))),), (x,))
        case "swiglu":
            x = given(shape[0], 2 * shape[1])
            return Copy(lambda: (functional.swiglu(x),), (x,))
        case "embedding":
            rows, vocabulary, hidden = shape
            w, tokens = _leaf(vocabulary, hidden), torch.randint(vocabulary, (rows,))
            return Copy(lambda: (F.embedding(tokens, w),), (), (w,))
        case "cross_entropy":
            x, targets = given(*shape), torch.randint(shape[1], shape[:1])
            return Copy(lambda: (functional.cross_entropy(x, targets),), (x,))
        case "vocabulary_cross_entropy":
            x, targets = given(*shape), torch.randint(shape[1], shape[:1])

            def alone(values: Tensor) -> Tensor:
                return values

            return Copy(lambda: (functional.vocabulary_cross_entropy(x, targets, 0, alone, alone),), (x,))
        case "split_heads":
            batch, length, heads, kv_heads, width = shape
            x = given(batch, length, (heads + 2 * kv_heads) * width)
            cos, sin = (table.to(x) for table in functional.rotary_tables(length, width, 10000.0))
            return Copy(lambda: functional.split_heads(x, cos, sin, heads, kv_heads), (x,))
        case "attention":
            batch, heads, kv_heads, length, width = shape
            q, k, v = (given(batch, length, count, width) for count in (heads, kv_heads, kv_heads))
            return Copy(lambda: (functional.attention(*(x.transpose(1, 2) for x in (q, k, v))),), (q, k, v))
        case "context_attention":
            batch, heads, kv_heads, length, width, ranks = shape
            q, both = given(batch, length, heads, width), given(batch, kv_heads, ranks * length, 2 * width)
            return Copy(lambda: (functional.context_attention(q.transpose(1, 2), both, 0, ranks),), (q, both))
        case "compiled_layer":
            batch, length, hidden, heads, kv_heads, inner = shape
            x = _leaf(batch, length, hidden)
            layer, cos, sin = compiled_layer(length, hidden, heads, kv_heads, inner, precision=operator.autocast)
            return Copy(lambda: (layer(x, cos, sin),), (x,), tuple(layer.parameters()))
        case "adamw" | "grad_norm":
            return Copy(_update(operator))
        case "sharding" | "recomputing" | "resuming" | "host_adamw" | "host_grad_norm":
            raise ValueError(f"{operator.kind} is not an operator on tensors: it is timed by a function of its own")


def _product(rows: int, inputs: int, outputs: int, precision: str) -> Copy:
    """Return one copy of a product with weights, as a linear layer without bias computes it in a precision."""
    x = _leaf(rows, inputs)
    if precision in EMULATES:
        layer = in_float8(nn.Linear(inputs, outputs, bias=False), precision)
        return Copy(lambda: (layer(x),), (x,), tuple(layer.parameters()))
    w = _leaf(outputs, inputs)
    return Copy(lambda: (F.linear(x, w),), (x,), (w,))


def _update(operator: Operator) -> Callable[[], tuple[Tensor, ...]]:
    """Return the optimiser's step, or the clipping of gradients, over tensors of equal size."""
    tensors, parameters = operator.shape
    weights = [_leaf(max(1, parameters // tensors)) for _ in range(tensors)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    if operator.kind == "grad_norm":
        return lambda: (torch.nn.utils.clip_grad_norm_(weights, 1.0),)
    optimizer = torch.optim.AdamW(weights, fused=True)

    def step() -> tuple[Tensor, ...]:
        optimizer.step()
        return ()

    return step


def _leaf(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)
