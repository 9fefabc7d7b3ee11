"""Tables of processes that `ps` prints: the ranks of one host, in the order in which their launcher started them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .facts import Fact, Failure
from .identities import Siblings
from .lines import LogMessage
from .where import Where

_COMMAND = {"CMD", "COMMAND", "ARGS"}
_STATES, _STATE = ("STAT", "S"), "STAT"
_RANK_OF = re.compile(r"python\S* .*(?:--(?:local|global)?[_-]?rank[= ]\d|\bRANK=\d)")
_LOCAL_RANK = re.compile(r"--local[_-]rank[= ]\d+")


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes of a table that run one Python command under one parent, and which alone stands in a call.

    Workers of a loader run the same command under a rank, and are no ranks.
    """
    yield from _held(messages)
    columns: list[str] = []
    groups: dict[tuple[int, str], dict[int, Where]] = defaultdict(dict)
    for message in messages:
        words = message.text.split()
        if {"PID", "PPID"} <= set(words) and words[-1] in _COMMAND:
            columns = words
        elif columns and len(words) >= len(columns):
            row = dict(zip(columns, message.text.split(None, len(columns) - 1), strict=True))
            if row["PID"].isdecimal() and row["PPID"].isdecimal() and "python" in row[columns[-1]]:
                command = _LOCAL_RANK.sub("", row[columns[-1]]).strip()
                groups[int(row["PPID"]), command][int(row["PID"])] = message.where
    processes = {pid for pids in groups.values() for pid in pids}
    tops = [pids for (parent, _), pids in groups.items() if len(pids) > 1 and parent not in processes]
    if len(tops) == 1:
        pids = tops[0]
        yield Siblings(pids=tuple(sorted(pids)), where=pids[min(pids)])


def _held(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the one rank that stands in a call of the kernel (state D), where a table shows others that do not."""
    columns: list[str] = []
    states: dict[int, tuple[str, str, Where]] = {}
    for message in messages:
        words = message.text.split()
        state = next((name for name in _STATES if name in words), "")
        if "PID" in words and state and words[-1] in _COMMAND:
            columns, states = [_STATE if word == state else word for word in words], {}
        elif columns and len(words) >= len(columns):
            row = dict(zip(columns, message.text.split(None, len(columns) - 1), strict=True))
            if row["PID"].isdecimal() and _RANK_OF.search(row[columns[-1]]):
                states[int(row["PID"])] = row[_STATE], row.get("WCHAN", ""), message.where
    held = [pid for pid, (state, _, _) in states.items() if state.startswith("D")]
    if len(held) == 1 and len(states) > 1:
        _, call, where = states[held[0]]
        named = f" {call}" if call.strip("-") else ""
        what = f"process {held[0]} (python) stands in a call of the kernel{named} that does not return (state D)"
        yield Failure(kind="host", what=what, pid=held[0], where=where)
