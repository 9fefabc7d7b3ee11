"""Ranks that have left: they came to the end of their own data and ended, while the others wait for them."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Fact, Failure, StackTrace, Timeout, TrainingEnded, of
from ..nouns.identities import GoneProcess, LeftRank
from ..nouns.position import HangPosition
from ..nouns.where import Where
from ..nouns.world import identities_of, ranks_seen, world_of
from ..positions.stands import WAITS, Stand, stand_of
from ..text.lines import LogMessage
from ..text.steps import WENT_ON
from ..tools.headings import process_asked

_DONE = re.compile(
    r"\b(?:epochs?|steps|batches|samples|data(?:set|loader)?|loader|iterator|shards?|train(?:ing)?(?: loop)?)\b.{0,24}?"
    r"\b(?:done|finished|completed?|exhausted|ended|over|ran out|consumed|at (?:its|the) end)\b"
    r"|\b(?:finished|completed|done with|ran out of|end of|no more)\b.{0,16}?"
    r"\b(?:epochs?|steps|batches|samples|data(?:set|loader)?|loader|iterator|shards?|train(?:ing)?)\b",
    re.IGNORECASE,
)
_LEAVES = re.compile(r"\b(?:exit(?:ing|s|ed)?|leav(?:ing|es)|quit(?:ting|s)?|bye)\b", re.IGNORECASE)
_FAULT = re.compile(r"rror|xception|fail|abort|kill|signal|traceback|timed? ?out|waiting", re.IGNORECASE)
_MAY_TELL = re.compile(r"[Ee]poch|[Ss]tep|[Bb]atch|[Ss]ample|[Dd]ata|[Ll]oader|Iterator|iterator|[Ss]hard|[Tt]rain")
_NOT_THERE = re.compile(r"Failed to get process executable name|Failed to open process - check if|[Nn]o such process")
_FORBIDDEN = re.compile(r"[Pp]ermi(?:ssion|tted)")
_NAMED = re.compile(r"(?:/proc/|\()(?P<pid>\d{2,8})(?:/\w+: No such file|\) ?-? ?No such process)")
_ANSWER = 3  # lines behind a command
_LONGEST = 400  # characters


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield who says that it is done and makes no step after it, and which processes a tool did not find."""
    done: dict[int, LeftRank] = {}
    for at, message in enumerate(messages):
        text, rank = message.text[:_LONGEST], message.rank
        if rank is not None and not message.is_of_library and _MAY_TELL.search(text):
            if _DONE.search(text) and not _FAULT.search(text):
                leaves = _LEAVES.search(text) is not None or (rank in done and done[rank].leaves)
                done[rank] = LeftRank(rank=rank, leaves=leaves, where=message.where)
            elif WENT_ON.search(text):
                done.pop(rank, None)
        if "o such " in text and (named := _NAMED.search(text)):
            yield GoneProcess(pid=int(named["pid"]), where=message.where)
        if (pid := process_asked(text)) is not None:
            answer = messages[at + 1 : at + 1 + _ANSWER]
            if answer and _NOT_THERE.search(answer[0].text) and not any(_FORBIDDEN.search(a.text) for a in answer):
                yield GoneProcess(pid=pid, where=answer[0].where)
    yield from done.values()


def by_leavers(facts: list[Fact]) -> HangPosition | None:
    """Return who said that it is done and ended, where every other rank is seen to wait; None for nobody.

    Its process is gone, or it said itself that it leaves. A rank that merely is done may be the first of all of them.
    """
    done = {fact.rank: fact.where for fact in of(facts, TrainingEnded) if fact.rank is not None}
    done |= {fact.rank: fact.where for fact in of(facts, LeftRank)}
    leaves = {fact.rank for fact in of(facts, LeftRank) if fact.leaves}
    gone = _gone(facts)
    left = {rank: where for rank, where in done.items() if rank in gone or rank in leaves}
    stands = [stand for stack in of(facts, StackTrace) if (stand := stand_of(stack)).rank is not None]
    waits = {stand.rank: stand.where for stand in stands if stand.kind in WAITS}
    waits |= {fact.rank: fact.where for fact in of(facts, Timeout) if fact.rank is not None}
    everyone = set(range(world_of(facts) or 0)) | ranks_seen(facts)
    failed = {fault.rank for fault in of(facts, Failure) if not fault.is_over}
    if not left or len(left) >= len(waits) or everyone - left.keys() != waits.keys() or failed & left.keys():
        return None
    if any(where.before(waits[rank]) is False for where in left.values() for rank in waits):
        return None  # they waited before, for somebody else
    return _position(left, gone, stands, {rank: where for rank, where in waits.items() if rank is not None})


def _gone(facts: list[Fact]) -> dict[int, Where]:
    """Return the ranks whose processes a tool did not find, by its lines."""
    ranks: dict[int | None, set[int]] = {}
    for identity in identities_of(facts):
        ranks.setdefault(identity.pid, set()).add(identity.rank)
    told = [(ranks.get(fact.pid, set()), fact.where) for fact in of(facts, GoneProcess)]
    return {min(own): where for own, where in told if len(own) == 1}


def _position(
    left: dict[int, Where], gone: dict[int, Where], stands: Sequence[Stand], waits: dict[int, Where]
) -> HangPosition:
    calls = {stand.call for stand in stands if stand.kind == "collective"}
    ended = [gone[rank] for rank in left if rank in gone]
    how = {rank: "is done, and its process gone" if rank in gone else "is done and leaves" for rank in left}
    told = "; ".join(f"rank {rank} {what}" for rank, what in how.items())
    return HangPosition(
        kind="absent",
        blamed=tuple(sorted(left)),
        waiting=tuple(sorted(waits)),
        operation=calls.pop() if len(calls) == 1 else "",
        why=f"{told}: its data are fewer than those of the others, which wait for it",
        evidence=(*left.values(), *ended, *waits.values()),
    )
