"""The optional C helper: built once where there is a compiler, loaded with ctypes, never required.

`MESHWRIGHT_HELPER=0` goes without it. It is compiled for the processor at hand into the user's cache folder, under a
name made of everything that the result depends on.
"""

import ctypes
import functools
import logging
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native import HELPER_VARIABLE, cache_folder, compiled
from .memory import LINE
from .reductions import Reduction
from .waiting import CHECK_S, SLEEP_S

if TYPE_CHECKING:
    from .local import LocalGroup

SOURCE = Path(__file__).with_name("helper.c")
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC")
MAX_RANKS = 256
PATIENCE_NS = 2_000_000  # how long C waits before Python looks for dead ranks
_log = logging.getLogger(__name__)


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
        ("patience_ns", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("phase", ctypes.c_int64),
        ("awaited_rank", ctypes.c_uint64),
        ("awaited_number", ctypes.c_uint64),
    )


def load_helper() -> ctypes.CDLL | None:
    """Return the helper, built if need be; None where it is switched off or cannot be built."""
    if os.environ.get(HELPER_VARIABLE) == "0":
        return None
    return _load()


@functools.cache
def _load() -> ctypes.CDLL | None:
    try:
        path = build(cache_folder())
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("the C helper is not used: %s", error)
        return None
    library = ctypes.CDLL(str(path))
    i64, u64, pointer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
    library.mw_wait.argtypes = (pointer, u64, i64, i64)
    library.mw_sum.argtypes = (i64, pointer, pointer, i64, i64)
    library.mw_sum.restype = None
    library.mw_stream.argtypes = (pointer, pointer, i64)
    library.mw_stream.restype = None
    for function in (library.mw_all_reduce_whole, library.mw_all_reduce_pieces):
        function.argtypes = (pointer, pointer, i64, i64, u64, i64, u64, u64, u64)
    step = (u64, i64, u64, u64)  # number, turn, free_at, seen
    library.mw_all_gather.argtypes = (pointer, pointer, pointer, pointer, *step)
    library.mw_broadcast.argtypes = (pointer, pointer, i64, i64, *step)
    library.mw_all_to_all.argtypes = (pointer, pointer, pointer, pointer, pointer, i64, i64, *step)
    library.mw_reduce_scatter.argtypes = (pointer, pointer, pointer, pointer, i64, i64, *step)
    return library


class Native:
    """The helper's collectives and sums for one group. Addresses and sizes are given in the order of the ranks."""

    def __init__(self, library: ctypes.CDLL, state: GroupState) -> None:
        self._library = library
        self._state = state
        self._pointer = ctypes.addressof(state)
        self.whole = library.mw_all_reduce_whole
        self.pieces = library.mw_all_reduce_pieces
        self.stream = library.mw_stream
        self._addresses: Any = ctypes.c_void_p * state.size
        self._sizes: Any = ctypes.c_int64 * state.size

    def all_reduce(self, group: "LocalGroup", address: int, count: int, kind: Reduction, *, pieces: bool) -> None:
        """Sum `count` elements at `address` over all ranks, in place, by the same steps as the Python code."""
        function = self.pieces if pieces else self.whole
        code, sequence, turn, (free0, free1), seen = kind.native, group.sequence, group.turn, group.free, group.seen
        if not function(self._pointer, address, count, code, sequence, turn, free0, free1, seen):
            self._insist(group, function, (address, count, code, sequence, turn, free0, free1, seen))
        chunks = -(-count // (group.slot_bytes // kind.item_bytes))
        steps = 2 if pieces else 1
        group.sequence = group.seen = sequence + chunks * steps
        group.turn = turn ^ (chunks & 1)
        group.free[group.turn] = group.sequence + 1
        if chunks > 1:
            group.free[group.turn ^ 1] = group.sequence + 1 - steps

    def all_gather(self, group: "LocalGroup", source: int, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        """Copy what fits into a slot from every rank to all."""
        arguments = (source, self._addresses(*targets), self._sizes(*sizes_bytes))
        group.seen = self._step(group, self._library.mw_all_gather, arguments)

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
        """Sum what fits into the parts of a slot."""
        arguments = (self._addresses(*sources), target, self._sizes(*counts), kind.native, block_bytes)
        group.seen = self._step(group, self._library.mw_reduce_scatter, arguments)

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
        """Go on with an interrupted call, with sleeps and looks at the other ranks in between."""
        state = self._state
        patience_ns, state.patience_ns = state.patience_ns, 0
        awaited, since = (state.awaited_rank, state.awaited_number), time.monotonic()
        next_check = since + CHECK_S
        try:
            while not function(self._pointer, *arguments):
                now = time.monotonic()
                if (state.awaited_rank, state.awaited_number) != awaited:
                    awaited, since = (state.awaited_rank, state.awaited_number), now
                if now >= next_check:
                    group.check(awaited[0] * LINE, awaited[1], now - since)
                    next_check = now + CHECK_S
                time.sleep(SLEEP_S)
        except BaseException:
            state.chunk = state.phase = 0
            raise
        finally:
            state.patience_ns = patience_ns

    def sum(self, kind: Reduction, out: int, inputs: Sequence[int], count: int) -> None:
        """Sum the elements at the addresses `inputs`, in their order, into those at `out`."""
        addresses = (ctypes.c_void_p * len(inputs))(*inputs)
        self._library.mw_sum(kind.native, out, addresses, len(inputs), count)


def build(folder: Path) -> Path:
    """Return the shared library for this machine in `folder`, compiling it if it is not there."""
    return compiled(SOURCE, FLAGS, folder)
