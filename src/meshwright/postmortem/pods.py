"""Pods of Kubernetes: which one a line is about, and the rank that its description gives it."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from .lines import LogMessage

_NAME = re.compile(r"^Name:\s+(?P<pod>[a-z0-9][\w.-]*)\s*$")  # kubectl describe pod: one begins
_RANK = re.compile(r"^\s+RANK:\s+(?P<rank>\d{1,6})\s*$")
_SEVERAL = re.compile(r"^\s+(?:\S*NPROC_PER_NODE:\s+(?!1\s*$)|(?:nvidia|amd)\.com/gpu:\s+(?!1\s*$)\d)")
_OBJECT = re.compile(  # of an event, or a row of kubectl get pods
    r"\bpod/(?P<pod>[a-z0-9][\w.-]*)|^(?:[a-z0-9][\w.-]* +)?(?P<row>[a-z0-9][\w.-]*) +\d+/\d+ +\w+"
)
_STATUS = re.compile(
    r"^(?:[a-z0-9][\w.-]* +)?(?P<pod>[a-z0-9][\w.-]*) +\d+/\d+ +(?P<status>[A-Z]\w+) +(?P<restarts>\d+)\b"
)
_NUMBERED = re.compile(r"(?P<job>.*?)(?P<number>\d+)")
_ENOUGH = 2  # pods whose logs show how their numbers go with ranks


class Pod(NamedTuple):
    """A pod, "" where no line names one, and the rank of its one process, where the pod's description says it."""

    name: str = ""
    rank: int | None = None


def pod_of_event(text: str) -> Pod:
    """Return the pod that an event names, or a row of a table of pods."""
    name = _OBJECT.search(text)
    return Pod(name["pod"] or name["row"]) if name else Pod()


def pod_of_row(text: str) -> str:
    """Return the pod of a row of a table of pods, "" for any other line."""
    row = _STATUS.match(text) if "/" in text else None
    return row["pod"] if row else ""


def rank_among(pod: str, ranks: Mapping[str, set[int]]) -> int | None:
    """Return the rank of a pod by those of its siblings, `ranks` by the names of the pods with a log; None for unknown.

    Where the number in the names of at least two grows with their one rank, it does so for all.
    """
    own = _NUMBERED.fullmatch(pod)
    if own is None:
        return None
    apart = {
        min(spoke) - int(other["number"]) if len(spoke) == 1 else None
        for name, spoke in ranks.items()
        if (other := _NUMBERED.fullmatch(name)) and other["job"] == own["job"]
    }
    known = sum(1 for name in ranks if (other := _NUMBERED.fullmatch(name)) and other["job"] == own["job"])
    step = apart.pop() if len(apart) == 1 and known >= _ENOUGH else None
    return None if step is None else int(own["number"]) + step


def all_completed(messages: Sequence[LogMessage]) -> LogMessage | None:
    """Return the last row of a table of pods that says of each that it completed and never began again; else None."""
    rows = [(message, row) for message in messages if "/" in message.text and (row := _STATUS.match(message.text))]
    if not rows or any(row["status"] not in {"Completed", "Succeeded"} or int(row["restarts"]) for _, row in rows):
        return None
    return rows[-1][0]


def described_pods(messages: Sequence[LogMessage]) -> dict[int, Pod]:
    """Return the pod of each message, by its place, that belongs to a pod's description.

    RANK in the environment is that of a process only in a pod of one: with several GPUs or processes it is not read.
    """
    starts = {place: name["pod"] for place, message in enumerate(messages) if (name := _NAME.match(message.text))}
    found: dict[int, Pod] = {}
    for first, last in pairwise([*starts, len(messages)]):
        texts = [message.text for message in messages[first:last]]
        ranks = {int(rank["rank"]) for text in texts if (rank := _RANK.match(text))}
        alone = len(ranks) == 1 and not any(_SEVERAL.match(text) for text in texts)
        found |= dict.fromkeys(range(first, last), Pod(starts[first], ranks.pop() if alone else None))
    return found
