"""Traces of jobs on meshes of ranks with a planted fault: FSDP, HSDP, tensor, expert and pipeline parallel.

A job is a program of operations for each rank, played until all are through: what a rank's main stream computes, the
collectives of a second stream, what its host does before it launches more. Files of some ranks may be missing. What a
step's time goes to is told by sorting the edges of the intervals that were written; nothing of the package is used.
"""

import itertools
import json
import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path

FAMILIES = ("ddp", "fsdp", "hsdp", "tensor", "experts", "pipeline")
GUILTY = {
    "loader": "data loader",
    "kernels": "kernels take",
    "host": "outside any operator",
    "launches": "runs operators and launches",
    "allocator": "allocator",
    "garbage": "garbage",
    "copies": "copies to the device",
}
FAULTS = (*GUILTY, "healthy", "link", "once", "culprit missing", "bystander missing")
MAIN, COMM, COPY = 7, 24, 28
Edges = list[tuple[float, float]]


@dataclass
class Operation:
    """One operation of a rank: compute, meet (over `group`), or host (what the host does, with the device idle)."""

    kind: str
    name: str
    length_us: float
    group: tuple[int, ...] = ()
    exposed: bool = True  # the main stream waits for it


@dataclass
class Rank:
    """One rank while the job is played: when its host and its streams are free, and what is written."""

    number: int
    host: int
    host_us: float = 0.0
    main_us: float = 0.0
    comm_us: float = 0.0
    links: int = 0
    events: list[dict] = field(default_factory=list)
    lanes: dict[str, Edges] = field(default_factory=lambda: {"compute": [], "comm": [], "copy": [], "load": []})
    steps: list[tuple[float, float]] = field(default_factory=list)
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def write(self, cat: str, name: str, start: float, length: float, tid: int = 1, **args: object) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 4000 + self.number, "tid": tid, "ts": start}
        self.events.append(event | {"dur": length, "args": args})

    def launch(self, lane: str, name: str, start: float, length: float, **args: object) -> None:
        self.links += 1
        stream = {"compute": MAIN, "comm": COMM, "copy": COPY}[lane]
        call = "cudaMemcpyAsync" if lane == "copy" else "cudaLaunchKernel"
        self.write("cuda_runtime", call, min(self.host_us, start), 3.0, correlation=self.links)
        kind = "gpu_memcpy" if lane == "copy" else "kernel"
        self.write(kind, name, start, length, stream, correlation=self.links, stream=stream, device=0, **args)
        self.lanes[lane].append((start, start + length))


