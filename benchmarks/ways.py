"""All-gathers and all-to-alls on one host by each way of moving bytes: slots filled in two ways, or peers' memory read.

The ways alternate call by call, in the same processes. `taken` is the way that the backend finds by its own trials. A
machine that forbids to read other processes' memory has no rows of that way.
Options: --ranks 2 4, --sizes 256KiB 1MiB ..., --rounds N.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.contestants import KI, MI
from benchmarks.result import Result
from meshwright.backend.group.torch_compat import all_gather_single
from meshwright.backend.local.helper import FILLING_BYTES, Native
from meshwright.backend.local.slot_stores import KEPT, SlotStoresByCall, Way
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process
from meshwright.units import format_bytes, parse_bytes

SIZES = (512 * KI, MI, 2 * MI, 4 * MI, 8 * MI, 25 * MI, 128 * MI)
BRIEF_BYTES, BRIEF_CALLS = 4 * MI, 8  # up to here, as many calls of each way in a round


def run(arguments: list[str]) -> Result:
    """Return one row for each collective, number of ranks and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ways", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=parse_bytes, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    rows = []
    for ranks in options.ranks:
        with RankPool(ranks) as pool:
            measured = pool.run(_rank, options.sizes, options.rounds, timeout_s=900.0)
        rows += [_row(ranks, list(same)) for same in zip(*measured, strict=True)]
    notes = [
        f"microseconds, medians of {options.rounds} rounds in turns; the slowest rank counts; sizes are of the whole"
    ]
    return Result("ways of moving bytes on one host", rows, notes, keys=("ranks", "collective", "bytes"))


class Forced:
    """In place of what trials find out: one way for every call."""

    way = Way.THROUGH
    tries = False

    def of(self, collective: str, size_bytes: int, ways: int = 2) -> "Forced":
        """Return this way for every collective and size."""
        return self

    @property
    def best(self) -> Way:
        """The way."""
        return self.way

    def settle(self) -> int:
        """Return that it is asked for anew at every call."""
        return 1


def _row(ranks: int, found: list[tuple[str, int, dict[str, float], str]]) -> dict[str, Any]:
    name, size_bytes, times, taken = found[0]
    row: dict[str, Any] = {"collective": name, "ranks": ranks, "bytes": size_bytes, "size": format_bytes(size_bytes)}
    row |= {f"{way}_us": round(max(of_rank[2][way] for of_rank in found) * 1e6, 1) for way in times}
    return row | {"taken": taken}


def _rank(
    rank: int, world_size: int, store: dist.Store, sizes: list[int], rounds: int
) -> list[tuple[str, int, dict[str, float], str]]:
    """Return the median seconds of each way for every collective and size, and the way that trials find."""
    prepare_process(1)
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    native = dist.group.WORLD._engine.group.native  # type: ignore[union-attr]
    dist.all_to_all_single(torch.zeros(MI), torch.zeros(MI))  # large enough to find out whether memory may be read
    found = []
    for size_bytes in sizes:
        count = size_bytes // 4 // world_size
        whole, other, mine = torch.zeros(count * world_size), torch.ones(count * world_size), torch.ones(count)
        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "all_gather": (mine.nbytes, lambda to=whole, mine=mine: all_gather_single(to, mine)),  # type: ignore[misc]
            "all_to_all": (other.nbytes, lambda to=whole, of=other: dist.all_to_all_single(to, of)),  # type: ignore[misc]
        }
        for name, (filled_bytes, call) in calls.items():
            taken = _found_by_trials(native, call, f"mw_{name}", filled_bytes)
            found.append((name, size_bytes, _times(native, call, size_bytes, rounds), taken))
    dist.destroy_process_group()
    return found


def _found_by_trials(native: Native, call: Callable[[], object], name: str, filled_bytes: int) -> str:
    _decide_by(native, fillings := SlotStoresByCall())
    for _ in range(2 * KEPT * len(Way)):
        call()
    return fillings.of(name, filled_bytes, len(Way)).best.name.lower() if filled_bytes >= FILLING_BYTES else ""


def _decide_by(native: Native, ways: Any) -> None:
    """Have a group find its ways anew, by trials or as they are forced."""
    native._fillings = ways
    native._state.settled[:] = type(native._state.settled)()


def _times(native: Native, call: Callable[[], object], size_bytes: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of a call by each way that there is."""
    _decide_by(native, forced := Forced())
    times: dict[Way, list[float]] = {way: [] for way in Way if way != Way.READ or native._lends}
    for _ in range(rounds):
        for forced.way, taken_s in times.items():
            for _ in range(BRIEF_CALLS if size_bytes <= BRIEF_BYTES else 1):
                dist.barrier()
                start = time.perf_counter()
                call()
                taken_s.append(time.perf_counter() - start)
    return {way.name.lower(): statistics.median(taken_s) for way, taken_s in times.items()}
