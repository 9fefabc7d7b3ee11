"""Time-outs of unlike calls that have no number: torch before 2.0 does not number the calls of a group."""

from ...units import ranks_in_words
from ..nouns.facts import Fact, StoreWait, Timeout, of
from ..nouns.position import HangPosition


def by_unnumbered(facts: list[Fact]) -> HangPosition | None:
    """Return that ranks wait in unlike calls, None where they wait in one, or in calls that have numbers.

    Nobody is named: the calls may be of several groups, where the one that differs waits for another.
    """
    timeouts = of(facts, Timeout)
    if of(facts, StoreWait) or any(fact.seq is not None for fact in timeouts):
        return None
    waits = {fact.rank: fact for fact in reversed(timeouts) if fact.rank is not None and fact.operation}
    ranks: dict[str, list[int]] = {}
    for rank, fact in sorted(waits.items()):
        ranks.setdefault(fact.operation, []).append(rank)
    if len(ranks) < 2:
        return None
    told = [f"{ranks_in_words(own)} in {name}" for name, own in ranks.items()]
    return HangPosition(
        kind="desync",
        waiting=tuple(sorted(waits)),
        why=f"{' and '.join([', '.join(told[:-1]), told[-1]])} wait until their time-out: calls that cannot meet",
        certain=False,
        evidence=tuple(fact.where for _, fact in sorted(waits.items())),
        missing=(
            "whether these calls are of one group, which torch before 2.0 does not print: stacks of every rank"
            " (`py-spy dump`), or one run under TORCH_DISTRIBUTED_DEBUG=DETAIL",
        ),
    )
