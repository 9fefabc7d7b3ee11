"""One rank of the benchmark planner_choice: what it measures, what that prices a layout at, and the layout's steps."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace

from meshwright.backend.group.torch_compat import all_gather_single, reduce_scatter_single
from meshwright.backend.hosts.placement import host_identity
from meshwright.bench.calibrate import fitted_straggling, time_paces
from meshwright.bench.collectives import (
    Cost,
    OverlappedCost,
    blocking_fits,
    overlapped_fits,
    time_added,
    time_messages,
    time_overlapped,
)
from meshwright.bench.operators import time_operators
from meshwright.bench.sweep_on_rank import copy_on_rank
from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, Straggling, Timed, blocking
from meshwright.layout import Layout, Plan
from meshwright.parallel.api import Silent
from meshwright.parallel.build import build_engine
from meshwright.parallel.device_mesh import Mesh
from meshwright.parallel.engine import Batch, Engine, Settings
from meshwright.plan.measured.data_parallel import sizes_to_measure
from meshwright.plan.measured.needs import ALL_REDUCE, needs
from meshwright.plan.measured.spmd import operators_of
from meshwright.plan.search.measured_search import SearchProblem, choose_layout
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.memory import PeakMemory
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.graph import Operator, Workload
from meshwright.workload.transformer import ModelConfig, describe_workload

CPU = torch.device("cpu")
ROUNDS = 5  # of each all-reduce
BACKEND = "meshwright"


class Rank:
    """One rank; every rank calls the same methods in the same order."""

    def __init__(self, model: dict[str, Any], global_batch: int, seq_len: int, seconds: float | None = None) -> None:
        self._begun, self._seconds = time.monotonic(), seconds
        self.model = ModelConfig(**model)
        self.global_batch, self.seq_len = global_batch, seq_len
        self.ranks = dist.get_world_size()
        self._hosts = self._from_all(host_identity())
        self._fits: dict[tuple[tuple[int, ...], ...], list[CollectiveFit]] = {}
        self._messages_of: dict[tuple[tuple[int, ...], ...], list[CollectiveFit]] = {}
        self._engines: dict[str, Engine] = {}

    def round(self, texts: Sequence[str], operator_s: float, steps: int) -> list[dict[str, Any]]:
        """Return what each layout is priced at, its peak memory, and what steps took, in turn with those of the others.

        Operators and collectives are measured anew: a machine that others share does not keep its pace.
        """
        plans = self._plans([Layout.parse(text, world_size=self.ranks) for text in texts], operator_s)
        peaks = [self._peak_bytes(self._engine(plan), plan) for plan in plans]
        passes = []
        for step in range(steps):
            if passes and self._over(0.9):
                break
            passes.append([self._step(self._engine(plan), plan, 3 + step) for plan in plans])
        return [
            {
                "layout": str(plan.layout),
                "predicted_s": plan.predicted.step_time_s,
                "predicted_bytes": plan.predicted.peak_memory_bytes_per_gpu,
                "taken_s": times_s,
                "measured_bytes": peak,
            }
            for plan, peak, times_s in zip(plans, peaks, zip(*passes, strict=True), strict=True)
        ]

    def _plans(self, layouts: Sequence[Layout], operator_s: float) -> list[Plan]:
        """Return the plan of each layout, priced from operators and collectives measured here."""
        self._fits.clear()
        self._messages_of.clear()
        measured = Measurements(
            fingerprint="emulated",
            operators=self._operators(layouts, operator_s),
            straggling=(Straggling(ranks=self.ranks, share=fitted_straggling(self._from_all(time_paces(CPU)))),),
            memory_bandwidth_bytes_per_s=sum(self._from_all(2 * copy_on_rank(CPU))),  # read and written
        )
        problem = SearchProblem(
            describe=self._describe,
            global_batch=self.global_batch,
            seq_len=self.seq_len,
            backend=BACKEND,
            memory_bytes=2**62,
            runtime_bytes=0,
            data_s_per_sequence=0.0,
        )
        found = []
        for layout in layouts:
            if found and self._over(0.5):
                break
            mine = replace(measured, collectives=tuple(self._collectives(layout)))
            found.append(choose_layout([layout], problem, mine, peak_flops_per_s={}, min_ranks=1)[0])
        return found

    def _over(self, share: float) -> bool:
        """Return whether this share of the time that was given is over, by the clock of rank 0; every rank calls it."""
        if self._seconds is None:
            return False
        gone = torch.tensor([time.monotonic() - self._begun])
        dist.broadcast(gone, 0)
        return float(gone) > share * self._seconds

    def _describe(self, layout: Layout) -> Workload:
        return describe_workload(self.model, seq_len=self.seq_len, micro_batch=layout.mbs, layout=layout)

    def _operators(self, layouts: Sequence[Layout], budget_s: float) -> tuple[OperatorTime, ...]:
        """Return the mean over the ranks of every operator's time."""
        wanted: dict[str, Operator] = {}
        for layout in layouts:
            wanted |= {op.key: op for op in operators_of(self._describe(layout), layout)}
        mine = time_operators(list(wanted.values()), ranks=self.ranks, threads=1, budget_s=budget_s, device=CPU)
        names = ("forward_s", "backward_s", "slowdown")
        means = _mean([tuple(getattr(item, name) for name in names) for item in mine], self.ranks)
        return tuple(
            replace(item, **dict(zip(names, found, strict=True))) for item, found in zip(mine, means, strict=True)
        )

    def _collectives(self, layout: Layout) -> list[CollectiveFit]:
        """Return the fits for a layout, by the size of its groups.

        Raises ValueError where two of its axes have groups of one size on other links: a fit knows no links.
        """
        mesh = Mesh(layout)
        found: dict[int, list[CollectiveFit]] = {}
        places: dict[int, tuple[tuple[int, ...], ...]] = {}
        needed = needs(layout, self._describe(layout), self.global_batch)
        largest, names = needed.largest_bytes, needed.blocking
        for axis in ("tp", "cp", "data"):
            ranks = mesh.ranks(axis)  # type: ignore[arg-type]
            groups = tuple(sorted(set(self._from_all(tuple(ranks)))))  # of all ranks along the axis
            if len(ranks) == 1 or len(ranks) not in largest:
                continue
            if places.setdefault(len(ranks), groups) != groups:
                raise ValueError(f"{layout}: two axes of {len(ranks)} ranks on other links")
            found[len(ranks)] = self._fit(
                groups,
                mesh.group(axis),  # type: ignore[arg-type]
                largest[len(ranks)],
                _names(names.get(len(ranks), set())),
                tuple(sorted(_names(needed.overlapped.get(len(ranks), {ALL_REDUCE}))))
                if axis == "data"
                else ("all_reduce",),
            )
        whole = (tuple(range(self.ranks)),)
        if self.ranks not in found:
            found[self.ranks] = self._fit(whole, None, largest[self.ranks], _names(names.get(self.ranks, set())))
        missing = sorted(set(largest) - set(found) - {layout.pp})
        if missing:
            raise ValueError(f"{layout}: no axis has {missing[0]} ranks, as its price asks for")
        messages = [self._messages(mesh.ranks("pp"), cut, largest[layout.pp]) for cut in range(layout.pp - 1)]
        return [fit for fits in (*found.values(), *messages) for fit in fits]

    def _fit(
        self,
        groups: tuple[tuple[int, ...], ...],
        group: dist.ProcessGroup | None,
        largest: int,
        names: set[str],
        besides: tuple[str, ...] = ("all_reduce",),
    ) -> list[CollectiveFit]:
        """Return the fits of collectives in these groups, all at once; measured where a larger one is asked for.

        Those of `besides` are timed beside computation; for those of `names` a rank waits.
        """
        known = self._fits.setdefault(groups, [])
        for name, fitted in [*((name, name) for name in besides), *((name, blocking(name)) for name in sorted(names))]:
            if max((fit.max_bytes for fit in known if fit.collective == fitted), default=0) < largest:
                known[:] = [fit for fit in known if fit.collective != fitted]
                sizes = tuple(sizes_to_measure(largest))
                ranks = len(groups[0])
                if name == fitted:
                    taken = [time_overlapped(name, size, CPU, rounds=ROUNDS, group=group) for size in sizes]
                    known += overlapped_fits(
                        name, BACKEND, ranks, sizes, [OverlappedCost(*c) for c in _mean(taken, self.ranks)]
                    )
                else:
                    costs = [_cost(name, size, ranks, group) for size in sizes]
                    known += blocking_fits(name, BACKEND, ranks, sizes, [Cost(*c) for c in _mean(costs, self.ranks)])
        return known

    def _messages(self, stages: Sequence[int], cut: int, largest: int) -> list[CollectiveFit]:
        """Return the fits of messages between a stage of each pipeline and the next, both ways at once.

        `stages` are the ranks of this rank's pipeline.
        """
        ends = stages[cut : cut + 2]
        everyone = tuple(sorted(set(self._from_all(tuple(ends)))))
        known = self._messages_of.setdefault(everyone, [])
        if max((fit.max_bytes for fit in known), default=0) < largest:
            rank, sizes = dist.get_rank(), tuple(sizes_to_measure(largest))
            peer = ends[1 - ends.index(rank)] if rank in ends else None
            costs = [_message_cost(size, peer) for size in sizes]
            costs = [Cost(*cost) for cost in _mean(costs, 2 * len(everyone))]
            at_once = self._on_one_link(everyone)
            fits = blocking_fits("send_recv", BACKEND, len(stages), sizes, costs)
            known[:] = [replace(fit, at_once=at_once) for fit in fits]
        return [replace(fit, ranks=len(stages), cut=cut) for fit in known]

    def _on_one_link(self, pairs: Sequence[tuple[int, ...]]) -> int:
        """Return how many of these pairs of ranks send over one link, that of a host to all others."""
        leaving = (ends for pair in pairs if len(ends := {self._hosts[rank] for rank in pair}) > 1)
        return max(Counter(host for ends in leaving for host in ends).values(), default=1)

    def _from_all(self, mine: Any) -> list[Any]:
        """Return what each rank found."""
        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, mine)
        return found

    def _engine(self, plan: Plan) -> Engine:
        """Return the engine of a layout, which is built once."""
        name = str(plan.layout)
        if name not in self._engines:
            self._engines[name] = self._build(plan)
        return self._engines[name]

    def _build(self, plan: Plan) -> Engine:
        torch.manual_seed(0)
        module = Decoder(self.model, recompute=plan.layout.recompute)
        config = OptimizerConfig()
        settings = Settings(
            device=CPU,
            optimizer=lambda part: make_optimizer(part, config),
            notes=Silent(),
            max_grad_norm=config.max_grad_norm,
        )
        return build_engine(module, plan, settings)

    def _peak_bytes(self, engine: Engine, plan: Plan) -> int:
        """Return the most bytes of live tensors of any rank in the third step."""
        self._step(engine, plan, 0)
        self._step(engine, plan, 1)
        with PeakMemory(engine.tensors()) as peak:
            self._step(engine, plan, 2)
        most = torch.tensor([float(peak.peak_bytes)], dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def _step(self, engine: Engine, plan: Plan, number: int) -> float:
        """Return the seconds of one step of its slowest rank."""
        batches = list(self._batches(engine, plan, number))
        dist.barrier()
        begun = time.perf_counter()
        engine.step(batches, self.global_batch * self.seq_len)
        taken = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
        dist.all_reduce(taken, op=dist.ReduceOp.MAX)
        return float(taken)

    def _batches(self, engine: Engine, plan: Plan, number: int) -> Iterator[Batch]:
        numbers = torch.Generator().manual_seed(number)
        whole = torch.randint(0, self.model.vocab_size, (self.global_batch, self.seq_len + 1), generator=numbers)
        mbs = plan.layout.mbs
        for index in range(self.global_batch // (engine.data_ranks * mbs)):
            first = (index * engine.data_ranks + engine.data_rank) * mbs
            drawn = whole[first : first + mbs]
            yield drawn[:, :-1], drawn[:, 1:]


def _mean(found: Sequence[tuple[float, ...]], ranks: int) -> list[list[float]]:
    """Return the mean of what each of `ranks` ranks found; the others found zeros."""
    total = torch.tensor(found, dtype=torch.float64)
    dist.all_reduce(total)
    means: list[list[float]] = (total / ranks).tolist()
    return means


def _cost(name: str, size_bytes: int, ranks: int, group: dist.ProcessGroup | None) -> Cost:
    """Return what a collective in this rank's group costs it."""
    part = torch.ones(max(1, size_bytes // 4 // ranks))
    whole, other = torch.ones(ranks * len(part)), torch.ones(ranks * len(part))
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: all_gather_single(whole, part, group=group),
        "reduce_scatter": lambda: reduce_scatter_single(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }
    return time_added(calls[name], lambda: whole.fill_(1.0), CPU, ROUNDS)


def _names(timed: set[Timed]) -> set[str]:
    """Return the names of collectives, all of float32 here."""
    return {each.collective for each in timed}


def _message_cost(size_bytes: int, peer: int | None) -> Cost:
    """Return what messages to and from `peer` cost; nothing where there is none, but it computes as the others do."""
    cost = time_messages(size_bytes, peer, peer, CPU, rounds=ROUNDS)
    return cost if peer is not None else Cost(0.0, 0.0, 0.0, 0.0, 0.0)
