"""The optional C helper: built once where there is a compiler, loaded with ctypes, never required.

`MESHWRIGHT_HELPER=0` goes without it. It is compiled for the processor at hand into the user's cache folder, under a
name made of everything that the result depends on.
"""

import ctypes
import platform
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...native import compiled, load_compiled
from .memory import LINE, SHORT_SLOTS, SLOTS, WORDS_OF_CALL
from .reductions import Reduction
from .slot_stores import SlotStores, SlotStoresByCall, Way
from .waiting import CHECK_S, OwnWait

SOURCE = Path(__file__).with_name("helper.c")
BF16 = SOURCE.with_name("bf16.h")
HEADERS = (SOURCE.with_name("helper.h"), BF16)
# Vectors of 64 bytes make all-reduces on AMD's Zen 4 a seventh slower; on Intel's, compilers choose 32 by themselves.
WIDTH = ("-mprefer-vector-width=256",) if platform.machine() == "x86_64" else ()
FLAGS = ("-O3", "-march=native", *WIDTH, "-std=gnu11", "-shared", "-fPIC")
MAX_RANKS = 256
COLLECTIVES = (  # in the order of helper.h
    *("mw_all_reduce", "mw_all_gather", "mw_reduce_scatter", "mw_broadcast", "mw_all_to_all", "mw_barrier"),
)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, _ = range(len(COLLECTIVES))
SIZES = 64  # as many powers of two
FILLING_BYTES = 256 * 1024  # from here on it matters how slots are filled, and whether they are
LENDING = (ALL_GATHER, ALL_TO_ALL)  # collectives in which ranks can read each other's memory in place of slots
CLAIM_BYTES = 1024 * 1024  # up to here, in all, what is read of a slot is in the caches when the slot is filled again


