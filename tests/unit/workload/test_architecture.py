"""Parameter counts of published models, from their config.json keys; bad configurations."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of

LLAMA3_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
BLOOM = {"model_type": "bloom", "vocab_size": 250880, "n_embed": 14336, "hidden_size": 14336, "n_layer": 70} | {
    "n_head": 112
}
MIXTRAL = LLAMA3_8B | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "tie_word_embeddings": False,
}
# counts that the models' own files state; "within" leaves out norms inside latent attention and of the embedding
PUBLISHED = [
    (LLAMA3_8B, 8_030_261_248, 0.0),
    (GPT2, 124_439_808, 0.0),
    (BLOOM, 176_247_271_424, 1e-6),
    (MIXTRAL, 46_702_792_704, 0.0),
    (DEEPSEEK_V3, 671_026_404_352, 1e-5),
]


@pytest.mark.parametrize(
    ("config", "count", "within"), PUBLISHED, ids=[str(config["model_type"]) for config, _, _ in PUBLISHED]
)
def test_the_parameters_are_as_many_as_the_model_states(config: dict[str, object], count: int, within: float) -> None:
    assert architecture_of(config).architecture.parameters == pytest.approx(count, rel=within, abs=0)


def test_a_token_passes_through_few_of_the_experts() -> None:
    assert architecture_of(DEEPSEEK_V3).architecture.active_parameters == pytest.approx(37.5e9, rel=0.02)
    assert architecture_of(MIXTRAL).architecture.active_parameters == pytest.approx(12.9e9, rel=0.01)


def test_flops_of_a_token_are_six_a_weight_and_the_scores() -> None:
    model = architecture_of(LLAMA3_8B).architecture
    weights = model.parameters - 128256 * 4096 - 32 * 2 * 4096 - 4096
    scores = 12 * 8192 * 4096 * 32
    assert model.model_flops_per_token(8192, causal=False) == 6 * weights + scores
    assert model.model_flops_per_token(8192) == 6 * weights + scores / 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "experts_per_token"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        architecture_of(LLAMA3_8B | change)
