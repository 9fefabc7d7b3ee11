"""The lookout of one rank: shares how long it worked in each step, and writes down which rank or link is slow.

The figures ride on the sum that every step makes anyway. Rank 0 judges the ranks; each rank judges its own links.
"""

import json
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ..backend.group import GroupBase
from ..backend.link_rates import LinkRates
from ..layout import Layout
from .events import Event, EventLog, Kind, this_host
from .recorder import Recorder
from .run_folder import RunFolder
from .stragglers import Finding, SlowLinks, SlowRanks

WARM_UP_STEPS = 5  # are not compared
WORK = ("forward_s", "backward_s", "optimizer_s", "data_s")  # the parts of a step that are a rank's own


class Lookout:
    """Finds stragglers while a job runs; without the recorder only slow links."""

    def __init__(self, recorder: Recorder, events: EventLog, folder: RunFolder, layout: Layout, *, rank: int) -> None:
        self._recorder, self._events, self._folder = recorder, events, folder
        self._rank, self._ranks = rank, layout.world_size
        self._slow_ranks = SlowRanks(self._ranks, own_baseline=layout.pp > 1)
        self._slow_links = SlowLinks(rank)
        group = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
        self._links: LinkRates | None = group.link_rates() if isinstance(group, GroupBase) else None

    def share(self) -> Tensor:
        """Return what this rank adds to the sum over all ranks: how long it worked in the step before, at its place."""
        figures = torch.zeros(self._ranks, dtype=torch.float64)
        if self._recorder.parts:
            parts = self._recorder.parts[-1]
            figures[self._rank] = sum(parts.get(name, 0.0) for name in WORK)
        return figures

    def look(self, step: int, busy_s: Sequence[float]) -> list[str]:
        """Judge a step by what all ranks shared; write down and return what is new."""
        said = []
        if self._rank == 0 and self._ranks > 1 and all(busy_s) and self._recorder.steps > WARM_UP_STEPS:
            said += [self._record("slow_rank", step, found) for found in self._slow_ranks.observe(busy_s)]
        if self._links is not None:
            said += [self._record("slow_link", step, found) for found in self._slow_links.observe(self._links.take())]
        return said

    def _record(self, kind: Kind, step: int, found: Finding) -> str:
        host = self._host_of(found.culprit)
        where = f"{this_host()} to {host}" if kind == "slow_link" else host
        text = f"{found.message}, {where}"
        self._events.record(
            Event(kind=kind, message=text, culprit=found.culprit, host=host, step=step, evidence=found.evidence)
        )
        return text

    def _host_of(self, rank: int) -> str:
        try:
            return str(json.loads((self._folder.ranks / f"{rank}.json").read_bytes())["host"])
        except (OSError, ValueError, KeyError):
            return "host unknown"
