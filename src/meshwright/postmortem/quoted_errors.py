"""Errors of one rank that others print: of a checkpoint (torch's DCP), a worker (Ray Train), a spawned process."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from .lines import LogMessage
from .world import A_HOST

_HEAD = re.compile(
    r"^Traceback \(most recent call last\): \(RANK (?P<rank>\d{1,6})\)|^\[Rank (?P<ranks>[\d, ]+) Error Snippet\]"
    r"|^-- Process (?P<spawned>\d{1,6}) terminated with the following error:"  # torch.multiprocessing.spawn
)
_OF_RAY = re.compile(
    r"\bray::[^\s()]{1,200}\(\)\S{0,8} \(pid=(?P<pid>\d{1,8})(?:, ip=(?P<ip>[\w.:-]+))?"
)  # a task's process
_PLAIN = re.compile(r"^Traceback \(most recent call last\):\s*$")
_TELLS = ("(RANK ", "Error Snippet]", "-- Process ", "ray::")


def attributed(messages: Sequence[LogMessage]) -> list[LogMessage]:
    """Return the messages; one that quotes another rank's traceback is that rank's, of several ranks nobody's.

    Ray says the process and the host of a task above its error; the last of several such lines is the innermost task's.
    """
    if not any(sign in message.text for message in messages for sign in _TELLS):
        return list(messages)
    alone = _is_one_host(messages)
    found = []
    quoted: dict[tuple[int | None, int | None], tuple[int | None, bool]] = {}  # by speaker: whose, and after its head
    tasks: dict[tuple[int | None, int | None], tuple[int, str]] = {}  # by speaker: the process of Ray's task, its host
    for message in messages:
        key = message.rank, message.pid
        if task := _OF_RAY.search(message.text) if "ray::" in message.text else None:
            tasks[key] = int(task["pid"]), task["ip"] or message.host
            found.append(message)
            continue
        if key in tasks:
            pid, host = tasks[key]
            if message.text[:1] and not message.text[:1].isspace():
                del tasks[key]
            found.append(replace(message, rank=None, pid=pid, host=host, where=replace(message.where, rank=None)))
            continue
        if head := _HEAD.match(message.text):
            one = head["rank"] or head["spawned"]
            ranks = [one] if one else head["ranks"].split(",")
            known = len(ranks) == 1 and (alone or not head["spawned"])
            quoted[key] = int(ranks[0]) if known else None, head["rank"] is not None
        elif key in quoted:
            rank, begun = quoted[key]
            if _PLAIN.match(message.text) and not begun:
                quoted[key] = rank, True
            elif not message.text[:1].isspace():
                del quoted[key]  # the line that ends the traceback is still the other rank's
            found.append(replace(message, rank=rank, pid=None, where=replace(message.where, rank=rank)))
            continue
        found.append(message)
    return found


def _is_one_host(messages: Sequence[LogMessage]) -> bool:
    """Whether nothing shows more than one host: a spawned process is then the rank of its number."""
    largest = max((message.rank for message in messages if message.rank is not None), default=0)
    return largest < A_HOST and len({message.host for message in messages if message.host}) < 2
