"""Sections of a launcher's log in which it prints what each of its ranks wrote, after the end (Composer's)."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from .lines import LogMessage

_BEGIN = re.compile(r"-{4,40} ?Begin global rank (?P<rank>\d{1,6}) (?:STDOUT|STDERR|logs) ?-{4,40}$")
_END = re.compile(r"-{4,40} ?End global rank \d{1,6} (?:STDOUT|STDERR|logs) ?-{4,40}$")
_OF_LAUNCHER = re.compile(r"(?:ERROR:composer\.cli\.launcher:)?Global rank \d{1,6} \(PID \d{1,8}\) exited with code ")


def in_sections(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages of a log, those inside a rank's section as this rank's where they do not say another."""
    if not any("Begin global rank" in message.text for message in found):
        return found
    return _told(found)


def _told(found: Sequence[LogMessage]) -> list[LogMessage]:
    rank: int | None = None
    whole = []
    for one in found:
        if begun := _BEGIN.match(one.text):
            rank = int(begun["rank"])
        elif _END.match(one.text) or _OF_LAUNCHER.match(one.text):  # a log may be cut before the end of a section
            rank = None
        elif rank is not None and one.rank is None:
            one = replace(one, rank=rank, where=one.where.by(rank))
        whole.append(one)
    return whole
