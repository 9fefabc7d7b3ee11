"""A decoder layer under torch.compile: what that makes of a layer's operators is one, whose call is paid once."""

import torch
from torch import Tensor, nn

from ..workload import functional
from ..workload.float8 import in_float8


class DenseLayer(nn.Module):
    """The arithmetic of `train.model.decoder.DecoderLayer`, dense and without dropout, on one rank."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        self.attention_norm, self.mlp_norm = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        self.qkv = nn.Linear(hidden, hidden // heads * (heads + 2 * kv_heads), bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        normed_BTC = functional.rms_norm(x_BTC, self.attention_norm, 1e-5)
        q, k, v = functional.split_heads(self.qkv(normed_BTC), cos, sin, self.heads, self.kv_heads)
        x_BTC = x_BTC + self.out(functional.attention(q, k, v).transpose(1, 2).flatten(2))
        normed_BTC = functional.rms_norm(x_BTC, self.mlp_norm, 1e-5)
        update_BTC: Tensor = self.down(functional.swiglu(self.gate_up(normed_BTC)))
        return x_BTC + update_BTC


def compiled_layer(
    length: int, hidden: int, heads: int, kv_heads: int, inner: int, *, precision: str = ""
) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a compiled layer with random weights on torch's current device, and its rotary tables.

    Layers of one shape share one compilation, as those of a model do. In a `precision` of 8 bits its linear layers
    multiply so.
    """
    layer = DenseLayer(hidden, heads, kv_heads, inner)
    in_float8(nn.ModuleList([layer]), precision)
    layer.compile()
    cos, sin = functional.rotary_tables(length, hidden // heads, 10000.0)
    return layer, cos.to(layer.qkv.weight), sin.to(layer.qkv.weight)
