"""Run any schedule over any transport: the tensors of one rank in, the result of the collective in them.

Every rank of the transport calls the same method with the same schedule (made by the same algorithm) at the same time;
calls block. A schedule is proved before it is run for the first time. Most collectives run in place: a layout says
where each chunk lies in the caller's tensors.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...collectives.proof.bitwise import leaves_equal_bits
from ...collectives.proof.verify import Payloads, carries_only_whole_chunks, payloads, verify
from ...collectives.schedules.schedule import Schedule
from ...errors import InputError
from .executor_layout import ChunkLayout, all_to_all_layout, checked_counts, kept_parts, owned_layout, shared_layout
from .executor_program import Compiled, LocalStep, Message, Span, compile_program
from .executor_reduce import HALF, WireReduction, flat_view, wire_reduction
from .stream import rounded_to_wire
from .transport import Incoming, Outgoing, Transport

MAX_KEPT = 512
K = TypeVar("K")
V = TypeVar("V")


class Executor:
    """Runs schedules over one transport; keeps the programs that it has compiled."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank = transport.rank
        self.ranks = transport.ranks
        self._proved: dict[int, _Proved] = {}
        self._compiled: dict[tuple[int, ChunkLayout], tuple[Schedule, Compiled]] = {}

    def all_reduce(
        self, tensor: Tensor, schedule: Schedule, op: str = "sum", *, wire: torch.dtype | None = None
    ) -> None:
        """Reduce `tensor` over all ranks, in place. `wire`: a narrower type for messages, rounded to at each hop.

        All ranks end with the same bits where the schedule allows it (`bitwise.leaves_equal_bits`).
        """
        self._expect(schedule, "all_reduce")
        kind = wire_reduction(op, tensor.dtype)
        data = kind.enter(tensor)
        self._reduce(schedule, shared_layout(schedule.chunks, data.numel()), data, kind, wire)
        kind.leave(data, tensor, self.ranks)

    def reduce(self, tensor: Tensor, schedule: Schedule, op: str = "sum", *, wire: torch.dtype | None = None) -> None:
        """Reduce `tensor` over all ranks into the root's; the others' stay as they are."""
        self._expect(schedule, "reduce")
        kind = wire_reduction(op, tensor.dtype)
        data = kind.enter(tensor)
        if self.rank != schedule.root:
            data = _apart(data, tensor)
        self._reduce(schedule, shared_layout(schedule.chunks, data.numel()), data, kind, wire)
        if self.rank == schedule.root:
            kind.leave(data, tensor, self.ranks)

    def reduce_scatter(
        self,
        output: Tensor,
        source: Tensor,
        schedule: Schedule,
        op: str = "sum",
        *,
        counts: Sequence[int] | None = None,
        wire: torch.dtype | None = None,
    ) -> None:
        """Reduce `source` over all ranks and leave each rank its part; `counts`: elements of each rank's part."""
        self._expect(schedule, "reduce_scatter")
        kind = wire_reduction(op, source.dtype)
        layout = owned_layout(schedule.chunks, self._counts(output, counts))
        _check_sizes("source", source, layout.buffer_sizes[0])
        data = _apart(kind.enter(source), source)
        self._reduce(schedule, layout, data, kind, wire)
        kind.leave(data[layout.part(self.rank, self.ranks)], output, self.ranks)

    def broadcast(self, tensor: Tensor, schedule: Schedule) -> None:
        """Copy the root's `tensor` into everyone's."""
        self._expect(schedule, "broadcast")
        self._run_in(tensor, schedule, shared_layout(schedule.chunks, tensor.numel()))

    def all_gather(
        self, output: Tensor, source: Tensor, schedule: Schedule, *, counts: Sequence[int] | None = None
    ) -> None:
        """Collect everyone's `source` in everyone's `output`, one after another; `counts`: elements of each."""
        self._expect(schedule, "all_gather")
        self._gather(output, source, schedule, counts)

    def gather(
        self, output: Tensor | None, source: Tensor, schedule: Schedule, *, counts: Sequence[int] | None = None
    ) -> None:
        """Collect everyone's `source` in the root's `output`, one after another; the others give None."""
        self._expect(schedule, "gather")
        self._only_at_root("output", output, schedule)
        if output is None:
            output = source.new_empty(sum(self._counts(source, counts)))
        self._gather(output, source, schedule, counts)

    def scatter(
        self, output: Tensor, source: Tensor | None, schedule: Schedule, *, counts: Sequence[int] | None = None
    ) -> None:
        """Give each rank its part of the root's `source`; the others give None."""
        self._expect(schedule, "scatter")
        self._only_at_root("source", source, schedule)
        layout = owned_layout(schedule.chunks, self._counts(output, counts))
        data = output.new_empty(layout.buffer_sizes[0]) if source is None else flat_view(source)
        _check_sizes("source", data, layout.buffer_sizes[0])
        self._run(schedule, layout, [data])
        output.copy_(data[layout.part(self.rank, self.ranks)].view(output.shape))

    def all_to_all(
        self, output: Tensor, source: Tensor, schedule: Schedule, *, counts: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Send each rank its part of `source`; `counts[i][j]`: elements from rank i to j, else equal parts."""
        self._expect(schedule, "all_to_all")
        _check("schedule", not schedule.counts, "an even one, with counts beside it", "one with counts")
        if counts is None:
            counts = [[source.numel() // self.ranks] * self.ranks] * self.ranks
        if len(counts) != self.ranks:
            raise InputError(f"counts: expected a row for each of {self.ranks} ranks, got {len(counts)}")
        rows = tuple(checked_counts(row, self.ranks) for row in counts)
        layout = all_to_all_layout(schedule.chunks, self.rank, rows)
        _check_sizes("source", source, layout.buffer_sizes[0])
        _check_sizes("output", output, layout.buffer_sizes[1])
        given, data = flat_view(source), flat_view(output)
        taken, kept = kept_parts(self.rank, rows)
        data[kept].copy_(given[taken])
        self._run(schedule, layout, [given, data])
        _store(data, output)

    def send(self, tensor: Tensor, schedule: Schedule) -> None:
        """Send the root's `tensor` into the target's; the other ranks may call it too, and do nothing."""
        self._expect(schedule, "send")
        self._run_in(tensor, schedule, shared_layout(schedule.chunks, tensor.numel()))

    def copy(self, tensor: Tensor, schedule: Schedule) -> None:
        """Copy the first half of the root's `tensor` into its second half."""
        self._expect(schedule, "copy")
        self._run_in(tensor, schedule, shared_layout(schedule.chunks, tensor.numel()))

    def barrier(self, schedule: Schedule) -> None:
        """Return when every rank has entered."""
        self._expect(schedule, "barrier")
        self._run(schedule, shared_layout(0, 0), [torch.empty(0)])

    def run_signal(self, schedule: Schedule) -> None:
        """Signal from the root, wait at the target; the other ranks do nothing."""
        self._expect(schedule, "signal")
        self._run(schedule, shared_layout(0, 0), [torch.empty(0)])

    def signal(self, rank: int) -> None:
        """Let one call of `wait` at another rank return; may itself take until that call is made."""
        self.transport.exchange([Outgoing(rank, torch.zeros(1, dtype=torch.uint8))], [])

    def wait(self, rank: int) -> None:
        """Return when another rank has signalled this one."""
        self.transport.exchange([], [Incoming(rank, torch.empty(1, dtype=torch.uint8))])

    def _gather(self, output: Tensor, source: Tensor, schedule: Schedule, counts: Sequence[int] | None) -> None:
        layout = owned_layout(schedule.chunks, self._counts(source, counts))
        _check_sizes("output", output, layout.buffer_sizes[0])
        data = flat_view(output)
        own = data[layout.part(self.rank, self.ranks)]
        _check_sizes("source", source, own.numel())
        own.copy_(flat_view(source))
        self._run(schedule, layout, [data])
        _store(data, output)

    def _run_in(self, tensor: Tensor, schedule: Schedule, layout: ChunkLayout) -> None:
        data = flat_view(tensor)
        self._run(schedule, layout, [data])
        _store(data, tensor)

    def _counts(self, part: Tensor, counts: Sequence[int] | None) -> tuple[int, ...]:
        return (part.numel(),) * self.ranks if counts is None else checked_counts(counts, self.ranks)

    def _expect(self, schedule: Schedule, collective: str) -> None:
        _check("schedule", schedule.collective == collective, collective, schedule.collective)
        _check("schedule", schedule.ranks == self.ranks, f"{self.ranks} ranks", schedule.ranks)

    def _only_at_root(self, name: str, tensor: Tensor | None, schedule: Schedule) -> None:
        at_root = self.rank == schedule.root
        _check(name, (tensor is not None) == at_root, "a tensor at the root" if at_root else "None", type(tensor))

    def _prove(self, schedule: Schedule) -> "_Proved":
        """Prove a schedule when it is seen first."""
        known = self._proved.get(id(schedule))
        if known is None:
            verify(schedule)
            alike = schedule.collective != "all_reduce" or leaves_equal_bits(schedule, rounded=True)
            known = _Proved(schedule, payloads(schedule), carries_only_whole_chunks(schedule), alike)
            _keep(self._proved, id(schedule), known)
        return known

    def _reduce(
        self, schedule: Schedule, layout: ChunkLayout, data: Tensor, kind: WireReduction, wire: torch.dtype | None
    ) -> None:
        copy_wire = wire
        if wire is None and kind.dtype in HALF and self._prove(schedule).copies_are_final:
            copy_wire = kind.dtype  # what is copied is final and ends in this type in any case
        self._run(schedule, layout, [data], kind, wire, copy_wire)

    def _run(
        self,
        schedule: Schedule,
        layout: ChunkLayout,
        buffers: list[Tensor],
        kind: WireReduction | None = None,
        reduce_wire: torch.dtype | None = None,
        copy_wire: torch.dtype | None = None,
    ) -> None:
        proved = self._prove(schedule)
        key = (id(schedule), layout)
        if key not in self._compiled:
            program = compile_program(schedule, proved.payloads, self.rank, layout)
            _keep(self._compiled, key, (schedule, program))  # with the schedule, so that its id stays taken
        compiled = self._compiled[key][1]
        if compiled.writes_read_only and layout.read_only is not None:
            buffers[layout.read_only] = buffers[layout.read_only].clone()
        if compiled.own_elements:
            buffers.append(buffers[0].new_empty(compiled.own_elements))
        run = _Run(buffers, kind, reduce_wire, copy_wire, keeps_rounded=not proved.alike_when_rounded)
        for step in compiled.steps:
            sends = [run.outgoing(m) for m in step.sends]
            run.do_locals(step.locals)
            receives = [run.incoming(m) for m in step.receives]
            if sends or receives:
                self.transport.exchange(sends, receives)
                run.unpack(step.receives, receives)


class _Proved(NamedTuple):
    """A schedule that has been proved, and what is known of it."""

    schedule: Schedule  # kept, so that its id stays taken
    payloads: Payloads  # what its messages carry
    copies_are_final: bool
    alike_when_rounded: bool  # ends with the same bits everywhere though what is sent to be reduced is rounded


class _Run:
    """The tensors of one call, and how its messages are made from them."""

    def __init__(
        self,
        buffers: list[Tensor],
        kind: WireReduction | None,
        reduce_wire: torch.dtype | None,
        copy_wire: torch.dtype | None,
        *,
        keeps_rounded: bool,
    ) -> None:
        self._buffers = buffers
        self._kind = kind
        self._keeps_rounded = keeps_rounded
        self._wire = {True: reduce_wire or buffers[0].dtype, False: copy_wire or buffers[0].dtype}

    def at(self, span: Span) -> Tensor:
        return self._buffers[span[0]][span[1] : span[2]]

    def outgoing(self, m: Message) -> Outgoing:
        if m.is_signal:
            return Outgoing(m.peer, self._buffers[0].new_zeros(1, dtype=torch.uint8))
        parts = [self.at(span) for span in m.spans]
        wire = self._wire[m.reduce]
        if wire != parts[0].dtype:
            keep = not m.reduce or self._keeps_rounded  # what others get rounded is rounded here too: all end alike
            parts = [rounded_to_wire(part, wire, keep=keep) for part in parts]
        elif m.snapshot and len(parts) == 1:
            parts = [parts[0].clone()]
        return Outgoing(m.peer, parts[0] if len(parts) == 1 else torch.cat(parts))

    def incoming(self, m: Message) -> Incoming:
        if m.is_signal:
            return Incoming(m.peer, self._buffers[0].new_empty(1, dtype=torch.uint8))
        wire = self._wire[m.reduce]
        if len(m.spans) > 1:  # arrives packed; `unpack` applies it
            return Incoming(m.peer, self._buffers[0].new_empty(sum(b - a for _, a, b in m.spans), dtype=wire))
        combine = self._kind.combine if m.reduce and self._kind else None
        return Incoming(m.peer, self.at(m.spans[0]), combine, wire, m.after)

    def unpack(self, messages: Sequence[Message], receives: Sequence[Incoming]) -> None:
        for m, received in zip(messages, receives, strict=True):
            if len(m.spans) > 1:
                parts = torch.split(received.data, [b - a for _, a, b in m.spans])
                for span, part in zip(m.spans, parts, strict=True):
                    self._apply(self.at(span), part, reduce=m.reduce)

    def do_locals(self, steps: Sequence[LocalStep]) -> None:
        taken = [[self.at(a).clone() if s.snapshot else self.at(a) for a, _ in s.pairs] for s in steps]
        for s, values in zip(steps, taken, strict=True):
            for (_, target), value in zip(s.pairs, values, strict=True):
                self._apply(self.at(target), value, reduce=s.reduce)

    def _apply(self, target: Tensor, value: Tensor, *, reduce: bool) -> None:
        if reduce and self._kind:
            self._kind.combine(target, value)
        else:
            target.copy_(value)


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Remember a value, and forget the oldest ones when there are many: sizes may differ in every call."""
    while len(known) >= MAX_KEPT:
        del known[next(iter(known))]
    known[key] = value


def _apart(data: Tensor, tensor: Tensor) -> Tensor:
    """Return `data`, copied if it is the caller's own memory."""
    return data.clone() if data.numel() and data.data_ptr() == tensor.data_ptr() else data


def _store(data: Tensor, tensor: Tensor) -> None:
    """Bring `data` back into `tensor` where reshaping had to copy."""
    if data.numel() and data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data.view(tensor.shape))


def _check_sizes(name: str, tensor: Tensor, elements: int) -> None:
    _check(name, tensor.numel() == elements, f"{elements} elements", tensor.numel())


def _check(name: str, fine: bool, expected: object, got: Any) -> None:
    if not fine:
        raise InputError(f"{name}: expected {expected}, got {got}")
