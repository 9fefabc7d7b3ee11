"""Labels that a program's own logger puts before its lines: the rank, behind clocks, levels, names and a host."""

import re

import msgspec

from .clocks import STAMP

_AMERICAN = r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d"  # of Hugging Face's examples
_OF_DAY = r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
BEFORE = (  # what a program's own log puts before the rank: a clock, a level, a name in hexadecimal, words in brackets
    rf"(?:\[?(?:{STAMP}|{_AMERICAN}|{_OF_DAY})\]?|\[?{_LEVEL}\]?|[0-9a-f]{{6,40}}|[\w.]+(?= - | \| )"
    r"|\[(?![^\]]*(?:\.cpp|\brank))[^\[\]]{1,60}\])[ |:-]*"
)
# c10d's own `[Rank 3]` is no label: it counts inside a group
_LABEL = re.compile(
    rf"^(?:{BEFORE}){{0,4}}"
    r"(?:[\[(]rank[ =:_-]?(?P<rank>\d{1,6})[\])]|rank[ =:_-]?(?P<bare>\d{1,6})(?= ?\||:| - ))"
    rf"(?!.*(?:atchdog|NCCL|ollective|onitoredBarrier))[ |:-]*(?:{_LEVEL}\b[ |:-]*)?",
    re.IGNORECASE,
)
_LOGGED = re.compile(  # before a level, whatever the line says; a clock and a host may stand in front
    rf"^(?:\[?(?:{STAMP}|{_AMERICAN}|{_OF_DAY})\]?[ |:-]+(?:(?P<host>[A-Za-z][\w.]*[\d-][\w.-]*)[ |:]+)?)?"
    rf"\[?rank[ =:_-]?(?P<rank>\d{{1,6}})\]?[ |:-]+\[?(?-i:{_LEVEL})\b\]?(?: ?[|:-](?= )| ?:)? ?",
    re.IGNORECASE,
)


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A rank before a line, the host beside it ("" for none), and where the line's own text begins."""

    rank: int
    host: str = ""
    end: int


def label_of(text: str) -> Label | None:
    """Return the label of a program's logger before a line, None for none; the indent behind a level is kept."""
    if logged := _LOGGED.match(text):
        return Label(rank=int(logged["rank"]), host=logged["host"] or "", end=logged.end())
    if label := _LABEL.match(text):
        return Label(rank=int(label["rank"] or label["bare"]), end=label.end())
    return None
