"""A traced rank: intervals of its device (or of its host, where it has none), and its calls."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .intervals import EMPTY, Array

PHASES = ("forward", "backward", "optimizer", "kernels")  # by number; "kernels": no host says in which phase


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One communication of one rank, as the device (or a library of the host) lasted on it."""

    name: str  # "all_reduce"
    start_s: float
    end_s: float
    launched_s: float  # on the clock of the same trace: orders calls that run at once
    bytes: int = 0
    group: str = ""  # what the trace calls the group; "" where it does not say
    group_text: str = ""
    group_size: int = 0
    ranks: str = ""  # of the group, as the trace writes them
    seq: int | None = None  # its number in the group
    peer: int = -1  # the rank that a send goes to, or that a receive is from; -1 where the trace does not say
    stream: int = -1  # of the device, where the trace says nothing of the group

    @property
    def detail(self) -> str:
        """Return the group for a reader."""
        if not self.group_size:
            return self.group_text
        return f"{self.group_size} ranks" + (f" of {self.group_text}" if self.group_text else "")


@dataclass(frozen=True, slots=True)
class Window:
    """One step of one rank, from its start to the start of the next."""

    number: int
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Return the seconds of the step."""
        return self.end_s - self.start_s


@dataclass(slots=True)
class HostTimeline:
    """When the host did what, on any thread."""

    data: Array = field(default_factory=lambda: EMPTY)  # in the data loader
    allocator: Array = field(default_factory=lambda: EMPTY)
    garbage: Array = field(default_factory=lambda: EMPTY)  # collecting garbage
    waiting: Array = field(default_factory=lambda: EMPTY)  # for the device
    operators: Array = field(default_factory=lambda: EMPTY)  # any operator, launch or copy call
    frames: dict[str, Array] = field(default_factory=dict)  # in long annotations, operators and frames, by their names

    @property
    def is_traced(self) -> bool:
        """Return whether anything of the host is in the trace."""
        return any(map(len, (self.data, self.allocator, self.garbage, self.waiting, self.operators)))


@dataclass(slots=True)
class Computed:
    """Every kernel (or every outermost operator of a host), in the order of the trace."""

    starts_s: npt.NDArray[np.float64]
    ends_s: npt.NDArray[np.float64]
    names: npt.NDArray[np.int32]  # index into `table`
    table: list[str]


@dataclass(slots=True)
class RankTrace:
    """One rank (one device of it). Times are seconds from `epoch_s` on."""

    source: str  # the file
    name: str  # what its rank may be told by
    rank: int | None
    host_name: str
    device: Literal["device", "host"]  # whose intervals these are
    label: str  # "" or which of several devices in one file
    epoch_ns: int
    compute: Array
    phases: dict[str, Array]  # of `compute`, by what is computed
    comm: Array
    copies: Array  # to the device; of a host without one, its time in the data loader
    other: Array  # to the host
    computed: Computed
    calls: list[TracedCall]
    host: HostTimeline
    windows: list[Window]
    marked: bool  # whether the trace marks steps; otherwise there is one window, the whole of it
    notes: tuple[str, ...] = ()
    origin: Literal["measured", "predicted", "simulated"] = "measured"
    world_size: int = 0  # ranks of the job, 0 where the trace does not say

    @property
    def begins_s(self) -> float:
        """Return when the first event of the trace begins."""
        host = self.host
        sets = (self.compute, self.comm, self.copies, self.other, host.data, host.allocator, host.garbage, host.waiting)
        firsts = [float(found[0, 0]) for found in (*sets, host.operators) if len(found)]
        return min([*firsts, *(window.start_s for window in self.windows)])
