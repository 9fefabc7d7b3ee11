"""Addresses that gloo binds to: the loopback one, where the host's own name does not resolve, reaches no other host."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..nouns.names import BY_LOOPBACK
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step

_FELL_BACK = re.compile(  # ProcessGroupGloo.cpp
    r"Unable to (?:resolve hostname to a \(local\) address|find address for: ?\S*)\.? Using the loopback address"
)
_BROKE = re.compile(
    r"[Gg]loo\b.*(?:connectFullMesh failed|[Cc]onnect(?:ion)?\b.*(?:timed? ?out|refused|failed)|timed out)"
)


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield that gloo bound to the loopback address before it could not connect, and no step was made."""
    fell_back = next((message for message in messages if _FELL_BACK.search(message.text)), None)
    if fell_back is None or sum(is_step(message.text) for message in messages) >= MANY_STEPS:
        return
    if any(_BROKE.search(message.text) for message in messages):
        yield Failure(kind="network", what=BY_LOOPBACK, where=fell_back.where, is_general=True)
