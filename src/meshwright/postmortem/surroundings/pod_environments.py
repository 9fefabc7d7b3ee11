"""RANK and WORLD_SIZE in the environment of a pod, as Kubernetes describes it: in YAML, by `describe`, by `exec env`.

RANK is that of a process only in a pod of one: a description that shows all of a pod tells that; a part of it does not.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..nouns.identities import Environment
from ..text.lines import LogMessage

_ASKED = re.compile(
    r"\bkubectl\b[^|;]{0,80}? (?:(?:get|describe) (?:po|pods?)[ /]|exec (?:-\S{1,40} ){0,4}(?:pod/)?)"
    r"(?P<pod>[a-z0-9][a-z0-9.]{0,80}-[\w.-]{1,200})"
)
_DESCRIBED = re.compile(r"^Name:\s+(?P<pod>[a-z0-9][\w.-]*)\s*$")
_METADATA = re.compile(r"^(?P<indent> *)(?:- )?metadata:$")
_NAME = re.compile(r"^(?P<indent> *)name: (?P<pod>[a-z0-9][\w.-]*)$")
_KEY = re.compile(r"^\s*(?:- )?name: (?P<name>[A-Z][A-Z_]*)$")
_VALUE = re.compile(r"^\s*value: [\"']?(?P<value>\d{1,6})[\"']?$")
_SET = re.compile(r"^\s*(?P<name>(?:\w+_)?(?:RANK|WORLD_SIZE|NPROC_PER_NODE))(?:=|: +)[\"']?(?P<value>\d{1,6})[\"']?$")
_GPUS = re.compile(r"^\s+(?:nvidia|amd)\.com/gpu: +[\"']?(?P<gpus>\d{1,3})[\"']?$")
_WHOLE = re.compile(r"^\s*(?:- )?containers:$", re.IGNORECASE)
_QUICK = ("WORLD_SIZE",)


class _Described(msgspec.Struct, kw_only=True):
    """A pod while what is told of it is read."""

    name: str
    values: dict[str, int] = {}
    is_whole: bool = False
    last: LogMessage | None = None


def read(messages: Sequence[LogMessage]) -> Iterator[Environment]:
    """Yield the environments of the pods that the messages of one file describe."""
    if not any(word in message.text for message in messages for word in _QUICK):
        return
    pod, key, indent = _Described(name=""), "", None
    for message in messages:
        text = message.text
        if asked := _ASKED.search(text) or _DESCRIBED.match(text):
            if asked["pod"] != pod.name:
                yield from _told(pod)
                pod = _Described(name=asked["pod"])
        elif begun := _METADATA.match(text):
            indent = len(begun["indent"]) + (2 if text.lstrip().startswith("-") else 0)
        elif indent is not None and (name := _NAME.match(text)) and len(name["indent"]) == indent + 2:
            if name["pod"] != pod.name:
                yield from _told(pod)
                pod = _Described(name=name["pod"])
            indent = None
        elif found := _KEY.match(text):
            key = found["name"]
        elif key and (value := _VALUE.match(text)):
            pod.values[key], pod.last, key = int(value["value"]), message, ""
        elif set_ := _SET.match(text):
            pod.values[set_["name"]], pod.last = int(set_["value"]), message
        elif gpus := _GPUS.match(text):
            pod.values["GPUS"] = int(gpus["gpus"])
        pod.is_whole = pod.is_whole or _WHOLE.match(text) is not None
    yield from _told(pod)


def _told(pod: _Described) -> Iterator[Environment]:
    """Yield the environment of a pod that may be of one process, where RANK and WORLD_SIZE fit each other."""
    rank, world = pod.values.get("RANK"), pod.values.get("WORLD_SIZE")
    sizes = {value for name, value in pod.values.items() if name == "GPUS" or name.endswith("NPROC_PER_NODE")}
    if not pod.name or rank is None or world is None or pod.last is None or rank >= world or sizes - {1}:
        return
    yield Environment(number=rank, world=world, has_local=pod.is_whole, pod=pod.name, where=pod.last.where)
