"""Lines that only speak of faults, and report none: hints, settings, help texts, policies, lines of source."""

import re
from collections.abc import Sequence

from .lines import LogMessage

_MAY_MENTION = (
    "emory",
    "CUDA error",
    "HIP error",
    "ECC error",
    "OOMK",
    "victed",
    "reempted",
    "orker (pid",
    "onnection",
)
_FAULT = re.compile(
    r"(?:(?:CUDA|HIP|XPU|NPU|GPU) )?out of memory\b|\bOutOfMemoryError\b|\b(?:CUDA|HIP) error\b(?:: an? [\w -]+)?"
    r"|\b(?:uncorrectable )?ECC errors?\b|\b(?:OOMKilled|Evicted|Preempted)\b|Connection (?:reset|closed|refused) by\b"
    r"|\bDataLoader worker \(pid(?:\(s\))? [\d, ]*\) [\w ]+",
)
# what no hint has: the figures of a failed allocation, or the name of an exception in front
_IS_EVENT = re.compile(r"Tried to allocate [\d.]|^\s*(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)(?:: |\()")
_ABOUT = re.compile(  # before the words, in the same clause: only if, so as not to, what is done then
    r"(?:\b(?:if|whenever|unless|in case)\b(?: \w+){0,8}"
    r"|\b(?:avoid|prevent|mitigate|simulate|inject)s?\b(?: \w+){0,4}|\bwhen"
    r"|\b(?:(?:handles|catches|survives)|to (?:handle|catch|survive))\b(?: \w+){0,4}"
    r"|\b(?:will|would|should|may|can|could|might)\b(?: \w+){0,4}|\b(?:watch(?:es|ing)?|look(?:s|ing)?) for)"
    r"(?: \w[\w -]{0,30},){0,6} ?(?:an?|the|with|of|on|on:)? ?$",
    re.IGNORECASE,
)
_BEHIND_QUOTED = re.compile(r"""[^'"\[\](){}]{0,40}['"]\s*(?::|->|=>|==|(?:not )?in\b)""")  # a key, or looked for
_LISTED_BEFORE = re.compile(r"""(?:\[\s*|,\s*)["']?(?:[\w ]{0,20} )?$""")
_LISTED_BEHIND = re.compile(r"""(?:[^\[\](){}"',]|\(\w?s?\)){0,40}["']?\s*(?P<end>[,\]])""")
_BESIDE_COMMA = re.compile(r"^\s*,\s*(?:or |and )?$")


def without_mentions(messages: Sequence[LogMessage]) -> list[LogMessage]:
    """Return the messages without lines that name faults, each only as something that might be.

    A line is kept where any of its words may report a fault.
    """
    return [one for one in messages if not (any(map(one.text.__contains__, _MAY_MENTION)) and is_mention(one.text))]


def is_mention(text: str) -> bool:
    """Whether every fault that a line names is only spoken of: as a condition, in quotes as a key, or in a list."""
    if _IS_EVENT.search(text):
        return False
    before = None  # the end of the fault before, which was only spoken of
    for found in _FAULT.finditer(text):
        beside = before is not None and _BESIDE_COMMA.match(text[before : found.start()]) is not None
        if not (beside or _is_spoken_of(text, found.start(), found.end())):
            return False
        before = found.end()
    return before is not None


def _is_spoken_of(text: str, start: int, end: int) -> bool:
    """Whether the words at a place are a condition, the key of a setting, or one of several in a list in brackets."""
    head, tail = text[max(0, start - 200) : start], text[end : end + 120]
    if _ABOUT.search(head) or (head[-1:] in {"'", '"'} and _BEHIND_QUOTED.match(tail)):
        return True
    inside = head.rpartition("[")[1] == "[" and "]" not in head.rpartition("[")[2] and "]" in tail
    before, behind = _LISTED_BEFORE.search(head), _LISTED_BEHIND.match(tail)
    several = before is not None and behind is not None and (before[0].lstrip()[:1] == "," or behind["end"] == ",")
    return inside and several
