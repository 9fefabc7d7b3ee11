"""Max-min fairness by its definition, in exact arithmetic: raise all rates together until somebody cannot go on."""

from fractions import Fraction


def fair_rates_exactly(ways: list[list[int]], capacity: list[int]) -> list[Fraction]:
    """Return the fair rate of each flow; `ways[f]` are the links of flow f (one that it crosses twice counts twice)."""
    rate = [Fraction(0)] * len(ways)
    rising = set(range(len(ways)))
    left = [Fraction(c) for c in capacity]
    while rising:
        load = [sum(ways[f].count(link) for f in rising) for link in range(len(capacity))]
        step = min(left[link] / load[link] for link in range(len(capacity)) if load[link])
        for f in rising:
            rate[f] += step
        left = [room - step * count for room, count in zip(left, load, strict=True)]
        rising -= {f for f in rising if any(left[link] == 0 for link in ways[f])}
    return rate
