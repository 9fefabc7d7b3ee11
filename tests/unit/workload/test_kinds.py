"""FLOPs of layer kinds against torch's own counter, over the products of each kind written out."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.workload.kinds import Attention, GatedDelta, Latent, Lightning, Mamba2

LENGTHS = (4096, 32768)


def counted(products):
    """Return the FLOPs of some batched products, given as shapes (batch, rows, depth, columns)."""
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        for batch, rows, depth, columns in products:
            torch.bmm(torch.empty(batch, rows, depth), torch.empty(batch, depth, columns))
    return counter.get_total_flops()


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize(
    ("kind", "products"),
    [
        (Attention(heads=4, kv_heads=2, head_dim=64), lambda s: [(4, s, 64, s), (4, s, s, 64)]),
        (Attention(heads=4, kv_heads=2, head_dim=96, value_dim=64), lambda s: [(4, s, 96, s), (4, s, s, 64)]),
        (
            Attention(heads=4, kv_heads=4, head_dim=64, chunk=1024),
            lambda s: [(4 * s // 1024, 1024, 64, 1024), (4 * s // 1024, 1024, 1024, 64)],
        ),
        (Attention(heads=4, kv_heads=4, head_dim=64, window=512), lambda s: [(4 * s, 1, 64, 512), (4 * s, 1, 512, 64)]),
        (
            Latent(heads=4, q_rank=64, kv_rank=32, nope_dim=32, rope_dim=16, value_dim=32),
            lambda s: [(4, s, 48, s), (4, s, s, 32)],
        ),
        (
            Latent(
                heads=4,
                q_rank=64,
                kv_rank=32,
                nope_dim=32,
                rope_dim=16,
                value_dim=32,
                index_heads=8,
                index_dim=32,
                index_top=1024,
            ),
            lambda s: [(4 * s, 1, 48, 1024), (4 * s, 1, 1024, 32), (8, s, 32, s)],
        ),
        (
            Lightning(heads=4, head_dim=64),
            lambda s: [(4 * s // 256, 256, 64, 256), (4 * s // 256, 256, 256, 64), (4, s, 64, 64), (4, 64, s, 64)],
        ),
    ],
    ids=["grouped", "wide keys", "chunked", "window", "latent", "indexer", "lightning"],
)
def test_the_flops_of_a_kind_are_as_many_as_torch_counts(kind, products, tokens):
    assert kind.flops(tokens, causal=False) * tokens == pytest.approx(counted(products(tokens)), rel=0.01)


@pytest.mark.parametrize("tokens", LENGTHS)
def test_the_state_space_layer_costs_what_its_chunked_products_do(tokens):
    kind = Mamba2(heads=8, head_dim=64, groups=2, state=64, chunk=256, conv_kernel=0)
    chunks = tokens // 256
    products = [(2 * chunks, 256, 64, 256), (8 * chunks, 256, 256, 64), (8 * chunks, 64, 256, 64)]
    products += [(8 * chunks, 256, 64, 64)]

    assert kind.flops(tokens, causal=False) * tokens == pytest.approx(counted(products), rel=0.01)


@pytest.mark.parametrize("tokens", LENGTHS)
def test_the_delta_rule_costs_what_its_chunked_products_do(tokens):
    kind = GatedDelta(key_heads=2, value_heads=4, key_dim=64, value_dim=128, conv_kernel=0)
    each = 4 * tokens // 64
    inside = [(each, 64, 64, 64)] * 3 + [(each, 64, 64, 128)] * 2
    state = [(each, 64, 64, 128)] * 2 + [(each, 64, 64, 128)]

    assert kind.flops(tokens, causal=False) * tokens == pytest.approx(counted(inside + state), rel=0.01)


def test_causal_scores_of_a_window_are_summed_exactly():
    kind, tokens, window = Attention(heads=1, kv_heads=1, head_dim=1, window=16), 64, 16
    exact = sum(min(i + 0.5, window) for i in range(tokens))

    assert kind.attended(tokens, causal=True) * tokens == pytest.approx(exact)
