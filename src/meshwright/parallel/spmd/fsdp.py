"""ZeRO 2 and 3 through PyTorch's FSDP2, and HSDP: sharded over one group of ranks, replicated over others.

Level 2 gathers a layer's weights once a step and keeps them until its backward is over; level 3 drops them after its
forward and gathers them again. The next layer's weights travel while one computes (prefetch). Gradients are summed
and scattered after each micro-batch, so that no rank ever holds all of them; copies of a sharded model sum theirs after
the last micro-batch of a step.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ...device import is_accelerator, moved
from ...layout import Layout
from ...workload.conventions import ENGINE
from ...workload.split import gathers_twice
from ..device_mesh import Mesh
from .channel import Stopwatch
from .experts import Bank
from .fsdp_tracing import trace_collectives

PREFETCHED = 1  # layers whose weights travel ahead


def shard(module: nn.Module, mesh: Mesh, layout: Layout, stopwatch: Stopwatch, device: torch.device) -> None:
    """Shard the parameters of `module` layer by layer; the layers are the elements of its module lists.

    What they send is noted through `stopwatch`. Under offload=parameters the shares stay in the host's memory, and each
    layer comes to `device`, where it is computed, as it is gathered.
    """
    layers = [layer for child in module.modules() if isinstance(child, nn.ModuleList) for layer in child]
    again, policy = bool(gathers_twice(layout, ENGINE)), OffloadPolicy()
    root_again = again and not ENGINE.root_stays
    if layout.offload == "parameters":
        policy = CPUOffloadPolicy(pin_memory=is_accelerator(device))
    ignored: set[nn.Parameter] = set()  # experts that no other rank holds
    for bank in [part for part in module.modules() if isinstance(part, Bank)] if layout.ep > 1 else []:
        if mesh.size("edp") > 1:
            fully_shard(bank, mesh=mesh.device_mesh("edp"), reshard_after_forward=again, offload_policy=policy)
        else:
            if layout.offload == "parameters":
                moved(bank, device)  # nothing shards it, so that it stays there
            ignored |= set(bank.parameters())
    dense = mesh.device_mesh("replica", "shard") if layout.replicas > 1 else mesh.device_mesh("shard")
    for layer in layers:
        fully_shard(layer, mesh=dense, reshard_after_forward=again, ignored_params=ignored, offload_policy=policy)
    fully_shard(module, mesh=dense, reshard_after_forward=root_again, ignored_params=ignored, offload_policy=policy)
    for part in sharded_modules(module):
        part.set_gradient_divide_factor(1.0)  # gradients are summed
        part.set_force_sum_reduction_for_comms(True)
        expert = isinstance(cast(nn.Module, part), Bank)
        trace_collectives(part, stopwatch, "edp" if expert else "shard", copies=1 if expert else layout.replicas)
    _prefetch([cast(FSDPModule, layer) for layer in layers])


def adopt(whole: nn.Module, piece: nn.Module) -> None:
    """Put the sharded parameters of `piece` into `whole`, which holds the same layers in modules of its own."""
    for name, parameter in piece.named_parameters():
        parent, _, leaf = name.rpartition(".")
        whole.get_submodule(parent)._parameters[leaf] = parameter


def sharded_modules(module: nn.Module) -> Iterator[FSDPModule]:
    """Yield the parts of a module that were sharded one by one."""
    return (part for part in module.modules() if isinstance(part, FSDPModule))


def gather_weights(module: nn.Module) -> None:
    """Gather the weights of all parts that hold only their shards; one part's travel while another's arrive."""
    for handle in [part.unshard(async_op=True) for part in sharded_modules(module)]:
        assert handle is not None
        handle.wait()


def scatter_gradients(module: nn.Module) -> None:
    """Sum and scatter the gradients that lie beside whole weights, as a backward pass of its own would at its end.

    PyTorch's own pipelines reach for the same function, which carries no promise.
    """
    cast(FSDPModule, module)._get_fsdp_state()._root_post_backward_final_callback()


def offset_of(parameter: DTensor) -> tuple[int, ...]:
    """Return where this rank's part of a sharded parameter starts."""
    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return tuple(offset)


def _prefetch(layers: list[FSDPModule]) -> None:
    for index, layer in enumerate(layers):
        following = layers[index + 1 : index + 1 + PREFETCHED]
        layer.set_modules_to_forward_prefetch(following)
        layer.set_modules_to_backward_prefetch(layers[max(0, index - PREFETCHED) : index][::-1])
        layer._set_unshard_async_op(True)  # elsewhere than on GPUs gathers would wait one for the other
