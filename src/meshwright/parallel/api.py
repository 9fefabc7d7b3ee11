"""The Python API for a training loop of one's own: three calls on every rank that torchrun started.

    plan = meshwright.plan(model, inputs, targets, loss, layout="dp=2,zero=1")
    trained = meshwright.parallelize(model, plan, loss, optimizer=lambda part: torch.optim.AdamW(part.parameters()))
    for inputs, targets in data:            # the global batch, the same on every rank
        loss, norm = meshwright.step(trained, inputs, targets)

`inputs` and `targets` are tensors whose first dim counts samples; `loss(outputs, targets)` returns the sum over the
targets, not their mean. The model's code does not change.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from .. import device as devices
from ..cluster.discovery.local import available_memory_bytes
from ..errors import InputError
from ..layout import Layout, Plan, micro_batches
from ..plan.search.measured_search import bucket_sizes
from ..timeline import Lane, Performance
from ..workload.conventions import ENGINE
from ..workload.elements import SINGLE_BYTES
from ..workload.held import Counts, states
from .build import build_engine
from .engine import Batch, Engine, OptimizerFactory, Settings
from .pipeline.capture import capture
from .spmd.derive import derived_rules

LossFunction = Callable[[Any, Tensor], Tensor]
ROUNDS = 3  # of each measurement; the fastest counts
SMALL_BYTES = 2**12
NOT_MODELLED = ("collectives inside layers", "memory of activations", "the optimiser's update")
UNPRICED = Performance(
    step_time_s=0.0,
    forward_s=0.0,
    backward_s=0.0,
    optimizer_s=0.0,
    data_s=0.0,
    tokens_per_s_per_gpu=0.0,
    exposed_comm_s=0.0,
    hidden_comm_s=0.0,
    bubble_s=0.0,
    model_tflops_per_gpu=0.0,
    mfu=None,
    peak_memory_bytes_per_gpu=0,
)  # of a plan that was given, not chosen


class WithLoss(nn.Module):
    """A model with its loss: what an engine trains."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss."""
        return self.loss(self.model(inputs), targets)


@dataclass
class Trained:
    """A split model with the plan that it was split by, and the steps that it has made: set these when you resume."""

    engine: Engine
    plan: Plan
    steps: int = 0


class Silent:
    """Notes that nobody keeps."""

    def span(self, lane: Lane, name: str, detail: str = "") -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def now(self) -> float:
        """Return the time by the host's clock."""
        return time.monotonic()

    def note(self, lane: Lane, name: str, start_s: float, end_s: float, size_bytes: int = 0, detail: str = "") -> None:
        """Do nothing."""


def plan(model: nn.Module, inputs: Tensor, targets: Tensor, loss: LossFunction, *, layout: str = "") -> Plan:
    """Return how to split a step of `model` over the ranks of the default group; called on all of them.

    `inputs` and `targets` are one global batch. One sample is run forward and backward, and the ranks' all-reduce is
    timed. Without `layout`: plain data parallelism where weights, gradients and moments fit into the memory that is
    free, ZeRO 3 where they do not. Gradients travel in buckets of the size that these times favour. Raises InputError
    where the layout does not fit the number of ranks and samples.
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    parameter_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    chosen = Layout.parse(layout, world_size=ranks) if layout else _fitting(ranks, parameter_bytes)
    if "mbs" not in layout and chosen.pp == 1:  # a pipeline wants many micro-batches: one sample each
        share, rest = divmod(len(inputs), chosen.dp)
        if rest or not share:
            raise InputError(f"layout {chosen}: {len(inputs)} samples do not divide over dp = {chosen.dp}")
        chosen = msgspec.structs.replace(chosen, mbs=share)
    micro_batches(chosen, len(inputs))
    forward_s, backward_s = (len(inputs) / ranks * time_s for time_s in _sample_s(model, inputs, targets, loss))
    alpha_s, beta_s = _all_reduce_s(parameter_bytes, inputs.device) if chosen.dp > 1 else (0.0, 0.0)

    def exposed_s(bucket_bytes: int) -> float:
        """Buckets fill evenly over backward; what is left after it, and the last one, is exposed."""
        count = -(-parameter_bytes // bucket_bytes)
        return max(
            count * alpha_s + beta_s * parameter_bytes - backward_s * (1 - 1 / count), alpha_s + beta_s * bucket_bytes
        )

    sizes = bucket_sizes(parameter_bytes, chosen.dp)
    bucket_bytes = min(sizes, key=exposed_s)
    exposed = exposed_s(bucket_bytes) if chosen.dp > 1 else 0.0
    held = _states_bytes(parameter_bytes, chosen)
    step_s = forward_s + backward_s + exposed
    predicted = msgspec.structs.replace(
        UNPRICED,
        step_time_s=step_s,
        forward_s=forward_s,
        backward_s=backward_s,
        exposed_comm_s=exposed,
        tokens_per_s_per_gpu=targets.numel() / ranks / step_s,
        peak_memory_bytes_per_gpu=held,
        not_modelled=NOT_MODELLED,
    )
    made = Plan(
        layout=chosen,
        predicted=predicted,
        global_batch_sequences=len(inputs),
        seq_len=inputs.shape[1] if inputs.dim() > 1 else 1,
        bucket_bytes=bucket_bytes,
    )
    return _of_rank_0(made, inputs.device)


def parallelize(
    model: nn.Module,
    plan: Plan,
    loss: LossFunction,
    *,
    optimizer: OptimizerFactory,
    example: Tensor | Batch | None = None,
    max_grad_norm: float = 0.0,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    compiled: bool = False,
    async_tensor_parallel: bool = False,
) -> Trained:
    """Split `model` as the plan says; called on all ranks with the same weights on each.

    `optimizer` makes an optimiser of what a rank holds of the model. A model without `split_rules()` is captured with
    `example`, inputs or inputs and targets, to find how tensor parallelism cuts it; for a pipeline it is captured with
    inputs and targets, of a micro-batch or more, and cut into stages. What `nn.Dropout` drops follows from `seed`, the
    step and the sample, whatever the layout. `compiled` compiles the layers of each ModuleList, or the whole model;
    `async_tensor_parallel` lets what sequence parallelism sends travel during products, on GPUs. Raises InputError
    where the layout cannot be run.
    """
    layout = plan.layout
    module: nn.Module = WithLoss(model, loss)
    if layout.tp > 1 and not any(hasattr(part, "split_rules") for part in model.modules()):
        if example is None:
            raise InputError("tp: give `example`, an input that the model is captured with")
        if layout.sp:
            raise InputError("sp: needs a model that says by `split_rules()` how its layers are cut")
        if layout.pp > 1:
            raise InputError("tp: a pipeline of a captured model has no layers to cut; take tp=1 or pp=1")
        rules = derived_rules(model, (example if isinstance(example, Tensor) else example[0],))
        model.split_rules = lambda: rules  # type: ignore[assignment]
    if layout.pp > 1:
        if example is None or isinstance(example, Tensor):
            raise InputError("pp: give `example`, inputs and targets that the model is captured with")
        inputs, targets = example
        module = capture(module, (inputs[: layout.mbs], targets[: layout.mbs]))
    device = next(model.parameters()).device
    settings = Settings(device, optimizer, Silent(), max_grad_norm, autocast, seed, compiled, async_tensor_parallel)
    return Trained(build_engine(module, plan, settings), plan)


def step(trained: Trained, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Train on one global batch, the same tensors on every rank; return the mean loss and the gradient's norm."""
    engine, layout = trained.engine, trained.plan.layout
    size, count = layout.mbs, micro_batches(layout, len(inputs))
    mine = [slice(first * size, (first + 1) * size) for first in range(engine.data_rank, count * layout.dp, layout.dp)]
    tokens = int((targets != -100).sum()) if not targets.is_floating_point() else targets.numel()
    total, norm = engine.step([(inputs[part], targets[part]) for part in mine], tokens, number=trained.steps)
    trained.steps += 1
    if dist.is_initialized():
        total = total.to(inputs.device)
        dist.all_reduce(total)
    return total.item() / tokens, norm


