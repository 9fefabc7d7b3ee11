"""Decoders of their authors' own code, and files that name no model type, against published counts."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs.test_published_files import TEXT, parameters

MINICPM = {"model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40} | {
    **{"num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122753},
    **{"scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4},
}
EXAONE = {"model_type": "exaone", "activation_function": "silu", "hidden_size": 4096, "num_layers": 32} | {
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102400, "tie_word_embeddings": False},
    **{"intermediate_size": 14336, "embed_dropout": 0.0, "layer_norm_epsilon": 1e-5},
}
MIMO = {"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36} | {
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151680, "attention_bias": True},
}
ELM = {"model_type": "openelm", "head_dim": 64, "num_gqa_groups": 4, "qkv_multipliers": [0.5, 1.0]} | {
    **{"ffn_multipliers": [0.5, 4.0], "normalize_qk_projections": True, "share_input_output_layers": True},
    **{"vocab_size": 32000, "max_context_length": 2048, "activation_fn_name": "swish"},
}
OLMO = {"model_type": "hf_olmo", "activation_type": "swiglu", "block_type": "sequential", "block_group_size": 1} | {
    **{"d_model": 4096, "n_heads": 32, "n_kv_heads": None, "n_layers": 32, "mlp_hidden_size": 22016, "mlp_ratio": 4},
    **{"embedding_size": 50304, "vocab_size": 50280, "layer_norm_type": "default", "layer_norm_with_affine": False},
    **{"include_bias": False, "multi_query_attention": False, "rope": True, "alibi": False, "weight_tying": False},
}
LLADA = (
    OLMO
    | {"model_type": "llada", "activation_type": "silu", "block_type": "llama", "mlp_hidden_size": 12288}
    | {
        **{"architectures": ["LLaDAModelLM"], "embedding_size": 126464, "vocab_size": 126464, "layer_norm_type": "rms"},
        "layer_norm_with_affine": True,
    }
)
DREAM = {"model_type": "Dream", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28} | {
    **{"num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}
PUBLISHED = {
    6_888_095_744: OLMO,  # OLMo 7B
    8_015_581_184: LLADA,  # LLaDA 8B
    7_615_616_512: DREAM,  # Dream 7B, which began as Qwen 2.5 7B
    2_724_880_896: MINICPM,  # MiniCPM 2B
    13_873_291_776: MINICPM | {"num_experts": 8, "num_experts_per_tok": 2},  # 8x2B: 13.6 B without the embedding
    7_818_448_896: EXAONE,  # EXAONE 3.0 7.8B
    7_622_619_136: MIMO,  # MiMo 7B without the layer that predicts a further token
    271_527_168: ELM | {"model_dim": 1280, "num_transformer_layers": 16},
    457_179_136: ELM | {"model_dim": 1536, "num_transformer_layers": 20},
    1_079_891_456: ELM | {"model_dim": 2048, "num_transformer_layers": 28},
    3_036_647_424: ELM | {"model_dim": 3072, "num_transformer_layers": 36, "head_dim": 128},
}


@pytest.mark.parametrize("count", PUBLISHED)
def test_decoders_of_their_authors_own_code_have_the_published_parameters(count):
    assert parameters(PUBLISHED[count]) == count


@pytest.mark.parametrize(("kind", "masked"), [("hf_olmo", True), ("llada", False)])
def test_a_model_of_diffusion_scores_the_tokens_after_each_too(kind, masked):
    model = architecture_of(LLADA | {"model_type": kind}).architecture

    assert all(mixer.masked == masked for run in model.runs for mixer in run.layer.mixers)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"alibi": True}, "alibi: expected False"),
        ({"activation_type": "gelu"}, "block_type: expected sequential with swiglu"),
        ({"layer_norm_type": "gemma"}, "layer_norm_type: expected default"),
        ({"block_type": []}, "block_type: expected sequential with swiglu"),
        ({"layer_norm_type": {}}, "layer_norm_type: expected default"),
    ],
)
def test_what_the_code_of_olmo_can_do_besides_is_refused(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(OLMO | changed)


def test_orion_has_norms_with_biases():
    config = TEXT | {"num_key_value_heads": 4}

    llama = parameters(config | {"model_type": "llama"})
    assert parameters(config | {"model_type": "orion"}) == llama + 256 * (2 * config["num_hidden_layers"] + 1)


@pytest.mark.parametrize(
    ("kind", "harmless", "other"),
    [
        ("jamba", {"mamba_inner_layernorms": True}, None),
        ("falcon", {"ff_factor": 4}, {"ff_factor": 8}),
        ("nemotron", {"partial_rotary_percent": 0.5, "num_key_value_heads": 8}, None),
        ("ernie4_5", {"compression_ratio": 1.0}, None),
        ("hunyuan_v1_moe", {"num_shared_expert": [1] * 4, "num_hidden_layers": 4}, {"num_shared_expert": 2}),
        ("hunyuan_v1_dense", {"num_experts": 1, "moe_topk": 1}, {"num_experts": 8}),
    ],
)
def test_keys_of_published_files_that_say_what_the_class_does_anyway_are_read(kind, harmless, other):
    base = {"model_type": kind, "head_dim": 128, "num_experts": 16, "moe_topk": 2}
    base = base if kind == "hunyuan_v1_moe" else {"model_type": kind, **({"head_dim": 128} if "hun" in kind else {})}

    assert architecture_of(base | harmless).architecture
    if other is not None:
        with pytest.raises(InputError, match=next(iter(other))):
            architecture_of(base | other)


def test_heads_of_a_file_that_the_class_works_out_otherwise_are_refused():
    config = ELM | {"model_dim": 1280, "num_transformer_layers": 16, "num_query_heads": [20] * 16}

    with pytest.raises(InputError, match="num_query_heads: expected .*works out from qkv_multipliers"):
        architecture_of(config)


def test_attention_that_picks_blocks_is_counted_whole_and_said():
    assert "picks blocks of keys" in architecture_of(MINICPM | {"sparse_config": {"topk": 64}}).assumed[0]
    assert not architecture_of(MINICPM).assumed


def block(letter, factor):
    """Return a block whose attention is whole (A), left out (-) or one matrix (L), and its network by its factor."""
    attention = {"n_heads_in_group": 8 if letter == "A" else None, "no_op": letter == "-", "window_length": None}
    network = {"ffn_mult": factor, "no_op": factor is None}
    return {"attention": attention | {"replace_with_linear": letter == "L"}, "ffn": network}


def searched(blocks):
    config = {"model_type": "nemotron-nas", "hidden_size": 8192, "intermediate_size": None, "num_attention_heads": 64}
    config |= {"num_key_value_heads": None, "vocab_size": 128256, "tie_word_embeddings": False}
    return config | {"num_hidden_layers": len(blocks), "block_configs": blocks}


def test_each_block_of_nemotron_nas_is_as_its_own_lines_say():
    # the blocks of Llama-3_3-Nemotron-Super-49B-v1, whose weights are 49,867,145,216 numbers
    narrow = [1.3125, 2.625, 2.625, 1.3125, 5.25, 1.3125, 2.625, 1.3125, 1.3125, 1.3125]
    narrower = [1.3125, 1.0, 1.0, 1.3125, 1.0, 1.0, 1.0, 1.3125, 1.3125, 0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5]
    whole = [("A", 5.25)]
    blocks = [("A", 2.625), *whole * 5, ("-", 2.625), ("-", 2.625), *whole * 3, ("-", 3.28125), *whole * 30]
    blocks += [*(("-", n) for n in narrow), *whole, *(("-", n) for n in narrower), *whole * 9]

    assert parameters(searched([block(*each) for each in blocks])) == 49_867_145_216


def test_blocks_that_hold_nothing_are_left_out_and_a_matrix_in_the_place_of_attention_is_counted():
    plain, more = [block("A", 1.0)], [block("A", 1.0), block("-", None), block("L", None)]

    found = architecture_of(searched(more))
    assert found.architecture.parameters - parameters(searched(plain)) == 8192 * 8192 + 8192
    assert found.assumed == ("1 of the 3 layers hold neither attention nor a network, and are left out",)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"attention": {"n_heads_in_group": 7}}, "n_heads_in_group: 7 does not divide num_attention_heads 64"),
        ({"attention": {"n_heads_in_group": 8, "num_sink_tokens": 4}}, "block_configs.0.attention.num_sink_tokens"),
        ({"ffn": {"moe": {"num_local_experts": 8}}}, "ffn_mult: expected a number above 0"),
        ({"mamba": {}}, "block_configs: 0: expected attention and ffn"),
    ],
)
def test_a_block_that_says_what_is_not_counted_is_refused_by_its_place(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(searched([block("A", 1.0) | changed]))


OF_MAMBA = {"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True} | {
    "pad_vocab_size_multiple": 8
}
OF_PARAMS = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-5}
WITHOUT_TYPE = {
    2_768_345_600: OF_MAMBA,  # Mamba 2.8B
    2_702_599_680: OF_MAMBA  # Mamba-2 2.7B
    | {"ssm_cfg": {"layer": "Mamba2"}, "pad_vocab_size_multiple": 16, "attn_layer_idx": [], "attn_cfg": {}},
    8_030_261_248: OF_PARAMS  # Llama 3 8B
    | {"vocab_size": 128256, "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "rope_theta": 500000.0},
    7_241_732_096: OF_PARAMS | {"vocab_size": 32000, "hidden_dim": 14336, "head_dim": 128},  # Mistral 7B
    46_702_792_704: OF_PARAMS  # Mixtral 8x7B
    | {"vocab_size": 32000, "hidden_dim": 14336, "moe": {"num_experts": 8, "num_experts_per_tok": 2}},
}


@pytest.mark.parametrize("count", WITHOUT_TYPE)
def test_files_of_other_programs_without_a_model_type_have_the_published_parameters_and_say_as_what_they_are_read(
    count,
):
    found = architecture_of(WITHOUT_TYPE[count])

    assert found.architecture.parameters == count
    assert "the file names no model_type; its keys are those of" in found.assumed[0]


SEEING = {"hidden_size": 1024, "num_channels": 3, "image_size": 1540, "patch_size": 14, "intermediate_size": 4096} | {
    **{"num_hidden_layers": 24, "num_attention_heads": 16, "rope_theta": 10000.0, "image_token_id": 10},
}
MERGING = {"mm_projector_id": "patch_merge", "spatial_merge_size": 2, "add_pre_mm_projector_layer_norm": True}
SMALL = OF_PARAMS | {"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "vocab_size": 131072}


def test_a_params_file_of_mistral_with_an_encoder_of_images_has_the_published_parameters_of_both():
    found = architecture_of(SMALL | {"vision_encoder": SEEING | MERGING | {"adapter_bias": False}})

    assert found.architecture.parameters == 24_011_361_280  # Mistral Small 3.1 24B
    assert found.architecture.text_parameters == parameters(SMALL)
    assert "Mistral's params.json, and it is read as mistral3" in found.assumed[0]


def test_an_encoder_whose_patches_are_not_merged_has_biases_in_its_projections_unless_the_file_says_otherwise():
    plain = architecture_of(SMALL | {"vision_encoder": SEEING}).architecture
    bare = architecture_of(SMALL | {"vision_encoder": SEEING | {"adapter_bias": False}}).architecture

    tower = 24 * (4 * 1024**2 + 3 * 1024 * 4096 + 2 * 1024) + 1024 * 3 * 14**2 + 1024
    assert plain.tower_parameters == tower + 5120 * (1024 + 5120 + 2)
    assert plain.parameters - bare.parameters == 2 * 5120


def test_a_size_that_an_encoder_of_mistral_s_own_form_lacks_is_no_default_of_the_library_s():
    with pytest.raises(InputError, match="vision_encoder: hidden_size, patch_size: missing"):
        architecture_of(SMALL | {"vision_encoder": SEEING | {"hidden_size": None, "patch_size": None}})


def test_a_params_file_of_mistral_says_which_tokens_attention_meets_and_scales_queries_without_weights():
    plain = architecture_of(SMALL).architecture
    masked, open_ = (architecture_of(SMALL | {"causal": causal}).architecture for causal in (True, False))

    assert masked == plain == architecture_of(SMALL | {"llama_4_scaling": {"beta": 0.1}}).architecture
    assert open_.runs[0].layer.mixer.masked is False


@pytest.mark.parametrize(
    "changed", [{"mm_projector_id": "other"}, {"add_pre_mm_projector_layer_norm": False}, {"mm_projector_id": None}]
)
def test_an_encoder_of_a_form_that_the_library_has_not_is_refused(changed):
    with pytest.raises(InputError, match="vision_encoder: mm_projector_id: expected patch_merge.* together"):
        architecture_of(SMALL | {"vision_encoder": SEEING | MERGING | changed})


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            OF_PARAMS | {"vocab_size": -1, "multiple_of": 256},
            "vocab_size: -1: the tokenizer has it .Llama 2's has 32,000",
        ),
        (OF_PARAMS | {"vocab_size": 8, "hidden_dim": 64, "multimodal": {"whisper_model_args": 8}}, "multimodal: not"),
        (OF_MAMBA | {"attn_layer_idx": [9], "attn_cfg": {"num_heads": 8}}, "attn_layer_idx: not understood"),
        (OF_MAMBA | {"d_intermediate": 4096}, "d_intermediate: not understood"),
        (OF_MAMBA | {"ssm_cfg": {"layer": "Mamba2", "d_ssm": 64}}, "ssm_cfg.d_ssm: not understood"),
        (OF_MAMBA | {"ssm_cfg": {"layer": "Mamba7"}}, "ssm_cfg: layer: expected Mamba1 or Mamba2, got 'Mamba7'"),
        (OF_MAMBA | {"rms_norm": False}, "rms_norm: expected true"),
        (OF_MAMBA | {"ssm_cfg": {"layer": []}}, "ssm_cfg: layer: expected Mamba1 or Mamba2"),
        (OF_PARAMS | {"vocab_size": 8, "multiple_of": 8, "ffn_dim_multiplier": float("inf")}, "infinity"),
    ],
)
def test_what_such_a_file_says_beyond_the_type_it_is_read_as_is_refused(config, told):
    with pytest.raises(InputError, match=told):
        architecture_of(config)


def test_a_class_that_is_named_after_its_own_type_is_not_told_to_be_another():
    keys = {"num_experts": 8, "num_experts_per_tok": 2, "model_type": "grok-1"}
    named = {"auto_map": {"AutoModelForCausalLM": "modeling_grok1.Grok1ModelForCausalLM"}}

    assert architecture_of(TEXT | keys | named).assumed == architecture_of(TEXT | keys).assumed
