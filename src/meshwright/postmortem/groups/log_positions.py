"""Positions of the ranks by their logs, and how much the silence of one is worth."""

from msgspec.structs import replace

from ...units import ranks_in_words, shortened
from ..libraries.inits import by_inits, by_joins
from ..nouns.calls import Group
from ..nouns.facts import Arrived, Fact, GroupProgress, PeerLost, Shortened, Timeout, of
from ..nouns.identities import AgentRanks, HostCheck, NodeGone, Spoke
from ..nouns.position import MOST_SILENT, HangPosition
from ..nouns.where import Where
from ..nouns.world import A_HOST, ranks_of_job, short_host, with_own_files, world_of
from ..positions.waits import judged
from ..ranks.hosts import told_ranks_of
from ..scripts.phases import by_phases
from ..scripts.said_sizes import by_said_sizes
from ..scripts.said_waits import said_to_wait
from ..tools.analyses import by_analysis
from ..tools.gpu_use import by_idle_gpus
from .launches import all_alike, by_launches, by_standing
from .leavers import by_leavers
from .mismatched_tensors import by_models, by_stalls
from .notices import by_arrivals, by_barrier, by_fingerprints, by_lost_peers, by_report, by_sizes, by_store
from .notify import by_notify
from .opcount import by_calls, by_tests
from .printed_counts import by_counts
from .timeouts import UNKNOWN, broken_in_calls, groups_of, size_of
from .unnumbered import by_unnumbered


def hang_position(facts: list[Fact]) -> HangPosition | None:
    """Return what the logs say of the call that hangs and of who is not in it; None where they say nothing."""
    named = by_barrier(facts)
    if named and named.certain:
        return _with_unheard(named, facts)
    if (came := by_arrivals(facts)) and came.certain:
        return came
    analysed = by_analysis(facts)
    if analysed and analysed.certain:
        return analysed
    if (counted := by_counts(facts)) and counted.certain:
        return counted
    found = _by_the_ranks(facts, named)
    is_better = found is not None and found.certain and not (analysed and set(found.blamed) & set(analysed.waiting))
    found = found if is_better else analysed or found
    if (found is None or not found.certain) and (left := by_leavers(facts)):
        return left
    return found


def _by_the_ranks(facts: list[Fact], named: HangPosition | None) -> HangPosition | None:
    """Return what the ranks' own lines say; `named` is what a monitored barrier says that names nobody."""
    for reader in (by_fingerprints, by_report, by_stalls, by_models, by_said_sizes, by_sizes):
        if found := reader(facts):
            return found if found.certain else _with_calls(found, facts)
    found = judged(groups_of(facts))
    if found:
        found = _weighed(found, facts)
        found = _without_ranks(found) if _counts_in_groups(facts) else _in_timed_out_call(found, facts)
        return found if found.certain else _with_counts(found, facts)
    for reader in (by_launches, by_notify, by_unnumbered, by_store, by_inits, by_calls, by_tests, by_standing):
        if found := reader(facts):
            return found
    lost = by_lost_peers(facts)
    if lost and not lost.certain and _of_barrier(facts):
        lost = None
    return named or lost or by_arrivals(facts) or by_phases(facts) or by_idle_gpus(facts) or by_joins(facts)


def _of_barrier(facts: list[Fact]) -> bool:
    """Whether only ranks that stood in a monitored barrier lost a connection: rank 0 closes them when it fails."""
    arrived = of(facts, Arrived)
    ranks, files = {fact.rank for fact in arrived} - {None}, {fact.where.file for fact in arrived}
    lost = of(facts, PeerLost)
    return bool(arrived) and all(
        fact.rank in ranks if fact.rank is not None else fact.where.file in files for fact in lost
    )


