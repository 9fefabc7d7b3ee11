"""The order of the operations of an MSCCL++ plan: which must end before which, and a race where none must.

Two operations are ordered by a nop (the barrier of a block's threads) or a barrier of blocks between them in a block;
by a signal and its wait, paired in order; by a release and an acquire of a semaphore; and by packets, whose reader
waits until they have arrived. The threads of a block run independently
(src/core/include/execution_kernel.hpp): some signal and wait, all move data. Without a nop a signal may therefore
arrive before its data, and data may move before a wait has ended. Over a port channel a proxy puts, in order with the
signals of such channels; what it reads may be written again after a flush, or when the peer has said that it came.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import InputError
from ..proof.verify import ScheduleError
from ..proof.waits import topological_order
from .file import MOVES, PACKETS, SIGNALS, SUMS, WAITS, Buffer, ChunkRun, MscclppPlan, Op, PlanBlock, PlanGpu

_BARRIERS = {"nop", "barrier"}
_PUTS = {"put", "pws", "pwsf", "ppkt", "rppkt"}
_Channel = tuple[int, int]  # the peer, and which of the channels to it


class ChunkPart(NamedTuple):
    """A part of a chunk in the memory of a rank."""

    rank: int
    buffer: Buffer
    part: int


Run = tuple[ChunkPart, ...]


@dataclass(slots=True)
class PlanEvent:
    """One operation, with the runs that it reads and writes."""

    gpu: int
    block: int
    number: int
    op: Op
    sources: list[Run] = field(default_factory=list)
    targets: list[Run] = field(default_factory=list)

    def __str__(self) -> str:
        return f"gpu {self.gpu} block {self.block} op {self.number} ({self.op.name})"


class Ordered(NamedTuple):
    """The events in an order in which they can happen, and into how many parts each chunk is cut."""

    events: list[PlanEvent]
    parts: int


def order(plan: MscclppPlan, where: str) -> Ordered:
    """Return the events in order; ScheduleError for a deadlock or a race."""
    parts = math.lcm(*(op.tbg_info.tbg_size for op in _ops(plan) if op.tbg_info), 1)
    events = [
        _event(plan, gpu, block, number, parts, where)
        for gpu in plan.gpus
        for block in gpu.threadblocks
        for number in range(len(block.ops))
    ]
    links = _Links(plan, events, where)
    sequence = _sequence(events, links.before, where)
    ended = _ended(links.ended, sequence, set())
    seen = _ended(links.ended, sequence, links.relaxed) if links.relaxed else ended  # whose writes can be seen
    touched = _touched(events)
    _refuse_races(events, ended, seen, touched, where)
    _refuse_late_outputs(plan, events, seen, touched, where)
    return Ordered([events[index] for index in sequence], parts)


def _ops(plan: MscclppPlan) -> Iterator[Op]:
    return (op for gpu in plan.gpus for block in gpu.threadblocks for op in block.ops)


def _event(plan: MscclppPlan, gpu: PlanGpu, block: PlanBlock, number: int, parts: int, where: str) -> PlanEvent:
    event = PlanEvent(gpu.id, block.id, number, block.ops[number])
    op = event.op
    if op.name in MOVES | SUMS:
        event.sources = [_run(plan, gpu, block, op, piece, parts, f"{where}: {event}") for piece in op.src_buff]
        event.targets = [_run(plan, gpu, block, op, piece, parts, f"{where}: {event}") for piece in op.dst_buff]
        lengths = {len(run) for run in (*event.sources, *event.targets)}
        several = op.name in SUMS or len(event.sources) == 1
        if not event.sources or not event.targets or len(lengths) > 1:
            raise InputError(f"{where}: {event}: expected sources and destinations of one size")
        if not several and len(event.sources) != len(event.targets):
            raise InputError(f"{where}: {event}: {len(event.sources)} sources for {len(event.targets)} destinations")
        _refuse_misread(op, f"{where}: {event}")
    return event


def _refuse_misread(op: Op, at: str) -> None:
    """Raise InputError for what the runtime does in another way than the plan says (execution_kernel.hpp)."""
    if op.name == "get":
        for far, near in zip(op.src_buff, op.dst_buff, strict=False):
            if far.index != near.index:
                raise InputError(
                    f"{at}: from chunk {far.index} to chunk {near.index}: the runtime takes each offset of a get for "
                    "the other; expected the same one, or a put by the other side"
                )
    if op.name in {"pws", "pwsf"} and op.channel_type == "memory":
        raise InputError(f"{at}: over a memory channel the runtime puts and does not signal; expected put, nop, signal")


def _run(plan: MscclppPlan, gpu: PlanGpu, block: PlanBlock, op: Op, piece: ChunkRun, parts: int, at: str) -> Run:
    rank, buffer = gpu.id, piece.type
    if piece.buffer_id is not None:
        ids = [i for refs in block.remote_buffer_refs if refs.access_channel_type == op.channel_type
               for i in refs.remote_buffer_ids]  # fmt: skip
        if piece.buffer_id >= len(ids) or ids[piece.buffer_id] >= len(gpu.remote_buffers):
            raise InputError(f"{at}: buffer_id {piece.buffer_id}: the block has no such remote buffer")
        remote = gpu.remote_buffers[ids[piece.buffer_id]]
        rank, buffer = remote.rank, remote.type
        if rank >= len(plan.gpus):
            raise InputError(f"{at}: remote buffer of rank {rank}: expected below {len(plan.gpus)}")
    if buffer is None:
        raise InputError(f"{at}: expected a type or a buffer_id")
    held = plan.gpus[rank].chunks_of(buffer)
    if piece.index + piece.size > held:
        raise InputError(f"{at}: chunks up to {piece.index + piece.size - 1} of {buffer} of gpu {rank}: it has {held}")
    first, count = piece.index * parts, piece.size * parts
    if op.tbg_info is not None:
        if op.tbg_info.tb_id >= op.tbg_info.tbg_size:
            raise InputError(f"{at}: tb_id {op.tbg_info.tb_id}: expected below {op.tbg_info.tbg_size}")
        count //= op.tbg_info.tbg_size
        first += op.tbg_info.tb_id * count
    return tuple(ChunkPart(rank, buffer, part) for part in range(first, first + count))


class _Links:
    """For each event, the events that must have begun (`before`) and ended (`ended`) before it.

    The threads of a block begin its operations in order; only a barrier of theirs says that all have ended one.
    """

    def __init__(self, plan: MscclppPlan, events: list[PlanEvent], where: str) -> None:
        self.plan, self.events, self.where = plan, events, where
        self.before: list[set[int]] = [set() for _ in events]
        self.ended: list[set[int]] = [set() for _ in events]
        self._told: dict[tuple[int, _Channel], list[int]] = {}  # of a signal over a port, the puts that come before it
        self._open: list[range] = []  # of each event, those of its block since the last barrier of its threads
        self.relaxed: set[tuple[int, int]] = set()  # signal and wait that say "go on", and not "what I wrote is there"
        self._threads()
        self._signals()
        self._semaphores()
        self._barriers()
        self._packets()

    def _threads(self) -> None:
        first = 0  # the last barrier of a block's threads, or its beginning
        puts: dict[int, set[_Channel]] = {}  # that a proxy carries out, and over which channels
        for index, event in enumerate(self.events):
            if not event.number:
                first, puts = index, {}
            else:
                self.before[index].add(index - 1)
            self._open.append(range(first, index))
            if event.op.name in _BARRIERS:
                self.ended[index].update(set(self._open[index]) - set(puts))
                first = index
            elif first < index and self.events[first].op.name in _BARRIERS:
                self.ended[index].add(first)
            if event.op.channel_type != "port":
                continue
            used = set(self._channels(event))
            if event.op.name == "flush":
                self.ended[index].update(put for put, channels in puts.items() if channels <= used)
            if event.op.name in SIGNALS:
                for one in used:
                    self._told[index, one] = [put for put, channels in puts.items() if one in channels]
            if event.op.name in _PUTS:
                self._refuse_astray(event)
                puts |= {index: used} if event.op.name != "pwsf" else {}

    def _refuse_astray(self, event: PlanEvent) -> None:
        """Raise InputError where a put goes over a channel to another GPU than its buffer is of, or over none."""
        ways, ends = [peer for peer, _ in self._channels(event)], [run[0].rank for run in event.targets if run]
        if ways != ends:
            raise InputError(
                f"{self.where}: {event}: over channels to {ways}, into buffers of {ends}; expected the same"
            )

    def _link(self, earlier: int, later: int) -> None:
        self.before[later].add(earlier)
        self.ended[later].add(earlier)

    def _signals(self) -> None:
        given: dict[tuple[int, int, str, int], list[int]] = defaultdict(list)
        wanted: dict[tuple[int, int, str, int], list[int]] = defaultdict(list)
        for index, event in enumerate(self.events):
            kind = event.op.channel_type
            if event.op.name in SIGNALS | WAITS:
                for peer, place in self._channels(event):
                    if event.op.name in WAITS:
                        wanted[peer, event.gpu, kind, place].append(index)
                    else:
                        given[event.gpu, peer, kind, place].append(index)
        for key, waits in wanted.items():
            signals = given[key]
            if len({self.events[i].block for i in signals}) > 1 or len({self.events[i].block for i in waits}) > 1:
                raise ScheduleError(f"{self.where}: two blocks use one channel: {self.events[waits[0]]}")
            for number, wait in enumerate(waits):
                if number >= len(signals):
                    what = f"{self.events[wait]} waits for a signal of gpu {key[0]} that never comes"
                    raise ScheduleError(f"{self.where}: deadlock: {what}")
                self._link(signals[number], wait)
                self.ended[wait].update(self._told.get((signals[number], (key[1], key[3])), ()))
                if "rlx" in self.events[wait].op.name or "rlx" in self.events[signals[number]].op.name:
                    self.relaxed.add((signals[number], wait))

    def _channels(self, event: PlanEvent) -> Iterator[tuple[int, int]]:
        """Yield, for each channel of an operation, the peer and the how-manyth channel to that peer it is."""
        gpu, kind = self.plan.gpus[event.gpu], event.op.channel_type
        block = next(block for block in gpu.threadblocks if block.id == event.block)
        own = [i for channels in block.channels if channels.channel_type == kind for i in channels.channel_ids]
        peers = [peer for channels in gpu.channels if channels.channel_type == kind for peer in channels.connected_to]
        for number in event.op.channel_ids:
            if number >= len(own) or own[number] >= len(peers):
                raise InputError(f"{self.where}: {event}: channel {number}: the block has no such {kind} channel")
            yield peers[own[number]], peers[: own[number]].count(peers[own[number]])

    def _semaphores(self) -> None:
        released: dict[tuple[int, int], list[int]] = defaultdict(list)
        acquired: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, event in enumerate(self.events):
            found = {"sem_release": released, "sem_acquire": acquired}.get(event.op.name)
            for number in event.op.semaphore_ids if found is not None else ():
                if number >= len(self.plan.gpus[event.gpu].semaphores):
                    raise InputError(f"{self.where}: {event}: semaphore {number}: the GPU has no such one")
                found[event.gpu, number].append(index)  # type: ignore[index]  # the loop is empty without it
        for (gpu, number), takes in acquired.items():
            start, gives = self.plan.gpus[gpu].semaphores[number].init_value, released[gpu, number]
            alone = len({self.events[i].block for i in gives}) < 2 and len({self.events[i].block for i in takes}) < 2
            for place, take in enumerate(takes):
                needed = place + 1 - start
                if needed > len(gives):
                    raise ScheduleError(
                        f"{self.where}: deadlock: {self.events[take]} waits for a release that never comes"
                    )
                if alone and needed > 0:
                    self._link(gives[needed - 1], take)
                elif needed == len(gives):  # of several blocks only the last can be told
                    for give in gives:
                        self._link(give, take)

    def _barriers(self) -> None:
        met: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        times: dict[tuple[int, int, int], int] = defaultdict(int)
        for index, event in enumerate(self.events):
            if event.op.name == "barrier":
                key = (event.gpu, event.block, event.op.barrier_id)
                met[event.gpu, event.op.barrier_id, times[key]].append(index)
                times[key] += 1
        for members in met.values():
            if len(members) != self.events[members[0]].op.num_threadblocks:
                raise ScheduleError(
                    f"{self.where}: deadlock: {self.events[members[0]]} waits for "
                    f"{self.events[members[0]].op.num_threadblocks} blocks, {len(members)} come"
                )
            for member in members:
                self.before[member].update(other - 1 for other in members if self.events[other].number)
                self.ended[member].update(i for other in members for i in self._open[other])

    def _packets(self) -> None:
        writers: dict[ChunkPart, set[int]] = defaultdict(set)
        for index, event in enumerate(self.events):
            if event.op.name in PACKETS:
                for place in (p for run in event.targets for p in run if p.buffer == "s"):
                    writers[place].add(index)
        for index, event in enumerate(self.events):
            if event.op.name not in PACKETS:
                continue
            for place in (p for run in event.sources for p in run if p.buffer == "s"):
                if len(writers[place]) != 1:
                    what = "nobody writes" if not writers[place] else "several operations write"
                    raise ScheduleError(
                        f"{self.where}: {event} waits for packets that {what} (gpu {place.rank}, scratch)"
                    )
                for writer in writers[place]:
                    self._link(writer, index)


def _sequence(events: list[PlanEvent], before: list[set[int]], where: str) -> list[int]:
    """Return an order in which the events can happen; ScheduleError where some wait for each other."""
    found = topological_order(before)
    if len(found) < len(events):
        done = set(found)
        left_over = [i for i in range(len(events)) if i not in done]
        stuck = next(i for i in left_over if not events[i].number or i - 1 in done)  # the first of its block
        waits = next(j for j in before[stuck] if j not in done)
        raise ScheduleError(f"{where}: deadlock: {events[stuck]} waits for {events[waits]}, which waits for it in turn")
    return found


_Touched = dict[ChunkPart, dict[int, bool]]  # by each event, and whether it writes


def _touched(events: list[PlanEvent]) -> _Touched:
    found: _Touched = defaultdict(dict)
    for index, event in enumerate(events):
        for runs, writes in ((event.sources, False), (event.targets, True)):
            for place in (place for run in runs for place in run):
                found[place][index] = found[place].get(index, False) or writes
    return found


def _refuse_races(events: list[PlanEvent], ended: list[int], seen: list[int], touched: _Touched, where: str) -> None:
    """Raise ScheduleError where two operations touch one place, one of them writes, and no order separates them."""
    for place, accesses in touched.items():
        for index in (index for index, writes in accesses.items() if writes):
            for other, writes in accesses.items():
                if other == index:
                    continue
                is_after = seen[other] >> index & 1 or (writes and seen[index] >> other & 1)
                if not is_after and not (not writes and ended[index] >> other & 1):
                    what = "two writes" if writes else "a write and a read"
                    one, two = events[index], events[other]
                    threads = (
                        "; its threads need a nop between them" if (one.gpu, one.block) == (two.gpu, two.block) else ""
                    )
                    raise ScheduleError(
                        f"{where}: a race: nothing orders {what} of {place.buffer} of gpu {place.rank}: {one} and {two}"
                        f"{threads}"
                    )


def _refuse_late_outputs(
    plan: MscclppPlan, events: list[PlanEvent], seen: list[int], touched: _Touched, where: str
) -> None:
    """Raise ScheduleError where a GPU may end before what another writes into its result has come."""
    known: dict[int, int] = defaultdict(int)  # of each GPU, the events whose writes one of its own has seen
    for index, event in enumerate(events):
        known[event.gpu] |= seen[index]
    results = {"i", "o"} if plan.inplace else {"o"}
    for place, accesses in touched.items():
        for index, writes in accesses.items():
            far = writes and place.buffer in results and events[index].gpu != place.rank
            if far and not known[place.rank] >> index & 1:
                raise ScheduleError(
                    f"{where}: gpu {place.rank} may end before {events[index]} has written to its {place.buffer}"
                )


def _ended(before: list[set[int]], sequence: list[int], without: set[tuple[int, int]]) -> list[int]:
    """Return for each event a bit for each other that must have ended before it, some links left out."""
    found = [0] * len(before)
    for index in sequence:
        for other in before[index]:
            if (other, index) not in without:
                found[index] |= found[other] | 1 << other
    return found
