"""Tables of processes that `ps` prints: the ranks of one host, in the order in which their launcher started them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .facts import Fact, Siblings, Where
from .lines import LogMessage

_COMMAND = {"CMD", "COMMAND", "ARGS"}
_LOCAL_RANK = re.compile(r"--local[_-]rank[= ]\d+")


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes of a table that run one Python command under one parent.

    Workers of a loader run the same command under a rank, and are no ranks.
    """
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
