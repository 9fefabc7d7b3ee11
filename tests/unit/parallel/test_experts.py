"""A layer of experts on one rank."""

import torch

from meshwright.parallel.spmd.experts import ExpertNetwork


def test_experts_return_what_they_were_given_under_autocast():
    torch.manual_seed(0)
    layer = ExpertNetwork(8, 16, experts=4, per_token=2)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    rows = torch.randn(2, 3, 8)

    whole = layer(rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer(rows)

    assert half.dtype == torch.float32
    assert torch.allclose(half, whole, atol=0.05)
