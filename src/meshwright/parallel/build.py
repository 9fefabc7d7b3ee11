"""From a plan to the engine that runs it: one function, one choice for each kind of layout."""

from torch import nn

from ..errors import InputError
from ..layout import Layout, Plan
from .compiled import check_compilable
from .data_parallel import DataParallel
from .engine import Engine, Settings
from .mesh import Mesh
from .overlapped import check_overlappable
from .pipeline.engine import PipelineEngine
from .sharded import Sharded


def build_engine(module: nn.Module, plan: Plan, settings: Settings) -> Engine:
    """Return the engine that trains `module` as the plan says; called on every rank of the default group.

    `module` is the whole unsplit model with the same weights on every rank, on `settings.device`; it belongs to the
    engine from then on. Raises InputError where the layout cannot be run.
    """
    layout = plan.layout
    check_runnable(layout, compiled=settings.compiled)
    if settings.async_tensor_parallel:
        check_overlappable(layout, settings.device.type)
    if layout.is_plain:
        return DataParallel(module, plan, settings)
    if settings.compression != "none":
        raise InputError(
            f"data_parallel.compression: {settings.compression} is of plain data parallelism, not of {layout}"
        )
    mesh = Mesh(layout, device_type=settings.device.type)
    if settings.async_tensor_parallel:
        check_overlappable(layout, settings.device.type, mesh.hosts)
    if layout.pp > 1:
        return PipelineEngine(module, mesh, plan, settings)
    return Sharded(module, mesh, plan, settings)


def check_runnable(layout: Layout, where: str = "--layout", *, compiled: bool = False) -> None:
    """Raise InputError unless there is an engine for `layout`, one that can run compiled layers where asked for."""
    if compiled:
        check_compilable(layout, where)
    if layout.mode != "sync":
        raise InputError(f"{where} {layout}: of asynchronous training, data_parallel.mode says the mode")
    problem = _pipeline_problem(layout) if layout.pp > 1 else ""
    if problem:
        raise InputError(f"{where} {layout}: {problem}")


def _pipeline_problem(layout: Layout) -> str:
    """Return why a pipeline cannot be combined with the other switches, "" where it can."""
    if layout.schedule == "zb" and layout.zero >= 2 and layout.recompute != "none":
        return (
            "schedule=zb goes through a layer's backward twice, and FSDP2 (zero=2 and 3) takes what the second one "
            "recomputes for a forward pass; use recompute=none, zero=0 or 1, or another schedule"
        )
    if layout.schedule == "zb" and layout.recompute == "selective":
        return "schedule=zb goes through a layer's backward twice, recompute=selective only once; use none or full"
    if layout.schedule == "zb" and layout.vpp > 1 and layout.zero >= 2:
        return (
            "zero=2 and 3 shard stages apart, and schedule=zb, vpp=2 has the first and the last one, which may share "
            "parameters, on one rank; use zero=0 or 1, vpp=1, or schedule=interleaved"
        )
    return ""