@dataclass
class Mesh:
    """A job that was drawn: its ranks, programs of one step, and the fault (left out where it is not `planted`)."""

    seed: int
    planted: bool = True

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.family = FAMILIES[self.seed % len(FAMILIES)]
        self.fault = FAULTS[(self.seed // len(FAMILIES)) % len(FAULTS)]
        self.world = 8 if self.family != "ddp" else self.rng.choice((2, 4, 8))
        self.count = self.rng.choice((4, 6))
        self.layers = self.rng.choice((3, 5))
        self.layer_us = [self.rng.uniform(900.0, 2400.0) for _ in range(self.layers)]
        self.transfer_us = self.rng.uniform(150.0, 500.0) * (25.0 if self.fault == "link" else 1.0)
        guilty = self.fault in GUILTY or "missing" in self.fault
        self.culprit = self.rng.randrange(self.world) if guilty else None
        self.act = self.fault if self.fault in GUILTY else self.rng.choice(tuple(GUILTY))
        self.delay_us = self.rng.uniform(0.25, 0.6) * 3 * sum(self.layer_us)
        hosts = self.rng.choice((1, 2))
        self.ranks = [Rank(number, number * hosts // self.world) for number in range(self.world)]
        self.offsets_us = [1e7, 1e7 + self.rng.uniform(-5e6, 5e6)]
        self.drifts = [1.0, 1.0 + self.rng.uniform(-3e-5, 3e-5)]
        self.missing: set[int] = set()
        if self.fault == "culprit missing" and self.culprit is not None:
            self.missing = {self.culprit}
        elif self.fault == "bystander missing" and self.world > 2:
            self.missing = {self.rng.choice([rank for rank in range(self.world) if rank != self.culprit])}
        self.late_step = self.rng.randrange(self.count)
        self.late_rank = self.rng.randrange(self.world)
        self.first = self.rng.randrange(40)
        for step in range(self.count):
            self._play(step)

    # ---- programs

    def _late(self, rank: int, step: int) -> bool:
        if not self.planted:
            return False
        if self.fault == "once":
            return step == self.late_step and rank == self.late_rank
        return rank == self.culprit

    def _program(self, rank: int, step: int) -> list[Operation]:
        make = {"ddp": self._ddp, "fsdp": self._fsdp, "hsdp": self._hsdp, "tensor": self._tensor}
        make |= {"experts": self._experts, "pipeline": self._pipeline}
        body = make[self.family](rank)
        begin = [Operation("host", "load", 120.0)]
        late = self._late(rank, step)
        if late and self.act in {"loader", "host", "allocator", "garbage"}:
            begin.append(Operation("host", self.act, self.delay_us))
        begin.append(Operation("copy", "batch", 40.0 + (self.delay_us if late and self.act == "copies" else 0.0)))
        if late and self.act == "kernels":
            at = next(n for n, one in enumerate(body) if one.kind == "compute") + 1
            body.insert(at, Operation("compute", "gemm_slow", self.delay_us))
        if late and self.act == "launches":
            places = [n for n, one in enumerate(body) if one.kind == "compute"]
            for place in reversed(places):
                body.insert(place, Operation("host", "launches", self.delay_us / len(places)))
        return [*begin, *body, Operation("compute", "adamw", 250.0)]

    def _all(self) -> tuple[int, ...]:
        return tuple(range(self.world))

    def _compute(self, name: str, length: float) -> Operation:
        return Operation("compute", name, length * self.rng.uniform(0.997, 1.003))

    def _ddp(self, rank: int) -> list[Operation]:
        found = [self._compute(f"fwd_{n}", length) for n, length in enumerate(self.layer_us)]
        for n, length in reversed(list(enumerate(self.layer_us))):
            found.append(self._compute(f"bwd_{n}", 2 * length))
            found.append(Operation("meet", "allreduce", self.transfer_us, self._all(), exposed=n == 0))
        return found

    def _sharded(self, shard: tuple[int, ...], replicas: tuple[int, ...]) -> list[Operation]:
        found = []
        for n, length in enumerate(self.layer_us):
            found.append(Operation("meet", "allgather", self.transfer_us, shard, exposed=n == 0))
            found.append(self._compute(f"fwd_{n}", length))
        for n, length in reversed(list(enumerate(self.layer_us))):
            found.append(Operation("meet", "allgather", self.transfer_us, shard, exposed=False))
            found.append(self._compute(f"bwd_{n}", 2 * length))
            found.append(Operation("meet", "reduce_scatter", self.transfer_us, shard, exposed=n == 0))
        if len(replicas) > 1:
            found.append(Operation("meet", "allreduce", self.transfer_us, replicas))
        return found

    def _fsdp(self, rank: int) -> list[Operation]:
        return self._sharded(self._all(), (rank,))

    def _hsdp(self, rank: int) -> list[Operation]:
        half = self.world // 2
        shard = tuple(range(half)) if rank < half else tuple(range(half, self.world))
        return self._sharded(shard, (rank % half, rank % half + half))

    def _tensor(self, rank: int) -> list[Operation]:
        peers = (rank // 2 * 2, rank // 2 * 2 + 1)
        replicas = tuple(range(rank % 2, self.world, 2))
        found = []
        for n, length in enumerate([*self.layer_us, *reversed(self.layer_us)]):
            found.append(self._compute(f"part_{n}", length))
            found.append(Operation("meet", "allreduce", 0.3 * self.transfer_us, peers))
        return [*found, Operation("meet", "allreduce", self.transfer_us, replicas)]

    def _experts(self, rank: int) -> list[Operation]:
        found = []
        for n, length in enumerate(self.layer_us):
            found.append(self._compute(f"attention_{n}", length))
            found.append(Operation("meet", "alltoall", self.transfer_us, self._all()))
            found.append(self._compute(f"expert_{n}", length))
            found.append(Operation("meet", "alltoall", self.transfer_us, self._all()))
        return [*found, Operation("meet", "allreduce", self.transfer_us, self._all())]

    def _pipeline(self, rank: int) -> list[Operation]:
        """Two replicas of four stages, two micro-batches, forward before backward."""
        stage = rank % 4
        before, after = ((rank - 1, rank), (rank, rank + 1))
        found = []
        for batch in range(2):
            if stage:
                found.append(Operation("meet", "recv", 40.0, before))
            found.append(self._compute(f"fwd_{batch}", sum(self.layer_us)))
            if stage < 3:
                found.append(Operation("meet", "send", 40.0, after))
        for batch in range(2):
            if stage < 3:
                found.append(Operation("meet", "recv", 40.0, after))
            found.append(self._compute(f"bwd_{batch}", 2 * sum(self.layer_us)))
            if stage:
                found.append(Operation("meet", "send", 40.0, before))
        return [*found, Operation("meet", "allreduce", self.transfer_us, (stage, stage + 4))]

    # ---- play

    def _play(self, step: int) -> None:
        programs = {rank.number: self._program(rank.number, step) for rank in self.ranks}
        starts = {}
        for rank in self.ranks:  # the host has seen its device end the step before
            rank.host_us = max(rank.host_us, rank.main_us, rank.comm_us)
            starts[rank.number] = rank.host_us
        places = dict.fromkeys(programs, 0)
        while any(places[number] < len(program) for number, program in programs.items()):
            moved = False
            for rank in self.ranks:
                while places[rank.number] < len(programs[rank.number]):
                    operation = programs[rank.number][places[rank.number]]
                    if operation.kind == "meet" and len(operation.group) > 1:
                        if not self._meet(operation, programs, places):
                            break
                    else:
                        self._alone(rank, operation)
                        places[rank.number] += 1
                    moved = True
            assert moved, "the program hangs"
        for rank in self.ranks:
            end = max(rank.host_us, rank.main_us, rank.comm_us)
            rank.write(
                "user_annotation", f"ProfilerStep#{self.first + step}", starts[rank.number], end - starts[rank.number]
            )
            rank.steps.append((starts[rank.number], end))

    def _alone(self, rank: Rank, operation: Operation) -> None:
        if operation.kind == "host":
            self._hosted(rank, operation)
        elif operation.kind == "copy":
            start = max(rank.host_us + 5.0, rank.main_us)
            rank.launch("copy", "Memcpy HtoD (Pinned -> Device)", start, operation.length_us)
            rank.main_us = start + operation.length_us
        elif operation.kind == "compute":
            rank.write("cpu_op", "aten::mm", rank.host_us, 8.0)
            start = max(rank.host_us + 5.0, rank.main_us)
            rank.launch("compute", operation.name, start, operation.length_us)
            rank.host_us += 9.0
            rank.main_us = start + operation.length_us

    def _hosted(self, rank: Rank, operation: Operation) -> None:
        rank.host_us = max(rank.host_us, rank.main_us)  # the device has caught up
        begun, length = rank.host_us, operation.length_us
        if operation.name in {"load", "loader"}:
            rank.write(
                "user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begun, length
            )
            rank.lanes["load"].append((begun, begun + length))
        elif operation.name == "launches":
            rank.write("cpu_op", "aten::layer_norm", begun, length)
        elif operation.name == "allocator":
            rank.write("cuda_runtime", "cudaFree", begun, length / 2)
            rank.write("cuda_runtime", "cudaMalloc", begun + length / 2, length / 2)
        elif operation.name == "garbage":
            rank.write("python_function", "<built-in function collect>", begun, length)
        rank.host_us = begun + length

    def _meet(self, operation: Operation, programs: dict[int, list[Operation]], places: dict[int, int]) -> bool:
        """Let a group meet if all its members stand before it: it ends on all when the last has come and data moved."""
        members = [self.ranks[number] for number in operation.group]
        for member in members:
            place, program = places[member.number], programs[member.number]
            if place >= len(program) or program[place].kind != "meet" or program[place].group != operation.group:
                return False
        starts = {member.number: max(member.comm_us, member.main_us, member.host_us + 5.0) for member in members}
        end = max(starts.values()) + operation.length_us
        for member in members:
            own = programs[member.number][places[member.number]]
            places[member.number] += 1
            member.numbers[own.group] = member.numbers.get(own.group, 0) + 1
            args = {
                "Collective name": own.name,
                "Group size": len(own.group),
                "In msg nelems": 4096,
                "dtype": "BFloat16",
            }
            args |= {"Process Group Name": "-".join(map(str, own.group)), "Process Group Ranks": str(list(own.group))}
            start = starts[member.number]
            kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
            if own.name not in {"send", "recv"}:
                args |= {"Seq": member.numbers[own.group]}
                kernel = f"ncclDevKernel_{own.name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            member.launch("comm", kernel, start, end - start, **args)
            member.host_us += 9.0
            member.comm_us = end
            if own.exposed:
                member.main_us = end
        return True

    # ---- files and truth

    def write(self, folder: Path) -> None:
        """Write a file a rank, but for missing ranks; clocks of hosts differ and drift."""
        for rank in self.ranks:
            if rank.number in self.missing:
                continue
            drift, offset = self.drifts[rank.host], self.offsets_us[rank.host]
            events = [event | {"ts": event["ts"] * drift + offset} for event in rank.events]
            head = {"schemaVersion": 1, "host_name": f"node{rank.host}", "traceEvents": events}
            head["distributedInfo"] = {"backend": "nccl", "rank": rank.number, "world_size": self.world}
            (folder / f"rank{rank.number}.json").write_text(json.dumps(head))

    def step_us(self) -> float:
        """Return how long the typical step takes."""
        return statistics.median(one["step"] for rank in self.ranks for one in self.truth(rank.number))

    def cost_us(self) -> float:
        """Return by how much the fault lengthens the typical step: the same job is played without it."""
        return self.step_us() - Mesh(self.seed, planted=False).step_us()

    @property
    def told(self) -> bool:
        """Whether the files show the culprit: its own is there, and in a pipeline that of the other of its stage."""
        if self.culprit is None or self.culprit in self.missing:
            return False
        return self.family != "pipeline" or (self.culprit + 4) % 8 not in self.missing

    def truth(self, number: int) -> list[dict[str, float]]:
        """Return what each step of a rank went to, in microseconds."""
        rank = self.ranks[number]
        edges = [start for start, _ in rank.steps[1:]] + [rank.steps[-1][1]]
        return [parts_us(rank.lanes, start, end) for (start, _), end in zip(rank.steps, edges, strict=True)]


def parts_us(lanes: dict[str, Edges], start: float, end: float) -> dict[str, float]:
    """Return the parts of a stretch of time: computing, communication exposed and hidden, data, idle.

    Between two neighbouring edges nothing changes; there the first of computing, communication and data counts.
    """
    edges = [(start, 0, ""), (end, 0, "")]
    for name, lane in lanes.items():
        for low, high in lane:
            if high > start and low < end:
                edges += [(max(low, start), 1, name), (min(high, end), -1, name)]
    edges.sort()
    open_lanes = dict.fromkeys(lanes, 0)
    found = dict.fromkeys(("step", "compute", "exposed_comm", "hidden_comm", "data", "idle"), 0.0)
    for (at, change, name), (after, _, _) in itertools.pairwise(edges):
        if name:
            open_lanes[name] += change
        length = after - at
        found["step"] += length
        compute, comm = open_lanes["compute"], open_lanes["comm"]
        if compute and comm:
            found["hidden_comm"] += length
        loads = open_lanes["copy"] or open_lanes["load"]
        found["compute" if compute else "exposed_comm" if comm else "data" if loads else "idle"] += length
    return found
