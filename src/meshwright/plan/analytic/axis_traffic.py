"""Seconds of what a layer sends along one axis of the mesh, from the step's program."""

from collections.abc import Iterable

from ...workload.program import Comm
from .coefficients import Coefficients
from .collective import AxisPlacement, all_reduce_s, gather_s
from .quantities import Number


class Axis:
    """One axis as it lies over the nodes; each collective of a size is priced once."""

    def __init__(self, c: Coefficients, over: AxisPlacement) -> None:
        self._c, self._over = c, over
        self._known: list[tuple[bool, Number, Number]] = []  # whether an all-reduce, bytes, seconds

    def total_s(self, comms: Iterable[Comm]) -> Number:
        """Return the seconds of all calls of gathers, scatters and all-reduces, one after the other."""
        return sum(comm.calls * self.call_s(comm) for comm in comms if not is_never(comm))

    def call_s(self, comm: Comm, many: Number = 1.0) -> Number:
        """Return the seconds of one call of `many` that have its bytes; a reduce-scatter takes as long as a gather."""
        summed = comm.collective == "all_reduce"
        for kind, size_bytes, seconds in self._known:
            if kind == summed and size_bytes is comm.bytes:
                return seconds
        priced = all_reduce_s if summed else gather_s
        seconds = priced(self._c, self._over, comm.bytes / many)
        self._known.append((summed, comm.bytes, seconds))
        return seconds


def is_never(comm: Comm) -> bool:
    """Return whether no layout calls a collective."""
    return isinstance(comm.calls, int | float) and not comm.calls
