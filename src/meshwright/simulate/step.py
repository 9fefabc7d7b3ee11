"""Simulate one training step: a pipeline schedule over stages, each with its layers' computation and collectives.

`StepProgram` says what a step does, in seconds of computation and bytes of communication; its caller (the
planner's cost model) fills it in. Ranks that differ only by their place on the tp and cp axes go in lockstep and are
one; pipelines beside each other along dp are one too, unless one straggles or jitter tells them apart. The work grows
with pipeline ranks x micro-batches x layers, not with GPUs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from ..errors import InputError
from ..mesh import Axis, coordinates
from ..pipelines import Action, PipelineGrid, schedule
from ..timeline import Span, Timeline
from ..workload.program import Comm, Pass, StepProgram, called_in
from .axes import JOINT, AxisPrices
from .native import run_activities
from .problem import Costs, Disturbance
from .program import Builder
from .topology import Topology

LINK_PORTS = ("inside out", "inside in", "between out", "between in")
HOST_PORTS = {"to_host": "host out", "to_device": "host in"}


def simulate_step(
    program: StepProgram, topology: Topology, *, costs: Costs | None = None, disturbance: Disturbance | None = None,
    stragglers: Mapping[int, float] | None = None,
) -> Timeline:  # fmt: skip
    """Return the timeline of one step: one rank at each place of a pipeline, and of each pipeline that differs.

    Of ranks that wait for each other in every layer, the slowest is the one. `stragglers`: rank to how many times
    longer it computes. Raises InputError for a layout that the topology cannot hold, a pipeline schedule that does not
    fit, and a cut link on the way.
    """
    return _Step(program, topology, costs or Costs(), disturbance or Disturbance(), dict(stragglers or {})).timeline()


@dataclass
class _Lane:
    """One rank that stands for its tensor-parallel group, a straggler if it has one, in all pipelines like its own."""

    rank: int
    slowness: float
    members: int
    device: int = -1
    ports: dict[str, int] = field(default_factory=dict)
    last: int | None = None  # what it did last, in order
    starts_after: int | None = None  # what ended when its last computation began
    last_comm: dict[str | tuple[str, str], int] = field(default_factory=dict)


class _Step:
    def __init__(
        self, program: StepProgram, topology: Topology, costs: Costs, disturbance: Disturbance,
        stragglers: dict[int, float],
    ) -> None:  # fmt: skip
        layout = program.layout
        for rank, factor in stragglers.items():
            if not 0 <= rank < layout.world_size or not factor >= 1:
                raise InputError(
                    f"straggler {rank}={factor:g}: expected a rank below {layout.world_size} and a factor of 1 or more"
                )
        self._program, self._layout = program, layout
        self._prices = AxisPrices(layout, topology, costs, disturbance, program.host_bytes_per_s)
        self._builder = Builder()
        self._rng = np.random.default_rng(disturbance.seed)
        self._jitter = disturbance.jitter
        self._spans: list[tuple[int, int, str, str, int, str]] = []  # activity, rank, lane, name, bytes, detail
        self._cores = None if program.cores is None else self._builder.resource(program.cores)
        self._lanes = self._pipelines(stragglers)
        self._crosses = {axis: self._prices.crosses(axis) for axis in get_args(Axis)}
        self._fills_gradients: dict[int, Action] = {}  # of each stage, the last of its actions that does
        self._output: dict[Action, list[int]] = {}  # of each action and pipeline: what it ended with
        self._sent: dict[tuple[int, int], int] = {}  # the last message from one rank to another

    def timeline(self) -> Timeline:
        """Run the step."""
        layout, program = self._layout, self._program
        grid = schedule(layout.schedule, layout.pp, layout.vpp, program.micro_batches)
        for row in grid.rows:
            self._fills_gradients |= {action.stage: action for action in row if action.kind in "BW"}
        for rank, action in grid.in_order():
            self._action(grid, rank, action)
        for rank in range(layout.pp):
            self._update(grid, rank)
        outcome = run_activities(self._builder.build())
        spans = tuple(
            Span(rank, lane, name, float(outcome.start_s[i]), float(outcome.end_s[i]), bytes=size, detail=detail)  # type: ignore[arg-type]
            for i, rank, lane, name, size, detail in self._spans
            if outcome.end_s[i] > outcome.start_s[i]
        )
        return Timeline(spans=spans, source="simulated")

    def _pipelines(self, stragglers: dict[int, float]) -> list[list[_Lane]]:
        """Return the lanes of each pipeline that differs from the others, by pipeline rank."""
        layout = self._layout
        place = coordinates(layout)
        slowness = np.ones(layout.world_size)
        for rank, factor in stragglers.items():
            slowness[rank] = factor
        table = np.ones((layout.dp, layout.pp))
        np.maximum.at(table, (place["dp"], place["pp"]), slowness)
        if self._jitter:
            kinds, members = table, np.ones(layout.dp, dtype=np.int64)
            first = np.arange(layout.dp)
        else:
            kinds, first, members = np.unique(table, axis=0, return_index=True, return_counts=True)
        lanes = []
        for kind, along_dp, count in zip(kinds, first, members, strict=True):
            groups = [np.flatnonzero((place["dp"] == along_dp) & (place["pp"] == stage)) for stage in range(layout.pp)]
            member = int(slowness[np.array(groups)].max(axis=0).argmax())  # the same of each: pipeline ranks are peers
            ranks = [int(group[member]) for group in groups]
            width = int(count) * layout.tp * layout.cp
            lanes.append([self._lane(rank, float(kind[s]), width) for s, rank in enumerate(ranks)])
        return lanes

    def _lane(self, rank: int, slowness: float, members: int) -> _Lane:
        lane = _Lane(rank=rank, slowness=slowness, members=members, device=self._builder.resource(1.0))
        lane.ports = {kind: self._builder.resource(1.0) for kind in (*LINK_PORTS, *HOST_PORTS.values())}
        return lane

    def _action(self, grid: PipelineGrid, rank: int, action: Action) -> None:
        stage = self._program.stages[action.stage]
        before = self._arrivals(grid, rank, action)
        if action.kind == "F":
            works, share, name = [unit.forward for unit in stage.units], 1.0, "forward"
            if action.stage == 0 and self._program.data_s:
                before = [
                    [*others, self._busy(lane[rank], self._program.data_s, others, "data", "data", str(action))]
                    for lane, others in zip(self._lanes, before, strict=True)
                ]
        else:
            share = {"B": 1.0, "I": 1 - stage.weight_share, "W": stage.weight_share}[action.kind]
            works, name = [unit.backward for unit in reversed(stage.units)], "backward"
        last = action == self._fills_gradients.get(action.stage)
        self._passes(rank, action, works, share, before, name, stage.gradients if last else (), last=last)

    def _arrivals(self, grid: PipelineGrid, rank: int, action: Action) -> list[list[int]]:
        """Return, for each pipeline, what the action must wait for: its inputs, sent where they come from elsewhere."""
        found: list[list[int]] = [[] for _ in self._lanes]
        for need in grid.needs(action):
            source = grid.rank_of_stage[need.stage]
            forward = need.stage < action.stage
            size = self._program.stages[need.stage if forward else action.stage].output_bytes
            for number, lanes in enumerate(self._lanes):
                end = self._output[need][number]
                if source != rank:
                    end = self._send(lanes[source], lanes[rank], source, rank, size, end, str(need))
                found[number].append(end)
        return found

    def _send(self, src: _Lane, dst: _Lane, a: int, b: int, size: int, after: int, detail: str) -> int:
        if not size:
            return after
        far = self._prices.between_nodes(np.array([src.rank]), np.array([dst.rank]))
        kind = "between" if far else "inside"
        uses = {src.ports[f"{kind} out"]: 1.0, dst.ports[f"{kind} in"]: 1.0, **self._busy_cores(src)}
        before = self._sent.get((src.rank, dst.rank), after)  # they follow each other, as on a connection
        end = self._builder.activity(self._prices.send_s(a, b, size), uses, after=(after, before))
        self._sent[src.rank, dst.rank] = end
        self._spans.append((end, src.rank, "comm", "send", size, f"{detail} to {dst.rank}"))
        self._spans.append((end, dst.rank, "comm", "recv", size, f"{detail} from {src.rank}"))
        return end

    def _passes(
        self, rank: int, action: Action, works: Sequence[Pass], share: float, waits: list[list[int]], name: str,
        gradients: tuple[Comm, ...], *, last: bool,
    ) -> None:  # fmt: skip
        """Add the layers of an action one after the other, and buckets of gradients as the last backward fills them.

        What a layer needs ahead is asked for when the layer before it begins, before that one's gradients leave: FSDP
        fetches the next weights first, and collectives of one communicator go in the order in which they are asked for.
        """
        first, layers = action.micro_batch == 0, [work for work in works for _ in range(work.layers)]
        sent = 0

        def fetched(index: int) -> list[list[int]]:
            ahead = called_in(layers[index].ahead, special=first) if action.kind != "W" and index < len(layers) else ()
            begun = [lanes[rank].starts_after for lanes in self._lanes]
            return self._moved(rank, ahead, [[] if x is None else [x] for x in begun], str(action))

        gathered = fetched(0)
        for index, work in enumerate(layers):
            comms = called_in(work.comms) if action.kind != "W" else ()
            behind = called_in(work.behind, special=last) if action.kind != "I" else ()
            seconds = work.compute_s * share / work.layers
            ends = [
                self._busy(lanes[rank], seconds, [*others, *more], "compute", name, str(action))
                for lanes, others, more in zip(self._lanes, waits, gathered, strict=True)
            ]
            waits = [[end] for end in ends]
            gathered = fetched(index + 1)
            for comm in comms:
                ends = self._joined(rank, comm, waits, str(action))
                waits = [[end] for end in ends]
            self._moved(rank, behind, waits, str(action))
            while sent < len(gradients) and (sent + 1) * len(layers) <= (index + 1) * len(gradients):
                self._joined(rank, gradients[sent], waits, "gradients")
                sent += 1
        self._output[action] = [others[0] for others in waits]
        for lanes, others in zip(self._lanes, waits, strict=True):
            lanes[rank].last = others[0]

    def _moved(self, rank: int, comms: Iterable[Comm], after: list[list[int]], detail: str) -> list[list[int]]:
        """Add collectives that all may begin at once, but for what crosses to or from the host; return their ends.

        What comes from the host is gathered when it is there, what has been scattered goes to the host.
        """
        ends: list[list[int]] = [[] for _ in self._lanes]
        came: list[list[int]] = [[] for _ in self._lanes]  # ends of what came from the host
        for comm in comms:
            first = ends if comm.collective == "to_host" else came
            waits = [[*own, *others] for own, others in zip(after, first, strict=True)]
            found = self._joined(rank, comm, waits, detail)
            ends = [[*others, end] for others, end in zip(ends, found, strict=True)]
            if comm.collective == "to_device":
                came = [[*others, end] for others, end in zip(came, found, strict=True)]
        return ends

    def _busy(self, lane: _Lane, seconds: float, after: list[int], kind: str, name: str, detail: str) -> int:
        """Add a computation of a lane, after what it computed before."""
        if self._jitter:
            seconds *= float(np.exp(self._jitter * self._rng.standard_normal()))
        uses = {lane.device: 1.0}
        if self._cores is not None:
            uses[self._cores] = float(lane.members)
        first = [] if lane.last is None else [lane.last]
        lane.starts_after = lane.last
        end = self._builder.activity(seconds * lane.slowness, uses, after=[*after, *first])
        self._spans.append((end, lane.rank, kind, name, 0, detail))
        lane.last = end
        return end

    def _joined(self, rank: int, comm: Comm, after: list[list[int]], detail: str) -> list[int]:
        """Add a collective: of each pipeline for itself along tp and cp, of all together along axes that join them.

        Collectives of one axis follow each other, as those of one communicator do; what is summed over the copies of a
        sharded model follows what its shards scattered.
        """
        seconds = self._prices.comm_s(comm)
        kind = "between" if self._crosses[comm.axis] else "inside"
        lanes = [pipeline[rank] for pipeline in self._lanes]
        queue = (comm.axis, comm.collective) if comm.axis == "host" else comm.axis  # each way has one of its own
        parts = [lanes] if comm.axis in JOINT else [[lane] for lane in lanes]
        ends = []
        for number, part in enumerate(parts):
            uses: dict[int, float] = {}
            waits: list[int] = []
            for lane in part:
                ports = [HOST_PORTS[comm.collective]] if comm.axis == "host" else [f"{kind} out", f"{kind} in"]
                uses |= {lane.ports[port]: 1.0 for port in ports}
                for resource, weight in self._busy_cores(lane).items():
                    uses[resource] = uses.get(resource, 0.0) + weight
                before = (queue, "shard") if comm.axis == "replica" else (queue,)
                waits += [lane.last_comm[axis] for axis in before if axis in lane.last_comm]
            waits += [end for others in (after if len(part) > 1 else [after[number]]) for end in others]
            end = self._builder.activity(seconds, uses, after=waits)
            for lane in part:
                lane.last_comm[queue] = end
                self._spans.append((end, lane.rank, "comm", comm.collective, comm.size_bytes, f"{comm.axis} {detail}"))
            ends += [end] * len(part)
        return ends

    def _busy_cores(self, lane: _Lane) -> dict[int, float]:
        if self._cores is None or not self._program.comm_cores:
            return {}
        return {self._cores: self._program.comm_cores * lane.members}

    def _update(self, grid: PipelineGrid, rank: int) -> None:
        """Add the update of a rank after its gradients have come, and what it gathers then."""
        stages = [self._program.stages[stage] for stage in grid.stages_of(rank)]
        waits = [list(lanes[rank].last_comm.values()) for lanes in self._lanes]
        for comm in (comm for stage in stages for comm in stage.sums):
            computed = [lanes[rank].last for lanes in self._lanes]
            now = [others if last is None else [*others, last] for others, last in zip(waits, computed, strict=True)]
            waits = [[*others, end] for others, end in zip(waits, self._joined(rank, comm, now, "sums"), strict=True)]
        ends = [
            self._busy(lanes[rank], self._program.optimizer_s, others, "compute", "optimizer", "")
            for lanes, others in zip(self._lanes, waits, strict=True)
        ]
        for stage in stages:
            self._moved(rank, stage.parameters, [[end] for end in ends], "parameters")