def _with_counts(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return the position by NCCL's own counts where the time-outs name nobody and do not speak against them.

    Who brings another size, or calls something else, waits and times out like the others.
    """
    counted = by_launches(facts) or by_calls(facts)
    if counted is None or not counted.certain or not counted.blamed:
        return found
    if counted.kind == "absent" and set(counted.blamed) & set(found.waiting):
        return found
    if counted.operation and found.operation not in {"", counted.operation}:
        return found
    return replace(counted, seq=found.seq, evidence=(*found.evidence, *counted.evidence))


def _with_calls(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return calls that do not match, of which the message names nobody, by NCCL's list of all calls, which may."""
    counted = by_calls(facts, mismatched=True)
    if counted is None or not counted.certain or not {found.kind, counted.kind} <= {"desync", "sizes"}:
        return found
    return replace(counted, evidence=(*found.evidence, *counted.evidence))


def _counts_in_groups(facts: list[Fact]) -> bool:
    """Whether the only ranks in the files are places in a group that is not that of all ranks."""
    timeouts = of(facts, Timeout)
    sizes = {size for group in groups_of(facts) if (size := size_of(group.ranks)) is not None}
    world = world_of(facts)
    if timeouts and all(fact.counted_in_group for fact in timeouts) and world and sizes and world not in sizes:
        return True  # a gather shows the size of its group
    named = [fact.group for fact in of(facts, GroupProgress) if fact.rank is None and fact.group]
    return bool(named) and all(fact.counted_in_group for fact in timeouts) and not any(g.is_default for g in named)


def _in_timed_out_call(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return a position that names nobody as one in the call that timed out, where its own call is only open.

    A rank that a time-out asks for its record may have calls in its queue with which nothing is wrong.
    """
    timeouts = [fact for fact in of(facts, Timeout) if fact.rank is not None and fact.seq is not None]
    seqs = {fact.seq for fact in timeouts}
    if found.certain or found.kind != "absent" or len(seqs) != 1 or found.seq in seqs:
        return found
    group = next(one for one in groups_of(facts) if any(seqs & part.calls.keys() for part in one.ranks.values()))
    ranks = tuple(sorted({fact.rank for fact in timeouts if fact.rank is not None}))
    first = timeouts[0]
    told = f"{ranks_in_words(ranks)} timed out in {first.operation or 'call'} #{first.seq}"
    lacks = f"the logs or flight records of the other ranks of group {group.name}"
    return replace(
        found,
        blamed=(),
        waiting=ranks,
        group=group.name,
        operation=first.operation,
        seq=first.seq,
        silent=False,
        why=f"{told} of group {group.name}; which other ranks are in that group, and whether they came, is not told",
        evidence=(*(fact.where for fact in timeouts), *found.evidence),
        missing=(lacks,),
    )


def _without_ranks(found: HangPosition) -> HangPosition:
    what = (
        "which ranks of the job these are: the lines count inside a group (a prefix [rank3]: tells, or a file a rank)"
    )
    return replace(found, blamed=(), waiting=(), certain=False, missing=(what,))


def _weighed(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return the position with what silence is worth: one rank that says nothing, not a host whose log is missing."""
    group = next((g for g in groups_of(facts) if g.name == found.group), None)
    spoken = set(group.ranks) if group else set()
    report = all_alike(facts, found.operation) if group is None or _is_of_all(group) else None
    if report and found.kind in {"absent", "stuck"} and not spoken & set(found.blamed):
        return _held(found, report)
    if found.kind == "stuck":
        listed = {rank for fact in of(facts, AgentRanks) for rank in fact.ranks}
        is_all = group is None or group.whole or _is_round(len(spoken), group)
        if is_all and (listed <= spoken or (group is not None and not _is_of_all(group))):
            return _with_broken_links(found, facts)
        missing = "whether there are more ranks than these: the launcher's log, or the log of every rank"
        return replace(
            found, kind="absent", certain=False, why=f"{found.why}, of the ranks that spoke", missing=(missing,)
        )
    if found.kind == "circle" and group and not group.whole and (idle := _others(facts) - spoken):
        why = f"{found.why}; rank {', '.join(map(str, sorted(idle)[:8]))} may be the other end of one"
        missing = "the other end of each transfer: stacks with arguments (`py-spy dump --locals`)"
        return replace(found, certain=False, why=why, missing=(missing,))
    silent = [rank for rank in found.blamed if rank not in spoken]
    if found.kind != "absent" or (not silent and found.certain):
        return found
    silent = silent or [int(name.split()[-1]) for name in found.missing if name.startswith("the record of rank")]
    if not silent:
        return found  # each says itself how far it has come
    there = said_to_wait(facts, group, found.seq)
    if left := [rank for rank in silent if rank not in there]:
        silent = left
        found = replace(found, blamed=tuple(rank for rank in found.blamed if rank not in there))
    if checks := _checked(silent, facts):
        told = "; ".join(f"a check of hosts says of {check.host}: {check.what}" for check in checks)
        why = f"ranks {shortened(silent)} say nothing, while the others wait in {_named(found)}; {told}"
        shown = (*found.evidence, *(check.where for check in checks))
        return replace(found, blamed=tuple(silent), certain=True, silent=False, why=why, missing=(), evidence=shown)
    own = with_own_files(facts)
    missing_files = [rank for rank in silent if own is not None and rank not in own]
    if missing_files and len(missing_files) < len(silent):  # a rank whose log is here is known to be silent
        silent = [rank for rank in silent if rank not in missing_files]
        found = replace(found, blamed=tuple(rank for rank in found.blamed if rank not in missing_files))
        missing_files = []
    few = len(silent) == 1 or (len(silent) <= MOST_SILENT and 2 * len(silent) <= len(found.waiting))
    enough = len(found.waiting) >= 2 or bool(group and group.whole and len(found.waiting) == 1 and len(silent) == 1)
    heard = {fact.rank for fact in of(facts, Spoke)}
    lines = _lacks(silent, heard)
    if few and enough and not missing_files and not of(facts, Shortened) and not _is_host(silent):
        told = ", ".join(map(str, silent))
        why = f"rank{'s' * (len(silent) > 1)} {told} printed no time-out, while the others wait"
        return replace(found, why=f"{why} in {_named(found)}", missing=lines, silent=True)
    if of(facts, Shortened):
        folded = "the lines of each rank by themselves: in this file lines of several ranks are folded into one"
        lines = (folded, *(lines if few else ()))
    why = f"the ranks with logs wait in {_named(found)}{_elsewhere(group, found)} for a rank whose log is not here"
    behind = tuple(rank for rank in found.blamed if rank in spoken)
    if not behind:
        return replace(found, blamed=(), certain=False, silent=True, why=why, missing=lines)
    told = f"{ranks_in_words(behind)} stands in an earlier call, which others have ended"
    return replace(
        found, blamed=behind, why=f"{told}; of ranks whose log is not here some may be behind too", missing=lines
    )


def _checked(silent: list[int], facts: list[Fact]) -> list[HostCheck]:
    """Return the checks of hosts that are bad where the silent ranks are those of these hosts, and all of these."""
    gone = [HostCheck(host=one.node, what=one.what, where=one.where) for one in of(facts, NodeGone)]
    bad = {short_host(check.host): check for check in reversed([*of(facts, HostCheck), *gone])}
    ranks = {host: set(told_ranks_of(host, facts)) for host in bad}
    own = {host: found for host, found in ranks.items() if found and found <= set(silent)}
    return [bad[host] for host in sorted(own)] if set().union(*own.values()) == set(silent) else []


def _lacks(silent: list[int], heard: set[int]) -> tuple[str, ...]:
    """Return what would tell where silent ranks are: the stacks of ranks that are heard, the logs of others."""
    found = []
    for what, ranks in (("stack", sorted(set(silent) & heard)), ("log", sorted(set(silent) - heard))):
        if ranks:
            whose = f"the {what} of rank {ranks[0]}" if len(ranks) == 1 else f"the {what}s of ranks {shortened(ranks)}"
            found.append(f"{whose} while it hangs (`py-spy dump`)" if what == "stack" else whose)
    return tuple(found)


def _with_unheard(named: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return who did not come to a barrier, with what would tell why where they say nothing and others have logs."""
    heard = {fact.rank for fact in of(facts, Spoke)}
    silent = sorted(set(named.blamed) - heard)
    return replace(named, missing=(*named.missing, *_lacks(silent, heard))) if silent and heard else named


def _held(found: HangPosition, report: Where) -> HangPosition:
    """Return a position as one of all ranks: by a report of ncclras every rank has launched as many calls."""
    why = f"by ncclras all ranks have launched alike: all have come to {_named(found)} and none gets out of it"
    lines = (*found.evidence, report)
    return replace(found, kind="stuck", blamed=(), certain=True, silent=False, why=why, missing=(), evidence=lines)


def _with_broken_links(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return a call to which all came as one whose links broke, where some lost a peer in it: no process had ended."""
    ranks = sorted({fact.rank for fact in broken_in_calls(facts) if fact.rank is not None and fact.seq == found.seq})
    if not ranks:
        return found
    told = ranks_in_words(tuple(ranks))
    return replace(found, kind="network", why=f"{found.why}: {told} lost a peer in it, and no process had ended")


def _others(facts: list[Fact]) -> set[int]:
    """Return the ranks of which no time-out is told: all below the largest are there."""
    return set(range(ranks_of_job(facts))) - {fact.rank for fact in of(facts, Timeout)}


def _elsewhere(group: Group | None, found: HangPosition) -> str:
    """Return which ranks wait in another call of the group than the one that is named, in words."""
    ranks: dict[str, list[int]] = {}
    for rank, part in group.ranks.items() if group else ():
        if (opened := part.open()) and opened[0].seq != found.seq:
            ranks.setdefault(str(opened[0]), []).append(rank)
    told = [f"{ranks_in_words(own)} in {call}" for call, own in ranks.items()]
    return f" ({'; '.join(told[:4])})" if told else ""


def _named(found: HangPosition) -> str:
    return f"{found.operation or 'call'} #{found.seq}" if found.seq is not None else found.operation or "a call"


def _is_of_all(group: Group) -> bool:
    return group.name.is_default or group.name == UNKNOWN


def _is_round(count: int, group: Group) -> bool:
    """Whether the ranks that spoke are probably all: as many as a gather shows, or a power of two or whole hosts."""
    size = size_of(group.ranks)
    if size is not None:
        return count == size
    return count > 1 and (count % A_HOST == 0 or count & (count - 1) == 0)


def _is_host(silent: list[int]) -> bool:
    return any(set(range(start, start + A_HOST)) <= set(silent) for start in silent if start % A_HOST == 0)
