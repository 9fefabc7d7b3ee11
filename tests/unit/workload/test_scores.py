"""Scores that masks leave, against torch's own counter over the products that each query takes part in."""

from collections import Counter

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.workload.architecture import Architecture
from meshwright.workload.kinds import Attention, Compressed, Dense, Latent, LayerKind, runs_of

HEADS, DIM, INDEX = 4, 64, 16
LATENT = {"heads": HEADS, "q_rank": 32, "kv_rank": 32, "nope_dim": 48, "rope_dim": 16, "value_dim": 64}
SPARSE = {"heads": HEADS, "head_dim": DIM, "q_rank": 32, "groups": 2, "group_rank": 32, "window": 128}
# by name: the kind, how many keys the query at a place meets, and how many keys its indexer scores
KINDS = {
    "full": (Attention(heads=HEADS, kv_heads=2, head_dim=DIM), lambda i: i + 1, None),
    "window": (Attention(heads=HEADS, kv_heads=2, head_dim=DIM, window=512), lambda i: min(i + 1, 512), None),
    "chunk": (Attention(heads=HEADS, kv_heads=2, head_dim=DIM, chunk=2048), lambda i: i % 2048 + 1, None),
    "latent": (Latent(**LATENT), lambda i: i + 1, None),
    "indexer": (
        Latent(**LATENT, index_heads=2, index_dim=INDEX, index_top=1024),
        lambda i: min(i + 1, 1024),
        lambda i: i + 1,
    ),
    "indexer of another layer": (Latent(**LATENT, index_top=1024), lambda i: min(i + 1, 1024), None),
    "means of many tokens": (
        Compressed(**SPARSE, rate=128),
        lambda i: min(i + 1, 128) + (i + 1) // 128,
        None,
    ),
    "means that an indexer picks": (
        Compressed(**SPARSE, rate=4, overlap=True, index_heads=2, index_dim=INDEX, index_top=256),
        lambda i: min(i + 1, 128) + min((i + 1) // 4, 256),
        lambda i: (i + 1) // 4,
    ),
}


def products(tokens, keys_of, heads, widths):
    """Multiply each query of a sequence with the keys that it meets, once for each width of a head."""
    for keys, queries in Counter(map(keys_of, range(tokens))).items():
        for width in widths:
            torch.bmm(torch.empty(queries * heads, 1, width), torch.empty(queries * heads, width, keys))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("tokens", [4096, pytest.param(32768, marks=[pytest.mark.slow, pytest.mark.soak])])
@pytest.mark.parametrize("name", KINDS)
def test_the_scores_of_each_kind_of_attention_are_the_ones_that_its_mask_leaves(name, tokens):
    kind, met, scored = KINDS[name]

    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        products(tokens, met, HEADS, (DIM, DIM))
        if scored:
            products(tokens, scored, 2, (INDEX,))

    assert kind.flops(tokens, causal=True) * tokens == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("name", KINDS)
def test_the_planner_s_time_is_of_the_scores_that_the_model_has(name, tokens):
    kind = KINDS[name][0]
    layers = [LayerKind(mixer=kind, network=Dense(width=512))] * 2
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 512, "vocab_size": 512}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": DIM}
    model = ModelQuantities.of(Architecture(**sizes, **heads, stack=runs_of(layers)))

    def reach(span):
        met = min(tokens, span)
        return met - met * met / (2 * tokens)

    shares = model.full_scores * tokens / 2 + model.near_scores * reach(model.window)
    spans = {span for _, span in kind.scored if span} if isinstance(kind, Compressed) else set()
    tolerance = 0.06 if len(spans) > 1 else 0.01  # of several windows the pricer takes the mean
    # queries inside a chunk meet half of it
    shares += model.chunk_scores * min(tokens, model.chunk) / 2 if model.chunk_scores else 0
    assert 2 * shares * HEADS * 2 * DIM == pytest.approx(kind.flops(tokens, causal=True), rel=tolerance)
