"""The containers of a pod: which one a line of the pod's description is about, and whether it trains.

A pod may have others beside the one that trains: they collect logs, mount buckets, carry traffic. What ends one of
these ends no rank. By `kubectl describe pod`, or `kubectl get pod -o yaml` or `-o json`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from ..text.lines import LogMessage

_POD = re.compile(r'^Name:\s+\S+\s*$|^ *(?:- )?"?kind"?: "?Pod"?,?\s*$')  # one begins
_DESCRIBED = re.compile(r"^(?P<init>Init )?Containers:\s*$")
_DESCRIBED_ONE = re.compile(r"^  (?P<name>[a-z0-9][a-z0-9-]*):\s*$")
_LISTED = re.compile(r'^(?P<indent>[ -]*)"?(?:(?P<init>initContainer)|container)s?(?:Statuses)?"?: ?\[?\s*$')
_BRACES = {"{", "}", "},"}
_ITEM = re.compile(r"^ *(?:- |\{\s*$)")
_NAME = re.compile(r'^ *"?name"?: "?(?P<name>[a-z0-9][a-z0-9-]*)"?,?\s*$')
_ACCELERATORS = re.compile(  # of a container's limits and requests
    r'^\s*"?(?:(?:nvidia|amd|intel|habana|huawei|google|aws\.amazon)\.com|habana\.ai|gpu\.intel\.com)/[\w.-]+"?:'
    r' *"?[1-9]'
)
_RUNS = re.compile(r'^\s*(?:State:\s+Running|"?running"?:)')


class Container(msgspec.Struct, kw_only=True):
    """A container of a pod, its name "" where no line says it, and whether it trains: it has the pod's accelerators.

    Of a pod without any it is not known (None) where another container runs on.
    """

    name: str = ""
    trains: bool | None = True


class _Part(msgspec.Struct, kw_only=True):
    """One part of a description: lines about one container."""

    name: str
    places: range
    has_accelerators: bool
    runs: bool
    is_init: bool


def containers_of(messages: Sequence[LogMessage]) -> dict[int, Container]:
    """Return the container of each message, by its place, that is about one."""
    found: dict[int, Container] = {}
    pods = [place for place, message in enumerate(messages) if place and _POD.match(message.text)]
    for first, last in pairwise([0, *pods, len(messages)]):
        parts = [*_parts(messages, first, last)]
        with_accelerators = {part.name for part in parts if part.has_accelerators}
        running = {part.name for part in parts if part.runs}
        for part in parts:
            if part.name in with_accelerators or not (with_accelerators or running - {part.name}):
                trains: bool | None = True
            elif not with_accelerators or (part.is_init and not running & with_accelerators):
                trains = None  # one that is to end first keeps the others from their start
            else:
                trains = False
            found |= dict.fromkeys(part.places, Container(name=part.name, trains=trains))
    return found


def _parts(messages: Sequence[LogMessage], first: int, last: int) -> Iterator[_Part]:
    """Yield the parts of one pod's description that are about a container each."""
    place = first
    while place < last:
        text = messages[place].text
        place += 1
        listed = _LISTED.match(text)
        head = listed or _DESCRIBED.match(text)
        if head is None:
            continue
        indent = len(listed["indent"]) if listed else 0
        end = next((at for at in range(place, last) if _is_past(messages[at].text, indent)), last)
        is_item = _ITEM.match if listed else _DESCRIBED_ONE.match
        starts = [at for at in range(place, end) if is_item(messages[at].text)]
        least = min((_indent(messages[at].text) for at in starts), default=0)
        starts = [at for at in starts if _indent(messages[at].text) == least]
        for start, stop in pairwise([*starts, end]):
            is_init = (head["init"] or "").lower().startswith("init")
            yield _part([one.text for one in messages[start:stop]], range(start, stop), is_init=is_init)
        place = end


def _part(texts: Sequence[str], places: range, *, is_init: bool) -> _Part:
    """Return what lines say of one container: its name is among its own fields, not in what these hold."""
    described = _DESCRIBED_ONE.match(texts[0])
    fields = [
        text.replace("- ", "  ", 1) if at == 0 else text for at, text in enumerate(texts) if text.strip() not in _BRACES
    ]
    own = min((_indent(text) for text in fields), default=0)
    names = [named["name"] for text in fields if _indent(text) <= own + 1 and (named := _NAME.match(text))]
    return _Part(
        name=described["name"] if described else names[0] if names else "",
        places=places,
        has_accelerators=any(_ACCELERATORS.match(text) for text in texts),
        runs=any(_RUNS.match(text) for text in texts),
        is_init=is_init,
    )


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _is_past(text: str, indent: int) -> bool:
    """Whether a line is no longer of a list that began at an indentation: YAML's items may stand as far left."""
    own = _indent(text)
    return own < indent or (own == indent and not text.lstrip().startswith(("- ", "{")))
