"""The guard of one rank against silent data corruption: replicas that differ, and which of them is wrong.

The checksums ride on the sum that every step makes anyway, every `train.check_replicas` steps and in the step before
each checkpoint, so that a state whose copies differ is never saved. Where more than half of the holders agree the
others are to blame. Where they do not, as with two copies, the steps since the last good checkpoint are run again on
all ranks: they give the same bits where nothing is broken, and the copy that is further from them was wrong. (A copy
that was right before is not right bit by bit any more: gradients that the wrong one computed have reached it.)
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ...parallel.engine import Shard
from ..job.config import TrainConfig
from ..run.events import Event, EventLog
from .checksums import checksum
from .corruption import corruption, first_names
from .rank_context import RankContext
from .replicas import ReplicaBox, ReplicaDifference, Replicas, units_of

HALF = 0.5  # a leaning within so much of 1 or -1 names one of two copies
FURTHER = 4.0  # times as far from what the steps give again as the nearest copy: then a copy was wrong
MOST_UNITS = 16  # of a set that are compared value by value
FARTHEST = 1e300  # stands for values that are not finite


class Recheck(NamedTuple):
    """A computation that is run again to tell which of two copies was wrong."""

    rerun: Callable[[int], Sequence[Shard]]  # to the end of this step, from the last good checkpoint
    host_of: Callable[[int], str]


class Guard:
    """Compares the copies of one job's state, as one of its ranks."""

    def __init__(
        self,
        train: TrainConfig,
        shards: Sequence[Shard],
        events: EventLog,
        again: Recheck,
        here: RankContext,
    ) -> None:
        self._train, self._events, self._again = train, events, again
        self._here, self._rank, self._ranks = here, here.rank, here.ranks
        self._replicas: Replicas | None = None
        self.every = train.check_replicas  # steps between checks; 0: none
        self._checked = -1  # the last step whose state was compared
        if train.check_replicas and here.ranks > 1:
            self._replicas = Replicas(shards, here)

    @property
    def alone_bytes(self) -> int:
        """How much of this rank's state no other rank holds, so that a flip there is not seen; 0 without checks."""
        return self._replicas.alone_bytes if self._replicas is not None else 0

    def contribute(self, step: int) -> Tensor:
        """Return what this rank adds to the sum at the end of a step: nothing in most steps."""
        if self._replicas is None or not self._due(step):
            return torch.zeros(0, dtype=torch.float64)
        return self._replicas.contribute()

    def judge(self, step: int, summed: Sequence[float]) -> None:
        """Compare what all ranks contributed; CorruptionError on all ranks where copies differ."""
        if self._replicas is None or not summed:
            return
        differences = self._replicas.differences(summed)
        if differences:
            self._found(step, differences)
        self._checked = step

    def confirm(self, step: int) -> None:
        """Compare the copies now unless this step's were; called on all ranks."""
        if self._replicas is not None and self._checked != step:
            self.judge(step, self._here.sum(self._replicas.contribute()).tolist())

    def _due(self, step: int) -> bool:
        return self.every > 0 and ((step + 1) % self.every == 0 or self._train.saves_after(step))

    def _found(self, step: int, differences: list[ReplicaDifference]) -> None:
        """Find out which tensor and which rank, write it down, and raise."""
        names = self._names(step, differences)
        culprits = {rank for difference in differences for rank in difference.outvoted}
        undecided = [difference for difference in differences if not difference.outvoted]
        how = "by majority"
        if undecided and not culprits:
            culprits = self._settled(step, undecided, names)
            how = "by the steps since the last good checkpoint, run again"
        holders = sorted({rank for difference in differences for rank in difference.members})
        which = list(dict.fromkeys(key.partition("@")[0] for d in differences for key in names[d.members]))
        culprit = min(culprits) if len(culprits) == 1 else None
        blamed = f"wrong on rank {_listed(culprits)} ({how})" if culprits else "which of them is wrong is not known"
        text = f"step {step}: ranks {_listed(holders)} hold different values of {first_names(which)}: {blamed}"
        if self._rank == min(holders):
            host = self._again.host_of(culprit) if culprit is not None else ""
            evidence = {f"checksum_of_rank_{r}": float(s) for d in differences for r, s in zip(*d, strict=True)}
            self._events.record(
                Event(kind="corruption", message=text, culprit=culprit, host=host, step=step, evidence=evidence)
            )
        raise corruption(text, self._train.on_corruption, culprit)

    def _names(self, step: int, differences: list[ReplicaDifference]) -> dict[tuple[int, ...], list[str]]:
        """Return the keys of the units that differ, by the members of their set; ranks ask each other by the store."""
        assert self._replicas is not None
        store = dist.PrefixStore(f"meshwright/replicas/{step}", dist.distributed_c10d._get_default_store())
        for difference in differences:
            if self._rank in difference.members:
                mine = {unit.key: checksum([unit.tensor]) for unit in self._replicas.units[difference.members]}
                store.set(f"{difference.members}/{self._rank}", json.dumps(mine))
        found = {}
        for difference in differences:
            said = [json.loads(store.get(f"{difference.members}/{rank}")) for rank in difference.members]
            found[difference.members] = [key for key in said[0] if len({one[key] for one in said}) > 1]
        return found

    def _settled(
        self, step: int, undecided: list[ReplicaDifference], names: dict[tuple[int, ...], list[str]]
    ) -> set[int]:
        """Return the ranks whose copy is further from what the steps give again; nobody where that is not clear."""
        assert self._replicas is not None
        wanted = {d.members: names[d.members][:MOST_UNITS] for d in undecided}
        copies = [self._copies(members, keys) for members, keys in wanted.items()]
        again = {unit.key: unit for unit in units_of(self._again.rerun(step))}
        culprits: set[int] = set()
        for (members, keys), held in zip(wanted.items(), copies, strict=True):
            shared = torch.zeros(2 * self._ranks, dtype=torch.float64)
            if self._rank in members:
                place = members.index(self._rank)
                far = sum(_distance(values, again[key], place) for key, values in zip(keys, held, strict=True))
                leaning = statistics.median(leaning_of(v, again[key].tensor) for key, v in zip(keys, held, strict=True))
                shared[self._rank], shared[self._ranks + self._rank] = min(far, FARTHEST), leaning
            said = self._here.sum(shared)
            distances, leaning = said[list(members)].tolist(), said[self._ranks + members[0]].item()
            nearest = min(distances)
            further = {m for m, d in zip(members, distances, strict=True) if d > FURTHER * nearest}
            if not further and abs(abs(leaning) - 1) < HALF:
                further = {members[0] if leaning > 0 else members[1]}
            culprits |= further
        return culprits

    def _copies(self, members: tuple[int, ...], keys: list[str]) -> list[list[Tensor]]:
        """Return the values that each member holds of some units, on every member; called on all ranks."""
        assert self._replicas is not None
        mine = {unit.key: unit.tensor for unit in self._replicas.units.get(members, [])}
        found = []
        for key in keys:
            held = []
            for member in members:
                shape = _shape_of(key)
                values = mine[key].detach().double() if member == self._rank else torch.zeros(shape).double()
                values = values.to(self._here.device).contiguous().clone()
                dist.broadcast(values, member)
                held.append(values.cpu())
            found.append(held)
        return found


