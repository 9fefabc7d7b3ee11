"""Fold a problem: ranks, transfers and links that must behave alike become one class each.

Classes are found by refinement: everything that looks alike gets one colour, and whatever has neighbours of different
colours is told apart, until nothing changes (the coarsest equitable partition). In such a partition each link of a
class carries as many transfers of each class as any other, so max-min shares, which are unique, are equal within a
class at every moment: the folded problem gives the same times, exactly.

A ring is told apart slowly, one neighbour after the other. So first a period is tried: are ranks at
that distance alike? What that leaves is small, and refined from one colour on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints, lists
from .problem import FlowProblem, Round

WORTH = 0.5  # share of the ranks that the classes may be, for folding to pay
PATIENCE = 40  # rounds of refinement on a problem that is not folded yet

Colours = NDArray[np.uint64]


def fold(whole: FlowProblem) -> FlowProblem:
    """Return the problem with its symmetry folded; as it is where there is none worth it."""
    ranks = len(whole.members)
    if ranks < 4 or whole.handling_s or whole.burst_s or whole.eager_bytes >= 0:
        return whole
    for period in _periods(ranks):
        partition = refine(whole, np.arange(ranks) % period, most=period, patience=8)
        if partition is not None:
            whole = folded_problem(whole, partition)
            break
    patience = PATIENCE if len(whole.members) == ranks else 10 * len(whole.members)
    partition = refine(whole, np.zeros(len(whole.members), dtype=np.int64), len(whole.members) * WORTH, patience)
    return whole if partition is None else folded_problem(whole, partition)


@dataclass(frozen=True, eq=False)
class Partition:
    """The class of each rank, link, and transfer of each round."""

    rank: Ints
    link: Ints
    transfer: tuple[Ints, ...]


def refine(whole: FlowProblem, start: Ints, most: float, patience: int) -> Partition | None:
    """Return the coarsest equitable partition that tells apart what `start` does.

    None where it has more than `most` classes of ranks, or is not found within `patience` rounds.
    """
    rank = _hashed(start, whole.late_s)
    link = _hashed(whole.capacity)
    own = [_hashed(r.size_bytes, r.delay_s, r.after_s) for r in whole.rounds]
    rows = [np.repeat(np.arange(len(r.src)), r.uses.counts()) for r in whole.rounds]
    times = [_wide(r.weight) for r in whole.rounds]
    per_transfer = [
        _wide(r.weight * whole.links[r.uses.items] / r.count[row]) for r, row in zip(whole.rounds, rows, strict=True)
    ]
    classes = (0, 0)
    for _ in range(patience):
        transfer: list[Colours] = []
        next_rank, next_link = rank.copy(), link.copy()
        for number, r in enumerate(whole.rounds):
            path = _summed(rows[number], _mixed(link[r.uses.items]) * per_transfer[number], len(r.src))
            colour = _mixed(
                own[number] + _mixed(rank[r.src]) * np.uint64(3) + _mixed(rank[r.dst]) * np.uint64(5) + path
            )
            transfer.append(colour)
            told = _mixed(colour + np.uint64(number))
            out, into = _wide(r.count / whole.members[r.src]), _wide(r.count / whole.members[r.dst])
            next_rank += _summed(r.src, told * out * np.uint64(7), len(rank))
            next_rank += _summed(r.dst, told * into * np.uint64(11), len(rank))
            next_link += _summed(r.uses.items, told[rows[number]] * times[number], len(link))
        rank, link = _mixed(next_rank), _mixed(next_link)
        found = (len(np.unique(rank)), len(np.unique(link)))
        if found[0] > most:
            return None
        if found == classes:
            return Partition(_numbered(rank), _numbered(link), tuple(_numbered(t) for t in transfer))
        classes = found
    return None


def folded_problem(whole: FlowProblem, partition: Partition) -> FlowProblem:
    """Return the problem of the classes."""
    rounds = []
    _, link_first = np.unique(partition.link, return_index=True)
    chosen_link = np.zeros(len(whole.capacity), dtype=bool)
    chosen_link[link_first] = True
    for r, transfer in zip(whole.rounds, partition.transfer, strict=True):
        _, first = np.unique(transfer, return_index=True)
        row = np.repeat(np.arange(len(r.src)), r.uses.counts())
        mine = chosen_link[r.uses.items]  # what one link of each class carries
        pairs, where = np.unique(
            np.stack([transfer[row[mine]], partition.link[r.uses.items[mine]]]), axis=1, return_inverse=True
        )
        weight = np.bincount(where.ravel(), r.weight[mine], minlength=pairs.shape[1])
        rounds.append(
            Round(
                src=partition.rank[r.src[first]],
                dst=partition.rank[r.dst[first]],
                size_bytes=r.size_bytes[first],
                delay_s=r.delay_s[first],
                after_s=r.after_s[first],
                uses=lists(pairs[0], pairs[1], len(first)),
                weight=weight.astype(np.float64),
                count=np.bincount(transfer, r.count).astype(np.int64),
                local=r.local[first],
            )
        )
    _, rank_first = np.unique(partition.rank, return_index=True)
    return FlowProblem(
        members=np.bincount(partition.rank, whole.members).astype(np.int64),
        links=np.bincount(partition.link, whole.links).astype(np.int64),
        capacity=whole.capacity[link_first],
        rounds=tuple(rounds),
        order=whole.order,
        late_s=whole.late_s[rank_first],
        handling_s=whole.handling_s,
    )


def _periods(ranks: int) -> list[int]:
    """Return the divisors of the ranks up to half of them, small ones first."""
    small = [d for d in range(1, int(ranks**0.5) + 1) if ranks % d == 0]
    return [d for d in sorted({*small, *(ranks // d for d in small)}) if d <= ranks * WORTH]


def _hashed(*columns: Floats | Ints) -> Colours:
    """Return one colour for each row of some columns of numbers."""
    colour = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        colour = _mixed(colour + np.ascontiguousarray(column, dtype=np.float64).view(np.uint64))
    return colour


def _mixed(value: Colours) -> Colours:
    """Return the finaliser of splitmix64: sums of it tell sets apart."""
    with np.errstate(over="ignore"):
        value = (value + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(value ^ (value >> np.uint64(31)))


def _summed(row: Ints, value: Colours, rows: int) -> Colours:
    """Return the sum of the values of each row, modulo 2^64."""
    total = np.zeros(rows, dtype=np.uint64)
    np.add.at(total, row, value)
    return total


def _wide(value: Floats | Ints) -> Colours:
    """Return counts as colours can be multiplied by; they are whole, as the partition so far is equitable."""
    whole = np.rint(value)
    assert np.allclose(value, whole), "a class whose members differ"
    return np.asarray(whole.astype(np.uint64))


def _numbered(colour: Colours) -> Ints:
    return np.unique(colour, return_inverse=True)[1].astype(np.int64)
