"""Read an MSCCL++ execution plan as a schedule that does the same, which `verify` proves.

`order` orders the operations and refuses races; here each becomes transfers: a copy, or a sum formed at its
first destination and copied to the others. A transfer comes in the round after the last that touches what it touches.
In place, input and output are slots of the payload. Out of place (and in an all-to-all) every rank begins by copying
its input into scratch slots that stand for its buffers, and ends by copying its output back, so that nothing that the
plan does not write can look as if it were there.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ...errors import InputError, nearest
from ..msccl.file import COLLECTIVE_OF
from ..proof.verify import ScheduleError, verify
from ..schedules.schedule import Schedule, Transfer, make, schedule_name
from .file import SUMS, MscclppPlan, read_plan
from .order import ChunkPart, Ordered, PlanEvent, Run, order

_NAMES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")  # the part of MSCCL's that plans have
_KNOWN = {name: COLLECTIVE_OF[name] for name in _NAMES}


def from_mscclpp(data: dict[str, Any], *, where: str = "MSCCL++ plan") -> Schedule:
    """Return the schedule that a plan carries out; InputError for what is no plan, ScheduleError for a race."""
    plan = read_plan(data, where)
    if plan.collective not in _KNOWN:
        raise InputError(f"{where}: collective {plan.collective[:30]!r}: unknown ({nearest(plan.collective, _KNOWN)})")
    ordered = order(plan, where)
    roots = range(len(plan.gpus)) if plan.collective == "broadcast" else range(1)
    made = [_lowered(plan, ordered, root, where) for root in roots]
    return next((schedule for schedule in made if len(made) > 1 and _is_proved(schedule)), made[0])


def _is_proved(schedule: Schedule) -> bool:
    try:
        verify(schedule)
    except ScheduleError:
        return False
    return True


def _lowered(plan: MscclppPlan, ordered: Ordered, root: int, where: str) -> Schedule:
    memory = _Memory(plan, ordered.parts, where)
    rounds = _Rounds()
    for transfer in memory.begins():
        rounds.add(transfer)
    for event in ordered.events:
        for transfer in _transfers(event, memory, where):
            rounds.add(transfer)
    for transfer in memory.ends():
        rounds.add(transfer)
    name = schedule_name(plan.name or "") or "plan"
    try:
        return make(
            _KNOWN[plan.collective], name, len(plan.gpus), rounds.found, chunks=memory.chunks, root=root,
            scratch=memory.scratch,
        )  # fmt: skip
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


class _Memory:
    """The slot for each part of a chunk of a rank's buffers."""

    def __init__(self, plan: MscclppPlan, parts: int, where: str) -> None:
        self.plan, self.kind, self.ranks = plan, _KNOWN[plan.collective], len(plan.gpus)
        shapes = {(gpu.input_chunks, gpu.output_chunks) for gpu in plan.gpus}
        if len(shapes) > 1:
            raise InputError(f"{where}: the GPUs have different numbers of chunks: expected the same")
        inputs, outputs = shapes.pop()
        fits = {"all_gather": outputs == inputs * self.ranks, "reduce_scatter": inputs == outputs * self.ranks}
        if not inputs or not outputs or not fits.get(self.kind, inputs == outputs):
            raise InputError(f"{where}: {inputs} input and {outputs} output chunks do not fit {plan.collective}")
        if self.kind == "all_to_all" and inputs % self.ranks:
            raise InputError(f"{where}: {inputs} input chunks: expected a multiple of {self.ranks}")
        self.inputs, self.outputs = inputs * parts, outputs * parts
        wide = self.ranks if self.kind == "all_to_all" else 1
        self.chunks = max(self.inputs, self.outputs) * wide
        scratch = max(gpu.scratch_chunks for gpu in plan.gpus) * parts
        self.direct = plan.inplace and self.kind != "all_to_all"
        self._bases = {"s": self.chunks, "i": self.chunks + scratch}
        self._bases["o"] = self._bases["i"] + (0 if plan.inplace else self.inputs)
        self.scratch = scratch if self.direct else self._bases["o"] + self.outputs - self.chunks

    def slots(self, run: Run) -> tuple[int, ...]:
        """Return the slots of a run."""
        return tuple(self._slot(place) for place in run)

    def _slot(self, place: ChunkPart) -> int:
        if place.buffer == "s" or not self.direct:
            return self._bases[place.buffer] + place.part
        return self._payload(place)

    def _payload(self, place: ChunkPart) -> int:
        """Return which chunk of the payload a part of an input or an output is."""
        if self.kind == "all_to_all":
            each = self.inputs // self.ranks
            peer, at = divmod(place.part, each)
            sender, receiver = (place.rank, peer) if place.buffer == "i" else (peer, place.rank)
            return (sender * self.ranks + receiver) * each + at
        if (self.kind, place.buffer) == ("all_gather", "i"):
            return place.rank * self.inputs + place.part
        if (self.kind, place.buffer) == ("reduce_scatter", "o"):
            return place.rank * self.outputs + place.part
        return place.part

    def begins(self) -> Iterator[Transfer]:
        """Yield the copies of the inputs into the slots that stand for the buffers."""
        for rank in () if self.direct else range(self.ranks):
            run = tuple(ChunkPart(rank, "i", part) for part in range(self.inputs))
            yield Transfer(rank, rank, tuple(map(self._payload, run)), to=self.slots(run))

    def ends(self) -> Iterator[Transfer]:
        """Yield the copies of the outputs back."""
        for rank in () if self.direct else range(self.ranks):
            run = tuple(ChunkPart(rank, "o", part) for part in range(self.outputs))
            yield Transfer(rank, rank, self.slots(run), to=tuple(map(self._payload, run)))


