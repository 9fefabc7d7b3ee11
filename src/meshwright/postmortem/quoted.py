"""Errors of one rank that others print: those of a checkpoint (torch's DCP), of a worker (Ray Train)."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from .lines import LogMessage

_HEAD = re.compile(
    r"^Traceback \(most recent call last\): \(RANK (?P<rank>\d{1,6})\)|^\[Rank (?P<ranks>[\d, ]+) Error Snippet\]"
)
_PLAIN = re.compile(r"^Traceback \(most recent call last\):\s*$")
_TELLS = ("(RANK ", "Error Snippet]")


def attributed(messages: Sequence[LogMessage]) -> list[LogMessage]:
    """Return the messages; one that quotes another rank's traceback is that rank's, of several ranks nobody's."""
    if not any(sign in message.text for message in messages for sign in _TELLS):
        return list(messages)
    found = []
    quoted: dict[tuple[int | None, int | None], tuple[int | None, bool]] = {}  # by speaker: whose, and after its head
    for message in messages:
        key = message.rank, message.pid
        if head := _HEAD.match(message.text):
            ranks = [head["rank"]] if head["rank"] else head["ranks"].split(",")
            quoted[key] = int(ranks[0]) if len(ranks) == 1 else None, head["rank"] is not None
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
