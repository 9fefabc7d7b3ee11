"""Sizes that files say once more, or otherwise than the rest of them: held to what the class works out, or refused."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs.test_published_files import SIGHT, TEXT, parameters

MAMBA2 = {"model_type": "mamba2", "hidden_size": 256, "num_heads": 8, "head_dim": 64, "num_hidden_layers": 2} | {
    "vocab_size": 512
}


@pytest.mark.parametrize("key", ["intermediate_size", "d_inner"])
def test_the_inner_width_of_mamba2_may_stand_in_a_file_where_it_is_what_the_class_works_out(key):
    assert parameters(MAMBA2 | {key: 512}) == parameters(MAMBA2)
    with pytest.raises(InputError, match=f"{key}: expected 512, as the class has it, got 768"):
        architecture_of(MAMBA2 | {key: 768})


@pytest.mark.parametrize(
    ("config", "expand"),
    [
        (MAMBA2, "expand"),
        (
            MAMBA2
            | {"model_type": "bamba", "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512}
            | {"mamba_n_heads": 8, "mamba_d_head": 64},
            "mamba_expand",
        ),
    ],
)
def test_heads_of_mamba2_that_are_not_as_wide_as_the_class_expands_its_input_are_refused(config, expand):
    keys = {key: value for key, value in config.items() if key not in {"num_heads", "head_dim"} or expand == "expand"}

    assert parameters(keys | {expand: 2}) == parameters(keys)
    with pytest.raises(InputError, match=f"8 x 64 = 512; expected {expand} x hidden_size = 1024"):
        architecture_of(keys | {expand: 4})


def test_a_list_of_layers_that_is_as_long_as_another_depth_is_refused_with_both_lengths():
    config = TEXT | {"model_type": "qwen3", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 5}

    with pytest.raises(InputError, match=r"layer_types: .* of the 3 layers \(num_hidden_layers\), got a list of 5"):
        architecture_of(config)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("modules_to_save", ["embed_tokens", "lm_head"], "weights trained whole .modules_to_save: embed_tokens, lm_h"),
        ("rank_pattern", {"q_proj": 64}, "other ranks .rank_pattern: q_proj"),
        ("layers_to_transform", 0, "some layers alone .layers_to_transform: 0"),
        ("bias", "lora_only", "biases .bias: lora_only"),
        ("use_dora", True, "magnitudes beside the adapters .use_dora: true"),
    ],
)
def test_what_an_adapter_trains_beside_one_of_its_rank_on_all_layers_is_said(key, value, told):
    plain = {"peft_type": "LORA", "base_model_name_or_path": "some/Model-7B", "r": 16} | {
        **{"bias": "none", "modules_to_save": None, "rank_pattern": {}, "use_dora": False},
    }

    with pytest.raises(InputError, match=f"not counted in that: {told}"):
        architecture_of(plain | {key: value})
    with pytest.raises(InputError, match="-rank 16\\)$"):
        architecture_of(plain)


SEES = {"vision_config": SIGHT | {"image_size": 224, "patch_size": 14}}


@pytest.mark.parametrize("kind", ["llava", "llava_next", "llava_next_video", "llava_onevision", "mistral3"])
def test_projections_of_images_have_the_biases_and_the_layers_that_the_file_says(kind):
    config = SEES | {"model_type": kind, "text_config": TEXT | {"model_type": "llama"}, "tie_word_embeddings": False}
    text = TEXT["hidden_size"]

    bare, biased = (parameters(config | {"multimodal_projector_bias": bias}) for bias in (False, True))
    assert biased - bare == 2 * text
    assert parameters(config) == (bare if kind == "mistral3" else biased)
    assert parameters(config | {"vision_feature_layer": -1}) == parameters(config)
    assert parameters(config | {"vision_feature_layer": [-2, -5, 6]}) - parameters(config) == 2 * 128 * text


@pytest.mark.parametrize(
    "named", ["LlamaForCausalLMEagle3", "EagleLlamaForCausalLM", "LlamaMTPModel", "LlamaDraftModel"]
)
def test_a_class_that_drafts_for_another_model_is_refused_whatever_its_name_ends_in(named):
    config = TEXT | {"model_type": "llama", "architectures": [named]}

    with pytest.raises(InputError, match=f"architectures: {named} drafts tokens for another model"):
        architecture_of(config)
    assert any(named in told for told in architecture_of(config, allow_unknown=True).ignored)
    assert parameters(config | {"architectures": ["LlamaForCausalLM"]}) == parameters(TEXT | {"model_type": "llama"})


@pytest.mark.parametrize("key", ["speculators_model_type", "medusa_num_heads"])
def test_a_file_of_a_draft_without_a_model_type_is_named_as_one(key):
    with pytest.raises(InputError, match="model_type: missing .this is a draft for another model"):
        architecture_of({key: 4, "transformer_layer_config": TEXT})


def test_a_decoder_of_one_wide_layer_is_said_to_be_perhaps_a_draft():
    wide = TEXT | {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 1}
    encoder = {"model_type": "bert", "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 1}

    told = [
        any("a decoder of one layer" in said for said in architecture_of(config).assumed)
        for config in (wide, wide | {"num_hidden_layers": 2}, wide | {"hidden_size": 512}, encoder)
    ]
    assert told == [True, False, False, False]


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("all-linear", ""),
        (["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], ""),
        (["v_proj", "q_proj"], "this one has them on q_proj, v_proj"),
        (r".*\.(q_proj|v_proj)", "this one has them on .*q_proj"),
    ],
)
def test_matrices_of_an_adapter_are_named_where_they_are_not_all(targets, said):
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "some/Model-7B", "r": 16, "target_modules": targets}

    with pytest.raises(InputError, match=rf"--lora-rank 16( \(adapters on all .*{said}.*\))?\)$") as told:
        architecture_of(adapter)
    assert ("this one has them on" in str(told.value)) == bool(said)


def test_frames_that_a_convolution_pools_have_its_weights():
    config = SEES | {"model_type": "llava_next_video", "text_config": TEXT | {"model_type": "llama"}}

    plain, convolved = (parameters(config | {"spatial_pool_mode": mode}) for mode in ("max", "conv"))
    assert convolved - plain == 128 * (4 * 128 + 1)
    assert parameters(config) == plain


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "olmo2", "exaone4"])
@pytest.mark.parametrize("key", ["use_qk_norm", "qk_norm", "qk_layernorm"])
def test_a_file_may_say_that_queries_and_keys_are_normed_where_the_class_does_so_anyway(kind, key):
    config = TEXT | {"model_type": kind}

    assert parameters(config | {key: True}) == parameters(config)


def test_norms_of_queries_and_keys_that_the_class_has_not_are_not_passed_over():
    with pytest.raises(InputError, match="use_qk_norm: not understood for model_type llama"):
        architecture_of(TEXT | {"model_type": "llama", "use_qk_norm": True})
