"""Pods of Kubernetes: which one a line is about, and the rank that its description gives it."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..text.lines import LogMessage

_NAME = re.compile(r"^Name:\s+(?P<pod>[a-z0-9][\w.-]*)\s*$")  # kubectl describe pod: one begins
_NODE = re.compile(r"^Node:\s+(?P<node>[\w.-]+)(?:/\S+)?\s*$")
_WIDE = re.compile(r" \d+[smhd]\w* +(?:[\d.]{7,15}|[0-9a-f:]*:[0-9a-f:]+|<none>) +(?P<node>[a-z0-9][\w.-]*)\b")
_RANK = re.compile(r"^\s+RANK:\s+(?P<rank>\d{1,6})\s*$")
_OF_JAX = re.compile(r"^\s+JAX_PROCESS_ID:\s+(?P<rank>\d{1,6})\s*$")  # a process has all devices of its pod
_SEVERAL = re.compile(r"^\s+(?:\S*NPROC_PER_NODE:\s+(?!1\s*$)|(?:nvidia|amd)\.com/gpu:\s+(?!1\s*$)\d)")
_OBJECT = re.compile(  # of an event, or a row of kubectl get pods
    r"\bpod/(?P<pod>[a-z0-9][\w.-]*)|^(?:[a-z0-9][\w.-]* +)?(?P<row>[a-z0-9][\w.-]*) +\d+/\d+ +\w+"
)
_STATUS = re.compile(
    r"^(?:[a-z0-9][\w.-]* +)?(?P<pod>[a-z0-9][\w.-]*-[\w.-]+) +\d+/\d+ +(?P<status>[A-Z][\w:/]+) +(?P<restarts>\d+)\b"
)
_WAITING = re.compile(r"Pending|ContainerCreating|Init:.*|\w*ImagePull\w*|InvalidImageName|CreateContainer\w+")

_EVENT = re.compile(
    r"\s(?P<reason>[A-Z]\w{2,40})\s+pod/(?P<pod>[a-z0-9][\w.-]*)\s+(?P<said>\S.*)$"
)  # of kubectl get events
_DESCRIBED_EVENT = re.compile(  # of kubectl describe pod
    r"^\s+(?:Warning|Normal)\s+(?P<reason>[A-Z]\w{2,40})\s+\d\S*(?: \(x\d.*?\))?\s+\S+\s+(?P<said>\S.*)$"
)
_KEPT = {  # by the reasons of events: why a pod does not start
    "FailedScheduling": "no node for it",
    "FailedMount": "a volume is not there",
    "FailedAttachVolume": "a volume is not there",
    "FailedCreatePodSandBox": "no sandbox",
}
_PULLS = re.compile(r"(?:Failed to pull|Back-off pulling) image|ErrImagePull|ImagePullBackOff")


class Pod(NamedTuple):
    """A pod, "" where no line names one, and the rank of its one process, where the pod's description says it."""

    name: str = ""
    rank: int | None = None


def pod_of_event(text: str) -> Pod:
    """Return the pod that an event names, or a row of a table of pods."""
    name = _OBJECT.search(text)
    return Pod(name["pod"] or name["row"]) if name else Pod()


def described_node(text: str, pod: str) -> tuple[str, str]:
    """Return the pod of a description after one more of its lines, and the node that this line says, "" for none."""
    if name := _NAME.match(text):
        return name["pod"], ""
    node = _NODE.match(text) if pod and text.startswith("Node:") else None
    return pod, node["node"] if node else ""


def node_of_row(text: str) -> str:
    """Return the node of a row of a wide table of pods, "" where it has none."""
    wide = _WIDE.search(text)
    return wide["node"] if wide else ""


def pod_of_row(text: str) -> str:
    """Return the pod of a row of a table of pods, "" for any other line."""
    row = _STATUS.match(text) if "/" in text else None
    return row["pod"] if row else ""


def waiting_pod(text: str) -> tuple[str, str] | None:
    """Return the pod of a row of a table of pods that has not started yet, and its status; None for any other line."""
    row = _STATUS.match(text)
    return (row["pod"], row["status"]) if row and _WAITING.fullmatch(row["status"]) else None


def kept_pods(messages: Sequence[LogMessage]) -> list[tuple[LogMessage, str, str]]:
    """Return the first event of each pod that was kept from its start, with the pod and why.

    Not of one that an event says to have started: events need not stand in the order of time.
    """
    events = list(_events(messages))
    started = {pod for _, pod, event in events if event["reason"] in {"Started", "Killing"}}
    kept: dict[str, tuple[LogMessage, str, str]] = {}
    for message, pod, event in events:
        why = "its image cannot be pulled" if _PULLS.search(event["said"]) else _KEPT.get(event["reason"])
        if why and pod not in started:
            kept.setdefault(pod, (message, pod, why))
    return list(kept.values())


def _events(messages: Sequence[LogMessage]) -> Iterator[tuple[LogMessage, str, re.Match[str]]]:
    """Yield the events of pods, each with its pod: in a list of all, or below the description of one."""
    described = ""
    for message in messages:
        if name := _NAME.match(message.text):
            described = name["pod"]
        elif "pod/" in message.text and (event := _EVENT.search(message.text)):
            yield message, event["pod"], event
        elif described and (event := _DESCRIBED_EVENT.match(message.text)):
            yield message, described, event


def pod_rows(messages: Sequence[LogMessage]) -> list[LogMessage]:
    """Return the rows of tables of pods."""
    return [message for message in messages if "/" in message.text and _STATUS.match(message.text)]


def all_completed(messages: Sequence[LogMessage]) -> LogMessage | None:
    """Return the last row of a table of pods that says of each that it completed and never began again; else None."""
    rows = [(message, row) for message in pod_rows(messages) if (row := _STATUS.match(message.text))]
    if not rows or any(row["status"] not in {"Completed", "Succeeded"} or int(row["restarts"]) for _, row in rows):
        return None
    return rows[-1][0]


def described_pods(messages: Sequence[LogMessage]) -> dict[int, Pod]:
    """Return the pod of each message, by its place, that belongs to a pod's description.

    RANK in the environment is that of a process only in a pod of one: with several GPUs or processes it is not read.
    JAX's number of a process is its rank, however many devices it has.
    """
    starts = {place: name["pod"] for place, message in enumerate(messages) if (name := _NAME.match(message.text))}
    found: dict[int, Pod] = {}
    for first, last in pairwise([*starts, len(messages)]):
        texts = [message.text for message in messages[first:last]]
        of_jax = {int(rank["rank"]) for text in texts if (rank := _OF_JAX.match(text))}
        ranks = of_jax or {int(rank["rank"]) for text in texts if (rank := _RANK.match(text))}
        alone = len(ranks) == 1 and (bool(of_jax) or not any(_SEVERAL.match(text) for text in texts))
        found |= dict.fromkeys(range(first, last), Pod(starts[first], ranks.pop() if alone else None))
    return found
