"""From a plan to the engine that runs it: one function, one choice for each kind of layout."""

from torch import nn

from ..errors import InputError
from ..layout import Layout, Plan
from .data_parallel import DataParallel
from .engine import Engine, Settings
from .mesh import Mesh
from .sharded import Sharded


def build_engine(module: nn.Module, plan: Plan, settings: Settings) -> Engine:
    """Return the engine that trains `module` as the plan says; called on every rank of the default group.

    `module` is the whole unsplit model with the same weights on every rank, on `settings.device`; it belongs to the
    engine from then on. Raises InputError where the layout cannot be run.
    """
    layout = plan.layout
    check_runnable(layout)
    if layout == plain(layout):
        return DataParallel(module, plan, settings)
    if settings.compression != "none":
        raise InputError(
            f"data_parallel.compression: {settings.compression} is of plain data parallelism, not of {layout}"
        )
    return Sharded(module, Mesh(layout, device_type=settings.device.type), plan, settings)


def plain(layout: Layout) -> Layout:
    """Return the plain data-parallel layout with the same dp, mbs and recomputation."""
    return Layout(dp=layout.dp, mbs=layout.mbs, recompute=layout.recompute)


def check_runnable(layout: Layout, where: str = "--layout") -> None:
    """Raise InputError unless there is an engine for `layout`."""
    if layout.pp > 1 or layout.mode != "sync":
        raise InputError(f"{where} {layout}: pipelines and async layouts are not built yet")
