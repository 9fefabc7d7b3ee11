"""Groups that were begun and never made: who of all ranks did not begin NCCL's communicator, or did not join."""

from collections import defaultdict

from ...units import shortened
from ..nouns.facts import Fact, Failure, GroupJoin, StoreWait, of
from ..nouns.identities import RankIdentity
from ..nouns.launch_counts import Remark
from ..nouns.position import HangPosition
from ..nouns.world import with_own_files, world_of

_FEWEST = 2  # ranks that began and wait


def by_inits(facts: list[Fact]) -> HangPosition | None:
    """Return the one rank that did not begin the communicator of all ranks, which all others began and none has made.

    That it only had not begun yet when the log ends is excluded by a time-out of the others or by the end of the job.
    """
    world, own = world_of(facts), with_own_files(facts)
    begun: dict[str, dict[int, RankIdentity]] = defaultdict(dict)
    made = {one.communicator_id for one in of(facts, RankIdentity) if "Init COMPLETE" in one.where.text}
    for one in of(facts, RankIdentity):
        if one.communicator_id and one.ranks == world and "Init START" in one.where.text:
            begun[one.communicator_id][one.rank] = one
    waited = bool(of(facts, StoreWait)) or any(fact.is_general for fact in of(facts, Failure))
    for name, ranks in begun.items():
        silent = set(range(world or 0)) - set(ranks)
        if name in made or len(silent) != 1 or len(ranks) < _FEWEST:
            continue
        if not waited or not silent <= (own or silent):
            continue  # the log may end before it begins
        (rank,) = silent
        return HangPosition(
            kind="absent",
            blamed=(rank,),
            waiting=tuple(sorted(ranks)),
            why=f"rank {rank} did not begin NCCL's communicator {name} of {world} ranks, which the others wait to make",
            silent=True,
            evidence=tuple(one.where for _, one in sorted(ranks.items())),
        )
    return None


def by_joins(facts: list[Fact]) -> HangPosition | None:
    """Return that only some ranks say that they join, where somebody remarks that nothing more came; None otherwise.

    The others may say so in logs that are not here: nobody is named.
    """
    remarks, joins, world = of(facts, Remark), of(facts, GroupJoin), world_of(facts)
    joined = {join.rank for join in joins}
    if not remarks or not joined or world is None or not joined < set(range(world)) or of(facts, RankIdentity):
        return None
    others = shortened(tuple(set(range(world)) - joined))
    return HangPosition(
        kind="absent",
        waiting=tuple(sorted(joined)),
        why=f"of {world} ranks {shortened(tuple(joined))} say that they join, and nothing more came: {others} do not",
        certain=False,
        evidence=(*(join.where for join in joins), *(remark.where for remark in remarks)),
        missing=(f"the logs of ranks {others}, and whether their host reaches that of rank 0",),
    )