def _distance(copies: list[Tensor], again: ReplicaBox, place: int) -> float:
    """Return how far one copy is from what the steps gave again, summed over the values where the copies differ."""
    bits = torch.stack([copy.reshape(-1).view(torch.int64) for copy in copies])
    differ = (bits != bits[0]).any(0)
    far = (copies[place].reshape(-1) - again.tensor.detach().double().cpu().reshape(-1))[differ].abs().sum().item()
    return far if math.isfinite(far) else math.inf


def leaning_of(copies: list[Tensor], again: Tensor) -> float:
    """Return about 1 where the first of two copies is wrong, about -1 where the second is; 0 for more copies.

    A wrong copy x = y + e brings an error c into the gradients of all, so that y is not what the steps give again
    either: y = z + c, x = z + c + e. Then (|x - z|^2 - |y - z|^2) / |x - y|^2 = 1 + 2<c, e> / |e|^2, and of many
    values c and e point nowhere together. By that a copy is named whose error is no larger than what it brought about.
    """
    if len(copies) != 2:
        return 0.0
    first, second = (copy.reshape(-1) for copy in copies)
    right = again.detach().double().cpu().reshape(-1)
    scale = (first - second).abs().max()
    apart, nearer, further = (
        (value / scale).square().sum() for value in (first - second, second - right, first - right)
    )
    leaning = ((further - nearer) / apart).item()
    return leaning if math.isfinite(leaning) else 0.0


def _shape_of(key: str) -> tuple[int, ...]:
    return tuple(int(size) for size in key.rpartition("+")[2].strip("()").split(",") if size.strip())


def _listed(ranks: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
