"""Types whose sides, towers or blocks are joined in ways of their own, against the library's own classes."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from meshwright.workload.kinds import Dense
from tests.unit.workload.configs import library

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
LLAMA = TINY | {"model_type": "llama", "vocab_size": 1000}
QWEN = LLAMA | {"model_type": "qwen3_5_text", "head_dim": 16, "num_key_value_heads": 2}
SIGHT = TINY | {"hidden_size": 32, "image_size": 28, "patch_size": 14}
CODES = {"base_channels": 32, "channel_multiplier": [1, 2, 2], "num_embeddings": 80, "latent_channels": 24}
CODES |= {"num_res_blocks": 1, "projection_dim": 64, "image_token_embed_dim": 64, "double_latent": True}
SEGMENTS = {key: value for key, value in TINY.items() if key != "intermediate_size"}
SEGMENTS |= {"image_size": 64, "patch_size": 16, "mlp_dim": 96, "global_attn_indexes": [1], "window_size": 2}
SEGMENTS |= {"output_channels": 16, "downsample_channels": [24, 40]}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1}
OCR = LLAMA | ROUTED | {"model_type": "unlimited_ocr_text", "num_key_value_heads": 4}
HEARD = {"hidden_dim": 32, "num_layers": 3, "num_heads": 4, "output_dim": 12, "input_dim": 20, "max_pos_emb": 300}
FORMER = TINY | {"model_type": "blip_2_qformer", "hidden_size": 48, "encoder_hidden_size": 32}
ASKS = FORMER | {"model_type": "instructblip_qformer", "vocab_size": 70, "max_position_embeddings": 20}
BART = {"model_type": "bart", "d_model": 64, "vocab_size": 1000, "encoder_layers": 2, "decoder_layers": 3}
BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 112}
STAGES = {"embed_dim": [16, 32, 48], "depths": [1, 2, 1], "patch_size": [7, 3, 3], "patch_stride": [4, 2, 2]}
STAGES |= {"patch_padding": [3, 1, 1], "patch_prenorm": [False, True, True], "num_heads": [2, 2, 3]}
STAGES |= {"num_groups": [2, 2, 3], "projection_dim": 64, "qkv_bias": False, "mlp_ratio": 3.0}
CLIP = SIGHT | {"model_type": "clip_vision_model", "hidden_size": 64}
PAPER = {"max_image_size": 64, "patch_size": 16, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 96}
JOINED = {
    "blip-2": {
        "architectures": ["Blip2ForConditionalGeneration"],
        "text_config": TINY | {"model_type": "opt", "vocab_size": 500, "word_embed_proj_dim": 64, "ffn_dim": 96},
        "vision_config": SIGHT | {"qkv_bias": False},
        "qformer_config": FORMER,
        "num_query_tokens": 8,
    },
    "janus": {"text_config": LLAMA, "vision_config": SIGHT | {"projection_dim": 64, "depth": 3}, "vq_config": CODES},
    "unlimited_ocr": {"text_config": OCR, "vision_config": {"sam_config": SEGMENTS, "encoder_config": SIGHT}},
    "minicpmv4_7": {"text_config": QWEN, "vision_config": SIGHT, "merger_times": 2},
    "minicpmv4_6": {"text_config": QWEN, "vision_config": SIGHT, "merger_times": 2},
    "instructblip": {"text_config": LLAMA, "vision_config": SIGHT, "qformer_config": ASKS, "num_query_tokens": 8},
    "instructblipvideo": {
        "text_config": LLAMA,
        "vision_config": SIGHT | {"qkv_bias": False},
        "qformer_config": ASKS | {"model_type": "instructblipvideo_qformer", "cross_attention_frequency": 1},
    },
    "video_llava": {"text_config": LLAMA, "vision_config": CLIP, "multimodal_projector_bias": False},
    "granite4_vision": {
        "text_config": LLAMA | {"model_type": "granite4_vision_text"},
        "vision_config": CLIP,
        "qformer_config": {"intermediate_size": 40},
        "downsample_rate": "1/2",
        "deepstack_layer_map": [[0, 1], [1, 2]],
    },
    "hunyuan_vl": {
        "text_config": LLAMA | {"model_type": "hunyuan_vl_text", "head_dim": 24, "attention_bias": True},
        "vision_config": PAPER,
    },
    "granite_speech": {
        "text_config": LLAMA | {"model_type": "granite"},
        "encoder_config": HEARD,
        "projector_config": FORMER,
        "window_size": 20,
    },
    "granite_speech_plus": {
        "text_config": LLAMA | {"model_type": "granite"},
        "encoder_config": HEARD | {"cat_hidden_layers": [1]},
        "projector_config": FORMER | {"encoder_hidden_size": 64, "cross_attention_frequency": 1},
    },
}


@pytest.mark.parametrize("tied", [None, True, False])
@pytest.mark.parametrize("kind", JOINED)
def test_towers_that_see_hear_and_draw_have_the_parameters_of_the_library(kind, tied):
    pytest.importorskip("transformers")
    config = {"model_type": kind, **JOINED[kind]} | ({} if tied is None else {"tie_word_embeddings": tied})

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


@pytest.mark.parametrize("changed", [{}, {"num_hidden_layers": 2, "max_position_embeddings": 64}])
def test_florence_2_has_a_pair_of_text_behind_its_stages_of_two_kinds_of_attention(changed):
    pytest.importorskip("transformers")
    config = {"model_type": "florence2", "text_config": BART | changed, "vision_config": STAGES}

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def test_a_file_of_florence_2_as_first_published_is_that_of_the_librarys_class():
    first = {key: value for key, value in STAGES.items() if key != "embed_dim"}
    first |= {"model_type": "", "dim_embed": [16, 32, 48], "image_feature_source": ["spatial_avg_pool"]}
    first |= {"visual_temporal_embedding": {"type": "COSINE", "max_temporal_embeddings": 9}}
    first |= {"image_pos_embed": {"type": "learned_abs_2d", "max_pos_embeddings": 20}}
    config = {"model_type": "florence2", "text_config": BART | {"model_type": "florence2_language"}}
    today = {"text_config": BART, "vision_config": STAGES | {"max_position_embeddings": 20}}
    found = architecture_of(config | {"vision_config": first, "projection_dim": 64})

    assert found.architecture == architecture_of(config | today).architecture
    with pytest.raises(InputError, match=r"vision_config.image_pos_embed: not understood"):
        architecture_of(config | {"vision_config": first | {"image_pos_embed": {"type": "none"}}})


def test_sizes_of_hunyuan_vls_text_that_stand_beside_its_encoder_are_those_of_its_text_model():
    pytest.importorskip("transformers")
    text = {key: value for key, value in LLAMA.items() if key != "model_type"} | {"attention_head_dim": 16}
    config = {"model_type": "hunyuan_vl", **text, "vision_config": PAPER, "tie_word_embeddings": False}
    found = architecture_of(config).architecture

    assert found.parameters == library.parameters(library.model(config))
    assert found.tied  # by the text model's class, to which the key beside it says nothing


BOTH = TINY | {"vocab_size": 1000, "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 16}


@pytest.mark.parametrize("sides", [({}, {}), ({"num_hidden_layers": 7, "intermediate_size": 80}, {"head_dim": 16})])
def test_both_sides_of_t5gemma_2_share_an_embedding_and_its_decoder_has_one_attention(sides):
    pytest.importorskip("transformers")
    heard, own = (BOTH | side for side in sides)
    config = {"model_type": "t5gemma2", "encoder": {"text_config": heard, "vision_config": SIGHT}, "decoder": own}
    found, module = architecture_of(config).architecture, library.model(config)

    assert found.parameters == library.parameters(module)
    assert found.matmul_parameters() == library.multiplied(module)
    windows = [mixer.window for run in found.runs for mixer in run.layer.mixers[:1] for _ in range(run.count)]
    assert windows == [16] * 5 + [0, 16] + [16] * 4 if sides[0] else windows == [16] * 8
    with pytest.raises(InputError, match="tie_word_embeddings: expected true"):
        architecture_of(config | {"tie_word_embeddings": False})


@pytest.mark.parametrize("places", ["relative", "rotary", None])
def test_layers_of_wav2vec2_conformer_are_those_of_a_conformer_between_wav2vecs_ends(places):
    pytest.importorskip("transformers")
    config = {"model_type": "wav2vec2-conformer", **TINY, "vocab_size": 40, "position_embeddings_type": places}
    config |= {"num_conv_pos_embedding_groups": 4, "conv_depthwise_kernel_size": 7, "architectures": [CTC]}
    found = architecture_of(config)

    assert found.architecture.parameters == library.parameters(library.model(config))
    assert any("is a frame behind the convolutions" in told for told in found.token)
    with pytest.raises(InputError, match="expected rotary, relative, got 'relative_key'"):
        architecture_of(config | {"position_embeddings_type": "relative_key"})


CTC = "Wav2Vec2ConformerForCTC"


@pytest.mark.parametrize("end", ["Model", "TextModelWithProjection", "VisionModel", "ForImageClassification"])
def test_metaclip_2_has_the_two_encoders_of_clip(end):
    pytest.importorskip("transformers")
    text, image = TINY | {"vocab_size": 1000, "projection_dim": 48}, SIGHT | {"projection_dim": 48}
    both = {"text_config": text, "vision_config": image, "projection_dim": 48}
    kind, sizes = ("metaclip_2_text_model", text) if "Text" in end else ("metaclip_2", both)
    kind, sizes = ("metaclip_2_vision_model", image) if "Vision" in end else (kind, sizes)
    config = {"model_type": kind, **sizes, "architectures": [f"MetaClip2{end}"]}

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


ZAMBA = {"model_type": "zamba", "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000, "mamba_d_state": 8}
ZAMBA |= {"num_hidden_layers": 12, "intermediate_size": 320, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_dt_rank": 24},
        {"layers_block_type": ["hybrid", "mamba", "hybrid"] * 4, "num_key_value_heads": 2, "mamba_conv_bias": False},
    ],
)
def test_layers_of_zamba_share_one_block(changed):
    pytest.importorskip("transformers")
    config = ZAMBA | changed
    found, module = architecture_of(config).architecture, library.model(config)
    hybrids = sum(run.count for run in found.runs if run.layer.beside is not None)

    assert found.parameters == library.parameters(module)
    assert hybrids == sum(kind == "hybrid" for kind in module.config.layers_block_type)
    assert sum(run.count for run in found.runs if run.layer.borrowed) == hybrids - 1


def test_layers_of_funnel_that_are_repeated_are_held_once_and_multiplied_each_time():
    pytest.importorskip("transformers")
    base = {"model_type": "funnel", "block_sizes": [2, 1, 1], "d_model": 64, "n_head": 4, "d_head": 24, "d_inner": 96}
    base |= {"vocab_size": 1000}
    config = base | {"block_repeats": [1, 3, 2]}
    once, again = (architecture_of(each).architecture for each in (base, config))
    layer = once.runs[0].layer.weights(64)

    assert again.parameters == once.parameters == library.parameters(library.model(config))
    assert [run.layer.weights(64) for run in once.runs] == [layer, layer // 2, layer // 4, layer]
    assert again.matmul_parameters() - once.matmul_parameters() == 2 * (layer // 2) + layer // 4


AHEAD = {"model_type": "prophetnet", "hidden_size": 64, "num_encoder_layers": 2, "num_decoder_layers": 3}
AHEAD |= {"num_encoder_attention_heads": 2, "num_decoder_attention_heads": 4, "vocab_size": 1000, "num_buckets": 8}


@pytest.mark.parametrize("ngram", [1, 3])
def test_each_stream_of_prophetnet_passes_the_decoder_and_all_but_the_texts_the_output(ngram):
    pytest.importorskip("transformers")
    config = AHEAD | {"ngram": ngram, "encoder_ffn_dim": 96, "decoder_ffn_dim": 128}
    found, module = architecture_of(config).architecture, library.model(config)
    sides = {side: library.multiplied(getattr(module.prophetnet, side)) for side in ("encoder", "decoder")}

    assert found.parameters == library.parameters(module)
    streams = sides["encoder"] + (1 + ngram) * sides["decoder"] + ngram * 64 * 1000
    assert found.matmul_parameters() == streams


@pytest.mark.parametrize("widths", [(96, 64), (64, 96), (64, 64)])
def test_what_hears_and_what_writes_may_be_of_two_widths(widths):
    pytest.importorskip("transformers")
    heard, own = widths
    sound = {"hidden_size": heard, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = {"model_type": "cohere_asr", **TINY, "hidden_size": own, "vocab_size": 500}
    config |= {"encoder_config": sound | {"subsampling_conv_channels": 16, "num_mel_bins": 40}}
    found, module = architecture_of(config), library.model(config)

    assert found.architecture.parameters == library.parameters(module)
    convolved = 3 * 3 * heard * heard  # by its convolutions of one frame
    placed = 3 * heard * heard  # a table of places, which no frame meets
    before = 16 * 5 * heard  # behind the convolutions that leave fewer frames: held, and not counted as met
    assert found.architecture.matmul_parameters() == library.multiplied(module) + convolved - placed - before
    assert any("as of the wider one" in told for told in found.assumed) == (heard != own)


def test_a_decoder_that_hears_is_refused_where_its_heads_are_not_those_of_its_encoder():
    with pytest.raises(InputError, match=r"expected those of the encoder, .*, \(8, 8\), got \(8, 2\)"):
        architecture_of({"model_type": "moonshine", "decoder_num_key_value_heads": 2})


def test_networks_of_moonshine_are_gated_in_the_decoder_alone():
    model = architecture_of({"model_type": "moonshine"}).architecture
    gated = [run.layer.network.gated for run in model.runs if isinstance(run.layer.network, Dense)]

    assert gated == [False, True]


def test_prompt_and_images_beside_a_window_are_told_to_be_met_in_full():
    found = architecture_of({"model_type": "unlimited_ocr", **JOINED["unlimited_ocr"]})

    assert any("the last 128 and all of prompt and images" in told for told in found.assumed)
    assert found.architecture.model_flops_per_token(8192) > found.architecture.model_flops_per_token(1024)


def test_patches_of_an_encoder_that_two_places_say_differently_are_refused():
    config = {"model_type": "minicpmv4_7", **JOINED["minicpmv4_7"]}

    assert architecture_of(config | {"patch_size": 14}).ignored == ()
    with pytest.raises(InputError, match="patch_size: 16 beside vision_config, 14 inside"):
        architecture_of(config | {"patch_size": 16})


def test_tables_of_shapes_and_sounds_are_joined_only_where_keys_say_so():
    pytest.importorskip("transformers")
    for changed in ({"concat_input": False}, {"enable_shape": False}, {"enable_pronunciation": False}):
        config = {"model_type": "roc_bert", **TINY, "vocab_size": 1000, **changed}
        assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"architectures": ["HousePairModel"], "text_config": {}}, "HousePairModel may have another output"),
        ({"d_model": 96, "filter_order": 64}, "no key of it is of attention"),
        (
            {"architectures": ["HouseForCausalLM"], "auto_map": {"AutoModelForCausalLM": "house.HouseForCausalLM"}},
            "the code of HouseForCausalLM, which lies beside the weights",
        ),
        ({"num_channels": 3, "num_heads": [1, 2, 4]}, "heads for each of several stages: .* swin.* alone are counted"),
    ],
)
def test_a_type_that_is_not_known_is_refused_with_what_its_class_or_its_keys_are(config, told):
    with pytest.raises(InputError, match=f"house is not known .*{told}.*--params takes a size"):
        architecture_of({"model_type": "house", **config})


def test_an_encoder_of_an_unknown_type_is_compared_with_encoders():
    config = TINY | {"model_type": "house", "architectures": ["HouseForMaskedLM"], "vocab_size": 1000}

    with pytest.raises(InputError, match="house is not known .where its layers are those .* such as bert, modernbert"):
        architecture_of(config)


SMALL = {"model_type": "mistral", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2} | {
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000},
}
SEEING = {"model_type": "mistral3", "vision_config": {"hidden_size": 128, "intermediate_size": 256}}


@pytest.mark.parametrize("said", [{}, {"tie_word_embeddings": False}])
def test_a_file_of_version_4_of_the_library_ties_as_its_text_model_says_or_assumes(said):
    config = SEEING | {"text_config": SMALL | said}

    tied, apart = (architecture_of(config | {"transformers_version": v}) for v in ("5.0.0", "4.50.0.dev0"))
    assert (tied.architecture.tied, apart.architecture.tied) == (True, False)
    assert "weights of its own, as version 4 of transformers" in apart.assumed[0]


def test_a_file_of_version_4_whose_text_model_is_tied_is_tied_where_the_class_of_today_would_not():
    text = SMALL | {"model_type": "qwen3_vl_text", "tie_word_embeddings": True}
    config = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {}, "transformers_version": "4.57.1"}

    found = architecture_of(config)
    assert found.architecture.tied
    assert "the embedding's weights, as version 4 of transformers" in found.assumed[0]


def test_a_text_model_that_says_otherwise_than_the_class_around_it_is_told_of():
    silent, against = (
        architecture_of(SEEING | {"text_config": SMALL | said}) for said in ({}, {"tie_word_embeddings": False})
    )

    assert silent.architecture == against.architecture
    assert "no tie_word_embeddings says so" in silent.assumed[0]
    assert "tie_word_embeddings of text_config says otherwise, and is passed over" in against.assumed[0]


def test_what_stands_beside_the_text_model_holds_whichever_version_wrote_it():
    config = SEEING | {"text_config": SMALL, "tie_word_embeddings": True, "transformers_version": "4.50.0"}

    assert architecture_of(config).architecture.tied
