"""Scenarios of the campaign: two or three faults that overlap, drawn from a seed, so that a seed repeats them."""

import random
from collections.abc import Collection
from typing import Literal, get_args

import msgspec

NODES, RANKS_PER_NODE = 2, 2
TIMEOUT_S = 10.0  # of the job: what is shorter must change nothing, what is longer must be named
FIRST_STEP, LAST_STEP = 25, 90  # at which the first fault is done
OVERLAP_S = 3.0  # within which the others follow
FOR_GOOD = 0.0

Kind = Literal[
    "kill",  # SIGKILL of a rank
    "stop",  # SIGSTOP of a rank, shorter than the timeout
    "freeze",  # SIGSTOP of a rank for good
    "oom",  # a rank is ended by the memory limit of its cgroup
    "cut",  # the cable of a node is out for less than the timeout
    "slow",  # the NIC of a node at a tenth of its rate
    "partition",  # the cable of a node is out for longer than the timeout
    "full",  # the disk with the run folder has no room
    "gone",  # the folder of checkpoints is moved away
    "clock",  # the wall clock of node1 is wrong from the start
    "damage",  # the data of the newest checkpoint lose a byte or a bit
    "launcher",  # SIGKILL of what was started on a node
    "second",  # the same command is started once more in the same folder
    "strangers",  # junk at every port of a node
]
LASTS_S: dict[Kind, tuple[float, float]] = {
    "stop": (2.0, 5.0),
    "cut": (2.0, 5.0),
    "slow": (15.0, 25.0),
    "partition": (TIMEOUT_S + 8, TIMEOUT_S + 18),
    "full": (4.0, 8.0),
    "gone": (4.0, 8.0),
    "strangers": (4.0, 8.0),
}
OF_A_RANK: frozenset[Kind] = frozenset({"kill", "stop", "freeze", "oom"})
ENDING: frozenset[Kind] = frozenset({"kill", "freeze", "oom", "partition", "launcher"})  # a life of the job
CLOCKS_S = (-3600, -10, 10, 3600)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong."""

    kind: Kind
    after_s: float  # since the job has done the step at which the scenario begins
    node: int
    rank: int | None = None  # of kinds that concern one
    for_s: float = FOR_GOOD  # until it is mended
    ahead_s: int = 0  # clock only
    flips: bool = False  # damage only: a bit flips; else the file is cut short

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank is not None else f"node{self.node}"
        lasts = f" for {self.for_s:g} s" if self.for_s else ""
        ahead = f" {self.ahead_s:+d} s" if self.ahead_s else ""
        return f"{self.kind} {who}{ahead}{lasts} at {self.after_s:g} s"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to one job."""

    seed: int
    at_step: int
    min_nodes: int  # that the job may go on with
    on_storage_error: Literal["end", "warn"]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        told = "; ".join(map(str, self.faults))
        return f"seed {self.seed}: from step {self.at_step} on: {told} (min_nodes {self.min_nodes})"


def draw(seed: int, able: Collection[Kind] = get_args(Kind)) -> Scenario:
    """Return the scenario of a seed: two or three faults of different kinds that this machine can do."""
    rng = random.Random(f"campaign {seed}")
    kinds = rng.sample(get_args(Kind), rng.choice((2, 2, 3)))
    faults = tuple(_fault(kind, rng, first=place == 0) for place, kind in enumerate(kinds))
    return Scenario(
        seed=seed,
        at_step=rng.randrange(FIRST_STEP, LAST_STEP),
        min_nodes=rng.choice((1, NODES)),
        on_storage_error=rng.choice(("end", "warn")),
        faults=tuple(fault for fault in faults if fault.kind in able),
    )


def _fault(kind: Kind, rng: random.Random, *, first: bool) -> Fault:
    rank, low_high = rng.randrange(NODES * RANKS_PER_NODE), LASTS_S.get(kind)
    node = rank // RANKS_PER_NODE
    return Fault(
        kind=kind,
        after_s=0.0 if first else round(rng.uniform(0, OVERLAP_S), 2),
        node=1 if kind == "clock" else node,
        rank=rank if kind in OF_A_RANK else None,
        for_s=round(rng.uniform(*low_high), 1) if low_high else FOR_GOOD,
        ahead_s=rng.choice(CLOCKS_S) if kind == "clock" else 0,
        flips=kind == "damage" and rng.random() < 0.5,
    )
