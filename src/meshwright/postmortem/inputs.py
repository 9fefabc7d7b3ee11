"""Files and folders into a case: each file is read once, by what it is and not by its name."""

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..errors import InputError
from ..units import counted
from .archives import unpacked
from .case import Case
from .files import beginning, content, files_of, hints_of, is_log, short_names
from .flight_records import flight
from .flight_records.records import RankFlight
from .groups.log_positions import hang_position as spoken_position
from .groups.places import with_told_members
from .libraries import ras
from .nouns.calls import Group
from .nouns.facts import (
    Absentees,
    Busy,
    DesyncReport,
    Exit,
    Fact,
    Failure,
    NotifyWait,
    PeerLost,
    SizesDiffer,
    SlowRank,
    StackTrace,
    Stalled,
    StoreWait,
    Timeout,
    TrainingEnded,
    of,
)
from .nouns.identities import Environment, RankIdentity, Siblings, Spoke, Torchrun
from .nouns.launch_counts import LaunchCounts
from .nouns.paces import OutlivedWait
from .nouns.position import HangPosition
from .nouns.verdict import Verdict
from .nouns.where import Where
from .nouns.world import (
    identities_of,
    of_real_ranks,
    ranks_of_job,
    ranks_seen,
    short_host,
    with_names_of_addresses,
    world_of,
)
from .positions.alike_stacks import with_alike_stacks
from .positions.stack_positions import or_circle
from .positions.waits import in_records
from .ranks.hosts import host_in_path, ranks_of_host, with_pods_of_nodes
from .ranks.nameless import by_folders, by_numbers, by_tasks, with_full_shared_memory, with_owners
from .ranks.owners import rank_of_gpu
from .ranks.process_owners import (
    identities_by_numbers,
    identities_on_machines,
    with_files_of_gpus,
    with_held_ranks,
    with_missing_rank,
    with_numbers_of_stacks,
    without_helpers,
    without_hosts_number,
)
from .readers import READERS
from .reasons.causes import cause_of
from .reasons.running import (
    clocked_steps,
    goes_on,
    judged_at_one_time,
    outlived_records,
    without_outlived_dumps,
    without_waited_out,
)
from .reasons.unlike_versions import with_the_few
from .rules import decide
from .scripts import (
    debuggers,
)
from .surroundings import (
    agents,
    file_servers,
    scheduled_hosts,
)
from .surroundings.outlived import without_outlived
from .text.appended_runs import with_runs
from .text.containers import without_jobs_that_ended_well
from .text.exports import head_of_table
from .text.lines import FileHint, LogMessage
from .text.mentions import without_mentions
from .text.speakers import messages
from .text.steps import MANY_STEPS, is_step
from .tools import (
    kernels,
    stacks,
)

_LIFE = (Stalled, PeerLost, TrainingEnded)  # of an attempt that came so far: what an earlier one met is over
_TROUBLE = (Timeout, Failure, StoreWait, NotifyWait, LaunchCounts, SizesDiffer, Absentees, DesyncReport)
_OF_PROCESSES = (StackTrace, StoreWait, Busy)  # may bear the number of a process alone
_MOST_LOOKED = 200  # files, to tell what a folder holds
MOST_DIGITS = 300  # of a number in a log: thousands would be searched for ever, and a float holds 308
_ENDLESS = re.compile(rf"\d{{{MOST_DIGITS + 1},}}")


class ReadFiles(msgspec.Struct, kw_only=True):
    """The yield of the files: facts of logs, flight records, and what could not be read."""

    facts: list[Fact] = []
    dumps: list[flight.Dump] = []
    ours: list[tuple[RankFlight, Where]] = []
    of_processes: list[flight.ProcessDump] = []  # refused, unless logs tell their ranks
    refused: dict[str, int | None] = {}  # what is wrong, and of which rank where the name tells
    untold: list[str] = []  # of files whose names might tell a rank, and do not
    files: int = 0


def examine_files(paths: Sequence[Path]) -> Verdict:
    """Return the verdict on the artefacts of one job; InputError where none of them could be read."""
    read = read_all(paths)
    return decide(case_of(read))


def may_be_read(paths: Sequence[Path]) -> bool:
    """Return whether any of some files may be a log or a stack in plain text, or a flight record, by how it begins."""
    try:
        heads = [beginning(path) for path in files_of(paths)[:_MOST_LOOKED]]
    except InputError:
        return False
    return any(flight.is_record(head) or _is_text(head) for head in heads)


def _is_text(head: bytes) -> bool:
    return bool(head.strip()) and b"\x00" not in head and head[:2] != b"\x1f\x8b" and head.lstrip()[:1] not in b"{[<"


