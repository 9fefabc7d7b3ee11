"""Flight records into groups of calls: torch's (pickle and JSON, of NCCL and gloo) and our own `flight-<rank>.json`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError
from ..files import sound
from .calls import Call, Group, RankGroup, with_counted
from .facts import GroupName, Where
from .names import spelled
from .pickles import is_pickle, load_plain
from .records import Record
from .world import MOST_RANKS

_RANK_AT_END = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle))?$")
_RANK = re.compile(r"rank[_-]?(\d+)\.(?:json|pkl|pickle)$|rank[_-](?:.*[_-])?(\d+)$|flight[_-](\d+)\.json$")
_PEERS = re.compile(r"(?P<kind>send|recv) (?P<a>\d+)(?P<way>->|<-)(?P<b>\d+)")
_LIBRARY = re.compile(r"/torch/|site-packages|<frozen|c10d_logger|/deepspeed/|/accelerate/|/transformers/")


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's flight record as it was read."""

    rank: int
    where: Where
    data: dict[str, Any]


def rank_of(path: Path) -> int | None:
    """Return the rank in a record's file name: `nccl_trace_rank_3`, `..._rank_host-01_3`, `rank_3.json`."""
    match = _RANK.search(path.name) or _RANK_AT_END.search(path.name)
    rank = int(next(group for group in match.groups() if group)) if match else None
    return rank if rank is not None and rank < MOST_RANKS else None


def is_record(data: bytes) -> bool:
    """Whether a file is a flight record: a pickle, or JSON with the keys of one."""
    if is_pickle(data):
        return True
    head = data[:4096].lstrip()
    keys = (b'"pg_status"', b'"pg_config"', b'"comm_lib_version"', b'"nccl_comm_state"', b'"collective_seq_id"')
    return head[:1] == b"{" and (any(key in data for key in keys) or (b'"flights"' in data and b'"rank"' in head))


def read(data: bytes, path: Path, *, order: int, attempt: int | None) -> Dump | Record:
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
            return msgspec.convert(value, Record, strict=False)  # JSON's keys are texts, also those that are ranks
        except msgspec.ValidationError as error:
            raise InputError(f"{path}: {error}") from None
    rank = rank_of(path)
    if not isinstance(value, dict) or not isinstance(value.get("entries", []), list):
        raise InputError(f"{path}: expected a flight record, a mapping with `entries`")
    if not {"entries", "pg_status", "pg_config"} & value.keys():
        raise InputError(f"{path}: expected a flight record with entries, pg_status or pg_config")
    if rank is None:
        raise InputError(f"{path}: no rank in the name; expected nccl_trace_rank_3, rank_3.json or the like")
    return Dump(rank=rank, data=value, where=Where(str(path), 0, "", None, attempt, order, rank))


def groups_of(dumps: Iterable[Dump]) -> list[Group]:
    """Return the groups that torch's records speak of."""
    parts: dict[str, dict[int, RankGroup]] = defaultdict(dict)
    purposes: dict[str, str] = {}
    members: dict[str, set[int]] = defaultdict(set)
    newest, recorded = -1, set()
    for dump in dumps:
        try:
            for name, part, purpose, ranks in _parts(dump):
                parts[name][dump.rank] = part
                purposes[name] = purposes.get(name) or purpose
                members[name] |= ranks
            newest = max(newest, dump.rank)
            recorded.add(dump.rank)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InputError(f"{dump.where.file}: a flight record of an unknown form ({error!r})") from None
    groups = []
    for name, own in parts.items():
        called = GroupName(name, "" if purposes[name] == "undefined" else purposes[name])
        known = members[name] | own.keys()
        lacking = set(range(newest + 1)) - recorded
        if called.is_default:
            known |= set(range(newest + 1))
        elif len(known) == 1 and len(lacking) == 1 and any(part.open() for part in own.values()):
            known |= lacking  # nobody waits in a group of one: the other is the rank that left no record
        groups.append(Group(name=called, ranks=own, members=tuple(sorted(known)), whole=bool(members[name])))
    return groups


