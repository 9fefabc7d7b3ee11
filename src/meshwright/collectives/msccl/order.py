"""The order that an MSCCL program puts its steps in, and what it leaves unordered.

Each step is one or two events: what comes in, then what goes out. An event comes after the one before it in its thread
block, after the step that its step waits for, and after the send that it receives. Sends are buffered, as NCCL's are.
"""

from collections import defaultdict
from typing import NamedTuple

from ...errors import InputError
from ..proof.verify import ScheduleError
from ..proof.waits import topological_order
from .file import Algo, MscclStep

MAX_STEPS = 100_000


class HalfStep(NamedTuple):
    """Half of a step: its receive or local part if `incoming`, else its send."""

    gpu: int
    block: int
    number: int
    step: MscclStep
    incoming: bool

    def __str__(self) -> str:
        return f"line {self.step.line} (gpu {self.gpu}, block {self.block}, step {self.number}, {self.step.type})"


class Order(NamedTuple):
    """The events in an order that respects all waits; what each comes after; the send of each receive."""

    events: list[HalfStep]
    after: list[tuple[int, ...]]  # places of the events that each event directly comes after
    sender: dict[int, int]  # place of a receiving event: place of the event that sends to it


def order(algo: Algo, where: str) -> Order:
    """Put all events in order; InputError for steps that do not fit, ScheduleError where they wait in a circle."""
    count = sum(len(block.steps) for gpu in algo.gpus for block in gpu.blocks)
    if count > MAX_STEPS:
        raise InputError(f"{where}: {count} steps: expected at most {MAX_STEPS}")
    events, first, last = _events(algo)
    after: dict[int, set[int]] = defaultdict(set)  # event: its predecessors
    for i, event in enumerate(events):
        if i and events[i - 1][:2] == event[:2]:
            after[i].add(i - 1)
        if event.step.wait_for and first[event[:3]] == i:
            block, number = event.step.wait_for
            key = (event.gpu, block, number)
            if key not in last:
                raise InputError(
                    f"{where}:{event.step.line}: waits for block {block} step {number}, which is not there"
                )
            after[i].add(last[_told(algo, key, where, event)])
    pairs = _matched(events, algo, where)
    for receive, send in pairs.items():
        after[receive].add(send)
    places = _sorted(events, after)
    where_is = {i: place for place, i in enumerate(places)}
    return Order(
        [events[i] for i in places],
        [tuple(where_is[earlier] for earlier in after[i]) for i in places],
        {where_is[receive]: where_is[send] for receive, send in pairs.items()},
    )


def _told(algo: Algo, key: tuple[int, int, int], where: str, event: HalfStep) -> tuple[int, int, int]:
    """Return the step whose end tells the one that waits: the first from there on that tells others."""
    gpu, block, number = key
    steps = algo.gpus[gpu].blocks[block].steps
    for later in range(number, len(steps)):
        if steps[later].can_tell:
            return gpu, block, later
    raise ScheduleError(
        f"{where}: deadlock: {event} waits for block {block} step {number} (line {steps[number].line}), which tells "
        f"nobody: {'a nop cannot' if steps[number].type == 'nop' else 'its hasdep is 0'}"
    )


def _events(algo: Algo) -> tuple[list[HalfStep], dict[tuple[int, int, int], int], dict[tuple[int, int, int], int]]:
    events: list[HalfStep] = []
    first: dict[tuple[int, int, int], int] = {}
    last: dict[tuple[int, int, int], int] = {}
    for gpu, description in enumerate(algo.gpus):
        for block, steps in enumerate(description.blocks):
            for number, step in enumerate(steps.steps):
                first[gpu, block, number] = len(events)
                if step.receives or not step.sends:
                    events.append(HalfStep(gpu, block, number, step, True))
                if step.sends:
                    events.append(HalfStep(gpu, block, number, step, False))
                last[gpu, block, number] = len(events) - 1
    return events, first, last


def _matched(events: list[HalfStep], algo: Algo, where: str) -> dict[int, int]:
    """Return the send of each receive: the first one of a connection belongs to its first receive, and so on."""
    sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    owners: dict[tuple[tuple[int, int, int], bool], int] = {}
    for i, event in enumerate(events):
        block = algo.gpus[event.gpu].blocks[event.block]
        if event.incoming and not event.step.receives:
            continue
        peer = block.receive if event.incoming else block.send
        if peer is None or not 0 <= peer < len(algo.gpus) or peer == event.gpu:
            raise InputError(f"{where}:{block.line}: peer {peer} of gpu {event.gpu}: no such other gpu")
        key = (peer, event.gpu, block.channel) if event.incoming else (event.gpu, peer, block.channel)
        if owners.setdefault((key, event.incoming), event.block) != event.block:
            raise InputError(
                f"{where}:{event.step.line}: two blocks of gpu {event.gpu} use the connection {key[0]}>{key[1]} "
                f"of channel {key[2]}"
            )
        (receives if event.incoming else sends)[key].append(i)
    pairs = {}
    for key in sends.keys() | receives.keys():
        if len(sends[key]) != len(receives[key]):
            raise ScheduleError(
                f"{where}: {len(sends[key])} sends but {len(receives[key])} receives from gpu {key[0]} to gpu {key[1]} "
                f"on channel {key[2]}"
            )
        for send, receive in zip(sends[key], receives[key], strict=True):
            if events[send].step.count != events[receive].step.count:
                raise ScheduleError(f"{where}: {events[send]} and {events[receive]} differ in their number of chunks")
            pairs[receive] = send
    return pairs


def _sorted(events: list[HalfStep], after: dict[int, set[int]]) -> list[int]:
    """Sort topologically, the earliest in the file first where there is a choice."""
    places = topological_order([after[i] for i in range(len(events))])
    if len(places) < len(events):
        stuck = min(set(range(len(events))) - set(places))
        raise ScheduleError(f"deadlock: steps wait for each other in a circle, among them {events[stuck]}")
    return places
