"""The rule of a process that ended before any time-out, of which no line tells the rank."""

from ..units import ranks_in_words
from .case import Case, verdict_in_call
from .nouns.facts import Failure, Timeout, of
from .nouns.verdict import Verdict
from .nouns.world import identities_of
from .ranks.owners import owners_of, with_rank


def lost_worker(case: Case) -> Verdict | None:
    """Return that a process ended unexpectedly before the others timed out, None where its rank is told or none did.

    Its rank is not known, and it may have given up like the others: lines of several workers come in any order.
    """
    position, timeouts = case.position, of(case.facts, Timeout)
    if position is None or position.certain or position.kind not in {"absent", "stuck"} or not timeouts:
        return None
    identities = identities_of(case.facts)
    ended = [fault for fault in of(case.facts, Failure) if fault.unless_first and fault.pid is not None]
    told = [with_rank(fault, identities, case.facts) for fault in ended]
    first = [one for one in told if all(one.where.before(wait.where) for wait in timeouts)]
    if not first or any(owners_of(fault) for fault in told) or len({(one.host, one.pid) for one in first}) > 1:
        return None
    fault = first[0]
    who = f"process {fault.pid}{f' on {fault.host}' if fault.host else ''}"
    missing = (
        f"which rank {who} was, and whether it timed out like the others before it ended: the log of that worker",
        f"the kernel log of {fault.host or 'its host'}: was it killed for memory?",
    )
    call = f"{position.operation or 'a call'}{f' #{position.seq}' if position.seq is not None else ''}"
    waiting = ranks_in_words(position.waiting)
    because = f"{fault.what} ({who}), before {waiting if position.waiting else 'others'} timed out in {call}"
    return verdict_in_call("killed", because, position=position, lines=(fault.where,), unknown=True, missing=missing)
