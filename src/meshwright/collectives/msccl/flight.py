"""Messages in flight: the number that each connection of an MSCCL program must hold so that no block waits for ever.

A runtime's connection has few buffers: a send waits while all are full. Whether the blocks then wait for each other in
a circle does not depend on which goes first, since each block takes its steps in order and every connection has one
sender and one receiver: one run of the blocks decides. Where it is stuck, one more buffer on the first full connection
lets it go on; what that takes in the end is what the program needs.
"""

from collections import defaultdict
from typing import NamedTuple

from .file import Algo, MscclStep

# buffers of a connection: NCCL_STEPS 8 over MSCCL_CHUNKSTEPS 4 with Simple, over 1 with the others
HELD = {"Simple": 2, "LL": 8, "LL128": 8}
Connection = tuple[int, int, int]  # sender, receiver, channel


class InFlight(NamedTuple):
    """The connection that must hold most at once."""

    needed: int
    connection: Connection

    def __str__(self) -> str:
        sender, receiver, channel = self.connection
        return f"{self.needed} in flight on {sender}>{receiver} channel {channel}"


def flight(algo: Algo, held: int, *, by_chunk: bool = False) -> InFlight | None:
    """Return the most that some connection must hold, None where `held` buffers of each are enough.

    A message takes one buffer; `by_chunk`, one for each of its chunks, as where a chunk fills a buffer. The program
    must be one that ends with connections that hold everything (`order`).
    """
    return _Run(algo, held, by_chunk).needed()


class _Run:
    """One run of all blocks with bounded connections."""

    def __init__(self, algo: Algo, held: int, by_chunk: bool) -> None:
        self._blocks = [(gpu, b, block) for gpu, d in enumerate(algo.gpus) for b, block in enumerate(d.blocks)]
        self._held, self._by_chunk = held, by_chunk
        self._room: dict[Connection, int] = defaultdict(lambda: held)
        self._waiting: dict[Connection, int] = defaultdict(int)  # messages on their way
        self._at = [0] * len(self._blocks)  # step of each block,
        self._part = [0] * len(self._blocks)  # and how many of its messages are through
        self._half = [False] * len(self._blocks)  # and whether one is received and not yet sent on
        self._done = {(gpu, b): -1 for gpu, b, _ in self._blocks}

    def needed(self) -> InFlight | None:
        while True:
            moved = [i for i in range(len(self._blocks)) if self._advance(i)]
            if moved:
                continue
            full = [key for i in range(len(self._blocks)) if (key := self._full(i)) is not None]
            if not full:
                break
            self._room[min(full)] += 1
        most = max(self._room.items(), key=lambda item: (item[1], [-n for n in item[0]]), default=None)
        return InFlight(most[1], most[0]) if most is not None and most[1] > self._held else None

    def _advance(self, i: int) -> bool:
        """Let a block go as far as it can; return whether it moved."""
        gpu, number, block = self._blocks[i]
        moved = False
        while self._at[i] < len(block.steps):
            step = block.steps[self._at[i]]
            if step.wait_for is not None and self._part[i] == 0 and not self._half[i]:
                other, least = step.wait_for
                if self._done.get((gpu, other), -1) < least:
                    return moved
            if not self._take(i, step):
                return moved
            moved = True
            if self._part[i] >= (step.count if self._by_chunk else 1):
                if step.can_tell:
                    self._done[gpu, number] = self._at[i]
                self._at[i], self._part[i] = self._at[i] + 1, 0
        return moved

    def _take(self, i: int, step: MscclStep) -> bool:
        """Take one message of a step, or half of one; return whether it could."""
        gpu, _, block = self._blocks[i]
        if step.receives and not self._half[i]:
            assert block.receive is not None
            incoming = (block.receive, gpu, block.channel)
            if not self._waiting[incoming]:
                return False
            self._waiting[incoming] -= 1
            if step.sends:
                self._half[i] = True
                return True
        if step.sends:
            assert block.send is not None
            outgoing = (gpu, block.send, block.channel)
            if self._waiting[outgoing] >= self._room[outgoing]:
                return False
            self._waiting[outgoing] += 1
            self._half[i] = False
        self._part[i] += 1
        return True

    def _full(self, i: int) -> Connection | None:
        """Return the full connection that a block waits for, if it does."""
        gpu, _, block = self._blocks[i]
        if self._at[i] >= len(block.steps) or block.send is None:
            return None
        step = block.steps[self._at[i]]
        key = (gpu, block.send, block.channel)
        begun = self._part[i] or self._half[i] or step.wait_for is None
        ready = begun or (step.wait_for and self._done.get((gpu, step.wait_for[0]), -1) >= step.wait_for[1])
        waits = step.sends and (self._half[i] or not step.receives)
        return key if ready and waits and self._waiting[key] >= self._room[key] else None