def _fitting(ranks: int, parameter_bytes: int) -> Layout:
    """Return plain data parallelism, or ZeRO 3 where the states of all ranks of this host do not fit."""
    held = _states_bytes(parameter_bytes, Layout(dp=ranks))
    free = devices.free_bytes(devices.device()) if devices.count() else available_memory_bytes() // ranks
    return Layout(dp=ranks, zero=3 if ranks > 1 and held > free else 0)


def _states_bytes(parameter_bytes: int, layout: Layout) -> int:
    """Return the bytes of weights, gradients and moments of a rank."""
    count = parameter_bytes // SINGLE_BYTES
    counts = Counts(held=count, own=count // layout.dp, layer=0)
    return int(sum(states(counts, layout, ENGINE, sharded=layout.dp > 1, offload=0)[:3]))


def _sample_s(model: nn.Module, inputs: Tensor, targets: Tensor, loss: LossFunction) -> tuple[float, float]:
    """Return the seconds of one sample's forward and backward; gradients are dropped."""
    best = (float("inf"), float("inf"))
    for _ in range(ROUNDS):
        start = devices.synchronised_clock(inputs.device)
        value = loss(model(inputs[:1]), targets[:1])
        middle = devices.synchronised_clock(inputs.device)
        value.backward()  # type: ignore[no-untyped-call]
        best = min(best, (middle - start, devices.synchronised_clock(inputs.device) - middle), key=sum)
        model.zero_grad(set_to_none=True)
    return best


def _all_reduce_s(parameter_bytes: int, device: torch.device) -> tuple[float, float]:
    """Return alpha (seconds) and beta (seconds per byte) of an all-reduce over the default group."""

    def best_s(size_bytes: int) -> float:
        buffer = torch.zeros(max(1, size_bytes // 4), device=device)
        times = []
        for _ in range(ROUNDS):
            start = devices.synchronised_clock(device)
            dist.all_reduce(buffer)
            times.append(devices.synchronised_clock(device) - start)
        return min(times)

    small_s, large_s = best_s(SMALL_BYTES), best_s(parameter_bytes)
    return small_s, max(0.0, large_s - small_s) / parameter_bytes


def _of_rank_0(made: Plan, device: torch.device) -> Plan:
    """Return rank 0's plan on every rank, whatever each of them measured."""
    if not dist.is_initialized():
        return made
    data = msgspec.json.encode(made)
    size = torch.tensor([len(data)], device=device)
    dist.broadcast(size, 0)
    text = torch.zeros(int(size), dtype=torch.uint8, device=device)
    if dist.get_rank() == 0:
        text.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    dist.broadcast(text, 0)
    return msgspec.json.decode(bytes(text.tolist()), type=Plan)
