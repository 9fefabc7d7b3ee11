"""torch.compile by option: each layer by itself, so that equal layers share one compilation."""

from torch import nn

from ..errors import InputError
from ..layout import Layout


def check_compilable(layout: Layout, where: str = "--layout") -> None:
    """Raise InputError where a layout puts communication or its own bookkeeping inside a layer."""
    inside = [axis for axis in ("tp", "cp", "ep") if getattr(layout, axis) > 1]
    if inside:
        raise InputError(f"{where} {layout}: {inside[0]} communicates inside layers, which cannot be compiled so")
    if layout.schedule == "zb" and layout.pp > 1:
        raise InputError(f"{where} {layout}: schedule=zb splits the backward of a layer, which compilation joins")
    if layout.recompute == "selective":
        raise InputError(
            f"{where} {layout}: recompute=selective tells single operators apart, which compilation fuses; "
            "use none or full"
        )


def compile_layers(module: nn.Module) -> None:
    """Compile the layers of every ModuleList in place, or the whole module where it has none."""
    from torch._dynamo import config as dynamo  # seconds that nobody else waits for

    dynamo.optimize_ddp = False  # it cuts graphs at DDP's buckets; a layer is less than that
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    layers = [layer for some in lists for layer in some if not isinstance(layer, nn.Identity)]
    for layer in layers or [module]:
        layer.compile()
