"""Ranks that hold the same numbers under a layout, and checks that they still do.

A *unit* is a box of one tensor of the unsplit model, its weights or one of its moments. Units that the same ranks hold
form a *set*; which there are follows from what the ranks hold and not from the kind of layout: copies of data
parallelism, norms that every rank of tensor parallelism keeps, the weights that ZeRO 1 gathers, copies of a sharded
model, embeddings that two pipeline stages share. Each member of a set gives the checksum of its units in a place of its
own of a vector that is summed over all ranks, so that each rank sees them all.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import xxhash
from torch import Tensor

from ...parallel.engine import Shard
from .checksums import checksum
from .rank_context import RankContext


class ReplicaBox(NamedTuple):
    """A box of a tensor on this rank; shares memory with what is trained."""

    name: str  # such as "layers.0.down.weight" or, of a moment, "layers.0.down.weight/exp_avg"
    offset: tuple[int, ...]
    tensor: Tensor

    @property
    def key(self) -> str:
        """The key of a box: the same on the ranks that hold it."""
        return f"{self.name}@{self.offset}+{tuple(self.tensor.shape)}"


class ReplicaDifference(NamedTuple):
    """A set whose members disagree: what each says, and which are outvoted (none where there is no majority)."""

    members: tuple[int, ...]
    checksums: tuple[int, ...]

    @property
    def outvoted(self) -> tuple[int, ...]:
        """The members that more than half of all contradict."""
        value, votes = Counter(self.checksums).most_common(1)[0]
        if 2 * votes <= len(self.members):
            return ()
        return tuple(m for m, said in zip(self.members, self.checksums, strict=True) if said != value)


class Replicas:
    """The sets of this job and the units of this rank in each; made on all ranks at once."""

    def __init__(self, shards: Sequence[Shard], here: RankContext) -> None:
        units = units_of(shards)
        holders = _holders([unit.key for unit in units], here)
        shared = sorted({members for members in holders.everywhere if len(members) > 1})
        self.sets: tuple[tuple[int, ...], ...] = tuple(shared)
        self.units: dict[tuple[int, ...], list[ReplicaBox]] = {members: [] for members in shared}
        for unit, members in zip(units, holders.mine, strict=True):
            if len(members) > 1:
                self.units[members].append(unit)
        alone = [len(members) == 1 for members in holders.mine]
        self.alone_bytes = sum(unit.tensor.nbytes for unit, one in zip(units, alone, strict=True) if one)
        self._rank = here.rank

    @property
    def places(self) -> int:
        """The number of float64 that a check adds to the sum."""
        return sum(len(members) for members in self.sets)

    def contribute(self) -> Tensor:
        """Return what this rank adds to the sum over all ranks: its checksum of each set, at its place."""
        figures, at = torch.zeros(self.places, dtype=torch.float64), 0
        for members in self.sets:
            if self._rank in members:
                mine = checksum(unit.tensor for unit in self.units[members])
                figures[at + members.index(self._rank)] = float(mine)
            at += len(members)
        return figures

    def differences(self, summed: Sequence[float]) -> list[ReplicaDifference]:
        """Return the sets whose members disagree, by what all have contributed."""
        found, at = [], 0
        for members in self.sets:
            said = tuple(int(value) for value in summed[at : at + len(members)])
            if len(set(said)) > 1:
                found.append(ReplicaDifference(members, said))
            at += len(members)
        return found


class _Holders(NamedTuple):
    mine: list[tuple[int, ...]]  # of each unit of this rank
    everywhere: set[tuple[int, ...]]


def units_of(shards: Sequence[Shard]) -> list[ReplicaBox]:
    """Return weights and moments of this rank, a box each, in the order of their keys; the same one once."""
    found: dict[str, ReplicaBox] = {}
    for shard in shards:
        parts = {shard.name: shard.parameter} | {f"{shard.name}/{key}": t for key, t in shard.moments.items()}
        for name, tensor in parts.items():
            unit = ReplicaBox(name, shard.offset, tensor)
            found[unit.key] = unit
    return [found[key] for key in sorted(found)]


def _holders(keys: Sequence[str], here: RankContext) -> _Holders:
    """Return which ranks hold each unit; all ranks exchange their keys, as numbers."""
    rank, ranks, device = here
    mine = np.array([xxhash.xxh3_64_intdigest(key.encode()) >> 1 for key in keys], dtype=np.int64)
    if ranks == 1:
        return _Holders([(rank,)] * len(keys), {(rank,)})
    sizes = torch.zeros(ranks, dtype=torch.int64, device=device)
    sizes[rank] = len(mine)
    dist.all_reduce(sizes)
    padded = torch.full((int(sizes.max()),), -1, dtype=torch.int64)
    padded[: len(mine)] = torch.from_numpy(mine)
    gathered = [torch.empty_like(padded, device=device) for _ in range(ranks)]
    dist.all_gather(gathered, padded.to(device))
    of: dict[int, list[int]] = {}
    for other, numbers in enumerate(gathered):
        for number in numbers[: int(sizes[other])].tolist():
            of.setdefault(number, []).append(other)
    return _Holders([tuple(of[number]) for number in mine.tolist()], {tuple(members) for members in of.values()})
