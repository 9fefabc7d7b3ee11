"""Hangs past the end of a training: its processes do not exit, and nothing that was trained is lost."""

from msgspec.structs import replace

from .case import Case
from .nouns.evidence import in_time
from .nouns.facts import (
    Absentees,
    DesyncReport,
    Fact,
    Failure,
    Heartbeat,
    NotifyWait,
    PeerLost,
    StoreWait,
    Timeout,
    TrainingEnded,
    of,
)
from .nouns.verdict import Verdict
from .nouns.where import Where

_WAITS = (Absentees, DesyncReport, NotifyWait, Timeout)  # of a rank that may have come to its end before the others
_TROUBLE = (Failure, Heartbeat, PeerLost, StoreWait)
_OF_EXITS = {"absent", "circle", "host", "killed", "stuck"}  # how a program that does not exit looks
_NEXT = (
    "its training was over: see that its last checkpoint is whole. Let every rank call"
    " torch.distributed.destroy_process_group() at its end",
    "take `py-spy dump --pid` of the processes that do not exit: a thread, a worker of a loader, an upload of logs",
)


def past_the_end(verdict: Verdict, case: Case) -> Verdict:
    """Return the verdict, and in it that the training was over before anything failed, where a line says so."""
    ended = _over(case.facts) if verdict.faulty and verdict.kind != "not_finite" else None
    if ended is None:
        return verdict
    because = f"{verdict.because}; a line before that says that the training came to its end"
    steps = _NEXT if verdict.kind in _OF_EXITS else ()
    told = in_time((ended,))
    after = tuple(line for line in verdict.evidence if line not in told)
    kept = verdict.next if verdict.blamed else ()
    return replace(verdict, because=because, evidence=(*told, *after), next=(*kept, *steps) if steps else verdict.next)


def _over(facts: list[Fact]) -> Where | None:
    """Return the line by which a training was over before all trouble, None where no line says so of all ranks."""
    trouble = [fact for fact in facts if isinstance(fact, _TROUBLE) and not getattr(fact, "is_over", False)]
    if not trouble or any(isinstance(fact, _WAITS) for fact in facts):
        return None
    for end in of(facts, TrainingEnded):
        is_all = end.rank is None or {fact.rank for fact in trouble} <= {None, end.rank}
        if end.is_last and is_all and all(end.where.before(fact.where) for fact in trouble):
            return end.where
    return None
