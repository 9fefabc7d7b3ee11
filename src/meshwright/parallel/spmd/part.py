"""A module split over tensor, context, expert and data parallel ranks, with its gradients and its optimiser.

Any part of a model can be split so, a pipeline stage as well as the whole. A step of what is split:

    for micro_batch, last in ...:
        part.begin(last=last)
        part.module(...)  and its backward
    part.reduce()         # every gradient is summed over the ranks that hold the parameter
    norm = part.update()  # clip by the norm over all ranks, optimiser step, gradients cleared
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ...errors import InputError
from ...layout import Layout, Plan
from ...mesh import Axis
from ..device_mesh import Mesh
from ..engine import Settings, Shard, live_tensors, make_state, state_of
from ..layers.compiled import compile_layers
from ..layers.dropout import prepare_dropout
from ..pipeline.stages import cuttable, with_own_hooks
from ..shard_placement import Block, ShardBox, ShardPlacement, boxes, shard_blocks
from .buckets import Buckets
from .channel import AxisChannel, Stopwatch, bytes_of
from .context import held_positions, split_context
from .experts import split_experts
from .fsdp import adopt, gather_weights, offset_of, scatter_gradients, shard, sharded_modules
from .offload import HostCopies
from .overlapped import OverlappedSeam
from .tensor import Rule, Seam, split_tensors


def split_module(
    module: nn.Module, mesh: Mesh, layout: Layout, stopwatch: Stopwatch, *, seq_len: int, overlapped: bool = False
) -> dict[nn.Parameter, ShardPlacement]:
    """Cut `module` in place over tp, cp and ep; return where each parameter it now holds lies in the unsplit one.

    `overlapped`: what tensor parallelism sends travels during the products of the layers that it has cut.
    """
    placements = {parameter: ShardPlacement(tuple(parameter.shape)) for parameter in module.parameters()}
    prepare_dropout(module, _positions(mesh, layout, seq_len), seq_len)
    if layout.ep > 1:
        placements = split_experts(module, AxisChannel(mesh, "ep", stopwatch), placements)
    if layout.tp > 1:
        channel = AxisChannel(mesh, "tp", stopwatch)
        seam = OverlappedSeam(channel) if overlapped else Seam(channel, sequence=bool(layout.sp))
        placements = split_tensors(module, rules_of(module), seam, placements)
    if layout.cp > 1:
        split_context(module, AxisChannel(mesh, "cp", stopwatch), seq_len)
    return placements


def _positions(mesh: Mesh, layout: Layout, seq_len: int) -> Tensor | None:
    """Return the positions of a sequence that this rank's norms and residuals are about, None for all of them."""
    if layout.cp == 1 and not layout.sp:
        return None
    held = held_positions(mesh.index("cp"), layout.cp, seq_len) if layout.cp > 1 else torch.arange(seq_len)
    return held.chunk(layout.tp)[mesh.index("tp")] if layout.sp else held


def rules_of(module: nn.Module) -> dict[str, Rule]:
    """Return the rules that the parts of a module state for themselves, by the full name of each layer."""
    found: dict[str, Rule] = {}
    for prefix, part in module.named_modules():
        if hasattr(part, "split_rules"):
            rules = part.split_rules()
            found |= {".".join(filter(None, (prefix, name))): rule for name, rule in rules.items()}
    if not found:
        name = type(module).__name__
        raise InputError(f"tp: {name} has no `split_rules()`; add it, or pass `example` so that the rules are derived")
    return found


class HeldParameter(NamedTuple):
    """The tensor that the optimiser updates: the parameter itself, or this rank's part of it under ZeRO."""

    name: str
    owner: nn.Parameter  # as the module holds it
    tensor: nn.Parameter  # shares its memory
    start: int | None = None  # of a run of the flattened parameter (ZeRO 1)


