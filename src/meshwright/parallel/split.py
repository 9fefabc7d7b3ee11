"""A module split over tensor, context, expert and data parallel ranks, with its gradients and its optimiser.

Any part of a model can be split so, a pipeline stage as well as the whole. A step of what is split:

    for micro_batch, last in ...:
        part.begin(last=last)
        part.module(...)  and its backward
    part.reduce()         # every gradient is summed over the ranks that hold the parameter
    norm = part.update()  # clip by the norm over all ranks, optimiser step, gradients cleared
"""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..errors import InputError
from ..layout import Layout, Plan
from .buckets import Buckets, Piece
from .channel import Channel, Stopwatch
from .context import split_context
from .engine import Settings, Shard, live_tensors, make_state, state_of
from .experts import split_experts
from .mesh import Axis, Mesh
from .placement import Placement, blocks, boxes
from .tensor import Rule, Seam, split_tensors
from .zero import offset_of, shard


def split_module(
    module: nn.Module, mesh: Mesh, layout: Layout, stopwatch: Stopwatch, *, seq_len: int
) -> dict[nn.Parameter, Placement]:
    """Cut `module` in place over tp, cp and ep; return where each parameter it now holds lies in the unsplit one."""
    placements = {parameter: Placement(tuple(parameter.shape)) for parameter in module.parameters()}
    if layout.ep > 1:
        placements = split_experts(module, Channel(mesh, "ep", stopwatch), placements)
    if layout.tp > 1:
        seam = Seam(Channel(mesh, "tp", stopwatch), sequence=bool(layout.sp))
        placements = split_tensors(module, rules_of(module), seam, placements)
    if layout.cp > 1:
        split_context(module, Channel(mesh, "cp", stopwatch), seq_len)
    return placements


def rules_of(module: nn.Module) -> dict[str, Rule]:
    """Return the rules that the parts of a module state for themselves, by the full name of each layer."""
    found: dict[str, Rule] = {}
    for prefix, part in module.named_modules():
        if hasattr(part, "split_rules"):
            rules = part.split_rules()  # type: ignore[operator]
            found |= {".".join(filter(None, (prefix, name))): rule for name, rule in rules.items()}
    if not found:
        raise InputError(f"tp: {type(module).__name__} says by no `split_rules()` how its layers are cut")
    return found


