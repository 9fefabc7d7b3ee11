"""Model types with indexers, streams, recurrences, sound and pairs of experts, against the library's own classes."""

import pytest
import torch

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from meshwright.workload.kinds import Attention, Experts, Latent
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_configs import assert_alike

FAST = ("hy_v4", "glm5_next", "step3p7", "deberta-v2", "xlstm", "qwen2_audio", "dinov2", "led")
FAST += ("convbert", "idefics", "wav2vec2-bert", "blt")
FAST += ("funnel", "gpt_neox_japanese", "moonshine", "prophetnet", "roc_bert", "cohere_asr")
FAST += ("wav2vec2", "hubert", "sew", "perceiver")
SPARSE = {"sparse_attention_config": {"sparse_attention_freq": [0, 1, 0, 1], "sparse_topk_blocks": 8}}
SMALL = {"num_hidden_layers": 4, "vocab_size": 1000}
SECTIONS = {"rope_type": "default", "rope_theta": 1e8, "mrope_section": [4, 2, 2]}
# weights that the library multiplies in no linear layer: convolutions, blocks of gates, tables of what is picked
LINEAR = ("minimax_m3_vl_text", "qwen4_exp_text", "muse_glimmer", "doge", "nomic_bert", "roformer", "longt5")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", FAST)
def test_newer_types_have_the_parameters_of_the_library(kind):
    pytest.importorskip("transformers")
    assert_alike([library.base(kind)])


TINY = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, **SMALL}
TINY |= {"num_key_value_heads": 2}
FEW = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
OF_WHISPER = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 96, "output_dim": 64}
CONFORMER = {"hidden_size": 32, "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "num_blocks": 2} | {
    "num_attention_heads": 4, "intermediate_size": 48, "kernel_size": 5, "nemo_conv_channels": 16, "time_reduction": 4,
    "bias_symmetric": True, "depthwise_multiplier": 2, "downsample_rate": 2,
}  # fmt: skip
FLAMINGO = {"model_type": "audioflamingo3_encoder", "max_source_positions": 100}
LLAMA = TINY | {"model_type": "llama", "head_dim": 16, "num_key_value_heads": 2}
REALTIME = {"model_type": "voxtral_realtime_text", "sliding_window": 64}
WITH_ENCODERS = {
    "audioflamingo3": {"text_config": TINY, "audio_config": FEW, "projector_bias": False},
    "musicflamingo": {"text_config": TINY, "audio_config": FEW | FLAMINGO},
    "glmasr": {"text_config": LLAMA, "audio_config": FEW | {"num_mel_bins": 64}},
    "qwen3_asr": {
        "text_config": LLAMA | {"model_type": "qwen3"},
        "audio_config": OF_WHISPER | {"downsample_hidden_size": 24},
    },
    "voxtral_realtime": {
        "text_config": LLAMA | REALTIME,
        "audio_config": FEW | {"head_dim": 16},
        "downsample_factor": 2,
    },
    "phi4_multimodal": {key: value for key, value in LLAMA.items() if key not in {"model_type", "head_dim"}}
    | {"vision_config": FEW | {"image_size": 56}, "audio_config": CONFORMER, "pad_token_id": 0},
    "hyperclovax_vision_v2": {
        "text_config": LLAMA | {"model_type": "hyperclovax"},
        "vision_config": {"hidden_size": 32, "out_hidden_size": 48, "depth": 2, "num_heads": 4},
    },
    "video_llama_3": {"text_config": TINY, "vision_config": FEW},
    "cosmos3_edge": {
        "text_config": LLAMA | {"model_type": "cosmos3_edge_text", "rope_parameters": SECTIONS},
        "vision_config": FEW | {"num_patches": 16},
        "projector_hidden_size": 80,
    },
}


@pytest.mark.parametrize("tied", [None, True, False])
@pytest.mark.parametrize("kind", WITH_ENCODERS)
def test_encoders_of_sound_and_images_have_the_parameters_of_the_library(kind, tied):
    pytest.importorskip("transformers")
    config = {"model_type": kind, **WITH_ENCODERS[kind]} | ({} if tied is None else {"tie_word_embeddings": tied})

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def test_gemma_3n_has_its_published_size_with_both_encoders():
    transformers = pytest.importorskip("transformers")
    sight = {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc"}
    config = {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}, "vision_config": sight}
    without, whole = (
        architecture_of(config | sound).architecture for sound in ({}, {"audio_config": {"vocab_size": 0}})
    )
    with torch.device("meta"):
        sound = library.parameters(transformers.AutoModel.from_config(transformers.Gemma3nAudioConfig()))

    assert whole.parameters == pytest.approx(7.85e9, rel=5e-3)  # E4B's files, with keys that its last layers do not use
    assert without.tower_parameters - whole.tower_parameters == 128 * 1536
    assert whole.tower_parameters == 294_284_096 + 132 * 2048 - 2 * 2048 + 2048 * 2048 + sound + 2 * 1536 + 1536 * 2048
    with pytest.raises(InputError, match="architecture, model_args: expected mobilenetv5_300m_enc"):
        architecture_of(config | {"vision_config": sight | {"architecture": "mobilenetv4_conv_small"}})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", LINEAR)
