"""Trainings that stop themselves, as their loss is no number any more: nothing hangs, and no error is raised."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..nouns.names import NOT_FINITE
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step

_VALUE = r"(?:tensor\()?-?(?P<value>[Nn]a[Nn]|NAN|[Ii]nf(?:inity)?|INF)\b"
_STOPS = re.compile(  # of Lightning's EarlyStopping, torchvision's references and those made from them, people's own
    r"Monitored metric (?P<metric>[\w./-]{1,80}) = (?P<of>\S{1,30}) is not finite\b"
    r"|\b(?P<loss>[Ll]oss\w*)(?: is| became| went)? ?[:=]? ?" + _VALUE + r".{0,60}?"
    r"\b(?:[Ss]topp?(?:ing|ed)?|[Aa]bort(?:ing|ed)?|[Ee]xit(?:ing)?|[Tt]erminat(?:ing|ed)|[Ee]nding)\b"
    r"|\b(?:[Ss]topping|[Aa]borting|[Ee]xiting|[Tt]erminating)\b.{0,60}?\b[Ll]oss\w*(?: is| became)? ?[:=]? ?"
    r"(?P<last>[Nn]a[Nn]|NAN|[Ii]nf(?:inity)?|INF)\b"
)


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield what was no number when the training of one file stopped itself; nothing where it made steps after that."""
    for at, message in enumerate(messages):
        low = message.text.lower()
        if ("nan" not in low and "inf" not in low) or not (stop := _STOPS.search(message.text)):
            continue
        if sum(is_step(later.text) for later in messages[at + 1 :]) >= MANY_STEPS:
            continue
        name, value = stop["metric"] or stop["loss"] or "the loss", stop["of"] or stop["value"] or stop["last"]
        yield Failure(kind="exception", what=f"{NOT_FINITE}: {name} is {value}", where=message.where, is_general=True)
        return
