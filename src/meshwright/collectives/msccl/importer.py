"""Read an MSCCL program as a schedule that does the same.

1. All events are put in order (`order`); what touches one chunk and is not ordered is a race, and refused.
2. Each message becomes one transfer, from where it is sent to where it lands. Where a step reduces what comes in and
   sends it on without keeping it, the sum is formed in place if nobody needs what was there, else in a scratch slot.
3. A transfer comes in the round after the last one that it depends on, or in the round that our own export noted.
   Messages that could only cross in the buffers of the network get a scratch slot to land in first.
The result is an ordinary schedule: `verify` proves it.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ...errors import InputError, nearest
from ...files import read_text
from ..proof.verify import ScheduleError, verify
from ..schedules.goals import after
from ..schedules.schedule import Round, Schedule, Transfer, make, schedule_name
from .file import COLLECTIVE_OF, MAX_FILE_BYTES, Algo, read_algo
from .flight import HELD, flight
from .order import HalfStep, Order, order
from .slots import SlotMap

_OF_A_ROOT = {"reduce", "broadcast", "scatter", "gather"}
Access = tuple[int, bool]  # place in the order of events, whether it writes


@dataclass(slots=True)
class _Action:
    """One transfer, when it reads and when it writes, and the round that the file notes for it."""

    transfer: Transfer
    reads_at: int
    writes_at: int
    tag: tuple[int, int] | None
    after: dict[int, bool] = field(default_factory=dict)  # transfers that come before; whether a round before


def load_msccl_xml(path: str | os.PathLike[str], *, root: int | None = None) -> Schedule:
    """Read a file; InputError for what is no MSCCL program, ScheduleError for one that cannot work."""
    return from_msccl_xml(read_text(Path(path), max_bytes=MAX_FILE_BYTES), where=str(path), root=root)


def from_msccl_xml(text: str, *, where: str = "MSCCL XML", root: int | None = None) -> Schedule:
    """Return the schedule that an MSCCL program carries out; `root` where the program does not say its own.

    Without either, the root is the first rank with which the program is proved, as the format of others has none.
    """
    algo = read_algo(text, where=where)
    if root is not None and not 0 <= root < len(algo.gpus):
        raise InputError(f"{where}: root {root}: expected 0 to {len(algo.gpus) - 1}")
    if not algo.says_root and algo.collective in _OF_A_ROOT:
        algo = replace(algo, root=_proved_root(algo, where) if root is None else root)
    schedule = _lowered(algo, where)
    if algo.in_place and algo.out_of_place:
        try:
            verify(_lowered(replace(algo, in_place=False), where))
        except ScheduleError as error:
            raise ScheduleError(f"outofplace is 1, but it is right in place only: {error}") from None
    needs = flight(algo, HELD[algo.protocol])
    if needs is not None:
        raise ScheduleError(
            f"{where}: deadlock: needs {needs}, and a connection holds {HELD[algo.protocol]} with {algo.protocol}"
        )
    return schedule


def _proved_root(algo: Algo, where: str) -> int:
    for root in range(len(algo.gpus)):
        try:
            verify(_lowered(replace(algo, root=root), where))
        except ScheduleError:
            continue
        return root
    return 0


def _lowered(algo: Algo, where: str) -> Schedule:
    if algo.collective not in COLLECTIVE_OF:
        raise InputError(f"{where}: coll {algo.collective[:30]!r}: unknown ({nearest(algo.collective, COLLECTIVE_OF)})")
    ordered = order(algo, where)
    slots = SlotMap(algo, ordered.events, where)
    accesses = _accesses(ordered, slots)
    _refuse_races(ordered, slots, where)
    if not algo.in_place:
        _refuse_unwritten_outputs(ordered, slots, where)
    actions = _Lowering(ordered, slots, accesses, set()).actions()
    _add_dependencies(actions)
    rounds = _noted_rounds(actions, where)
    if rounds is None:
        rounds = _rounds_by_level(ordered, slots, accesses)
    if slots.set_aside:
        rounds = [tuple(slots.set_aside), *rounds]
    name = schedule_name(algo.name)
    try:
        return make(
            slots.collective, name, slots.ranks, rounds, chunks=slots.chunks, root=algo.root, target=algo.target,
            scratch=_scratch_used(rounds, slots.chunks),
        )  # fmt: skip
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _touched(event: HalfStep, slots: SlotMap) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the slots that an event reads and the slots that it writes."""
    step, gpu = event.step, event.gpu
    if step.type == "nop" or slots.is_identity(gpu, step):
        return (), ()
    if not event.incoming:
        if step.type == "rrs":
            return (), ()  # goes on from where the sum was formed
        return slots.of(gpu, step.src if step.type == "s" else step.dst, step), ()
    target = slots.of(gpu, step.dst, step) if step.type != "rrs" else ()
    if step.type == "re":
        return slots.of(gpu, step.src, step) + target, target
    if step.reduces or step.type == "cpy":
        return slots.of(gpu, step.src, step), target
    return (), target


