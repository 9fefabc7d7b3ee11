"""Records of NVIDIA's in-process restarts (nvidia-resiliency-ext): which rank ended, by the words of the others.

Each rank that meets an exception, or makes no progress for long, records so; the others are then interrupted and say
whose records they found. Time-outs tell nothing of who is at fault: who waits makes no progress either.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step

_RECORDS = (
    re.compile(r"\bInterruptionRecord\(rank=(?P<ranks>\d{1,6}), interruption=<Interruption\.(?P<what>[A-Z_]{4,24})\b"),
    re.compile(r"\bInterruption\.(?P<what>[A-Z_]{4,24}) on ranks=\[(?P<ranks>\d{1,6}(?:, \d{1,6})*)\]"),
)
_STATE = re.compile(r"\bState\(rank=(?P<rank>\d{1,6}), .{0,200}?\binitial_rank=(?P<initial>\d{1,6})\b")
_KINDS = {  # by the restarts' own names; in few words, since the rank's own may tell more
    "EXCEPTION": ("exception", "met an exception"),
    "BASE_EXCEPTION": ("exception", "met an exception"),
    "TERMINATED": ("killed", "its process ended"),
}


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield whose end the ranks of one file were last interrupted by; nothing where they trained on after it.

    Nor where ranks are numbered anew after a restart: records then name other processes than logs do.
    """
    told: dict[tuple[int, str], LogMessage] = {}
    steps = 0
    for message in messages:
        if "nterruption" in message.text and (records := _records(message.text)):
            told = told if steps < MANY_STEPS else {}
            steps = 0
            for one in records:
                told.setdefault(one, message)
        elif "State(" in message.text and (state := _STATE.search(message.text)) and state["rank"] != state["initial"]:
            return
        elif told and is_step(message.text):
            steps += 1
    for (rank, name), message in told.items() if steps < MANY_STEPS else ():
        kind, what = _KINDS[name]
        yield Failure(kind=kind, what=what, rank=rank, where=message.where, follows=True, unless_first=True)


def _records(text: str) -> list[tuple[int, str]]:
    """Return the ranks that a line's records name, each with how it ended; time-outs are none."""
    found = [found for form in _RECORDS for found in form.finditer(text)]
    pairs = [(int(rank), one["what"]) for one in found for rank in one["ranks"].split(", ")]
    return [pair for pair in pairs if pair[1] in _KINDS]