class SplitPart:
    """What one rank holds of a model, or of a stage of it, ready to be trained.

    `shared` names parameters that another pipeline stage owns: they count there for the norm and in checkpoints.
    """

    def __init__(
        self, module: nn.Module, mesh: Mesh, plan: Plan, settings: Settings, *, shared: frozenset[str] = frozenset()
    ) -> None:
        layout = plan.layout
        self.module, self.mesh, self._settings, self._layout = module, mesh, settings, layout
        self.stopwatch = Stopwatch(settings.notes)
        placements = split_module(module, mesh, layout, self.stopwatch, seq_len=plan.seq_len)
        self._placements = {
            name: at._replace(owner=at.owner and name not in shared)
            for name, at in ((name, placements[p]) for name, p in module.named_parameters())
        }
        self._buckets: list[Buckets] = []
        self._pieces: list[Piece] = []
        if layout.zero >= 2:
            shard(module, mesh, layout)
        else:
            self._fill_buckets(plan.bucket_bytes)
        self.optimizer = settings.optimizer(module)
        self._hand_over_pieces()
        self._names = {p: name for name, p in module.named_parameters()}
        self._tensor = Channel(mesh, "tp", self.stopwatch)

    def begin(self, *, last: bool) -> None:
        """Say before each micro-batch whether its backward is the last of the step."""
        if last:
            for buckets in self._buckets:
                buckets.arm()

    def reduce(self) -> None:
        """Wait until all gradients are summed."""
        for buckets in self._buckets:
            buckets.finish()
        partial = [p for p in self._parameters() if self._at(p).partial and p.grad is not None]
        if self._layout.sp and partial:
            gradients = [_local(p.grad) for p in partial if p.grad is not None]
            total = self._tensor.all_reduce(torch.cat([gradient.flatten() for gradient in gradients]))
            for gradient, part in zip(gradients, total.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def update(self) -> float:
        """Clip, update and clear; return the gradient's norm over the whole model. All ranks of the world."""
        gradients = [_local(p.grad) for p in self._parameters() if p.grad is not None]
        norm = self._norm()
        limit = self._settings.max_grad_norm
        if limit:
            torch._foreach_mul_(gradients, min(1.0, limit / (norm + 1e-6)))
        self.optimizer.step()
        if self._layout.zero == 1:
            for buckets in self._buckets:
                buckets.spread()
        else:
            self.optimizer.zero_grad(set_to_none=True)
        for buckets in self._buckets:
            buckets.clear()
        return norm

    def shards(self) -> list[Shard]:
        """Return every piece that this rank holds, with its optimiser state."""
        make_state(self.optimizer)
        if self._pieces:
            return [found for piece in self._pieces for found in self._shards_of_piece(piece)]
        return [found for name, p in self.module.named_parameters() for found in self._shards_of(name, p)]

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        found = [_local(tensor) for tensor in live_tensors(self.module, self.optimizer)]
        return found + [buffer for buckets in self._buckets for buffer in buckets.buffers()]

    def _fill_buckets(self, bucket_bytes: int) -> None:
        """Put gradients into buckets; those that no other rank shares stay where they are, unless ZeRO cuts them."""
        scatter = self._layout.zero == 1
        axes: dict[Axis, list[nn.Parameter]] = {"data": [], "edp": []}
        for name, parameter in self.module.named_parameters():
            axes["edp" if self._placements[name].expert else "data"].append(parameter)
        for axis, parameters in axes.items():
            channel = Channel(self.mesh, axis, self.stopwatch)
            if parameters and (channel.size > 1 or scatter):
                notes = self._settings.notes
                self._buckets.append(Buckets(parameters, channel, notes, bucket_bytes=bucket_bytes, scatter=scatter))

    def _hand_over_pieces(self) -> None:
        """Let the optimiser update this rank's runs of the parameters in place of the parameters (ZeRO 1)."""
        if self._layout.zero != 1:
            return
        self._pieces = [piece for buckets in self._buckets for piece in buckets.pieces()]
        of: dict[nn.Parameter, list[nn.Parameter]] = {}
        for piece in self._pieces:
            of.setdefault(piece.owner, []).append(piece.tensor)
        for group in self.optimizer.param_groups:
            group["params"] = [run for parameter in group["params"] for run in of.get(parameter, [])]

    def _parameters(self) -> list[nn.Parameter]:
        """Return what the optimiser updates."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _at(self, parameter: nn.Parameter) -> Placement:
        for piece in self._pieces:
            if piece.tensor is parameter:
                return self._placements[self._names[piece.owner]]
        return self._placements[self._names[parameter]]

    def _counts(self, at: Placement) -> bool:
        """Return whether this rank is the one that counts and writes the piece it holds of a parameter."""
        axis: Axis
        if self._layout.zero == 1:
            return at.owner  # each rank holds another run
        if self._layout.zero >= 2:
            return at.owner and (at.expert or self.mesh.index("replica") == 0)
        axis = "edp" if at.expert else "data"
        return at.owner and self.mesh.index(axis) == 0

    def _norm(self) -> float:
        """Return the norm of the whole model's gradient: squares of each piece once, summed over the world."""
        total = torch.zeros(1, dtype=torch.float64, device=self._settings.device)
        counted = [_local(p.grad) for p in self._parameters() if p.grad is not None and self._counts(self._at(p))]
        if counted:
            total += torch.stack(torch._foreach_norm(counted)).double().square().sum()
        if dist.is_initialized():
            dist.all_reduce(total)
        return math.sqrt(total.item())

    def _shards_of(self, name: str, parameter: nn.Parameter) -> Iterable[Shard]:
        at = self._placements[name]
        local = _local(parameter.detach())
        offset = offset_of(parameter) if isinstance(parameter, DTensor) else (0,) * local.dim()
        state = {key: _local(value) for key, value in state_of(self.optimizer, parameter).items()}
        for box in boxes(at, offset, local.shape):
            moments = {k: box.of(v, offset) if v.dim() else v for k, v in state.items()}
            yield Shard(name, at.shape, box.whole, box.of(local, offset), moments, self._counts(at))

    def _shards_of_piece(self, piece: Piece) -> Iterable[Shard]:
        name = self._names[piece.owner]
        at = self._placements[name]
        state = state_of(self.optimizer, piece.tensor)
        shape = tuple(piece.owner.shape)
        stop = piece.start + piece.tensor.numel()
        for offset, extent, first in blocks(shape, piece.start, stop):
            here = slice(first - piece.start, first - piece.start + math.prod(extent))
            block = piece.tensor.detach()[here].view(extent)
            whole = {key: value[here].view(extent) if value.dim() else value for key, value in state.items()}
            for box in boxes(at, offset, extent):
                moments = {k: box.of(v, offset) if v.dim() else v for k, v in whole.items()}
                yield Shard(name, at.shape, box.whole, box.of(block, offset), moments, self._counts(at))


def _local(tensor: Tensor) -> Tensor:
    """Return the memory of a tensor that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