def test_a_token_is_multiplied_with_the_weights_of_the_librarys_linear_layers(kind):
    pytest.importorskip("transformers")
    config = library.base(kind)
    found = architecture_of(config).architecture
    networks = [run.layer.network for run in found.runs]
    tops = {network.count: network.top for network in networks if isinstance(network, Experts)}

    assert found.matmul_parameters() == pytest.approx(library.multiplied(library.model(config), tops), rel=5e-3)


def test_an_indexer_over_grouped_attention_leaves_the_keys_that_it_picks():
    model = architecture_of({"model_type": "minimax_m3_vl_text", **SMALL, **SPARSE}).architecture
    full, sparse = (run.layer.mixer for run in model.runs[:2])

    assert isinstance(sparse, Attention)
    assert sparse.attended(65536, causal=False) == 8 * 128
    assert full.attended(65536, causal=False) == 65536
    index = 2.0 * sparse.index_heads * sparse.index_dim * 65536
    assert sparse.flops(65536, causal=False) == pytest.approx(2.0 * 8 * 128 * sparse.score_width + index)


def test_latent_attention_in_a_window_meets_the_last_tokens_and_has_sizes_of_its_own():
    model = architecture_of({"model_type": "dots3_note_text", "num_hidden_layers": 4}).architecture
    mixers = [run.layer.mixer for run in model.runs for _ in range(run.count)]

    assert all(isinstance(mixer, Latent) for mixer in mixers)
    assert [(mixer.window, mixer.heads, mixer.index_top) for mixer in mixers if isinstance(mixer, Latent)] == [
        *[(0, 128, 2048)] * 2,
        *[(512, 64, 0)] * 2,
    ]


def test_an_indexer_that_scores_means_of_blocks_scores_as_many_fewer():
    config = {"model_type": "qwen4_exp_text", **SMALL, **library.FILLED["qwen4_exp_text"]}
    stack = architecture_of(config).architecture.runs
    mixer = next(run.layer.mixer for run in stack if isinstance(run.layer.mixer, Attention))
    per_key = 2.0 * mixer.index_heads * mixer.index_dim

    assert mixer.flops(4096, causal=False) == pytest.approx(
        2.0 * 2048 * mixer.score_width + per_key * 4096 / mixer.index_rate
    )


def test_keys_that_a_layer_takes_from_an_earlier_one_are_not_held_twice():
    base = {"model_type": "mistral_large4_text", **SMALL}
    own, shared = (
        architecture_of(base | said).architecture.parameters for said in ({}, {"kv_source_layers": [0, 0, 2, 2]})
    )
    # the fourth layer has no rotary part
    assert own - shared == 2 * 512 + 6144 * (512 + 64) + 6144 * 512


def test_experts_of_images_are_held_and_no_token_of_text_visits_them():
    base = {"model_type": "ernie4_5_vl_moe_text", **SMALL}
    model, narrower = (
        architecture_of(base | {"moe_intermediate_size": [1536, image]}).architecture for image in (512, 256)
    )

    assert model.parameters - narrower.parameters == 3 * 64 * 3 * 2560 * 256
    assert model.active_parameters == narrower.active_parameters


def test_attention_that_is_spread_over_experts_is_active_in_the_experts_that_a_token_visits():
    model = architecture_of({"model_type": "jetmoe", **SMALL}).architecture
    of_layer = 2 * 2048 * 2048 + 3 * 2048 * 5632  # of one expert of attention and one of the network

    assert model.parameters - model.active_parameters == 4 * 6 * of_layer


def test_sound_that_a_type_does_not_hear_is_refused_by_name():
    config = library.base("qwen3_vl") if pytest.importorskip("transformers") else {}

    with pytest.raises(InputError, match="audio_config: not understood"):
        architecture_of(config | {"audio_config": {"d_model": 64}})


def test_a_key_of_one_layer_that_is_not_understood_is_refused():
    config = {"model_type": "step3p5", **SMALL, "per_layer_config": {"3": {"num_experts": 7}}}

    with pytest.raises(InputError, match="per_layer_config.num_experts"):
        architecture_of(config)