def _transfers(event: PlanEvent, memory: _Memory, where: str) -> Iterator[Transfer]:
    """Yield what an operation moves, in an order that gives its result."""
    sources = [(run[0].rank, memory.slots(run)) for run in event.sources if run]
    targets = [(run[0].rank, memory.slots(run)) for run in event.targets if run]
    if not targets:
        return
    if event.op.name not in SUMS:
        pairs = zip(sources * len(targets) if len(sources) == 1 else sources, targets, strict=True)
        yield from (_move(source, target) for source, target in pairs if source != target)
        return
    first, *others = targets
    base = sources.index(first) if first in sources else 0
    rest = [source for index, source in enumerate(sources) if index != base]
    if any(rank == first[0] and set(slots) & set(first[1]) for rank, slots in rest):
        raise ScheduleError(f"{where}: {event} writes over what it still has to read")
    if sources[base] != first:
        yield _move(sources[base], first)
    for source in rest:
        yield _move(source, first, reduce=True)
    yield from (_move(first, target) for target in others if target != first)


def _move(
    source: tuple[int, tuple[int, ...]], target: tuple[int, tuple[int, ...]], *, reduce: bool = False
) -> Transfer:
    to = target[1] if target[1] != source[1] else ()
    return Transfer(source[0], target[0], source[1], reduce=reduce, to=to)


class _Rounds:
    """Rounds, each transfer in the first that comes after all that it meets."""

    def __init__(self) -> None:
        self.found: list[list[Transfer]] = []
        # of each slot of a rank, the first round after all reads of it, and after all writes
        self._read: dict[tuple[int, int], int] = defaultdict(int)
        self._written: dict[tuple[int, int], int] = defaultdict(int)

    def add(self, transfer: Transfer) -> None:
        """Append a transfer."""
        reads = [(transfer.src, slot) for slot in transfer.chunks]
        writes = [(transfer.dst, slot) for slot in transfer.targets]
        number = max([0, *(self._written[key] for key in (*reads, *writes)), *(self._read[key] for key in writes)])
        if number == len(self.found):
            self.found.append([])
        self.found[number].append(transfer)
        for key in reads:
            self._read[key] = max(self._read[key], number + 1)
        for key in writes:
            self._written[key] = number + 1