def read_all(paths: Sequence[Path]) -> ReadFiles:
    """Read files, folders and archives of them; InputError where nothing in them could be read."""
    with unpacked(files_of(paths)) as found:
        files = [file for file in found.files if file not in found.names or is_log(file)]
        names = {**short_names([file for file in files if file not in found.names]), **found.names}
        read = _read(files, names)
    refused = {found.told(what): rank for what, rank in read.refused.items()}
    read.refused = {**refused, **dict.fromkeys(found.wrong.values())}
    read.of_processes = [replace(one, refusal=found.told(one.refusal)) for one in read.of_processes]
    if not read.files:
        told = "; ".join(list(read.refused)[:3])
        told = f": {told}" if told else f" in {counted(len(files), 'file')}"
        raise InputError(
            f"{' '.join(map(str, paths))}: nothing could be read{told}; expected logs, stacks or flight records"
        )
    return read


def _read(files: Sequence[Path], names: Mapping[Path, str]) -> ReadFiles:
    """Read files, each with its short name, whatever can be read of them."""
    read = ReadFiles(facts=[], dumps=[], ours=[], of_processes=[], refused={}, untold=[])
    hints = hints_of(files)
    read.untold += [
        f"whose the lines of {names[path]} are: it prints several RANKs, so that its name tells none"
        for path in files
        if hints[path].has_several
    ]
    for order, path in enumerate(files):
        try:
            _read_file(path, names[path], order, hints[path], read)
        except InputError as error:
            read.refused[str(error)] = flight.rank_of(path)
        except ValueError as error:  # a number of more digits than Python reads
            read.refused[f"{path}: {error}"] = flight.rank_of(path)
    return read


def case_of(read: ReadFiles) -> Case:
    """Return the case of the last attempt that shows a fault."""
    facts = with_pods_of_nodes(_of_environment(with_full_shared_memory(_of_last_attempt(read.facts))))
    facts = with_names_of_addresses(file_servers.with_hosts_of_clients(facts))
    facts = without_waited_out(debuggers.with_their_stacks(_with_ranks(facts)))
    facts = with_told_members(facts)
    facts = scheduled_hosts.with_not_started(agents.with_taken_host(with_the_few(facts)))
    groups: list[Group] = []
    of_processes = flight.of_processes(read.of_processes, identities_of(facts)) if read.of_processes else {}
    dumps = _newest([*read.dumps, *of_processes.values()])
    groups += flight.groups_of(dumps)
    groups += flight.our_groups(read.ours)
    excused = frozenset(rank for rank in read.refused.values() if rank is not None)
    recorded = judged_at_one_time(groups, excused) if groups else None
    spoken = spoken_position(facts)
    position = in_records(_better(recorded, spoken), groups)
    position = or_circle(with_alike_stacks(position, facts), of(facts, StackTrace), world=ranks_of_job(facts))
    facts = with_missing_rank(facts, position)
    return Case(
        facts=facts,
        groups=groups,
        position=position,
        cause=cause_of(facts, position),
        went_on=goes_on(facts, groups),
        unread=tuple(what for what in read.refused if what not in of_processes),
        untold=tuple(read.untold),
        files=read.files + len(of_processes),
    )


def _better(recorded: HangPosition | None, spoken: HangPosition | None) -> HangPosition | None:
    """Return the position by flight records, which know most, unless the logs are certain and they are not."""
    if recorded is None or spoken is None:
        return recorded or spoken
    if recorded.certain and spoken.silent and set(spoken.blamed) <= set(recorded.waiting):
        return recorded  # who printed nothing is in the call by its record
    if recorded.certain and (recorded.kind != "stuck" or not spoken.certain or spoken.kind == "stuck"):
        return recorded
    return spoken if spoken.certain else recorded