def _accesses(ordered: Order, slots: SlotMap) -> dict[tuple[int, int], list[Access]]:
    """Return the accesses to each slot of each rank, in order; a step that does both counts as a write."""
    accesses: dict[tuple[int, int], list[Access]] = defaultdict(list)
    for at, event in enumerate(ordered.events):
        reads, writes = _touched(event, slots)
        for slot in set(reads) - set(writes):
            accesses[event.gpu, slot].append((at, False))
        for slot in writes:
            accesses[event.gpu, slot].append((at, True))
    return accesses


def _refuse_races(ordered: Order, slots: SlotMap, where: str) -> None:
    """Refuse two steps without order that touch one chunk, if one of them writes it."""
    # chunk: the last event of each block that touched it, and the last that wrote it
    touched: dict[tuple[int, str, int], tuple[dict[int, int], dict[int, int]]] = defaultdict(lambda: ({}, {}))
    for at, block, known in _known_events(ordered):
        event = ordered.events[at]
        modes: dict[tuple[int, str, int], bool] = {}
        for (buffer, offset), _, writes in _places(event):
            for i in range(offset, offset + event.step.count):
                key = (event.gpu, buffer, i)
                if slots.algo.in_place and buffer != "s":  # input and output are the same memory
                    key = (event.gpu, "i", slots.payload(event.gpu, buffer, i))
                modes[key] = writes or modes.get(key, False)
        for key, writes in modes.items():
            everyone, writers = touched[key]
            loose = [last for other, last in (everyone if writes else writers).items() if known[other] < last]
            if loose:
                other = ordered.events[min(loose)]
                raise ScheduleError(
                    f"{where}: race on {key[1]}[{key[2]}] of gpu {key[0]}: no order between {other} and {event}"
                )
            everyone[block] = at
            if writes:
                writers[block] = at


def _known_events(ordered: Order) -> Iterator[tuple[int, int, NDArray[np.int32]]]:
    """Yield each event with the number of its block, and the last event of every block that it comes after."""
    numbers = {key: number for number, key in enumerate(sorted({event[:2] for event in ordered.events}))}
    followers = Counter(earlier for after in ordered.after for earlier in after)
    clocks: dict[int, NDArray[np.int32]] = {}
    for at, event in enumerate(ordered.events):
        known = np.full(len(numbers), -1, dtype=np.int32)
        for earlier in ordered.after[at]:
            np.maximum(known, clocks[earlier], out=known)
            followers[earlier] -= 1
            if not followers[earlier]:
                del clocks[earlier]
        block = numbers[event[:2]]
        known[block] = at
        if followers[at]:
            clocks[at] = known
        yield at, block, known


def _refuse_unwritten_outputs(ordered: Order, slots: SlotMap, where: str) -> None:
    """Out of place, outputs and scratch are empty at first: reading one before it is written, or never, is wrong."""
    written: set[tuple[int, str, int]] = set()
    for event in ordered.events:
        for place, reads, writes in _places(event):
            run = [(event.gpu, place[0], place[1] + i) for i in range(event.step.count)]
            if reads and place[0] != "i":
                for gpu, buffer, at in run:
                    if (gpu, buffer, at) not in written:
                        raise ScheduleError(f"{where}: {event} reads {buffer}[{at}] before anything is written there")
            if writes:
                written.update(run)
    outputs: dict[tuple[int, int], int] = {}
    for gpu, description in enumerate(slots.algo.gpus):
        for at in range(description.sizes["o"]):
            outputs[gpu, slots.payload(gpu, "o", at)] = at
    shell = make(slots.collective, "x", slots.ranks, (), chunks=slots.chunks, root=slots.algo.root)
    for gpu, slot, _, _ in after(shell):
        at_output = outputs.get((gpu, slot))
        if at_output is None or (gpu, "o", at_output) not in written:
            raise ScheduleError(f"{where}: gpu {gpu} never writes the output for chunk {slot}")


