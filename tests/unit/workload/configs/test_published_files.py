"""config.json files as they are published: keys of other code, encoders of another type, types without a class."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of, model_types
from tests.unit.workload.configs import library

TEXT = {"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2} | {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
SIGHT = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
WITH_SIGHT = ("llava", "llava_next", "llava_onevision", "vipllava", "aya_vision", "deepseek_vl")
TOWERS = ("clip_vision_model", "siglip_vision_model", "pixtral", None)


def parameters(config):
    return architecture_of(config).architecture.parameters


@pytest.mark.parametrize("tower", TOWERS)
@pytest.mark.parametrize("kind", WITH_SIGHT)
def test_an_encoder_is_counted_as_the_type_that_it_names(kind, tower):
    pytest.importorskip("transformers")
    named = {"model_type": tower} if tower else {}
    config = {"model_type": kind, "tie_word_embeddings": False, "text_config": TEXT}
    config |= {"vision_config": {**named, **SIGHT, "image_size": 224, "patch_size": 14}}

    assert parameters(config) == library.parameters(library.model(config))


def test_an_encoder_of_another_type_has_the_defaults_of_that_type():
    pytest.importorskip("transformers")
    config = {"model_type": "llava", "text_config": TEXT, "vision_config": {"model_type": "pixtral"}}
    config["tie_word_embeddings"] = False

    assert parameters(config) == library.parameters(library.model(config))


def test_sizes_that_a_text_model_leaves_out_are_those_of_the_model_around_it_and_said():
    pytest.importorskip("transformers")
    sound = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "voxtral", "audio_config": sound, "text_config": TEXT | {"model_type": "llama"}}

    found = architecture_of(config)
    assert found.architecture.parameters == library.parameters(library.model(config))
    assert "head_dim = 128, the default of voxtral for its text model" in found.assumed


@pytest.mark.parametrize(("kind", "tower"), [("llava", "dinov2"), ("mistral3", "siglip_vision_model"), ("llava", 7)])
def test_an_encoder_whose_type_is_not_counted_is_refused(kind, tower):
    config = {"model_type": kind, "text_config": TEXT, "vision_config": {"model_type": tower, **SIGHT}}

    with pytest.raises(InputError, match=f"vision_config: model_type: expected .*got {tower!r}"):
        architecture_of(config)


KIMI = {
    "vt_hidden_size": 64,
    "vt_intermediate_size": 128,
    "vt_num_attention_heads": 4,
    "vt_num_hidden_layers": 2,
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "mm_hidden_size": 64,
    "mm_projector_type": "patchmerger",
}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
DEEPSEEK = TEXT | LATENT | {"model_type": "kimi_k2", "n_routed_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK |= {"n_shared_experts": 1, "moe_intermediate_size": 64, "first_k_dense_replace": 1, "num_key_value_heads": 4}


def test_kimis_encoder_is_read_by_the_names_of_its_published_file():
    own = {key.removeprefix("vt_").removeprefix("init_"): value for key, value in KIMI.items()}
    del own["mm_projector_type"], own["mm_hidden_size"]
    shared = {"model_type": "kimi_k25", "tie_word_embeddings": False, "text_config": DEEPSEEK}
    by_class = shared | {"vision_config": own, "projection_hidden_size": 64}

    assert parameters(shared | {"vision_config": KIMI}) == parameters(by_class)
    with pytest.raises(InputError, match="text_hidden_size: expected patchmerger, and 256"):
        architecture_of(shared | {"vision_config": KIMI | {"text_hidden_size": 512}})


def test_kimi_vl_has_its_published_size():
    sight = {"model_type": "moonvit", "patch_size": 14, "num_attention_heads": 16, "num_hidden_layers": 27}
    sight |= {"hidden_size": 1152, "intermediate_size": 4304, "init_pos_emb_height": 64, "init_pos_emb_width": 64}
    text = {key: value for key, value in DEEPSEEK.items() if key != "model_type"}
    config = {"model_type": "kimi_vl", "text_config": text, "vision_config": sight | {"merge_kernel_size": [2, 2]}}
    found = architecture_of(config).architecture

    assert found.text_parameters == parameters(text | {"model_type": "deepseek_v3"})
    layer, table = 4 * 1152 * 1153 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152, 64 * 64 * 1152
    encoder = 27 * layer + table + 1152 * (3 * 14 * 14 + 1) + 2 * 1152
    assert encoder == pytest.approx(0.4e9, rel=0.05)  # published
    # and two projections of four merged patches behind a norm
    assert found.tower_parameters == encoder + 2 * 1152 + (4 * 1152 + 1) * (4 * 1152 + 256)


SOUND_OF_PHI4 = {"attention_dim": 1024, "attention_heads": 16, "linear_units": 1536, "num_blocks": 24} | {
    "batch_norm": False, "bias_in_glu": True, "causal": True, "chunk_size": -1, "cnn_layer_norm": True,
    "conv_activation": "swish", "conv_glu_type": "swish", "depthwise_multiplier": 1, "ext_pw_kernel_size": 1,
    "depthwise_seperable_out_channel": 1024, "ext_pw_out_channel": 1024, "input_layer": "nemo_conv", "input_size": 80,
    "encoder_embedding_config": {"input_size": 80}, "nemo_conv_settings": {"conv_channels": 1024}, "time_reduction": 8,
    "relative_attention_bias_args": {"t5_bias_max_distance": 500, "type": "t5"}, "kernel_size": 3, "left_chunk": 18,
}  # fmt: skip
LAYERS_OF_PHI4 = {
    "embedding_cls": "image_audio",
    "audio_embd_layer": {"downsample_rate": 1, "projection_cls": "mlp", "use_qformer": False},
    "image_embd_layer": {"crop_size": 448, "projection_cls": "mlp", "with_learnable_separator": True},
}
PHI4MM = {"model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32} | {
    "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True,
    "full_attn_mod": 1, "audio_processor": {"config": SOUND_OF_PHI4, "name": "cascades"}, "embd_layer": LAYERS_OF_PHI4,
    "vision_lora": {"lora_alpha": 512, "r": 256}, "speech_lora": {"lora_alpha": 640, "r": 320},
}  # fmt: skip


def test_phi_4_multimodal_has_its_published_size_by_the_keys_of_its_first_file():
    found = architecture_of(PHI4MM).architecture
    bins = 2 * 80  # of sound, whose means and deviations are stored and no parameters

    assert found.parameters + bins == 5_574_460_384
    adapters = (256 + 320) * 32 * (3072 + 5120 + 2 * 3072 + 3 * 3072 + 3 * 8192 - 2 * 3072 + 3072)
    native = {key: value for key, value in PHI4MM.items() if key not in {"audio_processor", "embd_layer"}}
    native = {key: value for key, value in native.items() if not key.endswith("_lora")} | {
        "model_type": "phi4_multimodal",
        "audio_config": {"bias_max_distance": 500},
    }
    assert found.parameters - parameters(native) == adapters


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"vision_lora": None}, "vision_lora: expected an object"),
        ({"speech_lora": {"r": 0}}, "speech_lora: expected a rank r"),
        (
            {"embd_layer": LAYERS_OF_PHI4 | {"image_embd_layer": {"projection_cls": "linear"}}},
            "projection_cls: expected",
        ),
        ({"audio_processor": {"config": SOUND_OF_PHI4 | {"towers": 2}}}, "audio_config.towers: not understood"),
    ],
)
def test_a_file_of_phi_4_multimodal_with_other_parts_is_refused(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(PHI4MM | changed)


LING = TEXT | {"model_type": "bailing_moe_v2", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LING |= {"moe_shared_expert_intermediate_size": 64, "first_k_dense_replace": 1}


def test_a_type_that_two_classes_share_is_read_by_the_class_that_the_file_names():
    shared = LING | {"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"]}
    found = architecture_of(shared)

    assert found.architecture.parameters == parameters(LING)
    assert "model_type bailing_moe of BailingMoeV2ForCausalLM is read as bailing_moe_v2" in found.assumed


def test_ling_lite_has_its_published_parameters():
    config = {"model_type": "bailing_moe", "architectures": ["BailingMoeForCausalLM"], "hidden_size": 2048}
    config |= {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 126464}
    config |= {"intermediate_size": 1408, "moe_intermediate_size": 1408, "num_experts": 64, "num_shared_experts": 2}
    config |= {"num_experts_per_tok": 6, "first_k_dense_replace": 0, "use_bias": False, "norm_head": False}
    found = architecture_of(config).architecture

    assert found.parameters / 1e9 == pytest.approx(16.8, rel=2e-3)
    assert found.active_parameters / 1e9 == pytest.approx(2.75, rel=1e-2)


def test_a_shared_network_may_be_said_by_its_width_and_by_its_experts_if_both_agree():
    assert parameters(LING | {"num_shared_experts": 1}) == parameters(LING)
    with pytest.raises(InputError, match="num_shared_experts: not understood"):
        architecture_of(LING | {"num_shared_experts": 2})


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("mpt", {"tokenizer_name": "of/some-tokenizer"}),
        ("recurrent_gemma", {"embeddings_scale_by_sqrt_dim": True}),
        ("xlstm", {"head_dim": 512, "add_post_blocks_norm": True, "mlstm_round_up_to_multiple_of": 64}),
        ("xlstm", {"force_bos_token_insert": True}),
        ("minimax_m2", {"shared_intermediate_size": 0, "shared_moe_mode": "sigmoid"}),
        ("granitemoehybrid", {"logits_to_keep": 1}),
        ("starcoder2", {"mlp_type": "default", "norm_type": "layer_norm"}),
        ("blenderbot", {"do_blenderbot_90_layernorm": True, "layernorm_variant": "prelayernorm"}),
        ("blenderbot-small", {"do_blenderbot_90_layernorm": True, "layernorm_variant": "xlm"}),
        ("kimi_k25", {"use_unified_vision_chunk": True}),
        ("afmoe", {"score_func": "sigmoid", "use_grouped_mm": True}),
        ("llama", {"unsloth_fixed": True, "transformers.js_config": {"dtype": "q4"}, "use_bfloat16": True}),
    ],
)
def test_keys_that_published_files_have_and_classes_pass_over_change_nothing(kind, keys):
    plain = library.base(kind) if kind != "mpt" else {"model_type": "mpt"}
    assert parameters(plain | keys) == parameters(plain)


def test_keys_of_generation_change_nothing():
    transformers = pytest.importorskip("transformers")
    keys = dict.fromkeys(transformers.GenerationConfig._get_default_generation_params(), 3)

    assert parameters(TEXT | keys) == parameters(TEXT)


PERCEIVER = {"is_llama_config": True, "pixel_shuffle_factor": 4, "perceiver_config": {"resampler_depth": 6}}


def test_a_text_model_may_have_keys_of_a_resampler_that_the_model_around_it_lacks():
    config = {
        "model_type": "smolvlm",
        "vision_config": SIGHT | {"image_size": 224, "patch_size": 14},
        "scale_factor": 4,
    }
    text = TEXT | {"model_type": "llama"}

    assert parameters(config | {"text_config": text | PERCEIVER}) == parameters(config | {"text_config": text})
    with pytest.raises(InputError, match="use_resampler: not understood"):
        architecture_of(config | {"text_config": text | {"use_resampler": True}})


SOUND = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(("key", "same", "other"), [("head_dim", 32, 64), ("num_key_value_heads", 4, 2)])
def test_keys_of_heads_that_repeat_other_sizes_are_understood_and_with_another_value_refused(key, same, other):
    text = TEXT | {"model_type": "llama", "head_dim": 64}
    config = {"model_type": "voxtral", "text_config": text, "audio_config": SOUND}
    said = {value: config | {"audio_config": SOUND | {key: value}} for value in (same, other)}

    assert parameters(said[same]) == parameters(config)
    with pytest.raises(InputError, match=f"audio_config.{key}: not understood"):
        architecture_of(said[other])


@pytest.mark.parametrize("kind", ["t5", "mt5", "umt5"])
def test_an_output_that_a_checkpoint_of_t5_has_apart_is_counted_apart_and_said(kind):
    tied, apart = (architecture_of({"model_type": kind, "tie_word_embeddings": said}) for said in (True, False))
    vocab, hidden = tied.architecture.vocab_size, tied.architecture.hidden_size

    assert apart.architecture.parameters - tied.architecture.parameters == vocab * hidden
    assert any("transformers 5 ties it to the embedding" in told for told in apart.assumed)


def test_weights_that_mlx_stores_in_few_bits_are_counted_whole():
    found = architecture_of(TEXT | {"quantization": {"group_size": 64, "bits": 4}})

    assert found.architecture == architecture_of(TEXT).architecture
    assert any("quantization (its method is not said)" in told for told in found.assumed)


STATES = {"mamba_n_heads": 16, "mamba_d_head": "auto"}


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "cohere", "use_qk_norm": True},  # Command R+
        {"model_type": "stablelm", "qk_layernorm": True},  # StableLM 2 12B
        {"model_type": "bamba", "attn_layer_indices": [1], **STATES},
        {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"], **STATES},
        {"model_type": "falcon_h1", "mamba_d_ssm": 512, **STATES},
    ],
    ids=lambda config: config["model_type"],
)
def test_norms_of_queries_and_widths_that_the_class_works_out_are_counted_as_it_does(config):
    pytest.importorskip("transformers")
    config = TEXT | config

    assert parameters(config) == library.parameters(library.model(config))


def test_a_switch_that_is_a_word_is_refused_by_the_key_of_the_file():
    with pytest.raises(InputError, match="tie_word_embeddings: expected true or false, got 'true'"):
        architecture_of(TEXT | {"tie_word_embeddings": "true"})


@pytest.mark.parametrize("keys", [{"head_dim": 256}, {"mlstm_round_up_to_multiple_of": 128}])
def test_such_a_key_with_another_value_is_refused(keys):
    with pytest.raises(InputError, match=next(iter(keys))):
        architecture_of({"model_type": "xlstm", "vocab_size": 50304} | keys)


WIDE = {"hidden_size": 4096, "num_attention_heads": 32, "torch_dtype": "bfloat16"}
PUBLISHED = {
    6_243_584_000: WIDE  # ChatGLM3 6B
    | {"model_type": "chatglm", "architectures": ["ChatGLMModel"], "num_layers": 28, "ffn_hidden_size": 13696}
    | {"multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 65024, "kv_channels": 128}
    | {"add_qkv_bias": True, "add_bias_linear": False, "seq_length": 8192},
    7_392_272_384: WIDE  # Phi-3-small
    | {"model_type": "phi3small", "ff_intermediate_size": 14336, "num_hidden_layers": 32, "num_key_value_heads": 8}
    | {"vocab_size": 100352, "dense_attention_every_n_layers": 2, "max_position_embeddings": 8192},
    7_737_708_544: WIDE  # InternLM2.5 7B
    | {"model_type": "internlm2", "intermediate_size": 14336, "num_hidden_layers": 32, "num_key_value_heads": 8}
    | {"vocab_size": 92544, "bias": False},
    6_921_720_704: {"model_type": "RefinedWebModel", "hidden_size": 4544}  # Falcon 7B as first published
    | {"multi_query": True, "n_head": 71, "n_layer": 32, "parallel_attn": True, "bias": False, "vocab_size": 65024},
    41_303_293_952: {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128}  # Falcon 40B
    | {"n_head_kv": 8, "n_layer": 60, "parallel_attn": True, "bias": False, "vocab_size": 65024},
    3_002_557_440: {"model_type": "bloom", "n_embed": 2560, "n_layer": 30, "num_attention_heads": 32}  # BLOOM 3B
    | {"vocab_size": 250880, "masked_softmax_fusion": True, "offset_alibi": 100, "seq_length": 2048}
    | {"skip_bias_add": True, "skip_bias_add_qkv": False},
    7_505_973_248: WIDE  # Baichuan2 7B
    | {"model_type": "baichuan", "intermediate_size": 11008, "num_hidden_layers": 32, "vocab_size": 125696},
    7_721_324_544: WIDE  # Qwen 7B
    | {"model_type": "qwen", "intermediate_size": 22016, "num_hidden_layers": 32, "vocab_size": 151936}
    | {
        "kv_channels": 128,
        "no_bias": True,
        "max_position_embeddings": 32768,
        "seq_length": 8192,
        "use_logn_attn": True,
    },
    16_375_728_128: {"model_type": "deepseek", "hidden_size": 2048, "num_attention_heads": 16}  # DeepSeekMoE 16B
    | {"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2}
    | {"num_experts_per_tok": 6, "first_k_dense_replace": 1, "num_hidden_layers": 28, "vocab_size": 102400},
}


@pytest.mark.parametrize("count", PUBLISHED)
def test_types_whose_code_lies_beside_their_weights_have_the_published_parameters(count):
    assert parameters(PUBLISHED[count]) == count


def test_grok_has_two_of_eight_gated_experts_and_four_norms():
    config = {"model_type": "grok-1", "hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64}
    config |= {"num_attention_heads": 48, "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2}
    config |= {"vocab_size": 131072, "max_attn_value": 30.0, "tie_word_embeddings": True}
    layer = 2 * 6144 * (6144 + 1024) + 8 * 6144 + 4 * 6144

    assert parameters(config) == 64 * (layer + 8 * 3 * 6144 * 32768) + 6144 + 131072 * 6144


@pytest.mark.parametrize(("kind", "biases"), [("internlm", 4 * 4096), ("aquila", 0), ("xverse", 0)])
def test_copies_of_llama_have_the_biases_of_their_own_code(kind, biases):
    config = WIDE | {"intermediate_size": 11008, "num_hidden_layers": 2, "vocab_size": 100008}
    config |= {"bias": True} if biases else {}

    llama = parameters({**config, "bias": None, "model_type": "llama"})
    assert parameters({**config, "model_type": kind}) == llama + 2 * biases


def test_gate_and_up_of_qwen_1_that_do_not_halve_are_refused():
    with pytest.raises(InputError, match="intermediate_size: 11007: expected an even number"):
        architecture_of(WIDE | {"model_type": "qwen", "intermediate_size": 11007, "vocab_size": 8, "num_layers": 1})


def test_arctic_has_a_dense_network_beside_its_experts():
    config = TEXT | {"model_type": "arctic", "num_local_experts": 4, "num_experts_per_tok": 2, "use_residual": True}
    config |= {"parallel_attn_mlp_res": True, "moe_layer_frequency": 1}
    attention, expert, dense = 256 * (2 * 256 + 2 * 128), 3 * 256 * 512, 3 * 256 * 256

    layer = attention + 4 * expert + 256 * 4 + dense + 3 * 256
    assert parameters(config) == 2 * 1000 * 256 + 2 * layer + 256


def test_block_sparse_attention_that_is_counted_whole_is_said():
    small = next(config for config in PUBLISHED.values() if config["model_type"] == "phi3small")

    assert "block-sparse attention in 16 layers" in architecture_of(small).assumed[0]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"_class_name": "SomeTransformer3DModel", "num_layers": 40}, "a part of diffusers"),
        ({"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32000}, "take the config.json"),
        ({"metadata": {}, "weight_map": {}}, "an index of weights"),
        ({"_class_name": "SomePipeline", "text_encoder": ["transformers", "SomeModel"]}, "lists classes and no sizes"),
    ],
)
def test_a_file_that_is_no_config_says_what_it_is(config, told):
    with pytest.raises(InputError, match=told):
        architecture_of(config)


def test_an_unknown_type_is_not_compared_with_names_that_are_nothing_like_it():
    with pytest.raises(InputError) as told:
        architecture_of({"model_type": "skyhook", "model_dim": 2048, "num_query_heads": [12, 16]})

    assert "did you mean" not in str(told.value)
    assert "a copy of the file with that model_type and its keys is read" in str(told.value)


@pytest.mark.parametrize("named", [7, [7], [["LlamaForCausalLM"]], {"0": "LlamaForCausalLM"}])
def test_an_unknown_type_is_refused_by_its_name_whatever_stands_in_place_of_its_classes(named):
    with pytest.raises(InputError, match="skyhook is not known"):
        architecture_of(TEXT | {"model_type": "skyhook", "architectures": named})


@pytest.mark.parametrize(("keys", "alike"), [({}, "llama"), ({"num_local_experts": 4}, "mixtral")])
def test_of_an_unknown_type_it_is_said_which_type_understands_all_of_its_keys(keys, alike):
    config = TEXT | keys | {"model_type": "strange"}
    count = parameters(config | {"model_type": alike}) / 1e9

    with pytest.raises(InputError, match=f"strange is not known .*keys of a {alike}, which would have {count:.4g} B"):
        architecture_of(config)


def test_a_part_that_is_a_known_model_with_encoders_is_planned_alone():
    thinker = {"model_type": "llava", "text_config": TEXT, "vision_config": SIGHT | {"image_size": 224}}
    config = {"model_type": "talking", "thinker_config": thinker, "tie_word_embeddings": False}

    with pytest.raises(InputError, match="thinker_config is a llava: --allow-unknown plans it alone"):
        architecture_of(config)
    found = architecture_of(config, allow_unknown=True)
    assert found.architecture.parameters == parameters(thinker | {"tie_word_embeddings": False})


def test_a_refused_key_names_the_type_of_the_class_that_the_file_asks_for():
    config = {"model_type": "minimax", "architectures": ["MiniMaxM2ForCausalLM"], "use_routing_bias": True}

    with pytest.raises(InputError, match="MiniMaxM2ForCausalLM is the class of model_type minimax_m2"):
        architecture_of(TEXT | config)


@pytest.mark.parametrize(("kind", "key"), [("starcoder2", "mlp_type"), ("blenderbot", "layernorm_variant")])
def test_a_word_for_the_form_of_layers_that_a_class_has_not_is_refused(kind, key):
    with pytest.raises(InputError, match=f"{key}: expected '.*', as the class has it, got 'other'"):
        architecture_of(library.base(kind) | {key: "other"})


LAYERS_OF_BART = {"num_hidden_layers": 3}


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("lfm2", {"tie_embedding": False}),
        ("lfm2_vl", {"tie_embedding": False}),
        ("bart", LAYERS_OF_BART),
        ("led", LAYERS_OF_BART),
        ("whisper", LAYERS_OF_BART),
        ("inkling2_text", {"intermediate_size": 512}),
        ("glm4_moe_lite", {"head_dim": 32}),
        ("nemotron_h", {"mamba_conv_bias": False}),
    ],
)
def test_names_that_a_class_takes_for_others_have_the_parameters_of_the_library(kind, changed):
    pytest.importorskip("transformers")
    base = library.base(kind)
    config = {**base, **changed}

    assert parameters(config) == library.parameters(library.model(config)) != parameters(base)


@pytest.mark.parametrize(
    ("kind", "both"),
    [
        ("lfm2_moe", {"tie_embedding": False, "tie_word_embeddings": True}),
        ("bart", {"num_hidden_layers": 3, "encoder_layers": 6}),
    ],
)
def test_two_names_of_the_same_size_that_say_different_are_refused(kind, both):
    with pytest.raises(InputError, match=" and ".join(both) + ": expected one value"):
        architecture_of({"model_type": kind} | both)


@pytest.mark.parametrize("key", ["tie_blocks", "share_input_output", "no_biases"])
def test_a_switch_of_sharing_that_is_off_and_not_understood_is_refused(key):
    with pytest.raises(InputError, match=f"{key}: not understood"):
        architecture_of(TEXT | {key: False})
    assert parameters(TEXT | {"another_switch": False}) == parameters(TEXT)


def test_a_decoder_of_t5_of_which_nothing_is_said_beside_layers_by_another_name_is_refused():
    with pytest.raises(InputError, match="num_decoder_layers: missing"):
        architecture_of({"model_type": "t5", "num_hidden_layers": 8})


@pytest.mark.parametrize("kind", ["detector", "qwen2"])
def test_a_class_without_text_as_its_output_is_refused_by_that_whatever_its_type(kind):
    with pytest.raises(InputError, match="FooForObjectDetection has another output than a language model"):
        architecture_of(TEXT | {"model_type": kind, "architectures": ["FooForObjectDetection"]})


def test_the_encoder_of_sound_of_gemma_3n_has_a_key_of_positions_that_its_class_passes_over():
    sight = {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc"}
    config = {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}, "vision_config": sight}

    sizes = [parameters(config | {"audio_config": keys}) for keys in ({}, {"conf_positional_bias_size": 256})]
    assert sizes[0] == sizes[1]


def test_a_size_that_only_the_model_type_assumes_is_named_as_missing_where_others_do_not_fit_it():
    config = {"model_type": "llama", "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40}

    with pytest.raises(InputError, match=r"40 does not divide hidden_size 4096 \(hidden_size: missing; .* default"):
        architecture_of(config)
    with pytest.raises(InputError, match="40 does not divide hidden_size 4096$"):
        architecture_of(config | {"hidden_size": 4096})


def test_the_file_of_an_adapter_is_named_as_one_with_the_model_and_the_rank_to_plan():
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "some/Model-7B", "r": 16, "task_type": "CAUSAL_LM"}

    with pytest.raises(InputError, match="adapter, peft_type LORA; give --model some/Model-7B, .*-rank 16"):
        architecture_of(adapter)
    with pytest.raises(InputError, match="-rank 16 \\(adapters on all matrices but .*; this one has them on k, v\\)"):
        architecture_of(adapter | {"target_modules": ["v", "k"]})
    with pytest.raises(InputError, match="peft_type IA3; give --model the model beneath it, or its config.json\\)"):
        architecture_of({"peft_type": "IA3"})


def test_a_key_that_is_written_much_like_one_that_is_read_is_refused_with_that_one():
    with pytest.raises(InputError, match="max_window_layer: not understood .*did you mean max_window_layers"):
        architecture_of(TEXT | {"max_window_layer": 2})
    with pytest.raises(InputError, match="towers: not understood .*1 such: towers\\); --allow-unknown"):
        architecture_of(TEXT | {"towers": 2})


def test_the_output_of_an_encoder_is_said_where_its_file_names_no_class():
    base = library.base("deberta-v2")
    told, named, decoder = (
        architecture_of(config).assumed for config in (base, base | {"architectures": ["DebertaV2ForMaskedLM"]}, TEXT)
    )

    other = architecture_of(base | {"architectures": ["DebertaV2ForPreTraining"]}).assumed
    assert [text for text in other if "what DebertaV2ForPreTraining has beside it, or in its place, is not" in text]
    assert [text for text in told if "an output over 1,000 words is counted" in text]
    assert not [text for text in (*named, *decoder) if "names no class" in text]


# classes whose own defaults disagree about the number of words or a width; types whose defaults leave a size out
APART = ("ovis2", "granite_speech", "granite_speech_plus", "glm4v_moe", "vit")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_file_that_the_library_writes_with_every_default_is_read_as_the_short_one():
    pytest.importorskip("transformers")
    kinds = [kind for kind in model_types() if kind not in {*library.ALIKE, *library.STRANGERS, *APART}]
    read = {kind: parameters(library.base(kind)) for kind in kinds}

    assert {kind: parameters(library.written(library.base(kind))) for kind in kinds} == read


def test_of_a_network_of_convolutions_it_is_said_that_it_is_none_of_attention_and_what_takes_its_size():
    config = {"model_type": "strange", "image_size": 224, "depths": [2, 2], "hidden_sizes": [64, 128]}

    with pytest.raises(InputError, match="strange is not known .*none is of attention.*--params takes a size"):
        architecture_of(config)
    with pytest.raises(InputError, match="strange is not known .where its layers"):
        architecture_of(config | {"num_heads": 4})
    with pytest.raises(InputError, match="strange is not known .*heads for each of several stages"):
        architecture_of(config | {"num_heads": [2, 4]})
