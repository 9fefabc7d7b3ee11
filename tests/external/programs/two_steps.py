"""Two steps of a tiny model under torch's FSDP2, by the switches and degrees of an emitted Accelerate file.

Run on every rank by torchrun. Each rank takes the same rows, so that the losses are those of one process; rank 0 prints
both. Accelerate itself has FSDP on accelerators alone.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(x)))


class Tiny(torch.nn.Module):
    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.layers, self.again = torch.nn.ModuleList(Layer() for _ in range(3)), again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x


def losses(model: torch.nn.Module) -> list[float]:
    """Return the losses of two steps."""
    found = []
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def sharded(settings: dict) -> list[float]:
    """Train under torch's own FSDP2 with the switches of the file."""
    dist.init_process_group("gloo")
    fsdp = settings.get("fsdp_config") or {}
    degrees = {key.removeprefix("parallelism_config_"): n for key, n in settings["parallelism_config"].items()}
    sizes = (degrees["dp_replicate_size"], degrees["dp_shard_size"])
    assert sizes[0] * sizes[1] == settings["num_processes"] == dist.get_world_size()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(0)
    model = Tiny(again=fsdp["fsdp_activation_checkpointing"])
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=fsdp["fsdp_reshard_after_forward"])
    return losses(model)


def main() -> None:
    """Print the losses of two steps, sharded and on one process."""
    torch.manual_seed(0)
    alone = Tiny()
    expected = losses(alone)
    settings = yaml.safe_load(Path(sys.argv[1]).read_text())
    found = sharded(settings)
    if dist.get_rank() == 0:
        told = {"losses": found, "expected": expected, "ranks": dist.get_world_size()}
        sys.stdout.write(json.dumps(told) + "\n")
    dist.destroy_process_group()


main()
