"""The engine of pipeline parallelism: stages over ranks, each stage split further as the layout says."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ...layout import Plan
from ...pipelines import SLACK, Action, PipelineGrid, StageTarget, best_cut, schedule
from ..device_mesh import Mesh
from ..engine import Batch, Settings, Shard
from ..layers import dropout
from ..spmd.channel import AxisChannel
from ..spmd.context import held_part
from ..spmd.part import SpmdPart
from .runtime import Runtime
from .stages import Cuttable, cuttable
from .wire import routes


class PipelineEngine:
    """Each rank of a pipeline holds one or more stages, split over tp, cp, ep and dp as any other module.

    Gradients of a stage travel between the data-parallel ranks as soon as its last micro-batch is done. A parameter
    that stages of several ranks use (a tied embedding) lives on each of them, and its gradients are summed over them:
    all hold the same value after each update. The first of them owns it.
    """

    def __init__(self, module: nn.Module, mesh: Mesh, plan: Plan, settings: Settings) -> None:
        layout = plan.layout
        model = cuttable(module)
        self._settings, self._notes = settings, settings.notes
        self.grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
        self.bounds = plan.cut or agreed_cut(model, self.grid, plan, settings.device)
        rank = mesh.position.pp
        users = _users(model, self.bounds, self.grid)
        self._names = _first_names(module)
        shared = {name: ranks for name, ranks in users.items() if len(ranks) > 1}
        not_owned = {name for name, ranks in shared.items() if ranks[0] != rank}
        stages = self.grid.stages_of(rank)
        spans = {stage: range(self.bounds[stage], self.bounds[stage + 1]) for stage in stages}
        held = model.part([unit for span in spans.values() for unit in span])
        aliases = frozenset(name for name, first in self._names.items() if first in not_owned)
        self.part = SpmdPart(held, mesh, plan, settings, shared=aliases, spans=tuple(spans.values()))
        self.pieces = dict(zip(stages, self.part.pieces, strict=True))
        self.optimizer = self.part.optimizer
        self._pipeline = mesh.group("pp")
        self._shared = self._groups(mesh, held, shared)
        self._late = {parameter for _, members in self._shared for parameter in members}
        self._ready_after = _ready_after(self.grid.rows[rank], self.pieces, self._late)
        ways = routes(mesh, self.grid, settings.device)
        self._runtime = Runtime(self.grid, rank, self.pieces, ways, mesh.ranks("pp"), settings, self.part, self._last)
        self._context = AxisChannel(mesh, "cp", self.part.stopwatch)
        self._reports = mesh.position.tp == 0  # ranks of tp compute the same loss, those of cp each its positions'
        self.data_rank, self.data_ranks = mesh.position.dp, layout.dp

    def step(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> tuple[Tensor, float]:
        """Run the rank's row of the grid, sum the gradients, clip, update."""
        return self.accumulate(batches, tokens, number=number), self.update()

    def accumulate(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> Tensor:
        """Run the rank's row of the grid and sum the gradients."""
        moments = dropout.Moments(self._settings.seed, number, self.data_rank, self.data_ranks)
        total = self._runtime.step([held_part(batch, self._context) for batch in batches], tokens, moments)
        self._drain()
        self._sum_shared()
        self.part.reduce()
        return total.cpu() * self._reports

    def update(self) -> float:
        """Clip, update and clear."""
        start = self._notes.now()
        norm = self.part.update()
        self.part.stopwatch.compute("optimizer", start, self._notes.now())
        return norm

    def discard(self) -> None:
        """Clear the gradients."""
        self.part.discard()

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of this pipeline's batch on the rank of the last stage, 0 elsewhere."""
        with dropout.evaluating(self.part.module):
            loss = self._runtime.evaluate(held_part(batch, self._context))
        self.part.rest()
        return loss * self._reports

    def shards(self) -> list[Shard]:
        """Return the pieces that this rank holds; a tied parameter goes by its first name in the whole model."""
        return [shard._replace(name=self._names[shard.name]) for shard in self.part.shards()]

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        return self.part.tensors()

    def _last(self, stage: int) -> None:
        """Let the gradients of a stage travel with the action that follows, the last that adds to them."""
        self.part.arm(self._ready_after[stage], self.pieces[stage])

    def _drain(self) -> None:
        """Wait until all stages are done, so that this is known as the pipeline's and not as communication."""
        start = self._notes.now()
        dist.all_reduce(torch.zeros(1, device=self._settings.device), group=self._pipeline)
        self._notes.note("comm", "drain", start, self._notes.now())

    def _sum_shared(self) -> None:
        """Sum the gradients of parameters that several stages use over the ranks of these stages."""
        for group, members in self._shared:
            for parameter in members:
                start = self._notes.now()
                gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
                assert gradient is not None
                total = gradient.to(self._settings.device)  # it may be on the host
                dist.all_reduce(total, group=group)
                if total is not gradient:
                    gradient.copy_(total)
                size = gradient.numel() * gradient.element_size()
                self._notes.note("comm", "all_reduce", start, self._notes.now(), size, "tied")
        if self._late:
            self.part.arm(self._late)

    def _groups(
        self, mesh: Mesh, held: nn.Module, shared: dict[str, tuple[int, ...]]
    ) -> list[tuple[dist.ProcessGroup, list[nn.Parameter]]]:
        """Return this rank's groups of stages that share parameters, with these parameters as they are split."""
        mine = {self._names[name]: parameter for name, parameter in held.named_parameters()}
        found = []
        for ranks in sorted(set(shared.values())):
            group = mesh.subgroup("pp", ranks)
            if group is not None:
                found.append((group, [mine[name] for name, users in shared.items() if users == ranks]))
        return found


def agreed_cut(model: Cuttable, grid: PipelineGrid, plan: Plan, device: torch.device) -> tuple[int, ...]:
    """Return the bounds of the best cut on equal devices by what rank 0 says that each unit costs."""
    bounds = torch.zeros(grid.stages + 1, dtype=torch.int64, device=device)
    if dist.get_rank() == 0:
        units = model.unit_costs(plan.layout.mbs, plan.seq_len)
        bounds += torch.tensor(best_cut(units, StageTarget.of(grid), slack=SLACK).bounds, device=device)
    dist.broadcast(bounds, 0)
    return tuple(bounds.tolist())


def _users(model: Cuttable, bounds: tuple[int, ...], grid: PipelineGrid) -> dict[str, tuple[int, ...]]:
    """Return the ranks of a pipeline that use each parameter, by its first name, ascending."""
    assert isinstance(model, nn.Module)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    users: dict[str, set[int]] = {}
    for stage, rank in enumerate(grid.rank_of_stage):
        for parameter in model.part(range(bounds[stage], bounds[stage + 1])).parameters():
            users.setdefault(names[id(parameter)], set()).add(rank)
    return {name: tuple(sorted(ranks)) for name, ranks in users.items()}


def _ready_after(
    row: tuple[Action, ...], pieces: dict[int, nn.Module], late: set[nn.Parameter]
) -> dict[int, list[nn.Parameter]]:
    """Return for each stage of a rank the parameters whose gradients are there when it is done (but for `late` ones).

    A parameter of two stages of one rank waits for the later of the two.
    """
    last = {action.stage: index for index, action in enumerate(row)}
    after = {p: stage for stage in sorted(pieces, key=last.__getitem__) for p in pieces[stage].parameters()}
    return {stage: [p for p, s in after.items() if s == stage and p not in late] for stage in pieces}


def _first_names(module: nn.Module) -> dict[str, str]:
    """Return for each name of a parameter the first name of the same parameter."""
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    return {name: first[id(p)] for name, p in module.named_parameters(remove_duplicate=False)}
