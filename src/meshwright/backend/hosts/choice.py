"""The algorithm of a reduction between hosts: the cheapest by its closed figures, on the links as measured."""

import functools
from dataclasses import dataclass

from ...collectives.pricing.formulas import closed_formula, names_with_formula

SIZES_BYTES = tuple(int(2 ** (quarter / 4)) for quarter in range(24, 105))  # 64 B to 64 MiB, four to an octave

WORTH_CHOOSING = 1.25  # choices that take less than this times the best are kept, so that sums keep their order
OTHER_RATE = 2.0  # times as quick or as slow: another link


@dataclass(frozen=True, slots=True)
class MessageCost:
    """The cost of a message between hosts: `alpha_s`, and `beta_s_per_byte` while all ranks of a host send."""

    alpha_s: float
    beta_s_per_byte: float


@functools.lru_cache(maxsize=1024)
def price_s(name: str, links: MessageCost, ranks: int, size_bytes: int) -> float:
    """Return the seconds of an all-reduce among `ranks`: rounds x alpha + sent bytes x beta.

    A rank that receives from several at once is charged for all of them, since they share its link.
    """
    figures = closed_formula(name, ranks)
    busiest = max(float(figures.sent_most), float(figures.received_at_once))
    return figures.rounds * links.alpha_s + busiest * size_bytes * links.beta_s_per_byte


@functools.lru_cache(maxsize=1024)
def choose_all_reduce(links: MessageCost, ranks: int, size_bytes: int, *, narrow: bool = False) -> str:
    """Return the cheapest all-reduce among `ranks` that leaves the same bits on every rank.

    `narrow`: elements travel in a narrower type than they are summed in.
    """
    return min(same_bits(narrow=narrow), key=lambda name: price_s(name, links, ranks, size_bytes))


def regret(known: MessageCost, links: MessageCost, ranks: int, *, narrow: bool = False) -> float:
    """Return how many times as long as the best one a choice by `known` takes on `links`, at the worst size."""
    worst = 1.0
    for size_bytes in SIZES_BYTES:
        took, best = (
            price_s(choose_all_reduce(by, ranks, size_bytes, narrow=narrow), links, ranks, size_bytes)
            for by in (known, links)
        )
        worst = max(worst, took / best)
    return worst


def still_serves(known: MessageCost, links: MessageCost, ranks: int, *, narrow: bool = False) -> bool:
    """Return whether choices made by `known` are kept on `links`: they cost little more there, at the same rate."""
    quick, slow = sorted((known.beta_s_per_byte, links.beta_s_per_byte))
    return slow < OTHER_RATE * quick and regret(known, links, ranks, narrow=narrow) < WORTH_CHOOSING


@functools.cache
def same_bits(*, narrow: bool) -> tuple[str, ...]:
    """Return the all-reduces that leave the same bits on any number of ranks: see `bitwise.leaves_equal_bits`."""
    differ = {"naive", "staggered"}  # every rank sums all by itself, in an order of its own
    if narrow:
        differ.add("recursive_doubling")  # alike for powers of two only
    return tuple(sorted({*names_with_formula()} - differ))
