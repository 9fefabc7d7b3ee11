"""Rules of tensor parallelism found in a captured graph."""

import pytest
import torch
from torch import nn

from meshwright.errors import InputError
from meshwright.parallel.spmd.derive import derived_rules
from meshwright.parallel.spmd.tensor import Attributes, Column, RowParallel

TOKENS = torch.arange(16).view(2, 8)


class Gated(nn.Module):
    """A norm, a fused gated network with a residual, and a head."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.both = nn.Linear(16, 64)
        self.down = nn.Linear(32, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        gate, up = self.both(self.norm(x)).chunk(2, -1)
        return self.head(x + self.down(torch.relu(gate) * up))


class Shared(nn.Module):
    """What the first layer returns is also returned itself, so that nothing may be cut."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return self.down(y), y


def test_a_gated_network_is_cut_by_columns_in_its_sections_and_by_rows():
    assert derived_rules(Gated(), (torch.randn(2, 16),)) == {"both": Column((32, 32)), "down": RowParallel()}


def test_what_is_used_elsewhere_is_not_cut():
    with pytest.raises(InputError, match="nothing in Shared can be cut"):
        derived_rules(Shared(), (torch.randn(2, 16),))


def test_gpt2_is_cut_by_heads_and_features():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=32, n_head=4, vocab_size=64, n_positions=32, use_cache=False, bos_token_id=0, eos_token_id=0
    )

    rules = derived_rules(transformers.GPT2LMHeadModel(config), (TOKENS,))

    assert rules == {
        "transformer.h.0.attn": Attributes(("num_heads", "split_size")),
        "transformer.h.0.attn.c_attn": Column((32, 32, 32)),
        "transformer.h.0.attn.c_proj": RowParallel(),
        "transformer.h.0.mlp.c_fc": Column(),
        "transformer.h.0.mlp.c_proj": RowParallel(),
    }


def test_llama_is_cut_by_heads_and_features():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, use_cache=False,
    )  # fmt: skip

    rules = derived_rules(transformers.LlamaForCausalLM(config), (TOKENS,))

    layer = "model.layers.0."
    columns = {f"{layer}self_attn.{name}_proj" for name in "qkv"} | {f"{layer}mlp.{n}_proj" for n in ("gate", "up")}
    rows = {f"{layer}self_attn.o_proj", f"{layer}mlp.down_proj"}
    assert rules == dict.fromkeys(columns, Column()) | dict.fromkeys(rows, RowParallel())