PLM = {"model_type": "perception_lm", "text_config": LLAMA | {"tie_word_embeddings": True}}
ENCODER_OF_TIMM = {"model_type": "timm_wrapper", "architecture": "vit_pe_lang_large_patch14_448"}


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ({}, 291_415_040),  # as timm 1.0.31 builds it
        ({"model_args": {"depth": 1, "use_post_transformer_norm": True}}, 14_253_056 + 2 * 1024),
        ({"architecture": "vit_pe_lang_gigantic_patch14_448"}, 1_740_922_624),  # published: 1.7 B
    ],
)
def test_a_perception_encoder_has_the_sizes_that_timm_has_under_its_name(said, count):
    width = 1536 if "gigantic" in str(said) else 1024
    found = architecture_of(PLM | {"vision_config": ENCODER_OF_TIMM | said}).architecture

    assert found.tower_parameters == count + 64 * (width + 1 + 64 + 1)
    assert found.tied


def test_a_perception_encoder_that_timm_has_under_another_name_is_refused():
    with pytest.raises(InputError, match="architecture: expected vit_pe_lang_large.* got 'resnet50'"):
        architecture_of(PLM | {"vision_config": ENCODER_OF_TIMM | {"architecture": "resnet50"}})
    with pytest.raises(InputError, match="model_args.block_fn: not understood"):
        architecture_of(PLM | {"vision_config": ENCODER_OF_TIMM | {"model_args": {"block_fn": 3}}})


def test_the_word_of_the_text_model_on_its_output_holds_where_the_whole_says_nothing():
    apart = PLM | {"vision_config": ENCODER_OF_TIMM, "tie_word_embeddings": False}

    assert not architecture_of(apart).architecture.tied


DOTS = {"model_type": "dots3_note_text", "num_hidden_layers": 12, "hidden_size": 512, "pad_token_id": 0}
DOTS |= {"layer_types": ["indexed_attention", *["sliding_attention"] * 11], "n_routed_experts": 8}
NARROW = {"num_attention_heads": 64, "num_key_value_heads": 64, "qk_nope_head_dim": 192, "kv_lora_rank": 256}


@pytest.mark.parametrize("digits", [1, 2])
def test_values_of_single_layers_hold_however_the_place_of_a_layer_is_written(digits):
    pytest.importorskip("transformers")
    config = DOTS | {"per_layer_config": {f"{place:0{digits}}": NARROW for place in range(1, 12)}}
    model = architecture_of(config).architecture

    assert model.parameters == library.parameters(library.model(config))
    assert [(run.count, run.layer.mixer.heads) for run in model.runs if isinstance(run.layer.mixer, Latent)][-1] == (
        *(11, 64),
    )


@pytest.mark.parametrize("places", [["12"], ["1", "01"], ["sliding_attention"]])
def test_a_value_of_a_layer_that_there_is_not_or_is_twice_is_refused(places):
    with pytest.raises(InputError, match=f"per_layer_config: {places[-1]}: expected each of 0 to 11 once"):
        architecture_of(DOTS | {"per_layer_config": dict.fromkeys(places, NARROW)})


def test_a_key_that_is_read_for_all_layers_alone_is_refused_for_a_single_one():
    with pytest.raises(InputError, match="per_layer_config.moe_intermediate_size"):
        architecture_of(DOTS | {"per_layer_config": {"1": NARROW | {"moe_intermediate_size": 64}}})


def test_scores_with_tables_of_places_are_multiplications_without_weights_of_their_own():
    base = {"model_type": "deberta-v2", **SMALL, "relative_attention": True, "position_buckets": 64}
    one, both = (
        architecture_of(base | {"share_att_key": True, "pos_att_type": sides}).architecture
        for sides in (["c2p"], ["c2p", "p2c"])
    )

    assert one.parameters == both.parameters
    more = both.model_flops_per_token(512) - one.model_flops_per_token(512)
    assert more == pytest.approx(4 * 3 * 2.0 * 2 * 64 * 1536)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "part", "changed"),
    [
        ("molmo2", "vision_config", {"num_hidden_layers": 30}),
        ("molmo2", "vision_config", {"hidden_size": 576}),
        ("got_ocr2", "text_config", {"hidden_size": 512}),
        ("minimax_m3_vl", "text_config", {"tie_word_embeddings": True}),
        ("switch_transformers", None, {"encoder_sparse_step": 2}),
        ("longt5", None, {"is_gated_act": True}),
        ("longt5", None, {"tie_word_embeddings": False}),
        ("paddleocr_vl", None, {"text_config": {}, "tie_word_embeddings": False}),
        ("qwen2_audio", None, {"tie_word_embeddings": True}),
        ("voxtral", None, {"tie_word_embeddings": True}),
        ("albert", None, {"num_hidden_groups": 3, "hidden_size": 512}),
        ("albert", None, {"num_hidden_groups": 2, "inner_group_num": 2}),
        ("albert", None, {"hidden_size": 128}),
        ("beit", None, {"use_relative_position_bias": True, "image_size": 384}),
        ("beit", None, {"use_shared_relative_position_bias": True}),
    ],
)
def test_keys_that_decide_over_others_change_the_parameters_as_in_the_library(kind, part, changed):
    pytest.importorskip("transformers")
    base = library.base(kind)
    assert_alike([base | ({part: base[part] | changed} if part else changed)])


