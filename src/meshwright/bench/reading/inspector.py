"""Records of NCCL's inspector plugin: a JSON object for each collective that a rank of a program has completed.

A message is what one rank sends in an all-reduce, a broadcast or a reduce, and the share of one rank in a gather or a
scatter. The kernel of a rank that comes early waits for the last one, so that of a call the shortest counts.
"""

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...files import sound
from ...units import counted
from ..table import COUNTED, Row
from .identify import MOST_RANKS, NAMES, SHARED
from .json_objects import json_objects
from .tables import ReadTable

_WAITS = "times inside a program, in which a call waits for its last rank too: nothing is held against them"
_SLACK = 0.01
_LATE = 3  # times the median of calls of one size
_Table = tuple[str, int, str]  # collective, ranks, communicator
_Call = tuple[int, Any]  # size, number of the call


def read_inspector(text: str, where: str) -> list[ReadTable] | None:
    """Return a table for each collective of each communicator, None where a text holds no such record."""
    begun = text.count('"coll_perf"')
    if not begun:
        return None
    times: dict[_Table, dict[_Call, float]] = {}
    left_out: Counter[str] = Counter()
    for number, record in enumerate(json_objects(text, most=text.count("\n") + 1), start=1):
        header, told = record.get("header"), record.get("coll_perf")
        if not isinstance(header, dict) or not isinstance(told, dict):
            continue
        begun -= 1
        sound(record, where=where)
        try:
            read = _call(header, told, f"{where}: record {number}")
        except (KeyError, OverflowError, TypeError, ValueError):
            raise InputError(
                f"{where}: record {number} of NCCL's inspector: expected rank, n_ranks, coll, coll_msg_size_bytes, "
                "coll_exec_time_us and coll_algobw_gbs"
            ) from None
        if isinstance(read, str):
            left_out[read] += 1
            continue
        table, call, time_s = read
        calls = times.setdefault(table, {})
        calls[call] = min(time_s, calls.get(call, time_s))
    if begun > 0:
        left_out["whose JSON is cut off or damaged"] += begun
    notes = tuple(f"{count} records {why}: left out" for why, count in left_out.items())
    tables = [_table(key, calls, notes, times) for key, calls in times.items()]
    if not tables and notes:
        raise InputError(f"{where}: no table found: {notes[0]}")
    return tables or None


def _call(header: Mapping[str, Any], told: Mapping[str, Any], at: str) -> tuple[_Table, _Call, float] | str:
    """Return the table, the call and the seconds of a record, or why it says nothing of a rate."""
    ranks, message, time_us = int(header["n_ranks"]), int(told["coll_msg_size_bytes"]), float(told["coll_exec_time_us"])
    algbw, word = float(told["coll_algobw_gbs"]) * 1e9, str(told["coll"])
    if not 1 <= ranks <= MOST_RANKS:
        raise InputError(f"{at}: expected 1 to {MOST_RANKS} ranks")
    collective = NAMES.get(word.lower(), "")
    if collective not in COUNTED or not algbw:
        return "whose collective the plugin counts no bandwidth of"
    if not message or not time_us:
        return "without a size or a time"
    size, time_s = message * (ranks if collective in SHARED else 1), time_us * 1e-6
    if time_s < 0 or abs(algbw * time_s / size - 1) > _SLACK:
        raise InputError(
            f"{at}: coll_algobw_gbs {algbw / 1e9:g} x time is not the {size} B of {collective} of {ranks} ranks"
        )
    return (collective, ranks, str(header.get("id", ""))), (size, told.get("coll_sn")), time_s


def _table(
    key: _Table, calls: Mapping[_Call, float], notes: tuple[str, ...], every: Mapping[_Table, object]
) -> ReadTable:
    collective, ranks, communicator = key
    by_size: dict[int, list[float]] = {}
    for (size, _), time_s in calls.items():
        by_size.setdefault(size, []).append(time_s)
    rows = tuple(
        Row(collective=collective, backend="nccl", ranks=ranks, bytes=size, time_s=statistics.median(found),
            fastest_s=min(found))
        for size, found in sorted(by_size.items())
    )  # fmt: skip
    alike = sum(other[:2] == key[:2] for other in every) > 1
    whole = ("a size is the buffer of all ranks, of which the record names one's share",)
    return ReadTable(
        name=f"{collective} of {ranks}" + (f", communicator {communicator}" if alike else ""),
        tool="NCCL inspector", collective=collective, ranks=ranks, rows=rows, unjudged=_WAITS,
        notes=(*(whole if collective in SHARED else ()), *_late_calls(calls, by_size), *notes),
    )  # fmt: skip


def _late_calls(calls: Mapping[_Call, float], by_size: Mapping[int, list[float]]) -> tuple[str, ...]:
    """Return that some calls took far longer than others of their size on every rank that tells, () where none did."""
    late = [
        (time_s, call) for (size, call), time_s in calls.items() if time_s > _LATE * statistics.median(by_size[size])
    ]
    if not late:
        return ()
    longest, number = max(late, key=lambda one: one[0])
    return (
        f"{counted(len(late), 'call')} of {len(calls)} took more than {_LATE} times the median of calls as large, up "
        f"to {longest * 1e6:.0f} us (coll_sn {number}): waited for a late rank, other work or lost packets",
    )
