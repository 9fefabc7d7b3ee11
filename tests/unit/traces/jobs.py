"""Traces of jobs that could have been: ranks compute and meet in collectives that wait for the last."""

import json
from dataclasses import dataclass, field

COMM_STREAM, MAIN_STREAM = 20, 7
STEP_US = 100_000.0


@dataclass
class Rank:
    """One rank of a job: its clock, and the events that its trace holds."""

    number: int
    host: str = "node0"
    ahead_us: float = 0.0  # of its clock
    now_us: float = 0.0
    link: int = 0
    events: list = field(default_factory=list)

    def event(self, cat, name, start, length, tid=1, **args):
        at = 1e6 + self.ahead_us + start
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": at, "dur": length, "args": args}
        )

    def launch(self, name, start, length, stream, **args):
        self.link += 1
        self.event("cuda_runtime", "cudaLaunchKernel", start, 2, correlation=self.link)
        self.event("kernel", name, start, length, stream, correlation=self.link, stream=stream, device=0, **args)

    def compute(self, length_us, name="gemm"):
        self.launch(name, self.now_us, length_us, MAIN_STREAM)
        self.now_us += length_us

    def host_is(self, what, length_us, cat="user_annotation"):
        """Let the device idle while the host does something that the trace names."""
        self.event(cat, what, self.now_us, length_us)
        self.now_us += length_us

    def idle(self, length_us):
        """Let the device idle while the host does what no trace names."""
        self.now_us += length_us


class Job:
    """Ranks in step."""

    def __init__(self, ranks, hosts=("node0",), clocks=(0.0,)):
        self.ranks = [Rank(n, hosts[n % len(hosts)], clocks[n % len(clocks)]) for n in range(ranks)]
        self.met = 0

    def meet(self, members=None, transfer_us=1000.0, name="allreduce", told=True, size=None, stream=20, **said):
        """Let some ranks (all by default) meet in a collective: it ends on all when the last has come.

        The trace says which ranks they are (`told`), or nothing but what is `said`.
        """
        every = [self.ranks[n] for n in (members if members is not None else range(len(self.ranks)))]
        end = max(rank.now_us for rank in every) + transfer_us
        self.met += 1
        for rank in every:
            args = said
            if told:
                numbers = [one.number for one in every]
                group = {"Process Group Name": str(numbers), "Process Group Ranks": str(numbers)}
                args = {"Collective name": name, "Group size": size or len(every), **group}
                args |= {"In msg nelems": 1000, "dtype": "Float"}
            kernel = f"ncclDevKernel_{name}_Sum_f32_RING_LL()"
            rank.launch(kernel, rank.now_us, end - rank.now_us, stream, **args)
            rank.now_us = end

    def broadcast(self, root=0, transfer_us=100.0):
        """Let one rank send to all others: it goes on at once, each other when both have come."""
        sent = self.ranks[root].now_us
        told = {"Collective name": "broadcast", "Group size": len(self.ranks), "Process Group Name": "0"}
        for rank in self.ranks:
            end = max(rank.now_us, sent) + transfer_us
            rank.launch("ncclDevKernel_Broadcast_RING_LL()", rank.now_us, end - rank.now_us, COMM_STREAM, **told)
            rank.now_us = end

    def meet_at(self, name, starts_us, transfer_us, *, stream, members=None):
        """Let ranks (all by default) meet beside their computation, each from when it is ready; return its end."""
        end = max(starts_us) + transfer_us
        every = [self.ranks[n] for n in (members if members is not None else range(len(self.ranks)))]
        numbers = [rank.number for rank in every]
        group = {"Process Group Name": str(numbers), "Process Group Ranks": str(numbers), "Group size": len(numbers)}
        kernels = {
            "all_gather": "AllGather",
            "reduce_scatter": "ReduceScatter_Sum_f32",
            "all_reduce": "AllReduce_Sum_f32",
        }
        called = "allreduce" if name == "all_reduce" else f"_{name}_base"
        told = {"Collective name": called, "In msg nelems": 1000, "dtype": "Float", **group}
        for rank, start in zip(every, starts_us, strict=True):
            rank.launch(f"ncclDevKernel_{kernels[name]}_RING_LL()", start, end - start, stream, **told)
        return end

    def step(self, number):
        """Begin a step on all ranks at once."""
        start = max([number * STEP_US, *(rank.now_us for rank in self.ranks)])
        for rank in self.ranks:
            rank.now_us = start
            rank.event("user_annotation", f"ProfilerStep#{number}", start, STEP_US)

    def write(self, folder):
        """Write a file a rank and return them."""
        paths = []
        for rank in self.ranks:
            info = {"rank": rank.number, "world_size": len(self.ranks)}
            head = {"schemaVersion": 1, "host_name": rank.host, "distributedInfo": info}
            paths.append(folder / f"rank{rank.number}.json")
            paths[-1].write_text(json.dumps({**head, "traceEvents": rank.events}))
        return paths
