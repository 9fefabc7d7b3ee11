"""From a plan to the engine that runs it: one function, one choice for each kind of layout."""

from torch import nn

from ..errors import InputError
from ..layout import Plan
from ..plan.layouts.legality import check_runnable
from ..workload.float8 import in_float8
from .data_parallel import DataParallel
from .device_mesh import Mesh
from .engine import Engine, Settings
from .pipeline.engine import PipelineEngine
from .spmd.engine import SpmdEngine
from .spmd.offload import check_offloadable
from .spmd.overlapped import check_overlappable


def build_engine(module: nn.Module, plan: Plan, settings: Settings) -> Engine:
    """Return the engine that trains `module` as the plan says; called on every rank of the default group.

    `module` is the whole unsplit model with the same weights on every rank, on `settings.device`; it belongs to the
    engine from then on. Raises InputError where the layout cannot be run.
    """
    layout = plan.layout
    check_runnable(layout, compiled=settings.compiled, precision=settings.float8)
    module = in_float8(module, settings.float8)
    check_offloadable(layout, settings.device, settings.host_store)
    if settings.async_tensor_parallel:
        check_overlappable(layout, settings.device)
    if layout.is_plain:
        return DataParallel(module, plan, settings)
    if settings.compression != "none":
        raise InputError(
            f"data_parallel.compression: {settings.compression} is of plain data parallelism, not of {layout}"
        )
    mesh = Mesh(layout, device_type=settings.device.type)
    if settings.async_tensor_parallel:
        check_overlappable(layout, settings.device, mesh.hosts)
    if layout.pp > 1:
        return PipelineEngine(module, mesh, plan, settings)
    return SpmdEngine(module, mesh, plan, settings)
