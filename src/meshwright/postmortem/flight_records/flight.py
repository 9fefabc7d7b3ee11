"""Flight records into groups of calls: torch's (pickle and JSON, of NCCL and gloo) and our own `flight-<rank>.json`."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError
from ...files import sound
from ..nouns.calls import Call, Group, RankGroup, with_counted
from ..nouns.identities import RankIdentity
from ..nouns.names import spelled
from ..nouns.where import GroupName, Where
from ..nouns.world import MOST_RANKS
from .pickles import is_pickle, load_plain
from .records import RankFlight
from .versions import (
    PEERS,
    entries_of,
    group_config,
    names_of_numbers,
    nothing_lost,
    plain_text,
    renamed,
    status_by_name,
)

_RANK_AT_END = re.compile(  # behind a word, or alone: not the end of a hash, as in `dump-5c10.json`
    r"(?<![0-9A-Za-z])(?:(?![0-9a-fA-F]{4,}(?![0-9A-Za-z]))[A-Za-z]+|)(\d+)(?:\.(?:json|pkl|pickle))?$"
)
_RANK = re.compile(r"rank[_-]?(\d+)\.(?:json|pkl|pickle)$|rank[_-](?:.*[_-])?(\d+)$|flight[_-](\d+)\.json$")
_RANK_INSIDE = re.compile(r"(?<![A-Za-z])rank[_-]?(\d+)(?=[._-])(?!.*rank[_-]?\d)")  # rank3_trace.json
LAST_ENQUEUED = "last_enqueued_collective"  # in pg_status
_WATCHDOG_S = 0.1  # between two looks of ProcessGroupNCCL's watchdog (kWatchdogThreadSleepMillis)
_LIBRARY = re.compile(r"/torch/|site-packages|<frozen|c10d_logger|/deepspeed/|/accelerate/|/transformers/")


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's flight record as it was read."""

    rank: int
    where: Where
    data: dict[str, Any]


class ProcessDump(msgspec.Struct, frozen=True, kw_only=True):
    """A flight record whose file bears the number of a process: the rank of that is told by others, or `refusal`."""

    process: int
    where: Where
    data: dict[str, Any]
    refusal: str


def rank_of(path: Path) -> int | None:
    """Return the rank in a record's file name: `nccl_trace_rank_3`, `rank_host-1_3`, `rank_3.json`, `rank3_fr.json`."""
    rank = _rank_named(path)
    return _rank_by(_RANK_AT_END, path) if rank is None else rank


def _rank_named(path: Path) -> int | None:
    """Return the rank that a file's name calls so."""
    rank = _rank_by(_RANK, path)
    return _rank_by(_RANK_INSIDE, path) if rank is None else rank


def _rank_by(form: re.Pattern[str], path: Path) -> int | None:
    match = form.search(path.name)
    rank = int(next(group for group in match.groups() if group)) if match else None
    return rank if rank is not None and rank < MOST_RANKS else None


def _rank_in(value: Mapping[str, Any], path: Path) -> int | None:
    """Return the rank of a record: by the word of its name, by its own key, by the number at the end of its name.

    Torch's analyser keeps `rank` beside the entries. A number alone is none that is in no group of the record.
    """
    rank = _rank_named(path)
    if rank is None and (told := _count(value.get("rank"))) is not None and told < MOST_RANKS:
        return told
    if rank is None and (rank := _rank_by(_RANK_AT_END, path)) is not None:
        members = set().union(*(_ranks(told.get("ranks") or "") for told in group_config(value).values()))
        return rank if rank in members or not members else None
    return rank


def is_record(data: bytes) -> bool:
    """Whether a file is a flight record: a pickle, or JSON with the keys of one."""
    if is_pickle(data):
        return True
    head = data[:4096].lstrip()
    keys = (b'"pg_status"', b'"pg_config"', b'"comm_lib_version"', b'"nccl_comm_state"', b'"collective_seq_id"')
    return head[:1] == b"{" and (any(key in data for key in keys) or (b'"flights"' in data and b'"rank"' in head))


