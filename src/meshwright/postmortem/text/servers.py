"""Ranks of servers of language models: vLLM's and SGLang's labels in front of a line, SGLang's list of options."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..nouns.facts import Failure
from ..nouns.identities import AgentRanks, WorldSize
from ..nouns.names import WATCHDOG_OF_SERVER
from ..nouns.world import MOST_RANKS
from .lines import LogMessage

_LABEL = re.compile(
    r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<places>(?: [A-Z_]{2,12}\d{1,5})+)\] (?P<text>.*)$", re.DOTALL
)
_VLLM = re.compile(  # what a worker's log has in front of all
    r"^\(VllmWorker rank=(?P<rank>\d{1,5}) pid=(?P<pid>\d{1,8})\) "
)
_VLLM_PLACE = re.compile(  # the same of newer ones; not behind an actor's of Ray's, who may be one of several engines
    r"^(?:\(EngineCore(?:_DP0)? pid=\d{1,8}\) )?\(Worker_TP(?P<rank>\d{1,5})(?:_EP\d{1,5})? pid=(?P<pid>\d{1,8})\) "
)
_LEVEL = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]{1,60}:\d{1,5}\] ")
_PLACE = re.compile(r" ([A-Z_]+)(\d+)")
_SIZE = re.compile(r"\b(?P<name>tp_size|pp_size|dp_size|nnodes|node_rank)=(?P<number>\d{1,5})\b")
_ENDS = re.compile(WATCHDOG_OF_SERVER)
_IN_ATTENTION = "enable_dp_attention=True"  # replicas share the ranks, else each has its own
_COPIES = {"tp_size": 1, "pp_size": 1, "dp_size": 1, "nnodes": 1, "node_rank": 0}


def labelled(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages of a log, those of vLLM's workers and SGLang's schedulers without label and with their rank.

    `TP3` is the rank, behind `PP1` counted from there on. Not where one number is that of several replicas (DP), which
    count from 0 each, or the number of ranks of a stage is not told.
    """
    found = [_without_level(one) for one in _of_vllm(found)]
    labels = [_LABEL.match(one.text) if one.rank is None and one.text[:2] == "[2" else None for one in found]
    places = [dict(_PLACE.findall(label["places"])) if label else {} for label in labels]
    replicas: dict[tuple[str, str], set[str]] = defaultdict(set)
    for place in places:
        if "TP" in place:
            replicas[place.get("PP", "0"), place["TP"]].add(place.get("DP", ""))
    if not replicas or any(len(own) > 1 for own in replicas.values()):
        return found
    sizes = {size["tp_size"] for one in found if (size := _sizes(one.text))}
    step = sizes.pop() if len(sizes) == 1 else None
    whole = []
    for one, label, place in zip(found, labels, places, strict=True):
        if label and "TP" in place and (step or place.get("PP", "0") == "0"):
            rank = int(place["TP"]) + int(place.get("PP", "0")) * (step or 0)
            one = replace(one, text=label["text"], rank=rank, where=replace(one.where, rank=rank))
        whole.append(one)
    return whole


def _without_level(message: LogMessage) -> LogMessage:
    """Return a message without what vLLM's logger puts before each line of an error, those of a traceback too."""
    if not message.text.startswith("ERROR ") or not (level := _LEVEL.match(message.text)):
        return message
    return replace(message, text=message.text[level.end() :])


def _of_vllm(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages, those of vLLM's workers with their rank, unless several engines count their own.

    The place of a worker looks like the name of an actor of Ray's: the text has it no more, the line has.
    """
    labels = [_vllm_label(one) for one in found]
    workers = {label.group("rank", "pid") for label in labels if label}
    if not workers or len({rank for rank, _ in workers}) < len(workers):
        return found
    return [
        one
        if label is None
        else replace(
            one,
            text=_LEVEL.sub("", one.text[label.end() :] if label.re is _VLLM else one.text),
            rank=int(label["rank"]),
            pid=int(label["pid"]),
            where=one.where.by(int(label["rank"])),
        )
        for one, label in zip(found, labels, strict=True)
    ]


def _vllm_label(one: LogMessage) -> re.Match[str] | None:
    """Return what stands in front of a message of one of vLLM's workers."""
    if one.text.startswith("(VllmWorker "):
        return _VLLM.match(one.text)
    return _VLLM_PLACE.match(one.where.text) if one.rank is None and "(Worker_TP" in one.where.text else None


def read(messages: Sequence[LogMessage]) -> Iterator[WorldSize | AgentRanks | Failure]:
    """Yield how many ranks a server has, and which of them its own host has, by the options that SGLang prints.

    And that its watchdog ended it: each rank has one, and all stand still where one does.
    """
    spoken = (_ENDS.search(message.text) for message in messages if "atchdog timeout (" in message.text)
    if ended := next(filter(None, spoken), None):
        what = f"SGLang's watchdog saw no batch come to its end in {ended['after']} s, and ended the server"
        where = next(message.where for message in messages if message.text == ended.string)
        yield Failure(kind="killed", what=what, where=where, follows=True)
    for message in messages:
        sizes = _sizes(message.text)
        ranks = sizes.get("tp_size", 0) * sizes.get("pp_size", 0)
        if not 1 < ranks <= MOST_RANKS:
            continue
        yield WorldSize(ranks=ranks, where=message.where)
        own, rest = divmod(ranks, sizes["nnodes"] or 1)
        alone = sizes["dp_size"] == 1 or _IN_ATTENTION in message.text
        if sizes["nnodes"] > 1 and not rest and alone and sizes["node_rank"] < sizes["nnodes"]:
            first = own * sizes["node_rank"]
            yield AgentRanks(ranks=tuple(range(first, first + own)), where=message.where)


def _sizes(text: str) -> dict[str, int]:
    """Return the sizes in a list of SGLang's options, none of another line."""
    if "ServerArgs(" not in text or "tp_size=" not in text:
        return {}
    return {**_COPIES, **{one["name"]: int(one["number"]) for one in _SIZE.finditer(text)}}
