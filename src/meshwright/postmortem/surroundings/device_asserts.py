"""Assertions in kernels: what they held, which the error that ends the rank does not say.

A kernel prints a line for each of its threads; the host raises "device-side assert triggered" at a later call.
"""

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from ..nouns.facts import Failure
from ..text.lines import LogMessage

TRIGGERED = "device-side assert"
_HELD = re.compile(
    r"(?P<file>[\w.-]+\.(?:cuh?|hip|h|hpp|cpp|py)):(?P<line>\d+): (?:.{0,400}?\bblock: \[[\d, ]+\].{0,80}?)?"
    r"[Aa]ssertion [`'](?P<what>.{1,200}?)['`] failed"
)
_ABOVE = 400  # lines, of which each thread prints one


def with_assertion(fact: Failure, messages: Sequence[LogMessage], index: int) -> Failure:
    """Return the error of a message with the nearest assertion above it, of its rank or of a kernel that none names."""
    if TRIGGERED not in fact.what or (fact.rank is None and messages[index].rank is None):
        return fact
    unnamed = ""
    for message in islice(reversed(messages[:index]), _ABOVE):
        if "ssertion" not in message.text or not (held := _HELD.search(message.text)):
            continue
        said = f"{fact.what}: assertion `{held['what']}` failed ({held['file']}:{held['line']})"
        if message.rank == fact.rank:
            return replace(fact, what=said)
        unnamed = unnamed or ("" if message.rank is not None else said)
    return replace(fact, what=unnamed) if unnamed else fact
