"""Groups that were begun and never made: who of all ranks did not begin NCCL's communicator, or did not join."""

from collections import defaultdict
from collections.abc import Collection

from ...units import ranks_in_words, shortened
from ..nouns.facts import Fact, Failure, GroupJoin, Heartbeat, Shortened, StackTrace, StoreWait, of
from ..nouns.identities import Began, RankIdentity
from ..nouns.launch_counts import Remark
from ..nouns.position import MOST_SILENT, HangPosition
from ..nouns.world import with_own_files, world_of

_FEWEST = 2  # ranks that began and wait


def by_inits(facts: list[Fact]) -> HangPosition | None:
    """Return who did not begin the communicator of all ranks, which the others began and none has made.

    That they only had not begun yet when the log ends is excluded by what shows that the others waited, or by the end
    of the job. Of more than a few, or where a person ended it, nobody is named.
    """
    if (found := _unmade(facts)) is None:
        return None
    name, ranks, silent = found
    own = with_own_files(facts)
    waited = [fact.where for fact in facts if isinstance(fact, Heartbeat | Remark | StoreWait)]
    waited += [fact.where for fact in of(facts, Failure) if fact.is_general]
    interrupted = [stack.where for stack in of(facts, StackTrace) if stack.is_momentary]
    if not waited and not interrupted:
        return None  # the log may end before they begin
    few = len(silent) == 1 or (len(silent) <= MOST_SILENT and 2 * len(silent) <= len(ranks))
    certain = bool(waited) and few and set(silent) <= (own or set(silent)) and not of(facts, Shortened)
    return HangPosition(
        kind="absent",
        blamed=silent if certain else (),
        waiting=tuple(sorted(ranks)),
        why=f"{ranks_in_words(silent)} did not begin NCCL's communicator {name} of {len(ranks) + len(silent)} ranks,"
        " which the others wait to make",
        certain=certain,
        silent=certain,
        evidence=(*(one.where for _, one in sorted(ranks.items())), *waited, *interrupted),
        missing=()
        if certain
        else (f"what {ranks_in_words(silent)} did meanwhile: logs, and `py-spy dump` while it hangs",),
    )


def not_begun_yet(facts: list[Fact]) -> tuple[str, ...]:
    """Return what a log leaves open that ends while a communicator is made: whether all ranks begin it."""
    if (found := _unmade(facts)) is None:
        return ()
    name, ranks, silent = found
    told = f"{len(ranks)} of {len(ranks) + len(silent)} ranks began NCCL's communicator {name} and none has made it"
    return (f"whether {ranks_in_words(silent)} begins it later: {told}, to the end of the log",)


def _unmade(facts: list[Fact]) -> tuple[str, dict[int, RankIdentity], tuple[int, ...]] | None:
    """Return a communicator of all ranks that some began, and nobody made: its id, these ranks, and the others."""
    world = world_of(facts)
    begun: dict[str, dict[int, RankIdentity]] = defaultdict(dict)
    made = [one for one in of(facts, RankIdentity) if "Init COMPLETE" in one.where.text]
    for one in of(facts, RankIdentity):
        if one.communicator_id and one.ranks == world and "Init START" in one.where.text:
            begun[one.communicator_id][one.rank] = one
    for name, ranks in begun.items():
        silent = tuple(sorted(set(range(world or 0)) - set(ranks)))
        is_made = any(one.communicator_id == name or _is_later(one, ranks.values()) for one in made)
        steps_on = any(step.where.rank not in silent for step in of(facts, Began))
        if silent and len(ranks) >= _FEWEST and not is_made and not steps_on:
            return name, ranks, silent
    return None


def _is_later(made: RankIdentity, begun: Collection[RankIdentity]) -> bool:
    """Whether a rank made another communicator after it had begun this one: lines of its making are lost."""
    return any(made.rank == one.rank and one.where.before(made.where) for one in begun)


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
