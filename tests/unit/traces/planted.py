"""Random jobs with a planted fault, written as traces, and what is true of them by plain arithmetic.

A job computes layer by layer on its main stream; gradients are reduced in buckets on a second stream, the last of them
exposed; its batches are copied on a third. What the fault is, whom it befell and what it costs is drawn with the rest.
The truth comes from the intervals that were written, marked on a fine grid: nothing of the package is used for it.
"""

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

MAIN, COMM, COPY = 7, 20, 21
FAULTS = ("healthy", "loader", "host", "kernels", "allocator", "garbage", "link", "in turn", "all load")
BECAUSE = {
    "loader": "data loader",
    "host": "outside any operator",
    "kernels": "kernels take",
    "allocator": "allocator",
    "garbage": "garbage",
}
GRID_US = 1.0


@dataclass
class Plan:
    """What was drawn of one job."""

    seed: int
    fault: str
    ranks: int
    steps: int
    layers: int
    culprit: int | None
    delay_us: float
    transfer_us: float
    ahead: bool  # the host launches a step before its device begins it
    told: bool  # kernels carry their group
    numbered: bool  # and their number
    hosts: int
    stages: int  # of a pipeline: ranks are stages x replicas
    uneven: bool  # rank 0 traces a step less
    tensor: int  # ranks that share each layer, and meet after it


@dataclass
class Rank:
    """One rank: when its streams are free, and what it wrote."""

    number: int
    clock_us: float
    main_us: float = 0.0
    comm_us: float = 0.0
    host_us: float = 0.0
    link: int = 0
    calls: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    marks: list = field(default_factory=list)  # (step, start, end) of the true step
    device: list = field(default_factory=list)  # (lane, start, end)
    waits: list = field(default_factory=list)  # in the loader
    step: int = 0

    def write(self, cat, name, start, length, tid=1, **args):
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start + self.clock_us, "dur": length}
        self.events.append((self.step, event | {"args": args}))

    def run(self, name, start, length, stream, launched, lane, **args):
        self.link += 1
        kind = "gpu_memcpy" if lane == "copy" else "kernel"
        call = "cudaMemcpyAsync" if lane == "copy" else "cudaLaunchKernel"
        self.write("cuda_runtime", call, launched, 2.0, correlation=self.link)
        self.write(kind, name, start, length, stream, correlation=self.link, stream=stream, device=0, **args)
        self.device.append((lane, start, start + length))


def drawn(seed: int) -> Plan:
    """Return the job of a seed."""
    rng = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    stages = rng.choice([1, 1, 1, 2])
    replicas = rng.choice([2, 3, 4] if stages > 1 else [2, 3, 4, 8])
    ranks = stages * replicas
    guilty = fault in BECAUSE
    return Plan(
        seed=seed,
        fault=fault,
        ranks=ranks,
        steps=rng.choice([3, 4, 6]),
        layers=rng.choice([2, 4, 8]),
        culprit=rng.randrange(ranks) if guilty else None,
        delay_us=rng.choice([2500.0, 6000.0, 15000.0]) if fault not in {"healthy", "link"} else 0.0,
        transfer_us=rng.choice([200.0, 600.0]) * (20.0 if fault == "link" else 1.0),
        ahead=rng.random() < 0.35 and fault in {"healthy", "kernels", "link"},
        told=rng.random() < 0.8 or stages > 1 or ranks >= 4,
        numbered=rng.random() < 0.5,
        hosts=rng.choice([1, 2]),
        stages=stages,
        uneven=rng.random() < 0.2,
        tensor=rng.choice([1, 2]) if stages == 1 and replicas >= 4 and replicas % 2 == 0 else 1,
    )


