"""The monitor of one rank: shares how long it worked in each step, and writes down which rank or link is slow.

Beside its work each rank shares how long it waited for a core (Linux's run queue, /proc/thread-self/schedstat).

The figures ride on the sum that every step makes anyway. Rank 0 judges the ranks; each rank judges its own links.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ...backend.group.base import GroupBase
from ...backend.hosts.link_rates import LinkRates
from ...cluster.discovery.local import usable_cores
from ...cluster.emulation.inside import surrounding_cluster
from ...layout import Layout
from ...machine_load import run_queue_s
from ..job.environment import ranks_on_this_host
from ..run.events import Event, EventLog, Kind, this_host
from ..run.run_folder import RunFolder
from .recorder import WARM_UP_STEPS, Recorder
from .stragglers import SlowLinks, SlowRanks, Straggler

WORK = ("forward_s", "backward_s", "optimizer_s", "data_s")  # the parts of a step that are a rank's own


class StragglerMonitor:
    """Finds stragglers while a job runs; without the recorder only slow links."""

    def __init__(self, recorder: Recorder, events: EventLog, folder: RunFolder, layout: Layout, *, rank: int) -> None:
        self._recorder, self._events, self._folder = recorder, events, folder
        self._rank, self._ranks = rank, layout.world_size
        self._slow_ranks = SlowRanks(self._ranks, own_baseline=layout.pp > 1, crowded=is_crowded(self._ranks))
        self._waited_s, self._waited_before_s = 0.0, waited_for_a_core_s()  # in the step before; until its end
        self._slow_links = SlowLinks(rank)
        group = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
        self._links: LinkRates | None = group.link_rates() if isinstance(group, GroupBase) else None

    @property
    def places(self) -> int:
        """The number of figures that a rank adds to the sum."""
        return 2 * self._ranks

    def contribute(self) -> Tensor:
        """Return what this rank adds to the sum over all ranks: seconds of the step before, each at its place.

        The first `ranks` are how long it worked, the others how long it waited for a core.
        """
        figures = torch.zeros(self.places, dtype=torch.float64)
        if self._recorder.parts:
            parts = self._recorder.parts[-1]
            figures[self._rank] = sum(parts.get(name, 0.0) for name in WORK)
        figures[self._ranks + self._rank] = self._waited_s
        now_s = waited_for_a_core_s()
        self._waited_s, self._waited_before_s = now_s - self._waited_before_s, now_s
        return figures

    def disk_refuses(self) -> None:
        """Compare ranks anew from here on: one whose disk takes nothing is held up by that, which is told of."""
        self._slow_ranks.forget()

    def judge(self, step: int, shared: Sequence[float]) -> list[str]:
        """Judge a step by what all ranks shared; write down and return what is new."""
        said = []
        busy_s, waited_s = shared[: self._ranks], shared[self._ranks : self.places]
        if self._rank == 0 and self._ranks > 1 and all(busy_s) and self._recorder.steps > WARM_UP_STEPS:
            slow = self._slow_ranks.observe(busy_s, waited_s, now_s=time.monotonic())
            said += [self._record("slow_rank", step, found) for found in slow]
        if self._links is not None:
            links = self._slow_links.observe(self._links.take(), waited_s)
            said += [self._record("slow_link", step, found) for found in links]
        return said

    def _record(self, kind: Kind, step: int, found: Straggler) -> str:
        host = self.host_of(found.culprit)
        where = f"{this_host()} to {host}" if kind == "slow_link" else host
        text = f"{found.message}, {where}"
        self._events.record(
            Event(kind=kind, message=text, culprit=found.culprit, host=host, step=step, evidence=found.evidence)
        )
        return text

    def host_of(self, rank: int) -> str:
        """Return the host of a rank, as it has written it down."""
        try:
            return str(json.loads((self._folder.ranks / f"{rank}.json").read_bytes())["host"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "host unknown"


def is_crowded(ranks: int) -> bool:
    """Return whether more of a job's `ranks` than there are cores share this machine; an emulated cluster is one."""
    here = ranks if surrounding_cluster() else ranks_on_this_host(os.environ, ranks)
    return here > usable_cores()


def waited_for_a_core_s() -> float:
    """Return how long this thread has stood in the run queue; 0 where the kernel does not count."""
    return run_queue_s(Path("/proc/thread-self/schedstat"))
