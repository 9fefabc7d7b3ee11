"""The decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Shapes: B sequences, T positions, C = hidden_size, V = vocab_size. Each line of a forward method is one operator of
`workload.transformer.describe`.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..pipelines import Unit
from ..workload.chain import units
from ..workload.functional import attention, cross_entropy, rms_norm, rotary_tables, split_heads, swiglu
from ..workload.transformer import ModelConfig, describe


class RMSNorm(nn.Module):
    """Scale each row to unit root mean square, times a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return the normalised rows."""
        return rms_norm(x_BTC, self.weight, self.eps)


class Attention(nn.Module):
    """Causal self-attention with fused query, key and value projections."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = model.num_attention_heads, model.num_key_value_heads
        self.qkv = nn.Linear(model.hidden_size, model.qkv_size, bias=False)
        self.out = nn.Linear(model.hidden_size, model.hidden_size, bias=False)

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return what each position gathers from those before it."""
        q, k, v = split_heads(self.qkv(x_BTC), cos, sin, self.heads, self.kv_heads)
        merged: Tensor = self.out(attention(q, k, v).transpose(1, 2).flatten(2))
        return merged


class DecoderLayer(nn.Module):
    """Attention and a SwiGLU network, each behind a norm and beside a residual."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.attention = Attention(model)
        self.mlp_norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.gate_up = nn.Linear(model.hidden_size, 2 * model.intermediate_size, bias=False)
        self.down = nn.Linear(model.intermediate_size, model.hidden_size, bias=False)

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        x_BTC = x_BTC + self.attention(self.attention_norm(x_BTC), cos, sin)
        update_BTC: Tensor = self.down(swiglu(self.gate_up(self.mlp_norm(x_BTC))))
        return x_BTC + update_BTC


class Decoder(nn.Module):
    """A decoder-only transformer; its forward pass returns the summed loss of a batch.

    `stage` cuts it into pieces: the first takes tokens, the others the residual stream, and the last returns the loss.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, model: ModelConfig, *, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = model, recompute
        self.first, self.last = True, True  # whether this piece has the embedding, and the output
        self.embedding = nn.Embedding(model.vocab_size, model.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(model) for _ in range(model.num_hidden_layers))
        self.norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.output = nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        if model.tie_word_embeddings:
            self.output.weight = self.embedding.weight
        cos, sin = rotary_tables(model.max_position_embeddings, model.head_dim, model.rope_theta)
        self.register_buffer("cos", cos.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", sin.to(torch.get_default_dtype()), persistent=False)
        self.initialize(model)

    def initialize(self, model: ModelConfig) -> None:
        """Draw the weights: normal, projections into the residual stream smaller by sqrt(2 layers), as GPT-2."""
        residual_std = model.initializer_range / (2 * model.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                into_residual = name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(parameter, std=residual_std if into_residual else model.initializer_range)

    @property
    def units(self) -> tuple[str, ...]:
        """What a pipeline may cut between, in the order of the forward pass."""
        return ("embedding", *(f"layers.{i}" for i in range(len(self.layers))), "output")

    def unit_costs(self, micro_batch: int, seq_len: int) -> list[Unit]:
        """Return the FLOPs and bytes of each unit, FLOPs as seconds on a device that does one a second."""
        return units(describe(self.config, seq_len=seq_len, micro_batch=micro_batch), recompute=self.recompute)

    def stage(self, first: int, last: int) -> "Decoder":
        """Return the piece with units `first` to `last` - 1, which shares its parameters, under the same names."""
        piece = copy.copy(self)
        piece.first, piece.last = first == 0, last == len(self.units)
        dropped = {"embedding": not piece.first, "norm": not piece.last, "output": not piece.last}
        piece._modules = {name: None if dropped.get(name) else module for name, module in self._modules.items()}
        kept = range(first - 1, last - 1)
        piece.layers = nn.ModuleList(layer if i in kept else nn.Identity() for i, layer in enumerate(self.layers))
        return piece

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, x_BTC: Tensor | None = None) -> Tensor:
        """Return the summed negative log-likelihood of the targets, in nats; of a piece before the last, its output.

        `x_BTC` is the output of the piece before.
        """
        length = tokens_BT.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        if self.first:
            x_BTC = self.embedding(tokens_BT)
        for layer in self.layers:
            if isinstance(layer, nn.Identity):  # on another rank
                continue
            if self.recompute and torch.is_grad_enabled():
                x_BTC = checkpoint(layer, x_BTC, cos, sin, use_reentrant=False)
            else:
                x_BTC = layer(x_BTC, cos, sin)
        if not self.last:
            return x_BTC
        logits_BTV = F.linear(self.norm(x_BTC), self.output.weight)
        return cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