def _places(event: HalfStep) -> list[tuple[tuple[str, int], bool, bool]]:
    """Return the places that an event touches: whether it reads them, whether it writes them."""
    step = event.step
    if step.type == "nop":
        return []
    if not event.incoming:
        return [] if step.type == "rrs" else [(step.src if step.type == "s" else step.dst, True, False)]
    touched = []
    if step.reduces or step.type in {"cpy", "re"}:
        touched.append((step.src, True, False))
    if step.type != "rrs":
        touched.append((step.dst, step.type == "re", True))
    return touched


class _Lowering:
    """Turns events into transfers."""

    def __init__(
        self, ordered: Order, slots: SlotMap, accesses: dict[tuple[int, int], list[Access]], detoured: set[int]
    ) -> None:
        self._ordered = ordered
        self._slots = slots
        self._accesses = accesses
        self._detoured = detoured  # places of sends whose messages land in scratch slots first
        shell = make(slots.collective, "x", slots.ranks, (), chunks=slots.chunks, root=slots.algo.root)
        self._wanted = {(rank, slot) for rank, slot, _, _ in after(shell)}
        self._sums: dict[tuple[int, int, int], tuple[int, ...]] = {}  # step: where a sum that is not kept is formed
        self._actions: list[_Action] = []

    def actions(self) -> list[_Action]:
        """Return the transfers in the order of the events."""
        for at, event in enumerate(self._ordered.events):
            step, gpu = event.step, event.gpu
            if step.type in {"cpy", "re"} and not self._slots.is_identity(gpu, step):
                source, target = self._slots.of(gpu, step.src, step), self._slots.of(gpu, step.dst, step)
                self._add(gpu, gpu, source, target, step.type == "re", at, at, step.tag)
            elif event.incoming and step.receives:
                self._receive(at, event)
        return self._actions

    def _receive(self, at: int, event: HalfStep) -> None:
        step, gpu = event.step, event.gpu
        sent_at = self._ordered.sender[at]
        sender = self._ordered.events[sent_at]
        source = self._source(sender)
        target = self._target(at, event)
        if sent_at in self._detoured:
            landing = self._slots.fresh(gpu, step.count)
            self._add(sender.gpu, gpu, source, landing, False, sent_at, sent_at, None)
            self._add(gpu, gpu, landing, target, step.reduces, at, at, None)
        else:
            self._add(sender.gpu, gpu, source, target, step.reduces, sent_at, at, sender.step.tag)

    def _source(self, sender: HalfStep) -> tuple[int, ...]:
        step = sender.step
        if step.type == "rrs":
            return self._sums[sender[:3]]
        return self._slots.of(sender.gpu, step.src if step.type == "s" else step.dst, step)

    def _target(self, at: int, event: HalfStep) -> tuple[int, ...]:
        """Return where a message lands; for a sum, with the rank's own part brought there first."""
        step, gpu = event.step, event.gpu
        if not step.reduces:
            return self._slots.of(gpu, step.dst, step)
        own = self._slots.of(gpu, step.src, step)
        if step.type == "rrs":
            target = own if all(self._is_dead(gpu, slot, at) for slot in own) else self._slots.fresh(gpu, step.count)
            self._sums[event[:3]] = target
        else:
            target = self._slots.of(gpu, step.dst, step)
        if target != own:
            self._add(gpu, gpu, own, target, False, at, at, None)
        return target

    def _is_dead(self, gpu: int, slot: int, at: int) -> bool:
        """Return whether nobody needs what a slot holds after a place in the order."""
        for later, writes in self._accesses[gpu, slot]:
            if later > at:
                event = self._ordered.events[later]
                return writes and slot not in _touched(event, self._slots)[0]
        return (gpu, slot) not in self._wanted

    def _add(
        self, src: int, dst: int, source: tuple[int, ...], target: tuple[int, ...], reduce: bool, reads_at: int,
        writes_at: int, tag: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        to = () if source == target else target
        self._actions.append(_Action(Transfer(src, dst, source, reduce, to), reads_at, writes_at, tag))


def _add_dependencies(actions: list[_Action]) -> None:
    """Note for each transfer which ones must have landed before it: by reads and writes of the same slot."""
    touches: dict[tuple[int, int], list[tuple[int, int, bool, int]]] = defaultdict(list)
    for i, action in enumerate(actions):
        t = action.transfer
        for slot in t.chunks:
            touches[t.src, slot].append((action.reads_at, i, False, i))
        for slot in t.targets:
            touches[t.dst, slot].append((action.writes_at, i, True, i))
    for entries in touches.values():
        writer: int | None = None
        readers: list[int] = []
        for _, _, writes, i in sorted(entries):
            reduces = writes and actions[i].transfer.reduce
            if writer is not None:  # reductions commute
                _follow(actions, i, writer, strictly=not (reduces and actions[writer].transfer.reduce))
            if writes:
                for reader in readers:  # what is read is what was there before the round
                    _follow(actions, i, reader, strictly=not reduces)
                writer, readers = i, []
            else:
                readers.append(i)


def _follow(actions: list[_Action], later: int, earlier: int, *, strictly: bool) -> None:
    if later != earlier:
        actions[later].after[earlier] = strictly or actions[later].after.get(earlier, False)


def _rounds_by_level(ordered: Order, slots: SlotMap, accesses: dict[tuple[int, int], list[Access]]) -> list[Round]:
    """Put each transfer in the earliest round that it can be in; send on a detour what waits in a circle."""
    detoured: set[int] = set()
    while True:
        actions = _Lowering(ordered, slots, accesses, detoured).actions()
        _add_dependencies(actions)
        levels = _levels(actions)
        if None not in levels:
            break
        detoured |= {actions[i].reads_at for i in _in_circles(actions, levels)}
    rounds: dict[int, list[Transfer]] = defaultdict(list)
    for action, level in zip(actions, levels, strict=True):
        rounds[level or 0].append(action.transfer)
    return [tuple(rounds[level]) for level in sorted(rounds)]


def _in_circles(actions: list[_Action], levels: list[int | None]) -> set[int]:
    """Return the messages that wait for each other in circles: of those without a level, the ones others wait for."""
    stuck = {i for i, level in enumerate(levels) if level is None}
    while True:
        awaited = {j for i in stuck for j in actions[i].after} & stuck
        if awaited == stuck:
            return {i for i in stuck if not actions[i].transfer.is_local}
        stuck = awaited


def _levels(actions: list[_Action]) -> list[int | None]:
    """Return the earliest round of each transfer; None for transfers that wait in a circle."""
    levels: list[int | None] = [None] * len(actions)
    missing = [len(action.after) for action in actions]
    followers: dict[int, list[int]] = defaultdict(list)
    for i, action in enumerate(actions):
        for j in action.after:
            followers[j].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    for i in ready:
        levels[i] = max(((levels[j] or 0) + 1 for j in actions[i].after), default=0)
        for follower in followers[i]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    return levels


def _noted_rounds(actions: list[_Action], where: str) -> list[Round] | None:
    """Return the rounds that our own export noted, with the pieces of a transfer joined; None if it did not."""
    tags = [action.tag for action in actions]
    if not tags or any(tag is None for tag in tags):
        return None
    joined: dict[tuple[int, int], Transfer] = {}
    for action in actions:
        assert action.tag is not None
        t, before = action.transfer, joined.get(action.tag)
        for j, strictly in action.after.items():
            earlier = actions[j].tag
            assert earlier is not None
            if earlier[0] + (strictly and earlier != action.tag) > action.tag[0]:
                raise InputError(
                    f"{where}: round {action.tag[0]} is noted for a step that needs one of round {earlier[0]}"
                )
        if before is not None:
            if (before.src, before.dst, before.reduce) != (t.src, t.dst, t.reduce):
                raise InputError(f"{where}: round {action.tag[0]}.{action.tag[1]} is noted for different messages")
            to = (*before.targets, *t.targets)
            chunks = (*before.chunks, *t.chunks)
            t = Transfer(t.src, t.dst, chunks, t.reduce, () if to == chunks else to)
        joined[action.tag] = t
    rounds: dict[int, list[Transfer]] = defaultdict(list)
    for tag in sorted(joined):
        rounds[tag[0]].append(joined[tag])
    return [tuple(rounds[number]) for number in sorted(rounds)]


def _scratch_used(rounds: Iterable[Round], chunks: int) -> int:
    last = max((max((*t.chunks, *t.targets), default=0) for transfers in rounds for t in transfers), default=0)
    return max(0, last + 1 - chunks)
