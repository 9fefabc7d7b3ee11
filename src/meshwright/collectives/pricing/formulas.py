"""Closed formulas of the all-reduce ways: what the field's tables say of them, beside what the schedules do.

For P ranks and a payload of N bytes, as shares of N:

way                    rounds        sent by a rank           received at once   fan-in
parameter server       2             1 (root: P-1)            P-1                P-1
naive                  P(P-1)        P-1                      1                  1
staggered              P-1           P-1                      1                  1
partitioned            2             2(P-1)/P                 (P-1)/P            P-1
partitioned, in turns  2(P-1)        2(P-1)/P                 1/P                1
ring                   2(P-1)        2(P-1)/P                 1/P                1
halving-doubling       2 log2 P      2(P-1)/P                 1/2                1
double binary tree     2 log2 P      2                        1                  2
one-shot               1             P-1                      P-1                P-1
recursive doubling     log2 P        log2 P                   1                  1
hierarchical           between nodes 2(n-1)/n out of each of n nodes

Halving-doubling with spare ranks (P no power of two) has 2 rounds more, and their partners send and receive N more.
The tree's figures are exact for powers of two from 4 on, and bounds otherwise.
"""

from collections.abc import Callable
from fractions import Fraction

import msgspec

from ...errors import InputError, nearest


class Formula(msgspec.Struct, frozen=True):
    """The closed-form figures of one algorithm for one number of ranks."""

    rounds: int
    sent_most: Fraction
    received_at_once: Fraction
    fan_in: int
    exact: bool = True  # else the last three are upper bounds


def closed_formula(name: str, ranks: int) -> Formula:
    """Return the closed figures of an all-reduce way; all are 0 for one rank."""
    if name not in _FORMULAS:
        raise InputError(f"all_reduce algorithm {name!r}: no closed formula ({nearest(name, _FORMULAS)})")
    if ranks == 1:
        return Formula(0, Fraction(0), Fraction(0), 0)
    return _FORMULAS[name](ranks)


def names_with_formula() -> list[str]:
    """Return the ways that have a closed formula."""
    return list(_FORMULAS)


def between_nodes(nodes: int) -> Fraction:
    """Return the share of N that leaves each node in a hierarchical all-reduce with least traffic."""
    return Fraction(2 * (nodes - 1), nodes)


def _optimal(ranks: int) -> Fraction:
    return Fraction(2 * (ranks - 1), ranks)


def _log2_up(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _halving_doubling(ranks: int) -> Formula:
    core = 1 << (ranks.bit_length() - 1)
    rounds = 2 * _log2_up(core)
    if core == ranks:
        return Formula(rounds, _optimal(ranks), Fraction(1, 2), 1)
    return Formula(rounds + 2, _optimal(core) + 1, Fraction(1), 1)


def _recursive_doubling(ranks: int) -> Formula:
    core = 1 << (ranks.bit_length() - 1)
    spare = core != ranks
    return Formula(_log2_up(core) + 2 * spare, Fraction(_log2_up(core) + spare), Fraction(1), 1)


def _tree(ranks: int) -> Formula:
    exact = ranks >= 4 and ranks & (ranks - 1) == 0
    return Formula(2 * _log2_up(ranks), Fraction(2), Fraction(1), 2, exact)


_FORMULAS: dict[str, Callable[[int], Formula]] = {
    "parameter_server": lambda p: Formula(2, Fraction(p - 1), Fraction(p - 1), p - 1),
    "naive": lambda p: Formula(p * (p - 1), Fraction(p - 1), Fraction(1), 1),
    "staggered": lambda p: Formula(p - 1, Fraction(p - 1), Fraction(1), 1),
    "partitioned": lambda p: Formula(2, _optimal(p), Fraction(p - 1, p), p - 1),
    "partitioned_staggered": lambda p: Formula(2 * (p - 1), _optimal(p), Fraction(1, p), 1),
    "ring": lambda p: Formula(2 * (p - 1), _optimal(p), Fraction(1, p), 1),
    "halving_doubling": _halving_doubling,
    "recursive_doubling": _recursive_doubling,
    "tree": _tree,
    "one_shot": lambda p: Formula(1, Fraction(p - 1), Fraction(p - 1), p - 1),
}
