"""Kills for memory: the one rank that a launcher saw end as a kernel killed a process."""

from collections.abc import Sequence

from ..nouns.facts import Exit, Fact, Failure, of
from ..nouns.names import NO_LONGER_HEARD
from ..nouns.world import identities_of, may_be_same_host
from ..ranks.exits import CLOCKS_S, KILL, SIGNALS, signal_of
from ..ranks.hosts import ranks_of_host
from ..ranks.owners import is_of_cgroup, owners_of

_AT_ONCE_S = 60.0  # in which a launcher sees that a process has ended
_ZONE_S = 900.0  # of which the offsets of all time zones are multiples
_ZONES_S = 15 * 3600.0  # by which the clocks of a job and of a kernel may differ


def killed_for_memory(found: Sequence[Failure], first: Failure, facts: list[Fact]) -> tuple[int, ...]:
    """Return the one rank that a launcher saw killed where memory ran out, or of which JAX's coordinator heard no more.

    SLURM says in one line what, in another whom; the kernel's number of a process in a container is not its own there.
    Or the one whose loader lost a worker: it says "unexpectedly" of a worker that could not tell why.
    """
    killed = [fault for fault in found if fault.kind == "killed" and owners_of(fault)]
    killed = killed or [fault for fault in found if _lost_a_worker(fault) and owners_of(fault)]
    exits = [end for end in of(facts, Exit) if signal_of(end.code) == KILL and end.rank is not None]
    if first.pid is not None:
        killed = [fault for fault in killed if _by_kill(fault)]
        near = [fault for fault in killed if is_near(fault, first)]
        killed = near or [fault for fault in killed if _is_in_container(fault, first, exits, facts)]
    ranks = {rank for fault in killed for rank in owners_of(fault)}
    if not ranks and first.pid is not None:  # a pod's launcher does not know its node by name
        ranks = {end.rank for end in exits if end.rank is not None and end.pid == first.pid}
    return tuple(ranks) if len(ranks) == 1 else ()


def _is_in_container(fault: Failure, first: Failure, exits: Sequence[Exit], facts: list[Fact]) -> bool:
    """Whether a rank may be the process that a kernel killed in a container on a host that the job does not know.

    There a host has the name of its container or pod, and a process another number. A clock must say that the launcher
    saw it end at once; that of the kernel may be of another time zone.
    """
    if not is_of_cgroup(first) or ranks_of_host(first.host, facts) or first.where.time_s is None:
        return False
    if any(may_be_same_host(identity.host, first.host) for identity in identities_of(facts) if identity.host):
        return False  # a host that the job knows by name
    ranks = owners_of(fault)
    ends_s = [fault.where.time_s, *(end.time_s for end in exits if end.rank in ranks)]
    after_s = [end_s - first.where.time_s for end_s in ends_s if end_s is not None]
    return any(abs(s) <= _ZONES_S and (s + CLOCKS_S) % _ZONE_S <= _AT_ONCE_S for s in after_s)


def _by_kill(fault: Failure) -> bool:
    """Whether a process may have ended by SIGKILL."""
    return SIGNALS[KILL] in fault.what or fault.what.startswith(NO_LONGER_HEARD) or _lost_a_worker(fault)


def _lost_a_worker(fault: Failure) -> bool:
    return fault.kind == "data" and "exited unexpectedly" in fault.where.text


def is_near(fault: Failure, other: Failure) -> bool:
    """Return whether two faults may be of one host; a pod's name is none."""
    return not fault.host or not other.host or may_be_same_host(fault.host, other.host)
