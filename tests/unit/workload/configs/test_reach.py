"""FLOPs of windows and chunks against torch's counter: each query is multiplied with the keys alone that it meets.

The library multiplies whole squares and masks them. Here its layers call an attention that multiplies no more than the
span which each layer hands to it, so that the counter sees what is left.
"""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_flops import GROUPED, ROUTED, SIZES, TOP_TWO

WINDOW, CHUNK = 512, 1024
BOTH = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
CONFIGS = {
    "mistral": SIZES | {"num_key_value_heads": 2, "sliding_window": WINDOW},
    "qwen2": SIZES | {"num_key_value_heads": 2, "use_sliding_window": True} | BOTH,
    "gemma3_text": SIZES | GROUPED | BOTH,
    "gemma4_text": SIZES | GROUPED | BOTH | {"global_head_dim": 128, "num_kv_shared_layers": 0}
    | {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 512},
    "gpt_oss": SIZES | GROUPED | TOP_TWO | BOTH,
    "cohere2": SIZES | GROUPED | BOTH,
    "olmo3": SIZES | {"num_key_value_heads": 2} | BOTH,
    "exaone4": SIZES | GROUPED | BOTH,
    "mimo_v2_flash": SIZES | GROUPED | ROUTED | BOTH | {"v_head_dim": 32},
    "afmoe": SIZES | GROUPED | BOTH
    | {"num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
    "laguna": SIZES | GROUPED | BOTH
    | {"mlp_layer_types": ["dense", "sparse"], "num_experts": 4, "num_experts_per_tok": 2}
    | {"moe_intermediate_size": 128},
    "llama4_text": SIZES | GROUPED  # which would compute all experts of a token
    | {"no_rope_layers": [1, 0], "attention_chunk_size": CHUNK, "intermediate_size_mlp": 512, "moe_layers": []},
}  # fmt: skip


def scored(queries, keys, values):
    """Multiply queries with keys, and the scores with values."""
    return torch.matmul(torch.matmul(queries, keys.mT), values)


def triangle(queries, keys, values):
    """Multiply each of a power of two of queries with its own key and those before it, by halves of halves."""
    tokens, parts = queries.shape[-2], 1
    while parts < tokens:
        first, second = (
            [t.unflatten(-2, (parts, 2, tokens // parts // 2)).select(-3, half) for t in (queries, keys, values)]
            for half in (0, 1)
        )
        scored(second[0], first[1], first[2])
        parts *= 2
    scored(*(t.unsqueeze(-2) for t in (queries, keys, values)))


def banded(queries, keys, values, window):
    """Multiply each query with the `window` keys up to its own."""
    triangle(*(t[..., :window, :] for t in (queries, keys, values)))
    spans = [t.unfold(-2, window, 1)[..., 1:, :, :].mT for t in (keys, values)]
    scored(queries[..., window:, :].unsqueeze(-2), *spans)


def reached(module, queries, keys, values, *_, sliding_window=None, **__):
    """Return the attention of one layer, as the library calls it."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = (t.repeat_interleave(groups, dim=1) for t in (keys, values))
    chunk = module.config.attention_chunk_size if getattr(module, "use_rope", False) else None
    if sliding_window:
        banded(queries, keys, values, sliding_window)
    elif chunk:
        triangle(*(t.unflatten(-2, (-1, chunk)) for t in (queries, keys, values)))
    else:
        triangle(queries, keys, values)
    batch, heads, tokens = queries.shape[:3]
    return values.new_empty(batch, tokens, heads, values.shape[3]), None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("kind", CONFIGS)
def test_windows_and_chunks_have_the_flops_of_the_keys_that_queries_meet(kind, tokens, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "reached", reached)
    config = {"model_type": kind, **CONFIGS[kind]}
    module = library.model(config)
    module.set_attn_implementation("reached")
    module.set_experts_implementation("batched_mm")
    inputs = {"input_ids": torch.empty(1, tokens, dtype=torch.long, device="meta"), "use_cache": False}
    inputs |= {"position_ids": inputs["input_ids"]}
    inputs |= {"attention_mask": torch.empty(1, 1, tokens, tokens, device="meta")}

    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        module(**inputs)
    model = architecture_of(config).architecture
    assert model.model_flops_per_token(tokens) / 3 * tokens == pytest.approx(counter.get_total_flops(), rel=0.01)
