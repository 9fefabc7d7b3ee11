"""From a plan to the engine that runs it: one function, one choice for each kind of layout."""

from torch import nn

from ..errors import InputError
from ..layout import Layout, Plan
from .data_parallel import DataParallel
from .engine import Engine, Settings
from .pipeline.engine import PipelineEngine


def build_engine(module: nn.Module, plan: Plan, settings: Settings) -> Engine:
    """Return the engine that trains `module` as the plan says; called on every rank of the default group.

    `module` is the whole unsplit model with the same weights on every rank, on `settings.device`; it belongs to the
    engine from then on. Raises InputError where the layout cannot be run.
    """
    check_runnable(plan.layout)
    if plan.layout.pp > 1:
        return PipelineEngine(module, plan, settings)
    return DataParallel(module, plan, settings)


def check_runnable(layout: Layout, where: str = "--layout") -> None:
    """Raise InputError unless there is an engine for `layout`."""
    plain = Layout(dp=layout.dp, mbs=layout.mbs, recompute=layout.recompute)
    if layout != plain or layout.recompute == "selective":
        raise InputError(
            f"{where} {layout}: train runs synchronous data parallelism (dp, mbs, recompute=none|full); "
            "tp, pp, cp, ep, zero and async layouts are not built yet"
        )
