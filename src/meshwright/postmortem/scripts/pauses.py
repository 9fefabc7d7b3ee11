"""Long collections of garbage by one rank's own word, for as long as the others say that they waited: it holds them up.

Torchtitan's trainer collects on all ranks at the same step, so that nobody waits for long; Python's own collection
begins on each rank when it has made enough objects.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...units import shortened
from ..nouns.facts import Fact, of
from ..nouns.paces import SaidPause
from ..nouns.position import HangPosition
from ..nouns.where import Where
from ..nouns.world import ranks_of_job, ranks_seen
from ..text.lines import LogMessage

_TIME = r"(\d{1,7}(?:\.\d{1,6})?) ?(s|secs?|seconds?|ms|milliseconds?)\b"
_COLLECTS = re.compile(
    rf"(?:\bgc\b|\[GC\]|\bgarbage[ -]collect).{{0,100}}?(?:\b(?:took|for|in|lasted|pause[sd]?)\b|[=:]) ?{_TIME}",
    re.IGNORECASE,
)
_WAITS = re.compile(
    rf"\b(?:blocked|waited|waiting|stalled|idle)\b(?: for)? {_TIME}"
    rf"|\bwait(?:ed|ing)?(?:[ _]time)?(?: took|[=:]) ?{_TIME}",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:step|iter(?:ation)?)[ =:#]{0,2}(?P<step>\d{1,9})\b", re.IGNORECASE)
_QUICK = ("gc", "GC", "arbage", "block", "wait", "Wait", "stall", "idle")
_LONGEST = 400  # characters of a line
_LEAST_S = 1.0  # of a pause that anybody notices
_PAUSES = 2  # that show it
_OTHERS = 2  # ranks that wait
_ALIKE = (0.75, 1.3)  # of a pause: how long a rank waits for it, that came a little earlier or later


def read(messages: Sequence[LogMessage]) -> Iterator[SaidPause]:
    """Yield how long each rank of one file says that it collected garbage, and that it waited, in which step."""
    for message in messages:
        text = message.text[:_LONGEST]
        if message.rank is None or message.is_of_library or not any(word in text for word in _QUICK):
            continue
        step = _STEP.search(text)
        if step is None:
            continue
        for form, is_own in ((_COLLECTS, True), (_WAITS, False)):
            if told := form.search(text):
                number, unit = [value for value in told.groups() if value is not None][:2]
                seconds = float(number) * (1e-3 if unit.lower().startswith("m") else 1.0)
                yield SaidPause(
                    rank=message.rank, step=int(step["step"]), lasts_s=seconds, is_own=is_own, where=message.where
                )
                break


def by_pauses(facts: list[Fact]) -> HangPosition | None:
    """Return the one rank that collects garbage in several steps for as long as all others say that they waited there.

    None where another one does so too, or does not wait so long, or the paused rank waits as well: then the pauses are
    no cause of the waits, or not the only one. Where ranks of the job say nothing, they may wait for another reason.
    """
    own, waits = (_by_step(facts, is_own=is_own) for is_own in (True, False))
    long = {rank for pauses in own.values() for rank, pause in pauses.items() if pause.lasts_s >= _LEAST_S}
    if len(long) != 1:
        return None
    late = long.pop()
    steps = [step for step, pauses in own.items() if late in pauses and pauses[late].lasts_s >= _LEAST_S]
    everyone = set(range(ranks_of_job(facts))) | ranks_seen(facts)
    if len(steps) < _PAUSES or not all(_wait_for(own[step][late], waits.get(step, {})) for step in steps):
        return None
    waiting = set.intersection(*(set(waits[step]) for step in steps))
    if len(waiting) < _OTHERS:
        return None
    usual_s = sorted(own[step][late].lasts_s for step in steps)[len(steps) // 2]
    lines: list[Where] = [*(own[s][late].where for s in steps), *(one.where for one in waits[steps[-1]].values())]
    is_all = waiting >= everyone - {late}
    return HangPosition(
        kind="slow",
        blamed=(late,) if is_all else (),
        waiting=tuple(sorted(waiting)),
        why=f"rank {late} collects garbage for {usual_s:.3g} s in {len(steps)} steps, no other rank does so, and"
        f" ranks {shortened(tuple(waiting))} wait as long in each of them",
        certain=is_all,
        evidence=tuple(lines),
        missing=() if is_all else ("the logs of all other ranks in these steps",),
    )


def _by_step(facts: list[Fact], *, is_own: bool) -> Mapping[int, dict[int, SaidPause]]:
    """Return each rank's longest pause in each step, of its own or in a wait."""
    found: dict[int, dict[int, SaidPause]] = defaultdict(dict)
    for one in of(facts, SaidPause):
        if one.is_own == is_own:
            before = found[one.step].get(one.rank)
            found[one.step][one.rank] = one if before is None or one.lasts_s > before.lasts_s else before
    return found


def _wait_for(pause: SaidPause, waits: Mapping[int, SaidPause]) -> bool:
    """Whether all who say in a step that they waited did so as long as one's pause lasts, and that one did not."""
    least, most = (part * pause.lasts_s for part in _ALIKE)
    own = waits.get(pause.rank)
    others = [one.lasts_s for rank, one in waits.items() if rank != pause.rank]
    return bool(others) and all(least <= s <= most for s in others) and (own is None or own.lasts_s < least)
