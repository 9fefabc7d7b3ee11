"""InternVL as OpenGVLab published it, with the code beside its weights: the text model is under llm_config."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of

SMALL = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
SMALL |= {"image_size": 448, "patch_size": 14, "num_channels": 3, "qkv_bias": True, "qk_normalization": False}
SMALL |= {"model_type": "intern_vit_6b", "norm_type": "layer_norm", "use_flash_attn": True}
LARGE = SMALL | {"hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 45, "num_attention_heads": 25}
LARGE |= {"qkv_bias": False, "qk_normalization": True, "norm_type": "rms_norm"}
QWEN = {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
QWEN |= {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151655, "tie_word_embeddings": False}
LLAMA = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
LLAMA |= {"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128265, "tie_word_embeddings": False}
WHOLE = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "downsample_ratio": 0.5}
WHOLE |= {"select_layer": -1, "use_thumbnail": True, "ps_version": "v2", "force_image_size": 448, "use_llm_lora": 0}
WHOLE |= {"auto_map": {"AutoModelForCausalLM": "modeling_internvl_chat.InternVLChatModel"}}


@pytest.mark.parametrize(
    ("sight", "text", "published"),
    [(SMALL, QWEN, 938_158_976), (LARGE, LLAMA, 76_262_358_400)],  # of OpenGVLab's InternVL2-1B and -Llama3-76B
)
def test_internvl_s_first_files_have_the_published_parameters_of_encoder_and_text(sight, text, published):
    found = architecture_of(WHOLE | {"vision_config": sight, "llm_config": text})

    assert found.architecture.parameters == published
    assert found.ignored == ()
    assert not [told for told in found.assumed if "auto_map" in told]


def test_the_output_is_tied_as_the_text_model_says():
    tied = {"vision_config": SMALL, "llm_config": QWEN | {"tie_word_embeddings": True}, "tie_word_embeddings": False}

    assert architecture_of(WHOLE | tied).architecture.parameters == 938_158_976 - 896 * 151655


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"use_llm_lora": 16}, "use_llm_lora: not understood"),
        ({"vision_config": SMALL | {"model_type": "siglip_vision_model"}}, "expected intern_vit_6b"),
        ({"llm_config": {"model_type": "skyhook"}}, "llm_config: model_type: 'skyhook' is not known"),
    ],
)
def test_parts_that_are_not_counted_are_refused_by_name(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(WHOLE | {"vision_config": SMALL, "llm_config": QWEN} | changed)


def test_the_text_model_of_a_type_that_is_not_known_is_not_said_to_be_of_that_type():
    strange = {"model_type": "house_vl", "llm_config": QWEN}
    strange |= {"auto_map": {"AutoModelForCausalLM": "modeling_house.HouseVLChat"}}
    found = architecture_of(strange, allow_unknown=True)

    assert not [told for told in found.assumed if "counted as a house_vl" in told]


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "medusa", "mlp_speculator", "deepseek_mtp"])
def test_a_type_of_draft_models_is_not_told_to_be_copied_under_another_type(kind):
    with pytest.raises(InputError, match=f"{kind} drafts tokens for another model") as told:
        architecture_of({"model_type": kind, "model": {"model_type": "llama", "hidden_size": 64}})
    assert "a copy of the file" not in str(told.value)


def test_a_model_that_sees_is_no_draft_whatever_its_type_is_called():
    with pytest.raises(InputError) as told:
        architecture_of({"model_type": "eagle_chat", "vision_config": SMALL, "llm_config": {"model_type": "skyhook"}})
    assert "drafts" not in str(told.value)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"general.architecture": "llama", "general.name": "House 7B", "llama.block_count": 32}, "(House 7B, llama)"),
        ({"metadata": {"general.architecture": {"type": "STRING", "value": "gemma3"}}, "tensors": {}}, "(gemma3)"),
    ],
)
def test_the_header_of_a_gguf_file_is_named_as_that_with_what_to_give_instead(config, named):
    with pytest.raises(InputError) as told:
        architecture_of(config)
    assert f"the metadata of a GGUF file {named}" in str(told.value)
    assert "give the config.json" in str(told.value)
