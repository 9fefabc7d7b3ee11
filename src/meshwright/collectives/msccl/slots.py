"""The slot of a schedule for each chunk of an MSCCL program's buffers.

Input and output chunks are the payload chunks that they hold before and after. Where a program works out of place and
an output is the same payload chunk as an input, the input is the slot too if nothing but a copy of it is ever written
to the output; otherwise it is set aside in scratch slots first.
"""

from collections import defaultdict
from collections.abc import Iterator

from ...errors import InputError
from ..schedules.schedule import Transfer
from .file import COLLECTIVE_OF, Algo, MscclStep
from .order import HalfStep

Key = tuple[str, int]


class SlotMap:
    """The slots of all ranks' buffers; `fresh` gives more scratch slots."""

    def __init__(self, algo: Algo, events: list[HalfStep], where: str) -> None:
        self.algo = algo
        self.where = where
        self.collective = COLLECTIVE_OF[algo.collective]
        self.ranks = len(algo.gpus)
        self.chunks = self._count_chunks()
        self.set_aside: list[Transfer] = []
        self._aside: dict[tuple[int, int], int] = {}
        self._next = [self.chunks + max([*(gpu.slots or ()), gpu.sizes["s"] - 1]) + 1 for gpu in algo.gpus]
        self._next = [max(n, self.chunks + gpu.sizes["s"]) for n, gpu in zip(self._next, algo.gpus, strict=True)]
        for gpu in range(self.ranks):
            self._check_scratch(gpu)
        if not algo.in_place:
            self._set_inputs_aside(events)

    @property
    def scratch(self) -> int:
        """Scratch slots that each rank of the schedule needs."""
        return max(self._next) - self.chunks

    def fresh(self, gpu: int, count: int) -> tuple[int, ...]:
        """Return scratch slots that nobody uses yet."""
        start = self._next[gpu]
        self._next[gpu] += count
        return tuple(range(start, start + count))

    def of(self, gpu: int, place: Key, step: MscclStep) -> tuple[int, ...]:
        """Return the slots of the run of chunks that a step touches; InputError if the buffer is shorter."""
        buffer, offset = place
        if offset + step.count > self.algo.gpus[gpu].sizes[buffer]:
            raise InputError(
                f"{self.where}:{step.line}: chunks {offset} to {offset + step.count - 1} of buffer {buffer} of gpu "
                f"{gpu}, which has {self.algo.gpus[gpu].sizes[buffer]}"
            )
        return tuple(self._slot(gpu, buffer, at) for at in range(offset, offset + step.count))

    def is_identity(self, gpu: int, step: MscclStep) -> bool:
        """Return whether a local copy copies a slot onto itself, because input and output are one."""
        return step.type == "cpy" and self.of(gpu, step.src, step) == self.of(gpu, step.dst, step)

    def _slot(self, gpu: int, buffer: str, at: int) -> int:
        if buffer == "s":
            slots = self.algo.gpus[gpu].slots
            return self.chunks + at if slots is None else slots[at]
        slot = self.payload(gpu, buffer, at)
        return self._aside.get((gpu, slot), slot) if buffer == "i" else slot

    def payload(self, gpu: int, buffer: str, at: int) -> int:
        """Return the payload chunk that a place of an input or output buffer holds."""
        if self.collective == "all_to_all":
            per_pair = self.chunks // self.ranks**2
            peer, k = divmod(at, per_pair)
            src, dst = (gpu, peer) if buffer == "i" else (peer, gpu)
            return (src * self.ranks + dst) * per_pair + k
        per_rank = self.chunks // self.ranks
        is_own_part = self.collective in {"all_gather", "gather", "scatter", "reduce_scatter"} and (
            self.algo.gpus[gpu].sizes[buffer] == per_rank < self.chunks
        )
        return gpu * per_rank + at if is_own_part else at

    def _count_chunks(self) -> int:
        sizes = [gpu.sizes for gpu in self.algo.gpus]
        most = self.algo.buffer_chunks
        if self.algo.chunks_of_a_loop != most:
            raise InputError(
                f"{self.where}: nchunksperloop is {self.algo.chunks}, but the largest buffer has {most} chunks"
            )
        if self.collective == "all_to_all":
            if any(size["i"] != most or size["o"] != most for size in sizes) or most % self.ranks or not most:
                raise InputError(f"{self.where}: alltoall: expected {self.ranks} chunks (or a multiple) in i and in o")
            return most * self.ranks
        if self.collective in {"all_gather", "gather", "scatter", "reduce_scatter"}:
            if most % self.ranks or not most:
                raise InputError(f"{self.where}: {self.algo.collective}: expected a multiple of {self.ranks} chunks")
            part = most // self.ranks
            for gpu, size in zip(self.algo.gpus, sizes, strict=True):
                if {size["i"], size["o"]} - {0, part, most}:
                    raise InputError(f"{self.where}:{gpu.line}: expected buffers of {part} or {most} chunks")
        return most

    def _check_scratch(self, gpu: int) -> None:
        slots = self.algo.gpus[gpu].slots
        if slots is None:
            return
        sizes = self.algo.gpus[gpu].sizes
        payload = {self.payload(gpu, buffer, at) for buffer in "io" for at in range(sizes[buffer])}
        if len(set(slots)) < len(slots) or not payload.isdisjoint(slots):
            raise InputError(f"{self.where}:{self.algo.gpus[gpu].line}: s_slots: a slot that is taken")

    def _set_inputs_aside(self, events: list[HalfStep]) -> None:
        written: dict[tuple[int, int], set[Key | None]] = defaultdict(set)  # output: what is copied into it
        for gpu, place, source in _output_writes(events):
            written[gpu, self.payload(gpu, *place)].add(source)
        for gpu, description in enumerate(self.algo.gpus):
            for at in range(description.sizes["i"]):
                slot = self.payload(gpu, "i", at)
                if written.get((gpu, slot), set()) - {("i", at)}:
                    (aside,) = self.fresh(gpu, 1)
                    self._aside[gpu, slot] = aside
                    self.set_aside.append(Transfer(gpu, gpu, (slot,), to=(aside,)))


def _output_writes(events: list[HalfStep]) -> Iterator[tuple[int, Key, Key | None]]:
    """Yield rank, place and, for a plain copy from the input, source of everything that is written to an output."""
    for event in events:
        step = event.step
        if event.incoming and step.dst[0] == "o" and step.type not in {"nop", "rrs"}:
            for i in range(step.count):
                source = ("i", step.src[1] + i) if step.type == "cpy" and step.src[0] == "i" else None
                yield event.gpu, (step.dst[0], step.dst[1] + i), source