class Job:
    """A job that is played step by step."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.rng = plan, random.Random(plan.seed + 1)
        offsets = [0.0, self.rng.uniform(-3e6, 3e6)]
        self.ranks = [Rank(n, 5e6 + offsets[self.host(n)]) for n in range(plan.ranks)]
        self.layer_us = [self.rng.uniform(800.0, 2500.0) for _ in range(plan.layers)]
        self.stage = [1.0, self.rng.uniform(0.6, 1.0)]
        first = self.rng.randrange(0, 50)
        for number in range(first, first + plan.steps):
            self.play(number, number - first)

    def host(self, number: int) -> int:
        return number * self.plan.hosts // self.plan.ranks

    def group(self, rank: Rank) -> list[Rank]:
        """The ranks that hold the same stage."""
        apart = self.plan.stages * self.plan.tensor
        return [one for one in self.ranks if one.number % apart == rank.number % apart]

    def late(self, rank: Rank, count: int) -> float:
        plan = self.plan
        if plan.fault == "in turn":
            return plan.delay_us if self.turns[count % len(self.turns)] == rank.number else 0.0
        if plan.fault == "all load":
            return plan.delay_us
        return plan.delay_us if rank.number == plan.culprit else 0.0

    @property
    def turns(self) -> list[int]:
        return random.Random(self.plan.seed + 2).sample(range(self.plan.ranks), self.plan.ranks)

    def play(self, number: int, count: int) -> None:
        for rank in self.ranks:
            rank.step = number
            self.begin(rank, count)
        for layer, length in enumerate(self.layer_us):
            for rank in self.ranks:
                self.compute(rank, f"gemm_{layer}", length * self.stage[rank.number % self.plan.stages])
            if self.plan.stages > 1 and layer == 0:
                self.pass_on()
            for at in range(0, self.plan.ranks if self.plan.tensor > 1 else 0, self.plan.tensor):
                self.reduce(self.ranks[at : at + self.plan.tensor], exposed=True, share=0.2)
        for rank in self.ranks:
            if self.plan.fault == "kernels" and self.late(rank, count):
                self.compute(rank, "gemm_slow", self.late(rank, count), exact=True)
        for layer, length in enumerate(reversed(self.layer_us)):
            for rank in self.ranks:
                self.compute(rank, f"gemm_{layer}_backward", 2 * length * self.stage[rank.number % self.plan.stages])
            for first in range(self.plan.stages * self.plan.tensor):
                self.reduce(self.group(self.ranks[first]), exposed=layer == self.plan.layers - 1)
        for rank in self.ranks:
            self.compute(rank, "adam", 300.0, name="Optimizer.step#Adam.step")
            self.end(rank, number)

    def begin(self, rank: Rank, count: int) -> None:
        """Load, and be late where the fault says so, before the device has anything to do."""
        plan = self.plan
        if not plan.ahead:
            rank.host_us = max(rank.host_us, rank.main_us, rank.comm_us)
        rank.start_us = rank.host_us
        late = self.late(rank, count)
        if not plan.ahead:
            load = 150.0 + (late if plan.fault in {"loader", "all load"} else 0.0)
            rank.write("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter", rank.host_us, load)
            rank.waits.append((rank.host_us, rank.host_us + load))
            rank.host_us += load
        if late and plan.fault in {"host", "in turn"}:
            rank.host_us += late
        if late and plan.fault == "allocator":
            rank.write("cuda_runtime", "cudaMalloc", rank.host_us, late)
            rank.host_us += late
        if late and plan.fault == "garbage":
            rank.write("python_function", "<built-in function collect>", rank.host_us, late)
            rank.host_us += late
        begins = max(rank.host_us + 5.0, rank.main_us)
        rank.first_us = None
        rank.run("Memcpy HtoD (Pinned -> Device)", begins, 40.0, COPY, rank.host_us, "copy")
        rank.main_us = max(rank.main_us, begins + 40.0)

    def compute(self, rank: Rank, kernel: str, length: float, *, exact: bool = False, name: str = "aten::mm") -> None:
        length *= 1.0 if exact else self.rng.uniform(0.995, 1.005)
        rank.host_us = rank.host_us + 10.0 if self.plan.ahead else max(rank.host_us + 10.0, rank.main_us - 200.0)
        rank.write("user_annotation" if "Optimizer" in name else "cpu_op", name, rank.host_us, 9.0)
        begins = max(rank.main_us, rank.host_us + 5.0)
        rank.first_us = begins if rank.first_us is None else rank.first_us
        rank.run(kernel, begins, length, MAIN, rank.host_us + 1.0, "compute")
        rank.main_us = begins + length

    def pass_on(self) -> None:
        """Send from stage to stage: the receiver's kernel waits for it."""
        for sender in self.ranks[:: self.plan.stages]:
            receiver = self.ranks[sender.number + 1]
            begins = max(sender.main_us, receiver.main_us)
            pair = {"Process Group Name": f"pp{sender.number}", "Group size": 2}
            for rank, name in ((sender, "send"), (receiver, "recv")):
                args = pair | {"Collective name": name, "In msg nelems": 1000, "dtype": "Float"}
                rank.host_us += 10.0
                started = rank.main_us
                rank.run("ncclDevKernel_SendRecv()", started, begins + 50.0 - started, COMM, min(rank.host_us, started),
                         "comm", **args)  # fmt: skip
                rank.main_us = rank.comm_us = begins + 50.0

    def reduce(self, group: list[Rank], *, exposed: bool, share: float = 1.0) -> None:
        """Reduce over a group: it begins on each when that one has come, and ends on all together."""
        starts = {rank.number: max(rank.comm_us, rank.main_us) for rank in group}
        done = max(starts.values()) + share * self.plan.transfer_us
        numbers = [rank.number for rank in group]
        for rank in group:
            args = {}
            if self.plan.told:
                name = "-".join(map(str, numbers))
                args = {"Collective name": "allreduce", "Group size": len(group), "Process Group Name": name}
                args |= {"Process Group Ranks": str(numbers), "In msg nelems": 10**6, "dtype": "BFloat16"}
                rank.calls[name] = rank.calls.get(name, 0) + 1
                args |= {"Seq": rank.calls[name]} if self.plan.numbered else {}
            rank.host_us += 10.0
            started = starts[rank.number]
            rank.run("ncclDevKernel_AllReduce_Sum_bf16_RING_LL()", started, done - started, COMM,
                     min(rank.host_us, started), "comm", **args)  # fmt: skip
            rank.comm_us = done
            if exposed:
                rank.main_us = max(rank.main_us, done)

    def end(self, rank: Rank, number: int) -> None:
        device_end = max(rank.main_us, rank.comm_us)
        if not self.plan.ahead:
            rank.host_us = max(rank.host_us, device_end)
        rank.write("user_annotation", f"ProfilerStep#{number}", rank.start_us, rank.host_us - rank.start_us)
        start = rank.first_us if self.plan.ahead else rank.start_us
        rank.marks.append((number, start, device_end if self.plan.ahead else rank.host_us))

    def write(self, folder: Path) -> None:
        """Write a file a rank."""
        skipped = self.ranks[0].marks[0][0] if self.plan.uneven else None
        for rank in self.ranks:
            gone = skipped if rank.number == 0 else None
            events = [event for step, event in rank.events if step != gone]
            head = {"schemaVersion": 1, "host_name": f"node{self.host(rank.number)}"}
            head |= {"distributedInfo": {"rank": rank.number, "world_size": self.plan.ranks}}
            (folder / f"rank{rank.number}.json").write_text(json.dumps(head | {"traceEvents": events}))

    def truth(self) -> dict[int, dict[str, float]]:
        """Return shares and length of each rank's typical step, by marking every microsecond of it."""
        skipped = {self.ranks[0].marks[0][0]} if self.plan.uneven else set()
        found = {rank.number: _steps(rank, skipped) for rank in self.ranks}
        middle = {
            n: {key: float(np.median([one[key] for one in steps])) for key in steps[0]} for n, steps in found.items()
        }
        return {
            n: {k: v if k == "step_us" else 100 * v / one["step_us"] for k, v in one.items()}
            for n, one in middle.items()
        }

    def cost_us(self) -> float:
        """Return by how much the fault lengthens the typical step: the same job is played without it."""
        without = Job(replace(self.plan, delay_us=0.0)).truth()
        mine = self.truth()
        return float(
            np.median([mine[n]["step_us"] for n in mine]) - np.median([without[n]["step_us"] for n in without])
        )


def _steps(rank: Rank, skipped: set[int]) -> list[dict[str, float]]:
    edges = [mark[1] for mark in rank.marks[1:]] + [rank.marks[-1][2]]
    return [
        _marked(rank, start, end)
        for (number, start, _), end in zip(rank.marks, edges, strict=True)
        if number not in skipped
    ]


def _marked(rank: Rank, start: float, end: float) -> dict[str, float]:
    count = max(1, round((end - start) / GRID_US))
    grid = {lane: np.zeros(count, dtype=bool) for lane in ("compute", "comm", "copy", "load")}
    for lane, low, high in [*rank.device, *(("load", *span) for span in rank.waits)]:
        at, to = (min(max(round((edge - start) / GRID_US), 0), count) for edge in (low, high))
        grid[lane][at:to] = True
    compute, comm, copy, load = grid.values()
    busy = compute | comm
    data = (copy | load) & ~busy
    parts = {"compute": compute, "exposed_comm": comm & ~compute, "hidden_comm": comm & compute, "data": data}
    parts["idle"] = ~(busy | data)
    return {"step_us": end - start} | {key: GRID_US * float(part.sum()) for key, part in parts.items()}