def _parts(dump: Dump) -> list[tuple[str, RankGroup, str, set[int]]]:
    """Return each group of one record: its name, this rank's part, its purpose, its members."""
    config = {str(key): value for key, value in (dump.data.get("pg_config") or {}).items()}
    status = {str(key): value for key, value in (dump.data.get("pg_status") or {}).items()}
    entries: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    purposes, ids = {}, {}
    for entry in dump.data.get("entries") or []:
        name, purpose = (*map(_text, entry["process_group"]), "")[:2]
        entries[name].append(entry)
        purposes[name], ids[name] = purpose, _text(entry.get("pg_id", name))
    tells_starts = any(
        entry.get("state") == "started" or entry.get("time_discovered_started_ns")
        for found in entries.values()
        for entry in found
    )
    found = []
    known = set(ids.values())
    names = dict.fromkeys([*entries, *(key for key in status if key not in known and key not in entries)])
    for name in names:
        told = config.get(name) or {}
        ranks = _ranks(told.get("ranks", ""))
        count = status.get(ids.get(name, name)) or {}
        completed = _count(count.get("last_completed_collective"))
        calls = [
            _call(entry, dump, sorted(ranks), completed, tells_starts=tells_starts)
            for entry in _with_coalesced(entries.get(name, []))
            if not (entry.get("is_p2p") and _is_coalesced(entry))  # of which the partners are not written
        ]
        # the ring keeps the newest calls: where it has any, it knows better than the counts, which are written apart
        enqueued = None if calls else _count(count.get("last_enqueued_collective"))
        where = _shown(dump.where, name, count)
        part = RankGroup(
            rank=dump.rank,
            calls=with_counted(
                {call.seq: call for call in calls if call.peer is None}, dump.rank, enqueued, completed, where
            ),
            transfers=tuple(call for call in calls if call.peer is not None),
            enqueued=enqueued,
            started=_count(count.get("last_started_collective")),
            completed=completed,
            where=where,
        )
        purpose = purposes.get(name, "") or _text(told.get("desc", ""))
        found.append((name, part, purpose, ranks))
    return found


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
    return "coalesced" in _text(entry.get("profiling_name", "")).lower()


def _place(entry: Mapping[str, Any]) -> tuple[bool, int]:
    is_p2p = bool(entry.get("is_p2p"))
    return is_p2p, int(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id", 0)) or 0)


def _call(entry: Mapping[str, Any], dump: Dump, ranks: list[int], completed: int | None, *, tells_starts: bool) -> Call:
    name = _text(entry.get("profiling_name", ""))
    is_p2p, seq = _place(entry)
    state = entry.get("state")
    ended = state == "completed" or bool(entry.get("retired")) or bool(entry.get("time_discovered_completed_ns"))
    ended = ended or (not is_p2p and completed is not None and seq <= completed)
    started: bool | None = None
    if tells_starts:
        started = ended or state == "started" or bool(entry.get("time_discovered_started_ns"))
    operation = spelled(name)
    peers = _PEERS.search(name)
    peer = None
    if peers:
        other = int(peers.group("b"))  # `send 0->1` on rank 0, `recv 1<-0` on rank 1: the own rank comes first
        peer = ranks[other] if other < len(ranks) else other
    group = _text(entry["process_group"][0])
    shown = f"{name} #{seq} of group {group}: {_sizes_text(entry)}, {_text(state)}"
    return Call(
        rank=dump.rank,
        seq=seq,
        operation=operation,
        where=msgspec.structs.replace(dump.where, text=shown),
        numel_in=_elements(entry.get("input_sizes")),
        numel_out=_elements(entry.get("output_sizes")),
        types=tuple(map(_text, entry.get("input_dtypes") or ())),
        ended=ended,
        started=started,
        peer=peer,
        frame=_users(entry.get("frames") or []),
        created_ns=int(entry.get("time_created_ns") or 0),
    )


def _users(frames: list[Mapping[str, Any]]) -> str:
    """Return the innermost line of the user's own code."""
    for frame in frames:
        file = _text(frame.get("filename", ""))
        if file and not _LIBRARY.search(file):
            return f"{file.rsplit('/', 1)[-1]}:{_text(frame.get('line'))} ({_text(frame.get('name'))})"
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


def _text(value: Any) -> str:
    """Return a plain value as text; TypeError for a container, which may hold itself many times over."""
    if isinstance(value, str):
        return value[:500]
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    raise TypeError(f"a {type(value).__name__} where a text was expected")


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
    text = f"group {name}: last enqueued {count.get('last_enqueued_collective')}, completed"
    return msgspec.structs.replace(where, text=f"{text} {count.get('last_completed_collective')}")


def our_groups(records: Iterable[tuple[Record, Where]]) -> list[Group]:
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
