"""Tables of a file held against each other: a device slower than its like, GPU memory slower than host memory."""

import statistics
from collections.abc import Sequence

from ...units import counted, format_rate
from ..reading.tables import Rate, ReadTable
from .named_link import GOOD, SLOW_SOCKETS, SLOW_VERBS
from .shapes import SLOW_PAIR

LIKE = 2  # others of its kind that a slow one is held against, at least
_WAY = "ACS or the IOMMU is on the way from GPU to NIC, or they share no PCIe switch (topo --from lspci)"
_STAGED = (
    "the network is sound, and what lies in a GPU's memory goes through that of the host (no GPUDirect RDMA: "
    f"nvidia-peermem or dma-buf, a UCX or MPI built for CUDA), or {_WAY}"
)


def slow_beside(tables: Sequence[ReadTable], index: int) -> str:
    """Return that a device or a pair of hosts is slow beside the others that the same test measured, "" if it is not.

    Each is measured once: what was measured twice differed in something that the file may not say.
    """
    table = tables[index]
    like = [one for one in tables if one.subject and _test(one) == _test(table)]
    if not table.subject or len({one.subject for one in like}) < len(like) or len(like) <= LIKE:
        return ""
    others = statistics.median(_best(one.rates) for one in like if one is not table)
    own = _best(table.rates)
    if own >= SLOW_PAIR * others:
        return ""
    pace = "" if table.by_sockets else "; a ring over all of them goes at the pace of the slowest"
    return (
        f"slow beside {counted(len(like) - 1, 'other')} of the same test: {format_rate(own)}, and there "
        f"{format_rate(others)} ({100 * own / others:.0f} %{pace}): {SLOW_SOCKETS if table.by_sockets else SLOW_VERBS}"
    )


def from_host_memory(tables: Sequence[ReadTable], index: int, expected: float | None) -> str:
    """Return which test of the same kind between buffers in host memory was faster, "" where none was.

    With the rate to expect it must have reached that; without one, only been much faster.
    """
    table = tables[index]
    if "device" not in table.buffers:
        return ""
    best = max(
        (
            one
            for one in tables
            if "device" not in one.buffers and one.device == table.device and _test(one)[:3] == _test(table)[:3]
        ),
        default=None,
        key=lambda one: _best(one.rates),
    )
    enough = GOOD * expected if expected else _best(table.rates) / SLOW_PAIR
    if best is None or _best(best.rates) < enough:
        return ""
    return f"{best.name} reached {format_rate(_best(best.rates))}{_in_same_file(best, table)}"


def why_of_gpu_memory(table: ReadTable) -> str:
    """Return what keeps a test of GPU memory below one of host memory; verbs never copy through the host's."""
    return f"the network is sound, and {_WAY}" if table.by_verbs else _STAGED


def reached_beside(tables: Sequence[ReadTable], index: int, expected: float) -> str:
    """Return the test of the same file between two ends that reached what is expected of the link, "" for none."""
    of_rates = [one for at, one in enumerate(tables) if at != index and one.rates and not (one.host or one.both_ways)]
    best = max(of_rates, default=None, key=lambda one: _best(one.rates))
    if best is None or _best(best.rates) < GOOD * expected:
        return ""
    return f"{best.name} reached {format_rate(_best(best.rates))}{_in_same_file(best, tables[index])}"


def _in_same_file(one: ReadTable, other: ReadTable) -> str:
    """Return that two tables stand in one file, in words, "" where their names begin with those of several."""
    files = {table.name.partition(": ")[0] if ": " in table.name else "" for table in (one, other)}
    return " in the same file" if len(files) == 1 else ""


def _test(table: ReadTable) -> tuple[object, ...]:
    """Return what tables of the same test have in common."""
    sizes = {rate.bytes for rate in table.rates}
    kinds = {rate.what for rate in table.rates}
    return (table.tool, frozenset(kinds), table.both_ways, frozenset(sizes), table.buffers, table.may_bound)


def _best(rates: Sequence[Rate]) -> float:
    return max((rate.rate_bytes_per_s for rate in rates), default=0.0)