class GroupState(ctypes.Structure):
    """The struct Group of helper.h."""

    _fields_ = (
        ("sequence", ctypes.c_uint64),
        ("seen", ctypes.c_uint64),
        ("turn", ctypes.c_int64),
        ("longs", ctypes.c_int64),
        ("shorts", ctypes.c_int64),
        ("laps", ctypes.c_uint64 * SLOTS),
        ("free_at", ctypes.c_uint64 * (SLOTS + SHORT_SLOTS)),
        ("first", ctypes.c_uint64),
        ("chain", ctypes.c_uint64),
        ("asked", ctypes.c_uint64 * WORDS_OF_CALL),
        ("given", ctypes.c_int64 * 3),
        ("chunk", ctypes.c_int64),
        ("phase", ctypes.c_int64),
        ("begun", ctypes.c_int64),
        ("lends", ctypes.c_int64),
        ("lenders", ctypes.c_int64),
        ("sources", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("sent", ctypes.c_void_p),
        ("received", ctypes.POINTER(ctypes.c_int64)),
        ("counters", ctypes.c_void_p),
        ("calls", ctypes.c_void_p),
        ("pids", ctypes.POINTER(ctypes.c_int64)),
        ("lend_bytes", ctypes.c_int64),
        ("calls_words", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("slot_bytes", ctypes.c_int64),
        ("own_bytes", ctypes.c_int64),
        ("part_bytes", ctypes.c_int64),
        ("block_bytes", ctypes.c_int64),
        ("least_chunk_bytes", ctypes.c_int64),
        ("whole_bytes", ctypes.c_int64),
        ("stream_bytes", ctypes.c_int64),
        ("claim_bytes", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("spins", ctypes.c_int64),
        ("yield_ns", ctypes.c_int64),
        ("patience_ns", ctypes.c_int64),
        ("awaited_rank", ctypes.c_uint64),
        ("awaited_number", ctypes.c_uint64),
        ("settled", ctypes.c_int64 * 2 * SIZES * len(COLLECTIVES)),
        ("way", ctypes.c_int64),
        ("clocked", ctypes.c_int64),
        ("waited_ns", ctypes.c_int64),
        ("place", ctypes.c_int64),
        ("waits", ctypes.c_int64),
        ("odd_rank", ctypes.c_int64),
        ("odd_bytes", ctypes.c_int64),
        ("unread_rank", ctypes.c_int64),
    )


# Writing what is given in one go costs a fifth of what ctypes takes to hand over as many arguments.
_put, _GIVEN = struct.Struct("3q").pack_into, GroupState.given.offset


def load_helper() -> ctypes.CDLL | None:
    """Return the helper, built if need be; None where it is switched off or cannot be built."""
    return load_compiled(SOURCE, FLAGS, HEADERS, _declare)


def claim_bytes(library: ctypes.CDLL, readers: int) -> int:
    """Return the largest broadcast, in bytes, that `readers` readers claim; 0 if this processor cannot."""
    return CLAIM_BYTES // readers if library.mw_claims() else 0


def _declare(library: ctypes.CDLL) -> None:
    i64, u64, pointer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
    library.mw_wait.argtypes = (pointer, u64, i64, i64, i64)
    library.mw_wait_any.argtypes = (pointer, pointer, i64, pointer, i64, i64, i64, i64, i64)
    library.mw_short_turns.argtypes = (i64,)
    library.mw_may_read.argtypes = (i64,)
    library.mw_broadcast_fills.argtypes = (pointer, i64)
    library.mw_broadcast_fills.restype = i64
    library.mw_sum.argtypes = (i64, pointer, pointer, i64, i64)
    library.mw_sum.restype = None
    library.mw_stream.argtypes = (pointer, pointer, i64)
    library.mw_stream.restype = None
    for name in COLLECTIVES:
        getattr(library, name).argtypes = (pointer,)


class Native:
    """The helper's collectives and sums for one group. Addresses and sizes are given in the order of the ranks."""

    def __init__(
        self,
        library: ctypes.CDLL,
        state: GroupState,
        check: Callable[[int, int, float], None],
        all_may_read: Callable[[], bool],
    ) -> None:
        """`check(index, target, waited_s)` raises if a counter cannot reach its target any more; `all_may_read()` is
        whether each rank may read the others' memory, asked once all have come to a collective.
        """
        self._library = library
        self._check = check
        self._state = state
        self.address = ctypes.addressof(state)
        self.stream = library.mw_stream
        self._functions = [getattr(library, name) for name in COLLECTIVES]
        self._fillings = SlotStoresByCall()
        self._all_may_read = all_may_read
        self._lends: bool | None = None  # whether ranks may read each other's memory, once that is known
        self._sources, self._targets, self._sent, self._received = tables = [
            (ctypes.c_int64 * state.size)() for _ in range(4)
        ]
        state.sources, state.targets, state.sent = map(ctypes.addressof, tables[:3])
        state.received = self._received
        self._write = struct.Struct(f"{state.size}q").pack_into

    def all_reduce(self, address: int, count: int, kind: Reduction) -> None:
        """Sum `count` elements at `address` over all ranks, in place, by the same steps as the Python code."""
        self._call(ALL_REDUCE, count * kind.item_bytes, address, count, kind.native)

    def all_gather(self, source: int, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        """Copy from every rank to all."""
        self._write(self._targets, 0, *targets)
        self._write(self._received, 0, *sizes_bytes)
        self._call(ALL_GATHER, max(sizes_bytes), source)

    def broadcast(self, address: int, size_bytes: int, root: int) -> None:
        """Copy from the root to all."""
        is_short = size_bytes < FILLING_BYTES  # spares a small one the question
        filled_bytes = 0 if is_short else self._library.mw_broadcast_fills(self.address, size_bytes)
        self._call(BROADCAST, filled_bytes, address, size_bytes, root)

    def all_to_all(
        self, sources: Sequence[int], sent_bytes: Sequence[int], targets: Sequence[int], received_bytes: Sequence[int]
    ) -> None:
        """Copy from every rank to every rank."""
        self._write(self._sources, 0, *sources)
        self._write(self._sent, 0, *sent_bytes)
        self._write(self._targets, 0, *targets)
        self._write(self._received, 0, *received_bytes)
        self._call(ALL_TO_ALL, sum(sent_bytes))

    def reduce_scatter(self, sources: Sequence[int], target: int, counts: Sequence[int], kind: Reduction) -> None:
        """Sum block i of all ranks into rank i's target."""
        self._write(self._sources, 0, *sources)
        self._write(self._sent, 0, *counts)
        self._call(REDUCE_SCATTER, max(counts) * kind.item_bytes, target, kind.native)

    def _call(
        self, collective: int, filled_bytes: int, first: int = 0, second: int | None = 0, third: int | None = 0
    ) -> None:
        """Do a collective on what is given; `filled_bytes` are what it fills slots with, if in one of two ways."""
        _put(self._state, _GIVEN, first, second, third)
        self.run(collective, filled_bytes)

    def run(self, collective: int, filled_bytes: int) -> None:
        """Do a collective on what the state says that it was given, or go on with it."""
        function = self._functions[collective]
        if filled_bytes < FILLING_BYTES:
            self._finish(function)
            return
        ways = len(Way) if self._lends and collective in LENDING else len(Way) - 1
        filling = self._fillings.of(COLLECTIVES[collective], filled_bytes, ways)
        settled = self._state.settled[collective][filled_bytes.bit_length()]
        if not settled[0]:
            settled[:] = filling.settle(), filling.best
        if settled[0]:
            settled[0] -= 1
            self._state.way = settled[1]
            try:
                self._finish(function)
            finally:
                self._state.way = Way.THROUGH
        else:
            self._try(function, filling, filled_bytes)
            if self._lends is None and collective in LENDING:
                self._lends = self._all_may_read()  # here all ranks have come, and ask after the same call

    def _finish(self, function: Any) -> None:
        if not function(self.address):
            self._insist(function)

    def _try(self, function: Any, filling: SlotStores, size_bytes: int) -> None:
        """Call a function in the way of filling slots whose turn it is, and note what it cost this thread."""
        state = self._state
        state.way, state.clocked, state.waited_ns = filling.next(), 1, 0
        start_ns = time.thread_time_ns()
        try:
            self._finish(function)
        finally:
            state.way, state.clocked = Way.THROUGH, 0
        filling.note((time.thread_time_ns() - start_ns - state.waited_ns) / size_bytes)

    def _insist(self, function: Any) -> None:
        """Go on with an interrupted call, with looks at the other ranks in between."""
        state, waited = self._state, OwnWait(CHECK_S)
        awaited = (state.awaited_rank, state.awaited_number)
        yield_ns, state.yield_ns = state.yield_ns, 0
        try:
            while True:
                if (state.awaited_rank, state.awaited_number) != awaited:
                    awaited, waited = (state.awaited_rank, state.awaited_number), OwnWait(CHECK_S)
                self._check(awaited[0] * LINE, awaited[1], waited.seconds())
                if function(self.address):
                    return
        except BaseException:
            state.chunk = state.phase = state.begun = state.unread_rank = 0
            raise
        finally:
            state.yield_ns = yield_ns


def built_library(folder: Path) -> Path:
    """Return the shared library for this machine in `folder`, compiling it if it is not there."""
    return compiled(SOURCE, FLAGS, folder, HEADERS)
