"""FLOPs of models against torch's own counter, over the library's layers at two lengths."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs import library

SIZES = {
    **{"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"vocab_size": 512, "max_position_embeddings": 32768},
}
LATENT = {
    **{"first_k_dense_replace": 2, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32},
    **{"qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2},
    **{"n_group": 1, "topk_group": 1, "num_key_value_heads": 4},
}
CONFIGS = {
    "llama": SIZES | {"num_key_value_heads": 2},
    "qwen3": SIZES | {"num_key_value_heads": 2, "head_dim": 96},
    "gpt2": {"n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 32768},
    "falcon": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512},
    "bert": SIZES,
    "deepseek_v3": SIZES | LATENT,
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_forward_of_the_librarys_layers_has_the_flops_that_are_counted(kind, tokens):
    pytest.importorskip("transformers")
    config = {"model_type": kind, **CONFIGS[kind]}
    module = library.model(config)
    module.set_attn_implementation("eager")  # whole squares of scores, as products
    inputs = {"input_ids": torch.empty(1, tokens, dtype=torch.long, device="meta")}
    if kind != "bert":
        inputs |= {"position_ids": inputs["input_ids"], "use_cache": False}
        inputs |= {"attention_mask": torch.empty(1, 1, tokens, tokens, device="meta")}

    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        module(**inputs)
    model = architecture_of(config).architecture
    forward = model.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.01)