def read(data: bytes, path: Path, *, order: int, attempt: int | None) -> Dump | RankFlight | ProcessDump:
    """Return one record; InputError names a file that is none, or whose rank cannot be told."""
    if is_pickle(data):
        value = load_plain(data, where=str(path))
    else:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not whole JSON: {error}") from None
    value = sound(value, where=str(path))
    if isinstance(value, dict) and "groups" in value and "rank" in value:
        try:
            return msgspec.convert(value, RankFlight, strict=False)  # JSON's keys are texts, ranks too
        except msgspec.ValidationError as error:
            raise InputError(f"{path}: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("entries", []), list):
        raise InputError(f"{path}: expected a flight record, a mapping with `entries`")
    if not {"entries", "pg_status", "pg_config"} & value.keys():
        raise InputError(f"{path}: expected a flight record with entries, pg_status or pg_config")
    try:
        rank = _rank_in(value, path)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: a flight record of an unknown form ({error!r})") from None
    if rank is None:
        refusal = f"{path}: no rank in it or in its name; expected nccl_trace_rank_3, rank_3.json or the like"
        if (process := _rank_by(_RANK_AT_END, path)) is None:
            raise InputError(refusal)
        where = Where(str(path), 0, "", None, attempt, order)
        return ProcessDump(process=process, where=where, data=value, refusal=refusal)
    return Dump(rank=rank, data=value, where=Where(str(path), 0, "", None, attempt, order, rank))


def of_processes(records: Sequence[ProcessDump], identities: Sequence[RankIdentity]) -> dict[str, Dump]:
    """Return the records of processes whose ranks are told, by refusals; the name of a file may tell the host."""
    found: dict[str, Dump] = {}
    for one in records:
        own = [identity for identity in identities if identity.pid == one.process]
        if len({identity.rank for identity in own}) > 1:
            own = [identity for identity in own if identity.host and identity.host in one.where.file]
        ranks = {identity.rank for identity in own}
        if len(ranks) == 1:
            rank = ranks.pop()
            found[one.refusal] = Dump(rank=rank, data=one.data, where=one.where.by(rank))
    return found


def groups_of(dumps: Iterable[Dump]) -> list[Group]:
    """Return the groups that torch's records speak of."""
    found: list[tuple[str, RankGroup, str, frozenset[int]]] = []
    newest, recorded = -1, set()
    for dump in dumps:
        try:
            found += _parts(dump)
            newest = max(newest, dump.rank)
            recorded.add(dump.rank)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InputError(f"{dump.where.file}: a flight record of an unknown form ({error!r})") from None
    groups = []
    joined = _by_group(found)
    bearers, everyone = Counter(name for name, _ in joined), set(range(newest + 1))
    lacking = everyone - recorded
    for (name, ranks), parts in joined.items():
        own = {part.rank: part for part, _ in parts}
        purpose = next((told for _, told in parts if told), "")
        unique = f"{name} {sorted(ranks or own)}" if bearers[name] > 1 else name
        called = GroupName(unique, "" if purpose == "undefined" else purpose)
        known = ranks | own.keys()
        paired = len(known) == 1 and len(lacking) == 1 and any(part.open() for part in own.values())
        if called.is_default:
            known |= everyone
        elif paired:
            known |= lacking  # nobody waits in a group of one: the other is the rank that left no record
        whole = bool(ranks) or (paired and not called.is_default)
        groups.append(Group(name=called, ranks=own, members=tuple(sorted(known)), whole=whole))
    return groups


def _by_group(
    found: Sequence[tuple[str, RankGroup, str, frozenset[int]]],
) -> dict[tuple[str, frozenset[int]], list[tuple[RankGroup, str]]]:
    """Return the ranks' parts by group: by its name and its ranks, since groups of other ranks may bear one name.

    A record that does not say which ranks a group has means the one that has its own.
    """
    known: dict[str, set[frozenset[int]]] = defaultdict(set)
    for name, _, _, ranks in found:
        if ranks:
            known[name].add(ranks)
    groups: dict[tuple[str, frozenset[int]], list[tuple[RankGroup, str]]] = defaultdict(list)
    for name, part, purpose, ranks in found:
        own = [other for other in known[name] if part.rank in other]
        groups[name, ranks or (own[0] if len(own) == 1 else frozenset())].append((part, purpose))
    return groups


def _parts(dump: Dump) -> list[tuple[str, RankGroup, str, frozenset[int]]]:
    """Return each group of one record: its name, this rank's part, its purpose, its members."""
    config = renamed(dump.data)
    entries: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    purposes, ids = {}, {}
    in_order = entries_of(dump.data)
    for entry in in_order:
        name, purpose = (*map(plain_text, entry["process_group"]), "")[:2]
        entries[name].append(entry)
        purposes[name], ids[plain_text(entry.get("pg_id", name))] = purpose, name
    status = status_by_name(dump.data, config, names_of_numbers(dump.data) | ids)
    counted = any(_count(count.get(LAST_ENQUEUED)) is not None for count in status.values())
    whole = counted or nothing_lost(in_order) or dump.data.get("entries") == []
    names = dict.fromkeys([*entries, *status])
    if whole:
        names |= dict.fromkeys(name for name, told in config.items() if dump.rank in _ranks(told.get("ranks") or ""))
    tells_starts = any(e.get("state") == "started" or e.get("time_discovered_started_ns") for e in in_order)
    found = []
    for name in names:
        told = config.get(name) or {}
        ranks = frozenset(_ranks(told.get("ranks") or ""))
        part = _part(dump, name, entries.get(name, []), status.get(name) or {}, ranks, tells_starts=tells_starts)
        if whole and not part.calls and part.enqueued is None:
            part = msgspec.structs.replace(part, enqueued=0)  # it has called nothing in this group
        found.append((name, part, purposes.get(name, "") or plain_text(told.get("desc", "")), ranks))
    return found


def _part(
    dump: Dump,
    name: str,
    entries: list[Mapping[str, Any]],
    count: Mapping[str, Any],
    ranks: frozenset[int],
    *,
    tells_starts: bool,
) -> RankGroup:
    """Return what one rank did in one group, by its entries and its counts."""
    completed = _count(count.get("last_completed_collective"))
    calls = [
        _call(entry, dump, sorted(ranks), completed, tells_starts=tells_starts)
        for entry in _with_coalesced(entries)
        if not (entry.get("is_p2p") and _is_coalesced(entry))  # of which the partners are not written
    ]
    # the ring keeps the newest calls: where it has any, it knows better than the counts, which are written apart
    enqueued = None if calls else _count(count.get(LAST_ENQUEUED))
    where = _shown(dump.where, name, count)
    collectives = {call.seq: call for call in calls if call.peer is None}
    first = min(collectives.values(), key=lambda call: call.seq, default=None)
    if first and not first.ended and completed is not None and first.seq > completed + 1:
        enqueued = first.seq - 1  # the ring has lost the call in which the rank stands
    return RankGroup(
        rank=dump.rank,
        calls=with_counted(collectives, dump.rank, enqueued, completed, where),
        transfers=tuple(call for call in calls if call.peer is not None),
        enqueued=None if calls else enqueued,
        started=_count(count.get("last_started_collective")),
        completed=completed,
        where=where,
    )


def _with_coalesced(entries: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries, those of a coalesced call with the state of the call: only that one is followed."""
    states: dict[tuple[bool, int], Mapping[str, Any]] = {}
    for entry in entries:
        if _is_coalesced(entry):
            states[_place(entry)] = entry
    found = []
    for entry in entries:
        whole = states.get(_place(entry))
        if whole is None or whole is entry:
            found.append(dict(entry))
            continue
        found.append({**entry, "state": whole.get("state"), "retired": whole.get("retired")})
    kept = {_place(entry) for entry in found if not _is_coalesced(entry)}
    return [entry for entry in found if not _is_coalesced(entry) or _place(entry) not in kept]


def _is_coalesced(entry: Mapping[str, Any]) -> bool:
    return "coalesced" in plain_text(entry.get("profiling_name", "")).lower()


def _place(entry: Mapping[str, Any]) -> tuple[bool, int]:
    is_p2p = bool(entry.get("is_p2p"))
    return is_p2p, int(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id") or 0)


def _call(entry: Mapping[str, Any], dump: Dump, ranks: list[int], completed: int | None, *, tells_starts: bool) -> Call:
    name = plain_text(entry.get("profiling_name", ""))
    _, seq = _place(entry)
    state = entry.get("state")
    ended = _has_ended(entry, completed)
    started: bool | None = None
    if tells_starts:
        started = ended or state == "started" or bool(entry.get("time_discovered_started_ns"))
    operation = spelled(name)
    peers = PEERS.search(name)
    peer = None
    if peers:
        other = int(peers.group("b"))  # `send 0->1` on rank 0, `recv 1<-0` on rank 1: the own rank comes first
        peer = ranks[other] if other < len(ranks) else other
    group = plain_text(entry["process_group"][0])
    took_s, grain_s = _took_s(entry)
    shown = f"{name} #{seq} of group {group}: {_sizes_text(entry)}, {plain_text(state)}"
    return Call(
        rank=dump.rank,
        seq=seq,
        operation=operation,
        where=msgspec.structs.replace(dump.where, text=shown),
        numel_in=_elements(entry.get("input_sizes")),
        numel_out=_elements(entry.get("output_sizes")),
        types=tuple(map(plain_text, entry.get("input_dtypes") or ())),
        ended=ended,
        started=started,
        peer=peer,
        frame=_users(entry.get("frames") or []),
        created_ns=int(entry.get("time_created_ns") or 0),
        took_s=took_s,
        grain_s=grain_s,
    )


def _took_s(entry: Mapping[str, Any]) -> tuple[float | None, float]:
    """Return how long a call took on the device, None where that is not told, and by how much it may be wrong.

    NCCL's events time it where TORCH_NCCL_ENABLE_TIMING is on; else the watchdog looks at each call ten times a second.
    """
    if (timed_ms := entry.get("duration_ms")) is not None:
        return float(timed_ms) * 1e-3, 0.0
    began, ended = (entry.get(f"time_discovered_{what}_ns") for what in ("started", "completed"))
    return ((int(ended) - int(began)) * 1e-9 if began and ended else None), 2 * _WATCHDOG_S


def _has_ended(entry: Mapping[str, Any], completed: int | None) -> bool:
    """Return whether a call has ended.

    NCCL's watchdog also retires what timed out, and counts it as completed; gloo's calls never show as completed, and
    are retired when they end.
    """
    if entry.get("state") == "completed" or entry.get("time_discovered_completed_ns"):
        return True
    if entry.get("retired"):
        return not plain_text(entry.get("profiling_name", "")).startswith("nccl:")
    is_p2p, seq = _place(entry)
    return not is_p2p and completed is not None and seq <= completed


def _users(frames: list[Mapping[str, Any]]) -> str:
    """Return the innermost line of the user's own code."""
    for frame in frames:
        file = plain_text(frame.get("filename", ""))
        if file and not _LIBRARY.search(file):
            return f"{file.rsplit('/', 1)[-1]}:{plain_text(frame.get('line'))} ({plain_text(frame.get('name'))})"
    return ""


def _elements(sizes: Any) -> int | None:
    if not isinstance(sizes, list | tuple) or not sizes:
        return None
    total = 0
    for size in sizes:
        product = 1
        for length in size if isinstance(size, list | tuple) else [size]:
            product *= int(length)
        total += product
    return total


def _sizes_text(entry: Mapping[str, Any]) -> str:
    return f"{_elements(entry.get('input_sizes'))} to {_elements(entry.get('output_sizes'))} elements"


def _ranks(value: Any) -> set[int]:
    """Return the ranks of a group, which torch writes as a text, `[0, 1]`."""
    if isinstance(value, list | tuple):
        return {int(rank) for rank in value[:MOST_RANKS]}
    return {rank for number in re.findall(r"\d{1,9}", value) if (rank := int(number)) < MOST_RANKS}


def _count(value: Any) -> int | None:
    """Return a count of pg_status, which JSON has as a text and which is -1 where nothing was counted."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None


def _shown(where: Where, name: str, count: Mapping[str, Any]) -> Where:
    text = f"group {name}: last enqueued {count.get(LAST_ENQUEUED)}, completed"
    return msgspec.structs.replace(where, text=f"{text} {count.get('last_completed_collective')}")


def our_groups(records: Iterable[tuple[RankFlight, Where]]) -> list[Group]:
    """Return the groups that our own records speak of; the ranks seen to arrive are members."""
    parts: dict[str, dict[int, RankGroup]] = defaultdict(dict)
    purposes: dict[str, str] = {}
    members: dict[str, set[int]] = defaultdict(set)
    for record, where in records:
        for group in record.groups:
            calls = {
                flight.sequence: Call(
                    rank=record.rank,
                    seq=flight.sequence,
                    operation=spelled(flight.operation),
                    numel_in=flight.size_bytes,
                    ended=flight.ended,
                    where=msgspec.structs.replace(where, text=f"{flight} of group {group.name}, ended: {flight.ended}"),
                    created_ns=int(flight.started_s * 1e9),
                )
                for flight in group.flights
            }
            parts[group.name][record.rank] = RankGroup(rank=record.rank, calls=calls, where=where)
            purposes[group.name] = group.description or purposes.get(group.name, "")
            members[group.name] |= {record.rank, *group.arrivals}
    return [
        Group(name=GroupName(name, purposes[name]), ranks=ranks, members=tuple(sorted(members[name])), whole=True)
        for name, ranks in parts.items()
    ]
