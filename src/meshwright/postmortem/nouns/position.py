"""Position: what a group of ranks, or the job, hangs in, who keeps the others waiting, and each wait by itself."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from .calls import Call
from .where import GroupName, Where

MOST_SILENT = 3  # more that left nothing are rather files that were not collected


class HangPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The call in which one group of ranks, or the job, hangs. `blamed` are the ranks that keep the others waiting.

    `kind` is absent, desync, sizes, circle or stuck. `certain` is false where the files do not tell who is to blame.
    """

    kind: str
    blamed: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    group: GroupName | None = None
    operation: str = ""
    seq: int | None = None
    why: str = ""
    certain: bool = True
    silent: bool = False  # the blamed left no word of their own
    evidence: tuple[Where, ...] = ()
    missing: tuple[str, ...] = ()


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that cannot go on before some others do something, in one call of one group."""

    rank: int
    on: frozenset[int]
    call: Call
    group: GroupName


def minority(values: Mapping[int, object]) -> tuple[tuple[int, ...], bool]:
    """Return the ranks whose value is not that of more than half of all, and whether there is such a half."""
    (usual, count), *_ = Counter(values.values()).most_common()
    if count * 2 <= len(values):
        return (), False
    return tuple(sorted(rank for rank, value in values.items() if value != usual)), True