def test_an_output_that_a_class_never_ties_is_refused_where_a_key_says_that_it_is_tied():
    with pytest.raises(InputError, match="tie_word_embeddings: expected false"):
        architecture_of({"model_type": "xlstm", "tie_word_embeddings": True})


OF_GEMMA = {"intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2} | {
    "head_dim": 16,
    "vocab_size": 1000,
}


@pytest.mark.parametrize("widths", [(96, 64), (64, 96)])
def test_sides_of_t5gemma_may_be_of_two_widths(widths):
    pytest.importorskip("transformers")
    sides = {
        side: OF_GEMMA | {"hidden_size": width} for side, width in zip(("encoder", "decoder"), widths, strict=True)
    }
    config = {"model_type": "t5gemma", **sides}
    found, whole = architecture_of(config), library.model(config)

    assert found.architecture.parameters == library.parameters(whole)
    assert found.architecture.matmul_parameters() == pytest.approx(library.multiplied(whole))
    assert any("stages as of the wider one" in told for told in found.assumed)


def test_an_encoder_may_be_joined_by_a_resampler_a_table_or_a_second_encoder():
    pytest.importorskip("transformers")
    text = TINY | {"vocab_size": 40_000}
    resampler = {"resampler_depth": 2, "resampler_n_heads": 4, "resampler_head_dim": 8, "num_key_value_heads": 2}
    second = {key: value for key, value in FEW.items() if key != "intermediate_size"} | {"mlp_ratio": 2.0}
    second |= {"window_size": 7, "global_attn_indexes": [1], "output_channels": 16}
    configs = {
        "idefics2": {"perceiver_config": resampler, "text_config": text | {"model_type": "mistral"}},
        "ovis2": {"hidden_size": 64, "text_config": text, "tie_word_embeddings": True}
        | {"vision_config": FEW | {"qkv_bias": True, "hidden_stride": 2}},
        "deepseek_vl_hybrid": {"high_res_vision_config": second, "text_config": text | {"model_type": "llama"}},
    }
    for kind, changed in configs.items():
        config = {"model_type": kind, "vision_config": FEW, **changed}
        assert architecture_of(config).architecture.parameters == library.parameters(library.model(config)), kind


def test_sizes_of_ovis2_that_are_not_those_of_its_text_model_are_refused():
    config = {"model_type": "ovis2", "vision_config": FEW, "text_config": TINY}

    with pytest.raises(InputError, match="hidden_size: 1536 beside the text model, 64 inside"):
        architecture_of(config)
    with pytest.raises(InputError, match="vocab_size: 151643 beside the text model, 1000 inside"):
        architecture_of(config | {"hidden_size": 64, "tie_word_embeddings": False})


def test_the_layers_of_albert_multiply_with_weights_that_are_held_once_a_group():
    pytest.importorskip("transformers")
    base = library.base("albert") | {"hidden_size": 512, "architectures": ["AlbertForMaskedLM"]}
    one, three = (architecture_of(base | {"num_hidden_groups": groups}).architecture for groups in (1, 3))
    groups = [part for name, part in library.model(base).named_modules() if name.endswith("albert_layer_groups.0")]

    assert [(run.count, run.layer.borrowed > 0) for run in one.runs] == [(1, False), (3, True)]
    assert [(run.count, run.layer.borrowed > 0) for run in three.runs] == [(1, False), (1, True), (2, False)]
    assert one.parameters == library.parameters(library.model(base))
    assert three.parameters - one.parameters == 2 * library.parameters(groups[0])
    assert one.matmul_parameters() == three.matmul_parameters()
    with pytest.raises(InputError, match="num_hidden_groups, inner_group_num: expected 1 to 4"):
        architecture_of(base | {"num_hidden_groups": 5})


