"""The rule of trainings whose loss is no number any more, and its words beside other verdicts."""

from msgspec.structs import replace

from ..units import ranks_in_words
from .case import Case, verdict_in_call
from .nouns.facts import of
from .nouns.paces import LostNumbers
from .nouns.verdict import Verdict
from .nouns.world import ranks_seen


def lost_numbers(case: Case) -> Verdict | None:
    """Return that a training went on with a loss that was no number, where nothing hangs and nothing failed."""
    lost = of(case.facts, LostNumbers)
    if not lost or ((case.cause is not None or case.position is not None) and not case.went_on):
        return None
    first = min(lost, key=lambda one: (one.where.order, one.first.line))
    ranks = tuple(sorted({one.rank for one in lost if one.rank is not None}))
    ranks = ranks if set(ranks) < ranks_seen(case.facts) and len(ranks) == len(lost) else ()
    on = f" on {ranks_in_words(ranks)}" if ranks else ""
    because = f"{_told(first)}{on}, in {first.lines} lines of steps, to the end of the log"
    lines = tuple(line for one in lost for line in (*one.last_good, one.first, one.where))
    return verdict_in_call("not_finite", because, position=None, lines=lines, ranks=ranks, missing=())


def _told(lost: LostNumbers) -> str:
    near = f" (near step {lost.near})" if lost.near else ""
    return f"{lost.what} from {lost.first.file}:{lost.first.number} on{near}"


def after_lost_numbers(verdict: Verdict, case: Case) -> Verdict:
    """Return the verdict, its reason with the values that were no numbers before it: they may be what led to it."""
    lost = of(case.facts, LostNumbers)
    if not lost or verdict.kind == "not_finite":
        return verdict
    return replace(verdict, because=f"{verdict.because}; before that {_told(lost[0])}")
