"""The engine of pipeline parallelism: stages over ranks, and data parallelism around them."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from ...layout import Plan
from ...pipelines import Grid, Target, best_cut, schedule
from ..engine import Batch, Settings, Shard, live_tensors, make_state, whole
from .runtime import Runtime
from .stages import Cuttable, cuttable, parameter_names
from .sums import Sums

EPSILON = 1e-6  # added to the norm before gradients are scaled, as torch.nn.utils.clip_grad_norm_ does


class PipelineEngine:
    """Each rank of a pipeline holds one or more stages; `dp` pipelines train side by side.

    Gradients of a stage travel between the pipelines as soon as its last micro-batch is done. A parameter that stages of
    several ranks use (a tied embedding) lives on each of them, and the gradients are summed over them: all hold the
    same value after each update.
    """

    def __init__(self, module: nn.Module, plan: Plan, settings: Settings) -> None:
        layout = plan.layout
        model = cuttable(module)
        self.settings, self._layout = settings, layout
        self.grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
        self.bounds = plan.cut or counted_cut(model, self.grid, layout.mbs, plan.seq_len)
        axes = [axis for axis in reversed(layout.order.split("-")) if axis in {"pp", "dp"}]  # outermost first
        mesh = init_device_mesh(settings.device.type, [getattr(layout, a) for a in axes], mesh_dim_names=axes)
        self._pipeline = mesh.get_group("pp")
        self.data_rank, self.data_ranks = mesh.get_local_rank("dp"), layout.dp
        rank = mesh.get_local_rank("pp")
        self._has_loss = self.grid.rank_of_stage[-1] == rank
        names = parameter_names(module)
        pieces = {s: model.stage(self.bounds[s], self.bounds[s + 1]) for s in range(self.grid.stages)}
        self._users = _users(pieces, self.grid)
        self.pieces = {s: pieces[s] for s in self.grid.stages_of(rank)}
        self._parameters = {  # what this rank holds, by its name in the whole model
            names[id(p)]: p for piece in self.pieces.values() for p in piece.parameters()
        }
        self._owned = {n for n, p in self._parameters.items() if min(self._users[id(p)]) == rank}
        self.module = nn.ModuleList(self.pieces.values())
        self.optimizer = settings.optimizer(self.module)
        self._sums = Sums(mesh, self._shared(pieces, names), self._parameters, plan.bucket_bytes, settings.notes)
        self._runtime = Runtime(self.grid, rank, self.pieces, self._pipeline, settings, self._finished)

    def step(self, batches: Iterable[Batch], tokens: int) -> tuple[Tensor, float]:
        """Run the rank's row of the grid, sum the gradients over pipelines and sharers, clip, update."""
        notes = self.settings.notes
        total = self._runtime.step(list(batches), tokens)
        self._sums.finish()
        with notes.span("compute", "optimizer"):
            norm = self._norm()
            limit = self.settings.max_grad_norm
            if limit:
                scale = min(1.0, limit / (norm + EPSILON))
                torch._foreach_mul_([p.grad for p in self._parameters.values() if p.grad is not None], scale)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.settings.device.type == "cuda":
                torch.cuda.synchronize(self.settings.device)
        return total, norm

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of this pipeline's batch on the rank of the last stage, 0 elsewhere."""
        return self._runtime.evaluate(batch)

    def shards(self) -> list[Shard]:
        """Return whole parameters; the first user of each in the first pipeline owns it."""
        make_state(self.optimizer)
        return [
            whole(name, p, self.optimizer, owner=self.data_rank == 0 and name in self._owned)
            for name, p in self._parameters.items()
        ]

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        return live_tensors(self.module, self.optimizer)

    def _finished(self, stage: int) -> None:
        self._sums.start(self.pieces[stage])

    def _norm(self) -> float:
        """Return the norm of the whole model's gradient: each parameter counts on one rank."""
        gradients = [p.grad for name, p in self._parameters.items() if name in self._owned and p.grad is not None]
        squares = [norm.double() ** 2 for norm in torch._foreach_norm(gradients)]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
        dist.all_reduce(total, group=self._pipeline)
        return float(total.sqrt())

    def _shared(self, pieces: dict[int, nn.Module], names: dict[int, str]) -> dict[str, tuple[int, ...]]:
        """Return the parameters with users on several ranks of the pipeline, with these ranks."""
        return {names[key]: tuple(sorted(ranks)) for key, ranks in self._users.items() if len(ranks) > 1}


def counted_cut(model: Cuttable, grid: Grid, micro_batch: int, seq_len: int) -> tuple[int, ...]:
    """Return the bounds of the best cut on equal devices by the counted cost of the model's units."""
    return best_cut(model.unit_costs(micro_batch, seq_len), Target.of(grid)).bounds


def _users(pieces: dict[int, nn.Module], grid: Grid) -> dict[int, set[int]]:
    """Return the ranks of a pipeline that use each parameter, by its identity."""
    users: dict[int, set[int]] = {}
    for stage, piece in pieces.items():
        for parameter in piece.parameters():
            users.setdefault(id(parameter), set()).add(grid.rank_of_stage[stage])
    return users