def _read_file(path: Path, name: str, order: int, hint: FileHint, read: ReadFiles) -> None:
    parts = content(path)
    data = parts[0][1]
    if not data.strip():
        if hint.rank is not None:  # an empty log of a rank: it exists and said nothing
            read.facts.append(
                Spoke(rank=hint.rank, where=Where(name, 0, "the file is empty", None, hint.attempt, order))
            )
        return
    if flight.is_record(data):
        record = flight.read(b"".join(part for _, part in parts), path, order=order, attempt=hint.attempt)
        if isinstance(record, RankFlight):
            read.ours.append((record, Where(name, 0, "", None, hint.attempt, order, record.rank)))
        elif isinstance(record, flight.ProcessDump):
            read.of_processes.append(replace(record, where=replace(record.where, file=name)))
            raise InputError(record.refusal)
        else:
            read.dumps.append(replace(record, where=replace(record.where, file=name)))
        read.files += 1
        return
    if ras.is_report(data):
        read.facts += _real(ras.facts_of_report(b"".join(part for _, part in parts), path, file=name, order=order))
        read.files += 1
        return
    if b"\x00" in data[:4096]:
        raise InputError(f"{path}: neither text nor a flight record")
    texts = [(first, part.decode("utf-8", errors="replace")) for first, part in parts]
    head = head_of_table(texts[0][1]) if len(texts) > 1 else ""
    texts = [*texts[:1], *((first - 1, head + text) if head else (first, text) for first, text in texts[1:])]
    found = [_real(_of_text(text, name, order, hint, first)) for first, text in texts]
    for facts in sorted(found, key=lambda facts: min((fact.where.line for fact in facts), default=0)):
        read.facts += facts  # the end comes first where the newest line does
    read.files += 1


def _of_text(text: str, name: str, order: int, hint: FileHint, first: int) -> list[Fact]:
    if _ENDLESS.search(text):
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    if kernels.is_table(text):
        return list(kernels.read(text, file=name, order=order, hint=hint))
    if stacks.is_json(text):
        where = Where(name, 0, "", None, hint.attempt, order, hint.rank)
        return list(stacks.read_json(text, hint, Path(name).name, where))
    found = messages(text, file=name, order=order, hint=hint, first=first)
    found = without_mentions(with_runs(without_jobs_that_ended_well(found)))
    facts: list[Fact] = [fact for reader in READERS for fact in reader.read(found)]
    if any(word in text for word in stacks.WORDS):
        facts += stacks.read(found, hint, Path(name).name)
    facts = [*without_outlived_dumps(facts, found), *outlived_records(facts, found)]
    return [*without_outlived(facts, found), *clocked_steps(found), *_spoken(found)]


