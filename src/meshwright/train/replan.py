"""A plan for the ranks that are there: rank 0 makes it where there is none, or one for another number of them."""

import sys
from collections.abc import Callable
from datetime import timedelta

import msgspec
import torch.distributed as dist

from ..errors import InputError
from ..units import counted
from .config import JobConfig
from .events import Event, EventLog
from .prepare import prepare, write_run
from .run_folder import RunFolder

PLANNED = "meshwright/planned"  # in the store: what went wrong while rank 0 planned, or ""
PLANNING_S = 600.0  # the least that others wait for the plan: machines are measured for it


def ensure_planned(
    config: JobConfig,
    folder: RunFolder,
    *,
    rank: int,
    ranks: int,
    new: bool = False,
    own: Callable[[], object] = lambda: None,
) -> None:
    """Return once the run folder has a plan for `ranks`; called on all of them, and raises the same InputError on all.

    With `new`, a folder that holds a run already is refused. `own` is called on rank 0 before it looks at the folder,
    and may refuse as well.
    """
    problem = ""
    if rank == 0:
        owns = False
        try:
            own()
            owns = True
            _plan(config, folder, ranks, new=new)
        except InputError as error:
            problem = str(error)
            if owns:
                folder.forget_secret()
    if ranks > 1:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set(PLANNED, problem)
        else:
            store.wait([PLANNED], timedelta(seconds=max(config.launch.timeout_s, PLANNING_S)))
            problem = store.get(PLANNED).decode()
    if problem:
        raise InputError(problem)


def _plan(config: JobConfig, folder: RunFolder, ranks: int, *, new: bool) -> None:
    if new or not folder.holds_a_run():
        write_run(prepare(config, folder.path, ranks=ranks, say=_say), folder.path)
        return
    before = folder.plan().layout
    if before.world_size == ranks:
        return
    try:
        prepared = prepare(config, None, ranks=ranks, say=_say)
    except InputError:
        if not config.launch.layout:
            raise
        free = msgspec.structs.replace(config.launch, layout="")  # the fixed layout does not fit this number of ranks
        prepared = prepare(msgspec.structs.replace(config, launch=free), None, ranks=ranks, say=_say)
    folder.write_plan(prepared.cluster, prepared.plan, prepared.predicted_timeline)
    text = (
        f"{counted(ranks, 'rank')} in place of {before.world_size}: layout {prepared.plan.layout} in place of {before}"
    )
    EventLog(folder.events, 0).record(Event(kind="replan", message=text))
    _say(text)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
