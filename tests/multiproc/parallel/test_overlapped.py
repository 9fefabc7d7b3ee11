"""Asynchronous tensor parallelism computes what plain tensor parallelism does.

PyTorch has its fused operators for GPUs alone, each with a reference that says what it returns. Here, on CPUs, the
references run in their place: all but the overlap itself is ours and is tried.
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
from torch import nn

from meshwright.layout import Layout
from meshwright.parallel.device_mesh import Mesh
from meshwright.parallel.shard_placement import ShardPlacement
from meshwright.parallel.spmd.channel import AxisChannel, Stopwatch
from meshwright.parallel.spmd.overlapped import OverlappedSeam
from meshwright.parallel.spmd.part import split_module
from meshwright.parallel.spmd.tensor import Column, RowParallel, Seam, split_tensors
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, batches, small_model

OPERATORS = {
    "fused_all_gather_matmul": symmetric_memory._fused_all_gather_matmul_fallback,
    "fused_matmul_reduce_scatter": symmetric_memory._fused_matmul_reduce_scatter_fallback,
}


def passes(rank: int, world_size: int, store: dist.Store, changes: dict[str, Any], overlapped: bool) -> dict[str, Any]:
    """Return the loss of one forward pass, all gradients of its backward, and the bytes of each kind of collective."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    layout = Layout(tp=world_size, sp=1, mbs=GLOBAL_BATCH)
    torch.manual_seed(0)
    module = Decoder(small_model(**changes)).double()
    recorder = Recorder(rank, keep_steps=1)
    split_module(module, Mesh(layout), layout, Stopwatch(recorder), seq_len=SEQ_LEN, overlapped=overlapped)
    ((inputs, targets),) = batches(0, layout, 0, 1)
    with torch.library._scoped_library("symm_mem", "IMPL") as operators:
        for name, reference in OPERATORS.items():
            operators.impl(name, reference, "CPU")
        loss = module(inputs, targets)
        loss.backward()
    recorder.end_step(0)
    sent: dict[str, int] = {}
    for span in recorder.spans():
        sent[span.name] = sent.get(span.name, 0) + span.bytes
    return {"loss": loss.item(), "gradients": {n: p.grad for n, p in module.named_parameters()}, "sent": sent}


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"num_local_experts": 2}], ids=str)
def test_loss_gradients_and_bytes_are_those_of_plain_tensor_parallelism(changes, rank_pool):
    plain, overlapped = (rank_pool(2).run(passes, changes, switch) for switch in (False, True))

    for one, other in zip(plain, overlapped, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-12)
        assert other["sent"] == one["sent"]
        for name, gradient in one["gradients"].items():
            torch.testing.assert_close(other["gradients"][name], gradient, rtol=1e-10, atol=1e-12)


def several(rank: int, world_size: int, store: dist.Store, overlapped: bool) -> dict[str, Any]:
    """Return output and gradients of three products of one input and a fourth of their sum, under bf16 autocast."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    torch.manual_seed(0)
    module = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("q", "k", "v", "out")})
    x = torch.randn(2, 4, 8)[:, rank * 2 : rank * 2 + 2].requires_grad_()
    layout = Layout(tp=world_size, sp=1)
    recorder = Recorder(rank, keep_steps=1)
    channel = AxisChannel(Mesh(layout), "tp", Stopwatch(recorder))
    seam = OverlappedSeam(channel) if overlapped else Seam(channel, sequence=True)
    rules = {"q": Column(), "k": Column(), "v": Column(), "out": RowParallel()}
    split_tensors(module, rules, seam, {p: ShardPlacement(tuple(p.shape)) for p in module.parameters()})
    with torch.library._scoped_library("symm_mem", "IMPL") as operators:
        for name, reference in OPERATORS.items():
            operators.impl(name, reference, "CPU")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module["out"](module["q"](x) * module["k"](x) + module["v"](x))
        y.float().square().sum().backward()
    recorder.end_step(0)
    gathers = [span.bytes for span in recorder.spans() if span.name == "all_gather"]
    return {"y": y.detach(), "x": x.grad, "weight": module["q"].weight.grad, "gathers": gathers}


def test_products_of_one_input_gather_it_once_and_travel_as_narrow_as_autocast_computes(rank_pool):
    plain, overlapped = (rank_pool(2).run(several, switch) for switch in (False, True))

    for one, other in zip(plain, overlapped, strict=True):
        of_x, of_gradient = one["gathers"]  # of x forwards, of the last product's gradient backwards
        assert other["gathers"] == [of_x / 2, of_gradient]
        for name in ("y", "x", "weight"):
            torch.testing.assert_close(other[name].float(), one[name].float(), rtol=0.05, atol=0.05)