def _real(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts without ranks that no job has."""
    return [held for fact in facts if (held := of_real_ranks(fact)) is not None]


def _spoken(found: Sequence[LogMessage]) -> list[Fact]:
    """Return one fact for each rank that said anything, whatever it was."""
    first: dict[tuple[int, int | None], Where] = {}
    steps: dict[tuple[int, int | None], deque[Where]] = defaultdict(lambda: deque(maxlen=MANY_STEPS))
    for message in found:
        if message.rank is not None:
            key = message.rank, message.where.attempt
            first.setdefault(key, message.where)
            if message.where.time_s is not None and is_step(message.text):
                steps[key].append(message.where)
    late = {key: last[0] for key, last in steps.items() if len(last) == MANY_STEPS}
    return [Spoke(rank=key[0], where=where, late=late.get(key)) for key, where in first.items()]


def _of_last_attempt(facts: list[Fact]) -> list[Fact]:
    """Return the facts of the last attempt that shows trouble, and facts that belong to no attempt.

    An attempt of which only errors are told that follow from others, as of a launcher that found no peers any more, is
    the end of the one before. Attempts below 0 are of earlier runs: where the last run of any file shows trouble, it is
    the one that is judged.
    """
    last_runs = [fact for fact in facts if (fact.where.attempt or 0) >= 0]
    if any(isinstance(fact, (*_TROUBLE, *_LIFE)) or (isinstance(fact, Exit) and fact.first) for fact in last_runs):
        facts = last_runs
    tried = {fact.where.attempt for fact in facts if isinstance(fact, _TROUBLE) and not _is_sequel(fact)} - {None}
    tried |= {fact.where.attempt for fact in facts if isinstance(fact, _LIFE)} - {None, 0}
    ends = {fact.where.attempt for fact in of(facts, Exit) if fact.first} - {None}
    last = max(tried or ends, default=None)  # type: ignore[type-var]  # None was taken out
    restarted = {fact.where.file for fact in facts if fact.where.attempt not in {None, 0}}
    if last is None:
        return facts
    return [
        fact
        for fact in facts
        if fact.where.attempt == last
        or isinstance(fact, StackTrace | OutlivedWait)
        or (fact.where.attempt is None and (fact.where.file not in restarted or last == 0))
    ]


def _is_sequel(fact: Fact) -> bool:
    """Whether a fact is an error of no rank that usually follows from a fault elsewhere."""
    return isinstance(fact, Failure) and fact.follows and not fact.is_general and fact.rank is None


def _with_ranks(facts: list[Fact]) -> list[Fact]:
    """Return the facts, stacks and waits of a process with the rank that NCCL, torchrun or a table of it gives it."""
    facts = with_files_of_gpus([*facts, *_in_order(facts)])
    facts = [*facts, *identities_by_numbers(facts)]
    facts = [*facts, *identities_on_machines(facts)]
    processes: dict[int | None, list[RankIdentity]] = {}
    for identity in identities_of(facts):
        processes.setdefault(identity.pid, []).append(identity)
    numbered = with_numbers_of_stacks(
        [
            replace(fact, rank=min(ranks))
            if isinstance(fact, _OF_PROCESSES) and len(ranks := _ranks_of_process(fact, processes)) == 1
            else fact
            for fact in facts
        ]
    )
    found: list[Fact] = []
    for fact in (without_hosts_number(fact, facts) for fact in numbered):
        if isinstance(fact, StackTrace) and fact.rank is None and fact.host:
            ranks = set(ranks_of_host(fact.host, facts))
            fact = replace(fact, rank=min(ranks)) if len(ranks) == 1 else fact
        elif isinstance(fact, SlowRank) and fact.device is not None:
            fact = replace(fact, rank=rank_of_gpu(fact, facts))
        found.append(fact)
    return with_held_ranks(without_helpers(found))


def _ranks_of_process(
    fact: StackTrace | StoreWait | Busy, processes: Mapping[int | None, Sequence[RankIdentity]]
) -> set[int]:
    """Return the ranks of the processes of a fact's number: of its host, where that number is not unique.

    The host is the one that a line says, else the only one of these that the path of the file names.
    """
    known = processes.get(fact.pid, ()) if fact.pid and fact.rank is None else ()
    ranks = {identity.rank for identity in known}
    if len(ranks) > 1:
        host = fact.host or host_in_path(fact.where.file, {short_host(one.host) for one in known if one.host})
        ranks = {one.rank for one in known if one.host and short_host(one.host) == short_host(host)} if host else ranks
    return ranks


def _in_order(facts: list[Fact]) -> list[RankIdentity]:
    """Return the ranks of the processes that one launcher started, all ranks of the job, in the order of their numbers.

    Not where any of them is known otherwise, or the job has more ranks than these.
    """
    tables = {fact.pids: fact for fact in of(facts, Siblings)}
    world, largest = world_of(facts), max(ranks_seen(facts), default=-1)
    if len(tables) != 1:
        return []
    pids, table = next(iter(tables.items()))
    known = {identity.pid for identity in of(facts, RankIdentity)}
    if known & set(pids) or world not in {None, len(pids)} or largest >= len(pids):
        return []
    return [RankIdentity(rank=rank, pid=pid, where=table.where) for rank, pid in enumerate(pids)]


def _of_environment(facts: list[Fact]) -> list[Fact]:
    """Return the facts, and that the rank that a log's RANK or the number in its name says has spoken in it.

    RANK is not believed where another rank speaks in that log, or a larger one than WORLD_SIZE has anywhere, or
    torchrun started the ranks: it then counts hosts.
    """
    by_hosts = bool(of(facts, Torchrun))
    told = [one for one in of(facts, Environment) if not one.pod and (one.has_local or not by_hosts)]
    largest = max(ranks_seen(facts), default=-1)
    speakers: dict[str, set[int]] = {}
    for heard in of(facts, Spoke):
        speakers.setdefault(heard.where.file, set()).add(heard.rank)
    for one in told:
        speakers.setdefault(one.where.file, set()).add(one.number)
    own = [one for one in told if largest < one.world and speakers[one.where.file] == {one.number}]
    spoke = [Spoke(rank=one.number, where=one.where) for one in own]
    numbered = {**by_tasks(facts), **by_folders(facts), **by_numbers([*facts, *spoke])}
    first = {fact.where.file: fact.where for fact in reversed(facts)}
    spoke += [Spoke(rank=rank, where=first[file]) for file, rank in numbered.items()]
    return with_owners([*facts, *spoke], {**numbered, **{one.where.file: one.number for one in own}})


def _newest(dumps: Sequence[flight.Dump]) -> list[flight.Dump]:
    """Return one record a rank, of the last attempt: pickle and JSON of one rank say the same."""
    last = max((dump.where.attempt for dump in dumps if dump.where.attempt is not None), default=None)
    found: dict[int, flight.Dump] = {}
    for dump in dumps:
        if last is None or dump.where.attempt in {None, last}:
            kept = found.get(dump.rank)
            if kept is None or _tells(dump) > _tells(kept):
                found[dump.rank] = dump
    return [found[rank] for rank in sorted(found)]


def _tells(dump: flight.Dump) -> tuple[int, int]:
    """Return how much a record tells: its calls, and the open ones: a time-out closes them in gloo's record."""
    entries = dump.data.get("entries") or []
    return len(entries), sum(isinstance(entry, dict) and not entry.get("retired") for entry in entries)
