"""Parameters that took no part in the loss, which DDP names below or inside its error, by name or by number."""

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from ..nouns.facts import Failure
from ..nouns.names import UNUSED_PARAMETERS
from ..text.lines import LogMessage

_RAISED = "Expected to have finished reduction in the prior iteration"
_NAMED = re.compile(r"Parameters which did not receive grad for rank \d{1,6}: (?P<names>[\w.]+(?:, ?[\w.]+)*)")
_NUMBERED = re.compile(r"Parameter indices which did not receive grad for rank \d{1,6}: (?P<numbers>\d+(?: \d+)*)")
_BELOW = 8  # lines
_FEW = 4  # that are told one by one


def with_unused_parameters(fact: Failure, messages: Sequence[LogMessage], index: int) -> Failure:
    """Return DDP's error with the parameters that it lists in its own or in one of the next lines of its rank."""
    if _RAISED not in fact.what:
        return fact
    own = [one.text for one in islice(messages, index, index + _BELOW) if one.rank == messages[index].rank]
    text = "\n".join(own)
    if named := _NAMED.search(text):
        told = [name for name in named["names"].replace(" ", "").split(",") if name]
    elif numbered := _NUMBERED.search(text):
        told = [f"number {number}" for number in numbered["numbers"].split()]
    else:
        return replace(fact, what=f"RuntimeError: {UNUSED_PARAMETERS}")
    more = f" and {len(told) - _FEW} more" if len(told) > _FEW else ""
    return replace(fact, what=f"RuntimeError: {UNUSED_PARAMETERS}: {', '.join(told[:_FEW])}{more}")
