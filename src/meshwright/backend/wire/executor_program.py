"""Compile what one rank does in a schedule, for one layout: each transfer becomes a message of certain elements."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...collectives.proof.verify import Payloads
from ...collectives.schedules.schedule import Schedule, Transfer
from .executor_layout import ChunkLayout, Place

Span = tuple[int, int, int]  # buffer, first element, end


@dataclass(frozen=True, slots=True)
class Message:
    """A message to or from a peer: its elements, as one span where they lie together; a signal has none."""

    peer: int
    spans: tuple[Span, ...]
    reduce: bool
    is_signal: bool = False
    after: tuple[int, ...] = ()  # receives of this step that must be reduced into the same elements before
    snapshot: bool = False  # send a copy, since this step reduces into the elements


@dataclass(frozen=True, slots=True)
class LocalStep:
    """A copy or reduction inside the rank, span by span."""

    pairs: tuple[tuple[Span, Span], ...]
    reduce: bool
    snapshot: bool


@dataclass(frozen=True, slots=True)
class RoundStep:
    """The work of the rank in one round."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    locals: tuple[LocalStep, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The steps of one rank and the elements of the buffer of its own that it needs beside the caller's."""

    steps: tuple[RoundStep, ...]
    own_elements: int
    writes_read_only: bool


def compile_program(schedule: Schedule, payloads: Payloads, rank: int, layout: ChunkLayout) -> Compiled:
    """Return the program of one rank; messages that have no elements are left out, at both of their ends."""
    compiler = _Compiler(schedule, rank, layout)
    steps = []
    for transfers, carried in zip(schedule.rounds, payloads, strict=True):
        mine = [(t, c) for t, c in zip(transfers, carried, strict=True) if rank in (t.src, t.dst)]
        if mine:
            steps.append(compiler.step(mine))
    return Compiled(
        tuple(s for s in steps if s.sends or s.receives or s.locals), compiler.own_elements, compiler.writes_read_only
    )


class _Compiler:
    def __init__(self, schedule: Schedule, rank: int, layout: ChunkLayout) -> None:
        self.rank = rank
        self.layout = layout
        self.own_buffer = len(layout.buffer_sizes)
        self.own_elements = 0
        self.writes_read_only = False
        self._own_size = max(layout.chunk_sizes, default=0)
        self._places: list[Place | None] = [*layout.places, *[None] * schedule.scratch]

    def step(self, transfers: Sequence[tuple[Transfer, tuple[int, ...]]]) -> RoundStep:
        reduced = {slot for t, _ in transfers if t.reduce and t.dst == self.rank for slot in t.targets}
        sends: list[Message] = []
        receives: list[Message] = []
        steps: list[LocalStep] = []
        last: dict[int, int] = {}  # slot: the last receive that is reduced into it
        for t, carried in transfers:
            read_and_reduced = not reduced.isdisjoint(t.chunks)
            if t.is_local:
                pairs = self._pairs(t, carried)
                if pairs:
                    steps.append(LocalStep(pairs, t.reduce, read_and_reduced))
                continue
            spans = self._spans(t.chunks if t.src == self.rank else t.targets, carried)
            if t.chunks and not spans:
                continue
            if t.src == self.rank:
                sends.append(Message(t.dst, spans, t.reduce, not t.chunks, snapshot=read_and_reduced))
                continue
            self.writes_read_only |= any(buffer == self.layout.read_only for buffer, _, _ in spans)
            after = tuple(sorted({last[slot] for slot in t.targets if slot in last})) if t.reduce else ()
            last.update((slot, len(receives)) for slot in t.targets)
            receives.append(Message(t.src, spans, t.reduce, not t.chunks, after))
        return RoundStep(tuple(sends), tuple(receives), tuple(steps))

    def _place(self, slot: int) -> Place:
        place = self._places[slot]
        if place is None:
            place = self._places[slot] = (self.own_buffer, self.own_elements)
            self.own_elements += self._own_size
        return place

    def _pairs(self, t: Transfer, carried: Sequence[int]) -> tuple[tuple[Span, Span], ...]:
        pairs = []
        for source, target, chunk in zip(t.chunks, t.targets, carried, strict=True):
            size = self.layout.chunk_sizes[chunk] if chunk >= 0 else 0
            (a, start), (b, end) = self._place(source), self._place(target)
            if size:
                pairs.append(((a, start, start + size), (b, end, end + size)))
        return tuple(pairs)

    def _spans(self, slots: Sequence[int], carried: Sequence[int]) -> tuple[Span, ...]:
        """Return where the chunks lie, with neighbours joined."""
        spans: list[Span] = []
        for slot, chunk in zip(slots, carried, strict=True):
            size = self.layout.chunk_sizes[chunk] if chunk >= 0 else 0  # nothing is there: nothing to send
            if not size:
                continue
            buffer, start = self._place(slot)
            if spans and spans[-1][0] == buffer and spans[-1][2] == start:
                spans[-1] = (buffer, spans[-1][1], start + size)
            else:
                spans.append((buffer, start, start + size))
        return tuple(spans)
