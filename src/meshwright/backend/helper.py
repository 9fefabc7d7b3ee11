"""The optional C helper: built once where there is a compiler, loaded with ctypes, never required.

`MESHWRIGHT_HELPER=0` goes without it. It is compiled for the processor at hand into the user's cache folder, under a
name made of everything that the result depends on.
"""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native import compiled, load_compiled
from .filling import Fillings
from .memory import LINE
from .reductions import Reduction
from .waiting import CHECK_S

if TYPE_CHECKING:
    from .local import LocalGroup

SOURCE, BF16 = Path(__file__).with_name("helper.c"), Path(__file__).with_name("bf16.h")
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC")
MAX_RANKS = 256
FILLING_BYTES = 256 * 1024  # from here on it matters how slots are filled


class GroupState(ctypes.Structure):
    """The struct Group of helper.c."""

    _fields_ = (
        ("counters", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("slot_bytes", ctypes.c_int64),
        ("own_bytes", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("spins", ctypes.c_int64),
        ("yield_ns", ctypes.c_int64),
        ("patience_ns", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("phase", ctypes.c_int64),
        ("awaited_rank", ctypes.c_uint64),
        ("awaited_number", ctypes.c_uint64),
        ("streams", ctypes.c_int64),
        ("clocked", ctypes.c_int64),
        ("waited_ns", ctypes.c_int64),
    )


def load_helper() -> ctypes.CDLL | None:
    """Return the helper, built if need be; None where it is switched off or cannot be built."""
    return load_compiled(SOURCE, FLAGS, (BF16,), _declare)


def _declare(library: ctypes.CDLL) -> None:
    i64, u64, pointer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
    library.mw_wait.argtypes = (pointer, u64, i64, i64, i64)
    library.mw_wait_any.argtypes = (pointer, pointer, i64, pointer, i64, i64, i64, i64, i64)
    library.mw_sum.argtypes = (i64, pointer, pointer, i64, i64)
    library.mw_sum.restype = None
    library.mw_stream.argtypes = (pointer, pointer, i64)
    library.mw_stream.restype = None
    steps = (u64, i64, u64, u64, u64)  # sequence, turn, free_at of both slots, seen
    for function in (library.mw_all_reduce_whole, library.mw_all_reduce_pieces):
        function.argtypes = (pointer, pointer, i64, i64, *steps)
    step = (u64, i64, u64, u64)  # number, turn, free_at, seen
    library.mw_all_gather.argtypes = (pointer, pointer, pointer, pointer, i64, i64, *steps)
    library.mw_broadcast.argtypes = (pointer, pointer, i64, i64, *step)
    library.mw_all_to_all.argtypes = (pointer, pointer, pointer, pointer, pointer, i64, i64, *step)
    library.mw_reduce_scatter.argtypes = (pointer, pointer, pointer, pointer, i64, i64, i64, *steps)


class Native:
    """The helper's collectives and sums for one group. Addresses and sizes are given in the order of the ranks."""

    def __init__(self, library: ctypes.CDLL, state: GroupState) -> None:
        self._library = library
        self._state = state
        self._pointer = ctypes.addressof(state)
        self.whole = library.mw_all_reduce_whole
        self.pieces = library.mw_all_reduce_pieces
        self.stream = library.mw_stream
        self._fillings = Fillings()
        self._addresses: Any = ctypes.c_void_p * state.size
        self._sizes: Any = ctypes.c_int64 * state.size

    def all_reduce(self, group: "LocalGroup", address: int, count: int, kind: Reduction, *, pieces: bool) -> None:
        """Sum `count` elements at `address` over all ranks, in place, by the same steps as the Python code."""
        function = self.pieces if pieces else self.whole
        chunks = -(-count // (group.slot_bytes // kind.item_bytes))
        size_bytes = count * kind.item_bytes
        self._take(group, function, (address, count, kind.native), size_bytes, chunks, 2 if pieces else 1)

    def all_gather(
        self, group: "LocalGroup", source: int, targets: Sequence[int], sizes_bytes: Sequence[int], *, streams: bool
    ) -> None:
        """Copy from every rank to all; `streams`: past the caches."""
        most = max(sizes_bytes)
        arguments = (source, self._addresses(*targets), self._sizes(*sizes_bytes), most, streams)
        self._take(group, self._library.mw_all_gather, arguments, most, -(-most // group.slot_bytes))

    def broadcast(self, group: "LocalGroup", address: int, size_bytes: int, root: int) -> None:
        """Copy what fits into a slot from the root to all."""
        self._step(group, self._library.mw_broadcast, (address, size_bytes, root))

    def all_to_all(
        self,
        group: "LocalGroup",
        sources: Sequence[int],
        sent_bytes: Sequence[int],
        targets: Sequence[int],
        received_bytes: Sequence[int],
        *,
        block_bytes: int,
        steps: int,
    ) -> int:
        """Do the first step of an all-to-all; return how many steps it takes."""
        out = (self._addresses(*sources), self._sizes(*sent_bytes))
        back = (self._addresses(*targets), self._sizes(*received_bytes))
        group.seen = self._step(group, self._library.mw_all_to_all, (*out, *back, block_bytes, steps))
        needed, self._state.chunk = self._state.chunk, 0
        return int(needed)

    def reduce_scatter(
        self,
        group: "LocalGroup",
        sources: Sequence[int],
        target: int,
        counts: Sequence[int],
        kind: Reduction,
        *,
        block_bytes: int,
    ) -> None:
        """Sum block i of all ranks into rank i's target."""
        most = max(counts)
        arguments = (self._addresses(*sources), target, self._sizes(*counts), most, kind.native, block_bytes)
        chunks = -(-most // (block_bytes // kind.item_bytes))
        self._take(group, self._library.mw_reduce_scatter, arguments, most * kind.item_bytes, chunks)

    def _take(
        self,
        group: "LocalGroup",
        function: Any,
        arguments: tuple[Any, ...],
        size_bytes: int,
        chunks: int,
        steps_each: int = 1,
    ) -> None:
        """Do a whole collective in C: `chunks` slots full, in so many steps each."""
        arguments += (group.sequence, group.turn, *group.free, group.seen)
        if size_bytes < FILLING_BYTES:
            if not function(self._pointer, *arguments):
                self._insist(group, function, arguments)
        else:
            self._fill(group, function, arguments, size_bytes)
        group.sequence = group.seen = group.sequence + chunks * steps_each
        group.turn ^= chunks & 1
        group.free[group.turn] = group.sequence + 1
        if chunks > 1:
            group.free[group.turn ^ 1] = group.sequence + 1 - steps_each

    def _fill(self, group: "LocalGroup", function: Any, arguments: tuple[Any, ...], size_bytes: int) -> None:
        """Call a function in the way of filling slots that costs less, and note what it cost this thread."""
        state, filling = self._state, self._fillings.of(function.__name__, size_bytes)
        state.streams, state.clocked, state.waited_ns = filling.next(), 1, 0
        start_ns = time.thread_time_ns()
        try:
            if not function(self._pointer, *arguments):
                self._insist(group, function, arguments)
        finally:
            state.streams = state.clocked = 0
        filling.note((time.thread_time_ns() - start_ns - state.waited_ns) / size_bytes)

    def _step(self, group: "LocalGroup", function: Any, arguments: tuple[Any, ...]) -> int:
        """Take one step in C and return its number."""
        turn, number = group.turn ^ 1, group.sequence + 1
        arguments += (number, turn, group.free[turn], group.seen)
        if not function(self._pointer, *arguments):
            self._insist(group, function, arguments)
        group.turn, group.sequence = turn, number
        group.free[turn] = number + 1
        return number

    def _insist(self, group: "LocalGroup", function: Any, arguments: tuple[Any, ...]) -> None:
        """Go on with an interrupted call, with looks at the other ranks in between."""
        state, since = self._state, time.monotonic() - CHECK_S
        awaited = (state.awaited_rank, state.awaited_number)
        yield_ns, state.yield_ns = state.yield_ns, 0
        try:
            while True:
                now = time.monotonic()
                if (state.awaited_rank, state.awaited_number) != awaited:
                    awaited, since = (state.awaited_rank, state.awaited_number), now - CHECK_S
                group.check(awaited[0] * LINE, awaited[1], now - since)
                if function(self._pointer, *arguments):
                    return
        except BaseException:
            state.chunk = state.phase = 0
            raise
        finally:
            state.yield_ns = yield_ns


def build(folder: Path) -> Path:
    """Return the shared library for this machine in `folder`, compiling it if it is not there."""
    return compiled(SOURCE, FLAGS, folder, [BF16])
