"""torch.compile by option: each layer by itself, so that equal layers share one compilation."""

from torch import nn


def compile_layers(module: nn.Module) -> None:
    """Compile the layers of every ModuleList in place, or the whole module where it has none."""
    from torch._dynamo import config as dynamo  # seconds that nobody else waits for

    dynamo.optimize_ddp = False  # it cuts graphs at DDP's buckets; a layer is less than that
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    layers = [layer for some in lists for layer in some if not isinstance(layer, nn.Identity)]
    for layer in layers or [module]:
        layer.compile()
