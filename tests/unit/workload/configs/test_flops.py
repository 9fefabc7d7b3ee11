"""FLOPs of models against torch's own counter, over the library's layers at two lengths."""

from importlib import import_module

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
GROUPED = {"num_key_value_heads": 2, "head_dim": 64}
TOP_TWO = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_group": 1, "topk_group": 1}
SHARED = {
    **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
    **{"shared_expert_intermediate_size": 256},
}
DELTA = SHARED | {
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64},
    **{"mlp_only_layers": [0, 1]},
}
# Kimi's delta rule is not here: without its kernels the library multiplies keys channel by channel, uncounted.
# Without its kernels the library repeats Mamba-2's groups for every head and multiplies each chunk's state with all
# later ones: a group for each head and long chunks leave what the kernels compute too.
CONFIGS = {
    "llama": SIZES | {"num_key_value_heads": 2},
    "qwen3": SIZES | {"num_key_value_heads": 2, "head_dim": 96},
    "gpt2": {"n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 32768},
    "falcon": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512},
    "bert": SIZES,
    "albert": SIZES | {"embedding_size": 64},
    "deepseek_v3": SIZES | LATENT,
    "gemma3_text": SIZES | GROUPED | {"layer_types": ["full_attention"] * 2},
    "gpt_oss": SIZES | GROUPED | TOP_TWO | {"layer_types": ["full_attention"] * 2},
    "mixtral": SIZES | TOP_TWO | {"num_key_value_heads": 2},
    "qwen2_moe": SIZES | SHARED | {"num_key_value_heads": 2},
    "glm4_moe": SIZES | GROUPED | ROUTED | {"first_k_dense_replace": 1},
    "qwen3_next": SIZES | GROUPED | DELTA | {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_next, every layer linear": SIZES | GROUPED | DELTA | {"layer_types": ["linear_attention"] * 2},
    "minimax": SIZES | GROUPED | TOP_TWO | {"layer_types": ["linear_attention"] * 2},
    "lfm2": SIZES
    | {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "mamba2": {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
    | {"num_heads": 8, "head_dim": 64, "state_size": 64, "n_groups": 8, "chunk_size": 1024},
    "bamba": SIZES
    | {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 8, "mamba_d_state": 64, "mamba_chunk_size": 1024}
    | {"num_key_value_heads": 2, "attn_layer_indices": [1]},
    "zamba2": SIZES
    | {"n_mamba_heads": 8, "mamba_ngroups": 8, "mamba_d_state": 64, "chunk_size": 1024, "adapter_rank": 32}
    | {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba"]}
    | {"use_shared_attention_adapter": True},
    # the library multiplies whole squares and masks them: spans that reach over everything leave the same
    "deepseek_v4": ROUTED
    | {"hidden_size": 256, "vocab_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 64}
    | {"q_lora_rank": 64, "o_groups": 2, "o_lora_rank": 64, "sliding_window": 32768, "n_shared_experts": 1}
    | {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 8192, "hc_mult": 4}
    | {"layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]},
    # the library multiplies whole squares and masks them: an indexer that picks every token leaves the same
    "minimax_m3_vl_text": SIZES
    | GROUPED
    | TOP_TWO
    | {"layer_types": ["full_attention", "minimax_m3_sparse"], "dense_intermediate_size": 512}
    | {"shared_intermediate_size": 128, "index_n_heads": 2, "index_head_dim": 32}
    | {"index_block_size": 128, "index_topk_blocks": 256},
    "hy_v4": SIZES
    | LATENT
    | {"mlp_layer_types": ["dense", "dense"], "indexer_types": ["full", "shared"], "index_n_heads": 4}
    | {"index_head_dim": 32, "index_topk": 32768, "moe_intermediate_size": 128}
    | {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "xlstm": {"hidden_size": 256, "num_hidden_layers": 2, "num_heads": 4, "vocab_size": 512, "mode": "train"},
    "nemotron_h": GROUPED
    | ROUTED
    | {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 64, "chunk_size": 1024}
    | {"hidden_size": 256, "vocab_size": 512, "num_attention_heads": 4, "moe_shared_expert_intermediate_size": 256}
    | {"layers_block_type": ["mamba", "moe", "attention", "moe"]},
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_forward_of_the_librarys_layers_has_the_flops_that_are_counted(name, tokens, monkeypatch):
    pytest.importorskip("transformers")
    kind = name.partition(",")[0]
    config = {"model_type": kind, **CONFIGS[name]}
    module = library.model(config)
    if kind != "xlstm":  # which has neither attention nor experts
        module.set_attn_implementation("eager")  # whole squares of scores, as products
        module.set_experts_implementation("batched_mm")  # products that the counter sees
    part = import_module(type(module).__module__)
    if hasattr(part, "is_torchdynamo_exporting"):  # the triangular system by products, as kernels solve it
        monkeypatch.setattr(part, "is_torchdynamo_exporting", lambda: True)
    inputs = {"input_ids": torch.empty(1, tokens, dtype=torch.long, device="meta")}
    if kind not in {"bert", "albert", "mamba2", "xlstm"}:
        inputs |= {"position_ids": inputs["input_ids"]}
        inputs |= {"attention_mask": torch.empty(1, 1, tokens, tokens, device="meta")}
    if kind not in {"bert", "albert"}:
        inputs |= {"use_cache": False}

    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        module(**inputs)
    model = architecture_of(config).architecture
    forward = model.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.01)


WHISPER = {
    **{"d_model": 256, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 52000, "num_mel_bins": 16},
    **{"max_source_positions": 600, "max_target_positions": 2048},
}


@pytest.mark.parametrize("tokens", [100, 1600])
def test_an_encoder_of_sound_hears_all_its_positions_however_long_the_text_is(tokens):
    pytest.importorskip("transformers")
    config = {"model_type": "whisper", **WHISPER}
    module = library.model(config)
    parameters = library.parameters(module)
    module.to_empty(device="cpu").set_attn_implementation("eager")
    sound = torch.zeros(1, WHISPER["num_mel_bins"], 2 * WHISPER["max_source_positions"])
    text = torch.zeros(1, tokens, dtype=torch.long)

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(input_features=sound, decoder_input_ids=text, use_cache=False)
    found = architecture_of(config)
    forward = found.architecture.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.01)
    assert found.architecture.parameters == pytest.approx(parameters, rel=1e-4)
    assert any("600 positions of sound" in told for told in found.assumed)


CONFORMER = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 32},
    **{"feature_projection_input_dim": 40, "conv_depthwise_kernel_size": 5, "position_embeddings_type": "rotary"},
}
ADAPTED = {"add_adapter": True, "num_adapter_layers": 2, "output_hidden_size": 48}


@pytest.mark.parametrize("adapter", [{}, ADAPTED])
def test_a_conformer_has_the_flops_of_its_frames_and_an_adapter_those_of_the_frames_that_are_left(adapter):
    pytest.importorskip("transformers")
    config, frames = {"model_type": "wav2vec2-bert", **CONFORMER, **adapter}, 400
    module = library.model(config)
    module.to_empty(device="cpu").set_attn_implementation("eager")

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(input_features=torch.zeros(1, frames, 40))
    found = architecture_of(config)
    forward = found.architecture.model_flops_per_token(frames, causal=False) / 3 * frames
    scores = 4.0 * sum((frames / 2**place) ** 2 for place in (1, 2)) * 48 if adapter else 0.0
    halved = 32 * 48 * frames * 0.75 * 2 if adapter else 0.0  # the output meets a quarter of the frames
    assert forward + scores - halved == pytest.approx(counter.get_total_flops(), rel=0.01)
    assert any("its scores are not" in told for told in found.assumed) == bool(adapter)


@pytest.mark.parametrize("groups", [1, 2])
def test_kernels_that_follow_from_a_span_of_keys_are_made_and_multiplied_beside_attention(groups):
    pytest.importorskip("transformers")
    config = {"model_type": "convbert", **SIZES, "max_position_embeddings": 600, "num_groups": groups}
    config |= {"embedding_size": 128, "conv_kernel_size": 5}
    module = library.model(config)
    parameters = library.parameters(module)
    module.to_empty(device="cpu").set_attn_implementation("eager")
    module.convbert.embeddings.position_ids = torch.arange(600)[None]
    module.convbert.embeddings.token_type_ids = torch.zeros(1, 600, dtype=torch.long)

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(input_ids=torch.zeros(1, 512, dtype=torch.long))
    found = architecture_of(config).architecture
    forward = found.model_flops_per_token(512, causal=False) / 3 * 512
    assert found.parameters == parameters
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.01)


SIGHT = {"embed_dim": 48, "image_size": 28, "patch_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2}
RESAMPLED = {"resampler_n_latents": 6, "resampler_n_heads": 2, "resampler_head_dim": 8, "use_resampler": True}


def test_a_layer_that_reads_an_image_meets_its_vectors_and_makes_no_keys_of_text():
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = {"model_type": "idefics", **sizes, "vocab_size": 100, "cross_layer_interval": 2, "use_resampler": True}
    config |= {"vision_config": SIGHT, "perceiver_config": RESAMPLED}
    module, tokens = library.model(config), 300
    parameters = library.parameters(module)
    module.to_empty(device="cpu").set_attn_implementation("eager")
    inputs = {"input_ids": torch.zeros(1, tokens, dtype=torch.long), "use_cache": False}
    inputs |= {"perceiver_embeddings": torch.zeros(1, 1, 6, 48)}
    inputs |= {"image_attention_mask": torch.ones(1, tokens, 1, dtype=torch.long)}

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(**inputs)
    found = architecture_of(config).architecture
    keys = 2 * 2 * 2.0 * 6 * 48 * 64  # keys and values of the image's six vectors, in two layers
    forward = found.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert found.parameters == parameters
    assert forward + keys == pytest.approx(counter.get_total_flops(), rel=0.01)


BYTES = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 160, "num_hidden_layers": 2}
GLOBAL = {"hidden_size": 192, "num_attention_heads": 1, "intermediate_size": 224, "num_hidden_layers": 3}
HASHED = {"encoder_hash_byte_group_size": [3, 4], "encoder_hash_byte_group_vocab": 50}
BLT = {
    "model_type": "blt",
    **HASHED,
    "local_attention_window_len": None,
    "encoder_config": BYTES | {"cross_attn_all_layers": True},
    "decoder_config": BYTES | {"hidden_size_global": 192, "cross_attn_all_layers": False},
    "global_config": GLOBAL,
    "patcher_config": BYTES | {"vocab_size": 30},
}


@pytest.mark.parametrize("size", [4, 8])
def test_a_global_model_of_patches_meets_one_of_as_many_bytes_as_a_patch_has(size):
    pytest.importorskip("transformers")
    config, tokens = BLT | {"patch_size": size}, 512
    module = library.model(config)
    parameters = library.parameters(module)
    module.to_empty(device="cpu").set_attn_implementation("eager")
    lengths = torch.full((1, tokens // size), size)

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(torch.zeros(1, tokens, dtype=torch.long), patch_lengths=lengths, use_cache=False)
    found = architecture_of(config)
    whole = 4.0 * 2 * tokens * (tokens // size) * 64  # scores with all of a layer's, of which its own are left
    crossed = whole * (2 + 1)
    forward = found.architecture.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert found.architecture.parameters == parameters
    assert forward + crossed == pytest.approx(counter.get_total_flops(), rel=0.01)
    assert any(f"a patch {size} of them" in told for told in found.assumed)


@pytest.mark.parametrize(
    "said",
    [
        {"patch_in_forward": False},
        {"cross_attn_k": 3, "encoder_config": BYTES | {"cross_attn_k": 3}},
        {"encoder_config": BYTES | {"vocab_size": 300, "intermediate_size": None}},
        {"global_config": GLOBAL | {"num_attention_heads": 6, "num_key_value_heads": 2}},
    ],
)
def test_parts_of_a_model_of_patches_have_the_parameters_of_the_library(said):
    pytest.importorskip("transformers")
    config = BLT | said

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


SEEN = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}
CLASSES = {"id2label": {str(place): f"word {place}" for place in range(2000)}}


@pytest.mark.parametrize("kind", ["vit", "deit", "dinov2", "beit"])
def test_the_output_over_classes_meets_an_image_once_and_not_each_of_its_patches(kind):
    pytest.importorskip("transformers")
    config = {"model_type": kind, **SEEN, "intermediate_size": 256, **CLASSES}
    config |= {"architectures": ["DeiTForImageClassification"]} if kind == "deit" else {}
    config = {key: value for key, value in config.items() if kind != "dinov2" or key != "intermediate_size"}
    module = library.model(config)
    module.to_empty(device="cpu").set_attn_implementation("eager")

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(pixel_values=torch.zeros(1, 3, 56, 56))
    found = architecture_of(config).architecture
    tokens = found.max_position_embeddings
    beside = 2.0 * (tokens - 16) * 14 * 14 * 3 * 64  # tokens that are no patches meet no pixels
    forward = found.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert found.parameters == library.parameters(module)
    assert forward - beside == pytest.approx(counter.get_total_flops(), rel=1e-3)


HEARS = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 32}
HEARS |= {"conv_dim": [16, 24, 32], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3}
HEARS |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("sew", {}),
        ("sew", {"squeeze_factor": 4, "feat_extract_norm": "layer", "conv_bias": True}),
        ("wav2vec2", {"do_stable_layer_norm": True, "adapter_attn_dim": 8}),
        ("hubert", {"conv_pos_batch_norm": True, "feat_proj_layer_norm": False}),
    ],
)
def test_layers_over_frames_of_sound_have_the_flops_of_the_frames_that_are_left(kind, said):
    pytest.importorskip("transformers")
    config, frames = {"model_type": kind, **HEARS, **said}, 800
    module = library.model(config)
    parameters = library.parameters(module)
    module.to_empty(device="cpu").set_attn_implementation("eager")

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(input_values=torch.zeros(1, 20 * frames + 20))
    found = architecture_of(config)
    forward = found.architecture.model_flops_per_token(frames, causal=False) / 3 * frames
    assert found.architecture.parameters == parameters
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert any("20 samples of sound" in told for told in found.assumed)


LATENT_VECTORS = {"num_latents": 24, "d_latents": 96, "d_model": 64, "num_self_attends_per_block": 2}
LATENT_VECTORS |= {"num_self_attention_heads": 4, "num_cross_attention_heads": 2, "max_position_embeddings": 400}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"qk_channels": 32, "v_channels": 96, "num_blocks": 3},
        {"self_attention_widening_factor": 2, "cross_attention_widening_factor": 3},
    ],
)
def test_latents_read_a_text_pass_their_layers_and_are_read_by_as_many_places(said):
    pytest.importorskip("transformers")
    config, tokens = {"model_type": "perceiver", **LATENT_VECTORS, **said}, 400
    module = library.model(config)
    parameters = library.parameters(module)
    module.to_empty(device="cpu")

    with FlopCounterMode(display=False) as counter:
        module.eval()(inputs=torch.zeros(1, tokens, dtype=torch.long))
    found = architecture_of(config).architecture
    forward = found.model_flops_per_token(tokens, causal=False) / 3 * tokens
    assert found.parameters == parameters
    assert forward == pytest.approx(counter.get_total_flops(), rel=0.01)
