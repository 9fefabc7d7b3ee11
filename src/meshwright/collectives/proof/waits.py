"""The order of steps that wait for each other."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence


def topological_order(before: Sequence[Collection[int]]) -> list[int]:
    """Return steps so that each comes after all of `before[step]`, the lowest first where there is a choice.

    Steps that wait for each other in a circle, and what waits for those, are left out.
    """
    after: dict[int, list[int]] = defaultdict(list)
    for step, earlier in enumerate(before):
        for other in earlier:
            after[other].append(step)
    missing = [len(earlier) for earlier in before]
    ready = [step for step, count in enumerate(missing) if not count]
    found: list[int] = []
    while ready:
        step = heapq.heappop(ready)
        found.append(step)
        for other in after[step]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, other)
    return found
