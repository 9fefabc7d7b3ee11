"""Ranks that pass data on to one another: the stages of a pipeline, or a ring, on which all do the same."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import RankTrace, TracedCall

# what engines call the group of a ring, over which the sequence goes round, and that of a pipeline
_RING = re.compile(r"(?<![a-z])(?:cp|sp|context|sequence|ring)(?![a-z])", re.IGNORECASE)
_PIPELINE = re.compile(r"(?<![a-z])(?:pp|pipe\w*)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The ranks of one group with sends and receives."""

    ranks: frozenset[int]
    ring: bool


def neighbours_of(ranks: Sequence[Sequence[RankTrace]], passes: Callable[[TracedCall], bool]) -> list[Neighbours]:
    """Return the ranks that pass on to one another by calls that `passes` wants, group by group.

    They are a ring if their group is called so. Where it is not called anything, they are one if each of them calls
    equally often: the first and the last stage of a pipeline have a neighbour less.
    """
    calls: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    texts: dict[tuple[str, str], str] = {}
    for cycles in ranks:
        for trace in cycles:
            for call in trace.calls:
                if trace.rank is not None and passes(call):
                    key = call.group, call.ranks
                    calls[key][trace.rank] += 1
                    texts[key] = call.group_text
    found = []
    for key, counts in calls.items():
        alike = len(counts) > 2 and len(set(counts.values())) == 1
        ring = bool(_RING.search(texts[key])) or (alike and not _PIPELINE.search(texts[key]))
        found.append(Neighbours(frozenset(counts), ring))
    return found