class SpmdPart:
    """One rank's part of a model, or of stages of it, ready to be trained.

    `shared` names parameters that another pipeline stage owns: they count there for the norm and in checkpoints.
    `spans` are the units of each stage, where there are several: `pieces` are what is called then, the module itself
    otherwise.
    """

    def __init__(
        self,
        module: nn.Module,
        mesh: Mesh,
        plan: Plan,
        settings: Settings,
        *,
        shared: frozenset[str] = frozenset(),
        spans: Sequence[range] = (),
    ) -> None:
        layout = plan.layout
        self.module, self.mesh, self._settings, self._layout = module, mesh, settings, layout
        self.stopwatch = Stopwatch(settings.notes)
        overlapped = settings.async_tensor_parallel
        placements = split_module(module, mesh, layout, self.stopwatch, seq_len=plan.seq_len, overlapped=overlapped)
        self._placements = {
            name: at._replace(owner=at.owner and name not in shared)
            for name, at in ((name, placements[p]) for name, p in module.named_parameters())
        }
        if settings.compiled:
            compile_layers(module)
        # made of what has been split, so that they have all that splitting changed
        self.pieces = [with_own_hooks(cuttable(module).part(span)) for span in spans] if len(spans) > 1 else [module]
        self._buckets: list[Buckets] = []
        if layout.zero >= 2:
            for piece in self.pieces:
                shard(piece, mesh, layout, self.stopwatch, settings.device)
                self._expect(piece, last=False)
                adopt(module, piece)
        else:
            self._fill_buckets(plan.bucket_bytes)
        self._held = self._pieces()
        self._host: HostCopies | None = None
        if layout.offload != "none":
            self._host = HostCopies([held.tensor for held in self._held], self.stopwatch, settings.host_store)
        self.optimizer = settings.optimizer(module)
        self._hand_over()
        self._tensor = AxisChannel(mesh, "tp", self.stopwatch)

    def begin(self, *, last: bool) -> None:
        """Say before each micro-batch whether its backward is the last of the step."""
        if last:
            for buckets in self._buckets:
                buckets.arm()
            for piece in self.pieces:
                self._expect(piece, last=True)

    def arm(self, parameters: Iterable[nn.Parameter], *pieces: nn.Module) -> None:
        """Say that the backward pass that follows is the last of the step for these parameters and pieces."""
        for buckets in self._buckets:
            buckets.arm(parameters)
        for piece in pieces:
            self._expect(piece, last=True)

    @contextmanager
    def first_half(self) -> Iterator[None]:
        """Take what runs in the body for the half of a backward pass that computes gradients of inputs alone.

        Under ZeRO 2 and 3 weights are whole in it, and stay so for the second half.
        """
        if self._layout.zero >= 2:
            gather_weights(self.module)
        with self._nothing_sent():
            yield

    @contextmanager
    def second_half(self) -> Iterator[None]:
        """Take what runs in the body for the half that computes gradients of weights, and scatter them after it."""
        with self.first_half():
            yield
        if self._layout.zero >= 2:
            scatter_gradients(self.module)

    @contextmanager
    def _nothing_sent(self) -> Iterator[None]:
        """Let a backward pass in the body neither scatter gradients nor drop weights (ZeRO 2 and 3)."""
        if self._layout.zero < 2:
            yield
            return
        module = cast(FSDPModule, self.module)
        module.set_requires_gradient_sync(False)
        module.set_reshard_after_backward(False)
        yield
        module.set_requires_gradient_sync(True)
        module.set_reshard_after_backward(True)
        self._expect(self.module, last=self._last)

    def reduce(self) -> None:
        """Wait until all gradients are summed."""
        for buckets in self._buckets:
            buckets.finish()
        if self._layout.zero >= 2:
            for held in self._held:
                held.tensor.grad = None if held.owner.grad is None else _local(held.owner.grad)
            for piece in self.pieces:
                self._expect(piece, last=False)
        partial = [gradient for held, gradient in self._gradients() if self._placements[held.name].partial]
        if partial:
            flat = torch.cat([gradient.flatten() for gradient in partial]).to(self._settings.device)
            total = self._tensor.all_reduce(flat)
            for gradient, part in zip(partial, torch.split(total, [g.numel() for g in partial]), strict=True):
                gradient.copy_(part.view_as(gradient))
        if self._settings.probe is not None:
            self._settings.probe.received((held.name, gradient) for held, gradient in self._gradients())

    def _expect(self, piece: nn.Module, *, last: bool) -> None:
        """Say what the backward pass that follows does under ZeRO 2 and 3 besides scattering a piece's gradients.

        The last of a step lets copies of a sharded model sum what each has summed inside, and drops the weights that
        ZeRO 2 has kept through the step.
        """
        self._last = last
        if self._layout.replicas > 1:
            cast(FSDPModule, piece).set_requires_all_reduce(last)
        if self._layout.zero == 2:
            cast(FSDPModule, piece).set_reshard_after_backward(last)

    def update(self) -> float:
        """Clip, update and clear; return the gradient's norm over the whole model. All ranks of the world."""
        norm = self._norm()
        if not math.isfinite(norm):
            self.discard()
            return norm
        limit = self._settings.max_grad_norm
        if limit:  # the formula of torch's clip_grad_norm_, 1e-6 and all
            scale = min(1.0, limit / (norm + 1e-6))
            torch._foreach_mul_([gradient for _, gradient in self._gradients()], scale)
        if self._host is not None:
            self._host.leave()
        self.optimizer.step()
        self.discard()
        if self._host is not None:
            self._host.back()
        if self._layout.zero == 1:
            for buckets in self._buckets:
                buckets.spread()
        return norm

    def discard(self) -> None:
        """Clear the gradients; under ZeRO 1 the optimiser's lie in the buckets, which the next step overwrites."""
        self.module.zero_grad(set_to_none=True)
        if self._layout.zero >= 2:
            for held in self._held:  # not the optimiser's own: it may hold copies on the host
                held.tensor.grad = None

    def rest(self) -> None:
        """Drop weights that a forward pass without a backward has gathered (ZeRO 2 and 3)."""
        for part in [part for piece in self.pieces for part in sharded_modules(piece)]:
            part.reshard()

    def shards(self) -> list[Shard]:
        """Return every piece that this rank holds, with its optimiser state."""
        make_state(self.optimizer)
        own = [found for held in self._held for found in self._shards_of(held, self._updated(held))]
        return [*own, *self._copies()]

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        found = [_local(tensor) for tensor in live_tensors(self.module, self.optimizer)]
        return found + [buffer for buckets in self._buckets for buffer in buckets.buffers()]

    def _fill_buckets(self, bucket_bytes: int) -> None:
        """Put gradients that other ranks share into buckets; under ZeRO 1 their weights too."""
        axes: dict[Axis, list[nn.Parameter]] = {"data": [], "edp": []}
        for name, parameter in self.module.named_parameters():
            axes["edp" if self._placements[name].expert else "data"].append(parameter)
        for axis, parameters in axes.items():
            channel = AxisChannel(self.mesh, axis, self.stopwatch)
            if parameters and channel.size > 1:
                notes, scatter = self._settings.notes, self._layout.zero == 1
                made = Buckets(parameters, channel, notes, bucket_bytes=bucket_bytes, scatter=scatter)
                self._buckets.append(made)
                if self._settings.probe is not None:
                    made.watch(self._settings.probe, {p: name for name, p in self.module.named_parameters()})

    def _pieces(self) -> list[HeldParameter]:
        """Return what this rank updates, as plain tensors."""
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        if self._layout.zero >= 2:
            return [HeldParameter(name, p, nn.Parameter(_local(p.detach()))) for p, name in names.items()]
        if self._layout.zero == 0:
            return [HeldParameter(name, p, p) for p, name in names.items()]
        runs = [run for buckets in self._buckets for run in buckets.pieces()]
        found = [HeldParameter(names[run.owner], run.owner, run.tensor, run.start) for run in runs]
        cut = {parameter for buckets in self._buckets for parameter in buckets.parameters}
        return found + [HeldParameter(name, p, p) for p, name in names.items() if p not in cut]

    def _hand_over(self) -> None:
        """Put into the optimiser what this rank updates, in the groups of the parameters it belongs to."""
        of: dict[nn.Parameter, list[nn.Parameter]] = {}
        for held in self._held:
            of.setdefault(held.owner, []).append(self._updated(held))
        for group in self.optimizer.param_groups:
            group["params"] = [tensor for parameter in group["params"] for tensor in of.get(parameter, [])]

    def _updated(self, held: HeldParameter) -> nn.Parameter:
        """Return what the optimiser holds: the piece, or its copy in the host's memory."""
        return held.tensor if self._host is None else self._host.of(held.tensor)

    def _gradients(self) -> list[tuple[HeldParameter, Tensor]]:
        return [(held, held.tensor.grad) for held in self._held if held.tensor.grad is not None]

    def _counts(self, name: str) -> bool:
        """Return whether this rank is the one that counts and writes the piece it holds of a parameter."""
        at = self._placements[name]
        if self._layout.zero == 1:
            return at.owner  # each rank holds another run
        if self._layout.zero >= 2:
            return at.owner and (at.expert or self.mesh.index("replica") == 0)
        return at.owner and self.mesh.index("edp" if at.expert else "data") == 0

    def _norm(self) -> float:
        """Return the norm of the whole model's gradient: squares of each piece once, summed over the world."""
        total = torch.zeros(1, dtype=torch.float64, device=self._settings.device)
        counted = [gradient for held, gradient in self._gradients() if self._counts(held.name)]
        for where in {gradient.device for gradient in counted}:  # some may be on the host
            norms = torch._foreach_norm([gradient for gradient in counted if gradient.device == where])
            total += torch.stack(norms).double().square().sum().to(total.device)
        if self._layout.world_size > 1:
            start = self.stopwatch.now()
            dist.all_reduce(total)
            members = f"{self._layout.world_size} ranks of world"
            self.stopwatch.block("all_reduce", start, self.stopwatch.now(), bytes_of(total), members)
        return math.sqrt(total.item())

    def _shards_of(self, held: HeldParameter, parameter: nn.Parameter) -> Iterator[Shard]:
        """Yield the boxes of a piece of which `parameter` is the piece itself or a copy; the optimiser's has states."""
        at, tensor, updated = self._placements[held.name], parameter.detach(), parameter is self._updated(held)
        state = state_of(self.optimizer, parameter) if updated else {}
        blocks_held: Iterable[Block]
        if held.start is None:
            offset = offset_of(held.owner) if isinstance(held.owner, DTensor) else (0,) * tensor.dim()
            blocks_held = [(offset, tuple(tensor.shape), 0)]
        else:
            found = shard_blocks(held.owner.shape, held.start, held.start + tensor.numel())
            blocks_held = [(offset, extent, first - held.start) for offset, extent, first in found]
        for block in blocks_held:
            for box in boxes(at, *block[:2]):
                moments = {key: _piece(value, block, box) if value.dim() else value for key, value in state.items()}
                piece = _piece(tensor, block, box)
                yield Shard(held.name, at.shape, box.whole, piece, moments, updated and self._counts(held.name))

    def _copies(self) -> Iterator[Shard]:
        """Yield weights that others or the host update and that this rank computes with: a checkpoint fills them."""
        for held in self._held if self._host is not None else ():
            if self._updated(held) is not held.tensor:
                yield from self._shards_of(held, held.tensor)
        if self._layout.zero != 1:
            return
        cut = {parameter for buckets in self._buckets for parameter in buckets.parameters}
        for name, tensor in [(name, p.detach()) for name, p in self.module.named_parameters() if p in cut]:
            at, block = self._placements[name], ((0,) * tensor.dim(), tuple(tensor.shape), 0)
            for box in boxes(at, *block[:2]):
                yield Shard(name, at.shape, box.whole, _piece(tensor, block, box), {}, owner=False)


def _piece(tensor: Tensor, block: Block, box: ShardBox) -> Tensor:
    """Return a box of a block of a tensor, which may be flattened, as a view."""
    offset, extent, first = block
    return box.of(tensor.view(-1)[first : first + math.prod(extent)].view(extent), offset)


def _local(tensor: Tensor) -> Tensor:
    """Return the memory of a tensor that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
