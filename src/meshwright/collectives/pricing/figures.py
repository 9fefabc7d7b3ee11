"""Figures of a schedule by itself: rounds, bytes sent, fan-in, peaks; as shares of the payload, exactly.

The payload of N bytes is the largest buffer of a rank: the reduced or broadcast tensor, the whole gathered or
scattered tensor, the input of one rank in an all-to-all.
"""

from collections import Counter
from fractions import Fraction

import msgspec

from ..schedules.schedule import Schedule


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a schedule; shares are of the payload of N bytes."""

    rounds: int  # in which a link is crossed
    messages: int
    sent_most: Fraction  # by one rank in all
    sent_least: Fraction
    received_at_once: Fraction  # most that comes into one rank in one round: the peak at a node
    largest_message: Fraction
    fan_in: int  # most messages into one rank in one round
    fan_out: int
    between_nodes_most: Fraction  # out of one node, where nodes are given


def chunk_share(schedule: Schedule) -> Fraction:
    """Return the size of one chunk as a share of the payload: with counts, of that of the rank that sends most."""
    match schedule.collective:
        case "barrier" | "signal":
            return Fraction(0)
        case "all_to_all" if schedule.counts:
            return Fraction(1, max(map(sum, schedule.counts)))
        case "all_to_all":
            return Fraction(schedule.ranks, schedule.chunks)
        case "copy":
            return Fraction(2, schedule.chunks)
        case _:
            return Fraction(1, schedule.chunks)


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw over algbw, as nccl-tests define them: the share of the payload that each link must carry."""
    match collective:
        case "all_reduce":
            return 2 * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter":
            return (ranks - 1) / ranks
        case _:
            return 1.0


def figures(schedule: Schedule, ranks_per_node: int | None = None) -> Figures:
    """Count what a schedule does."""
    share = chunk_share(schedule)
    sent: Counter[int] = Counter()
    crossing: Counter[int] = Counter()
    rounds = messages = fan_in = fan_out = peak = largest = 0
    for transfers in schedule.rounds:
        wire = [t for t in transfers if not t.is_local]
        if not wire:
            continue
        rounds += 1
        messages += len(wire)
        arriving: Counter[int] = Counter()
        for t in wire:
            sent[t.src] += len(t.chunks)
            arriving[t.dst] += len(t.chunks)
            largest = max(largest, len(t.chunks))
            if ranks_per_node and t.src // ranks_per_node != t.dst // ranks_per_node:
                crossing[t.src // ranks_per_node] += len(t.chunks)
        peak = max(peak, *arriving.values())
        fan_in = max(fan_in, *Counter(t.dst for t in wire).values())
        fan_out = max(fan_out, *Counter(t.src for t in wire).values())
    return Figures(
        rounds=rounds,
        messages=messages,
        sent_most=max(sent.values(), default=0) * share,
        sent_least=min(sent[rank] for rank in range(schedule.ranks)) * share,
        received_at_once=peak * share,
        largest_message=largest * share,
        fan_in=fan_in,
        fan_out=fan_out,
        between_nodes_most=max(crossing.values(), default=0) * share,
    )
