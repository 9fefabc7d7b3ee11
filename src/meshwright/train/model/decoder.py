"""The decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Shapes: B sequences, T positions, C = hidden_size, V = vocab_size. Each line of a forward method is one operator of
`workload.transformer.describe_workload`.
"""

import copy
from collections.abc import Collection

import torch
from torch import Tensor, nn

from ...layout import Recompute
from ...parallel.layers.dropout import Dropout
from ...parallel.layers.recompute import recomputed
from ...parallel.spmd.experts import ExpertNetwork
from ...parallel.spmd.tensor import Attributes, Column, Loss, RowParallel, Rule, Vocabulary
from ...pipelines import ChainUnit
from ...workload.chain import chain_units
from ...workload.functional import attention, cross_entropy, rms_norm, rotary_tables, split_heads, swiglu
from ...workload.transformer import ModelConfig, describe_workload


class RMSNorm(nn.Module):
    """Scale each row to unit root mean square, times a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return the normalised rows."""
        return rms_norm(x_BTC, self.weight, self.eps)


class SelfAttention(nn.Module):
    """Causal self-attention with fused query, key and value projections."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = model.num_attention_heads, model.num_key_value_heads
        self.qkv = nn.Linear(model.hidden_size, model.qkv_size, bias=False)
        self.out = nn.Linear(model.hidden_size, model.hidden_size, bias=False)
        self.attend = attention  # another function under context parallelism

    def split_rules(self) -> dict[str, Rule]:
        """Return how tensor parallelism cuts this layer: by heads."""
        width = self.out.in_features // self.heads
        sections = (self.heads * width, self.kv_heads * width, self.kv_heads * width)
        return {"": Attributes(("heads", "kv_heads")), "qkv": Column(sections), "out": RowParallel()}

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return what each position gathers from those before it."""
        q, k, v = split_heads(self.qkv(x_BTC), cos, sin, self.heads, self.kv_heads)
        merged: Tensor = self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return merged


class DecoderLayer(nn.Module):
    """Attention and a SwiGLU network or experts, each behind a norm and beside a residual."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.attention = SelfAttention(model)
        self.attention_dropout = Dropout(model.hidden_dropout)
        self.mlp_norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.mlp_dropout = Dropout(model.hidden_dropout)
        self.experts: ExpertNetwork | None = None
        if model.num_local_experts:
            self.experts = ExpertNetwork(
                model.hidden_size,
                model.intermediate_size,
                experts=model.num_local_experts,
                per_token=model.num_experts_per_tok,
            )
            return
        self.gate_up = nn.Linear(model.hidden_size, 2 * model.intermediate_size, bias=False)
        self.down = nn.Linear(model.intermediate_size, model.hidden_size, bias=False)

    def split_rules(self) -> dict[str, Rule]:
        """Return how tensor parallelism cuts the dense network; attention and experts say their own."""
        inner = 0 if self.experts else self.down.in_features
        return {} if self.experts else {"gate_up": Column((inner, inner)), "down": RowParallel()}

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        x_BTC = x_BTC + self.attention_dropout(self.attention(self.attention_norm(x_BTC), cos, sin))
        normed_BTC = self.mlp_norm(x_BTC)
        update_BTC: Tensor = self.experts(normed_BTC) if self.experts else self.down(swiglu(self.gate_up(normed_BTC)))
        dropped_BTC: Tensor = self.mlp_dropout(update_BTC)
        return x_BTC + dropped_BTC


class Decoder(nn.Module):
    """A decoder-only transformer; its forward pass returns the summed loss of a batch.

    `part` cuts it into pieces: the first takes tokens, the others the residual stream, and the last returns the loss.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, model: ModelConfig, *, recompute: Recompute = "none") -> None:
        super().__init__()
        self.config, self.recompute = model, recompute
        self.first, self.last = True, True  # whether this piece has the embedding, and the output
        self.embedding = nn.Embedding(model.vocab_size, model.hidden_size)
        self.embedding_dropout = Dropout(model.hidden_dropout)
        self.layers = nn.ModuleList(DecoderLayer(model) for _ in range(model.num_hidden_layers))
        self.norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.output = nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        if model.tie_word_embeddings:
            self.output.weight = self.embedding.weight
        self.loss = cross_entropy  # another function where the vocabulary is cut
        cos, sin = rotary_tables(model.max_position_embeddings, model.head_dim, model.rope_theta)
        self.register_buffer("cos", cos.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", sin.to(torch.get_default_dtype()), persistent=False)
        self.initialize(model)

    def split_rules(self) -> dict[str, Rule]:
        """Return how tensor parallelism cuts the vocabulary; the layers say their own."""
        rules: dict[str, Rule] = {"": Loss("loss")}
        return rules | ({"embedding": Vocabulary()} if self.first else {}) | ({"output": Column()} if self.last else {})

    def hold_positions(self, positions: Tensor) -> None:
        """Work on these positions of each sequence only (context parallelism)."""
        self.cos, self.sin = self.cos[positions], self.sin[positions]

    def initialize(self, model: ModelConfig) -> None:
        """Draw the weights: normal, projections into the residual stream smaller by sqrt(2 layers), as GPT-2."""
        residual_std = model.initializer_range / (2 * model.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                into_residual = name.endswith(("attention.out.weight", "down.weight", "bank.down"))
                nn.init.normal_(parameter, std=residual_std if into_residual else model.initializer_range)

    @property
    def units(self) -> tuple[str, ...]:
        """The units that a pipeline may cut between, in the order of the forward pass."""
        return ("embedding", *(f"layers.{i}" for i in range(len(self.layers))), "output")

    def unit_costs(self, micro_batch: int, seq_len: int) -> list[ChainUnit]:
        """Return the FLOPs and bytes of each unit, FLOPs as seconds on a device that does one a second."""
        work = describe_workload(self.config, seq_len=seq_len, micro_batch=micro_batch)
        return chain_units(work, recompute=self.recompute)

    def part(self, kept: Collection[int]) -> "Decoder":
        """Return the units with these numbers, which share their parameters, under the same names."""
        part = copy.copy(self)
        part.first, part.last = 0 in kept, len(self.layers) + 1 in kept
        dropped = {"embedding": not part.first, "norm": not part.last, "output": not part.last}
        part._modules = {name: None if dropped.get(name) else module for name, module in self._modules.items()}
        part.layers = nn.ModuleList(
            layer if i in kept else nn.Identity() for i, layer in enumerate(self.layers, start=1)
        )
        return part

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, before_BTC: Tensor | None = None) -> Tensor:
        """Return the summed negative log-likelihood of the targets, in nats; of a piece before the last, its output.

        `before_BTC` is the output of the piece before.
        """
        length = tokens_BT.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x_BTC = self.embedding_dropout(self.embedding(tokens_BT)) if before_BTC is None else before_BTC
        for layer in self.layers:
            if not isinstance(layer, nn.Identity):  # which stands for a layer of another piece
                x_BTC = recomputed(self.recompute, layer, x_BTC, cos, sin)
        if not self.last:
            return x_BTC
        logits_BTV = self.output(self.norm(x_BTC))
        return self.loss(logits_BTV.flatten(0, 1), targets_BT.flatten())
