"""Tables of processes that `ps` prints: the ranks of one host, in the order in which their launcher started them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .facts import Fact, Failure
from .identities import RankIdentity, Siblings
from .lines import LogMessage
from .where import Where

_COMMAND = {"CMD", "COMMAND", "ARGS"}
_STATES, _STATE = ("STAT", "S"), "STAT"
_RANK_OF = re.compile(r"python\S* .*(?:--(?:local|global)?[_-]?rank[= ]\d|\bRANK=\d)")
_GLOBAL_RANK = re.compile(r"(?<!\w)RANK=(?P<rank>\d{1,6})(?!\d)")  # of the environment that is shown beside a command
_ASKED = re.compile(r"^.*\bps\b.* -?-?(?:[a-zA-Z]*o|format) ?(?P<columns>[a-z]+(?::\d+)?(?:[,=]+[a-z]+(?::\d+)?)+)\b")
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


def _columns(text: str) -> list[str]:
    """Return the columns of a table that `ps` prints, by its heading or by its command; [] for any other line.

    Who picks rows by `grep` loses the heading.
    """
    words = text.split()
    if "PID" in words and words[-1] in _COMMAND:
        return [_STATE if word in _STATES else word for word in words]
    asked = _ASKED.match(text) if "ps" in text else None
    if asked is None:
        return []
    names = [name.partition(":")[0].upper() for name in re.split(r"[,=]+", asked["columns"])]
    return [_STATE if name in _STATES or name == "STATE" else name for name in names] if names[-1] in _COMMAND else []


def _held(messages: Sequence[LogMessage]) -> Iterator[Failure | RankIdentity]:
    """Yield the one rank that stands in a call of the kernel (state D), where a table shows others that do not.

    And the ranks of processes whose environment is shown.
    """
    columns: list[str] = []
    states: dict[int, tuple[str, str, Where]] = {}
    for message in messages:
        if found := _columns(message.text):
            columns, states = found, {}
        elif columns and len(message.text.split()) >= len(columns):
            row = dict(zip(columns, message.text.split(None, len(columns) - 1), strict=True))
            if row.get("PID", "").isdecimal() and _RANK_OF.search(row[columns[-1]]):
                pid = int(row["PID"])
                states[pid] = row.get(_STATE, ""), row.get("WCHAN", ""), message.where
                if told := _GLOBAL_RANK.search(row[columns[-1]]):
                    yield RankIdentity(rank=int(told["rank"]), pid=pid, where=message.where)
    held = [pid for pid, (state, _, _) in states.items() if state.startswith("D")]
    if len(held) == 1 and len(states) > 1:
        _, call, where = states[held[0]]
        named = f" {call}" if call.strip("-") else ""
        what = f"process {held[0]} (python) stands in a call of the kernel{named} that does not return (state D)"
        yield Failure(kind="host", what=what, pid=held[0], where=where)
