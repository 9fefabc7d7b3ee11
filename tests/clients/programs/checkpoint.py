"""Saves, loads and saves beside the training a sharded model with DCP. Argument: a backend."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from reporting import report
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import meshwright  # noqa: F401  (a user who has it installed needs no import)


def make(mesh, seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 13), torch.nn.Tanh(), torch.nn.Linear(13, 1))
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.full((2, 8), dist.get_rank() + 1.0)).square().mean().backward()
    optimizer.step()


def whole(model):
    return [parameter.full_tensor() for parameter in model.parameters()]


def state(model, optimizer):
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))


dist.init_process_group(sys.argv[1])
folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folders)
folder = Path(folders[0])
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model, optimizer = make(mesh, 0)
step(model, optimizer)
dcp.save(state(model, optimizer), checkpoint_id=folder / "saved")
own = dist.new_group()  # its thread calls collectives beside the training's
beside = dcp.async_save(state(model, optimizer), checkpoint_id=folder / "beside", process_group=own)
saved = whole(model)
step(model, optimizer)  # while the other is written
beside.result()
after = whole(model)
for name in ("saved", "beside"):
    model, optimizer = make(mesh, 1)
    step(model, optimizer)  # so that the optimizer has a state to load into
    read = state(model, optimizer)
    dcp.load(read, checkpoint_id=folder / name)
    set_state_dict(model, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"])
    assert all(map(torch.equal, whole(model), saved)), name
    step(model, optimizer)
    assert all(map(torch.equal, whole(model), after)), name
report(saved=saved, after=after)
dist.destroy_process_group()