ZAMBA = {"model_type": "zamba2", "hidden_size": 256, "num_attention_heads": 4, "n_mamba_heads": 8, "vocab_size": 1000}
ZAMBA |= {"num_hidden_layers": 6, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid", "hybrid"]}


@pytest.mark.parametrize(
    ("changed", "borrows"),
    [
        ({}, 3),
        ({"num_mem_blocks": 2, "hybrid_layer_ids": [1, 3, 4, 5], "use_shared_mlp_adapter": True}, 2),
        ({"num_mem_blocks": 6, "gated_linear_unit": True}, 0),
        ({"num_mem_blocks": 2, "use_shared_attention_adapter": True, "adapter_rank": 16}, 2),
        ({"num_key_value_heads": 2, "intermediate_size": 512, "attention_head_dim": 128}, 3),
        ({"mamba_ngroups": 2, "mamba_d_state": 32, "mamba_expand": 4}, 3),
    ],
)
def test_layers_of_zamba2_take_turns_with_blocks_and_have_adapters_of_their_own(changed, borrows):
    pytest.importorskip("transformers")
    config = ZAMBA | changed
    found = architecture_of(config).architecture

    assert found.parameters == library.parameters(library.model(config))
    assert sum(run.count for run in found.runs if run.layer.borrowed) == borrows


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"layers_block_type": None}, "layers_block_type: expected mamba or hybrid for each of the 6 layers"),
        ({"layers_block_type": ["mamba"] * 5}, "layers_block_type: expected a word for each of the 6 layers"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: expected true"),
        ({"attention_head_dim": 64}, "attention_head_dim: expected 128, as the class has it, got 64"),
        ({"add_bias_linear": True}, "add_bias_linear: expected false"),
        ({"gated_linear_unit": False}, "gated_linear_unit: expected True"),
        ({"num_mem_blocks": 0}, "num_mem_blocks: 4 does not divide 512, or no block"),
    ],
)
def test_a_zamba2_whose_sizes_are_not_counted_is_refused_by_name(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(ZAMBA | changed)


def test_a_zamba2_under_the_keys_of_its_first_code_is_the_model_that_todays_keys_describe():
    today = {"mamba_expand": 2, "mamba_d_state": 32, "mamba_d_conv": 3, "adapter_rank": 16, "num_mem_blocks": 2}
    first = {"expansion_factor": 2, "state_size": 32, "conv_dimension": 3, "lora_rank": 16, "num_mem_blocks": 2}
    first |= {"use_shared_block_lora": True, "mamba_headdim": 64}
    early = {key: value for key, value in ZAMBA.items() if key != "n_mamba_heads"} | first
    found = architecture_of(early)

    assert found.architecture.runs == architecture_of(ZAMBA | today).architecture.runs
    assert found.ignored == ()
    assert "n_mamba_heads = 8, mamba_expand x hidden_size / mamba_headdim: the file names none" in found.assumed
    with pytest.raises(InputError, match="mamba_headdim: 60 does not divide mamba_expand x hidden_size = 512"):
        architecture_of(early | {"mamba_headdim": 60})


def test_zamba2_of_2_7_b_has_its_published_size():
    sizes = {
        "hidden_size": 2560,
        "num_hidden_layers": 54,
        "num_mem_blocks": 2,
        "n_mamba_heads": 80,
        "mamba_headdim": 64,
    }
    config = {"model_type": "zamba2", **sizes, "num_attention_heads": 32, "adapter_rank": 128, "vocab_size": 32000}

    assert architecture_of(config).architecture.parameters == pytest.approx(2.662e9, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mpnet", {"relative_attention_num_buckets": 64}),
        ("layoutlm", {"max_2d_position_embeddings": 512}),
        ("layoutlmv3", {"has_spatial_attention_bias": False, "rel_pos_bins": 16}),
        ("dinov3_vit", {"num_register_tokens": 4, "use_gated_mlp": True, "query_bias": False, "value_bias": False}),
        ("wavlm", {"num_buckets": 64, "do_stable_layer_norm": True}),
        ("unispeech", {"conv_bias": True}),
        ("unispeech-sat", {"num_clusters": 100}),
        ("emu3", {}),
    ],
)
def test_readers_of_pages_images_sound_and_pictures_as_words_have_the_parameters_of_the_library(kind, changes):
    pytest.importorskip("transformers")
    config = library.base(kind) | changes

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def test_a_page_has_more_than_nine_classes_of_a_word_behind_a_projection():
    pytest.importorskip("transformers")
    for count in (9, 10):
        labels = {"id2label": {str(i): f"field {i}" for i in range(count)}}
        config = library.base("layoutlmv3") | labels | {"architectures": ["LayoutLMv3ForTokenClassification"]}
        assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))
