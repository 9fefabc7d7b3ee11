"""A plan for the ranks that are there: rank 0 makes it where there is none, or one for another number of them.

A plan that the run had for that number of ranks before is taken up again: the machines that were lost are back, nothing
is measured, and sums have the order that they had. A plan is made anew as well where the run's configuration has come
to ask for another layout or number of ranks than any of its plans has: a layout that is asked for is the one that runs.
"""

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta

import msgspec
import torch.distributed as dist

from ..errors import InputError
from ..layout import Layout
from ..units import counted
from .job.config import JobConfig
from .prepare import prepare, wanted_layout, write_run
from .run.events import Event, EventLog
from .run.run_folder import RunFolder

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
        if asks_for_another(config, folder, ranks):
            plan_anew(config, folder, ranks)
        return
    with contextlib.suppress(OSError, InputError):  # then it is made anew when it is needed again
        folder.keep_plan()
    layout = _taken_up(config, folder, ranks) or _planned_anew(config, folder, ranks)
    text = f"{counted(ranks, 'rank')} in place of {before.world_size}: layout {layout} in place of {before}"
    EventLog(folder.events, 0).record(Event(kind="replan", message=text))
    _say(text)


def asks_for_another(config: JobConfig, folder: RunFolder, ranks: int | None = None) -> bool:
    """Return whether the configuration fixes a layout, or a number of ranks, that none of the run's plans has.

    `ranks` is the number that an external launcher has started: a layout that does not go with it asks for nothing, for
    the run had to go on with fewer. Without it such a layout is an InputError.
    """
    layouts = {plan.layout for plan in folder.plans_of_the_run()}
    try:
        wanted = wanted_layout(config, ranks)
    except InputError:
        if ranks is None:
            raise
        return False
    if wanted is not None:
        return wanted not in layouts
    fixed = 0 if ranks else config.launch.ranks
    return bool(fixed) and fixed not in {layout.world_size for layout in layouts}


def plan_anew(config: JobConfig, folder: RunFolder, ranks: int | None = None) -> None:
    """Write the plan that the configuration now asks for, in the place of all that the run had."""
    before = folder.plan().layout
    prepared = prepare(config, None, ranks=ranks, say=_say)
    folder.forget_plans()
    folder.write_plan(prepared.cluster, prepared.plan, prepared.predicted_timeline)
    text = f"launch: layout {prepared.plan.layout} in place of {before}"
    EventLog(folder.events, 0).record(Event(kind="replan", message=text))
    _say(text)


def _taken_up(config: JobConfig, folder: RunFolder, ranks: int) -> Layout | None:
    """Take up the plan that this job had for that number of ranks before; return its layout, None where it had none."""
    kept = folder.kept_plan(ranks)
    if kept is None or (kept.global_batch_sequences, kept.seq_len) != (config.train.global_batch, config.data.seq_len):
        return None
    if kept.model and kept.model != msgspec.to_builtins(config.model):
        return None
    folder.take_up_plan(ranks)
    return kept.layout


def _planned_anew(config: JobConfig, folder: RunFolder, ranks: int) -> Layout:
    """Write a plan for that number of ranks, and return its layout."""
    try:
        prepared = prepare(config, None, ranks=ranks, say=_say)
    except InputError:
        if not config.launch.layout:
            raise
        free = msgspec.structs.replace(config.launch, layout="")  # the fixed layout does not fit this number of ranks
        prepared = prepare(msgspec.structs.replace(config, launch=free), None, ranks=ranks, say=_say)
    folder.write_plan(prepared.cluster, prepared.plan, prepared.predicted_timeline)
    return prepared.plan.layout


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
