"""Keys that say otherwise than a class: which tokens attention meets, what is shared, and which class a file names."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_published_files import TEXT, parameters

HEADS = {"head_dim": 64, "num_key_value_heads": 1, "num_hidden_layers": 6, "sliding_window": 128}


def flops(config, **more):
    model = architecture_of(config | more).architecture
    return model.model_flops_per_token(4096), model.model_flops_per_token(4096, causal=False)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TEXT, {"is_causal": False}),
        (TEXT | {"model_type": "llama"}, {"is_causal": False}),
        (TEXT | HEADS | {"model_type": "gemma3_text"}, {"use_bidirectional_attention": True}),
        (TEXT | {"model_type": "gemma"}, {"use_bidirectional_attention": True}),
    ],
)
def test_a_decoder_that_looks_both_ways_scores_the_tokens_after_each_too_and_says_so(config, said):
    (masked, whole), (found, every) = flops(config), flops(config, **said)

    assert masked < found == every
    assert found == pytest.approx(whole, rel=1e-3)  # a window on both sides has one key more
    assert any(f"{key} = {value!r}: each token meets" in told for key, value in said.items()
               for told in architecture_of(config | said).assumed)  # fmt: skip
    assert parameters(config | said) == parameters(config)


def test_the_text_model_of_one_with_encoders_looks_both_ways_as_its_own_keys_say():
    text = TEXT | HEADS | {"model_type": "gemma3_text"}
    config = {"model_type": "gemma3", "vision_config": {}}

    plain, both = (flops(config, text_config=text | said) for said in ({}, {"use_bidirectional_attention": True}))
    assert plain[0] < both[0] == both[1] == pytest.approx(plain[1], rel=1e-3)


def test_of_gemma_4_images_alone_may_look_both_ways_which_leaves_the_text_as_it_is():
    text = TEXT | HEADS | {"model_type": "gemma4_text", "num_kv_shared_layers": 0}

    assert flops(text, use_bidirectional_attention="vision") == flops(text)
    assert flops(text, use_bidirectional_attention="all")[0] > flops(text)[0]


def test_a_bert_that_is_a_decoder_meets_no_token_after_its_own():
    bert = TEXT | {"model_type": "bert", "num_key_value_heads": None, "architectures": ["BertLMHeadModel"]}

    encoder, decoder = flops(bert), flops(bert, is_decoder=True)
    assert decoder[0] < encoder[0] == encoder[1] == decoder[1]


def mixers(config):
    return [mixer for run in architecture_of(config).architecture.runs for mixer in run.layer.mixers]


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (TEXT | {"is_causal": False}, {0}),
        (TEXT | {"model_type": "mistral", "is_causal": False, "sliding_window": 64}, {129}),
        (
            TEXT | {"model_type": "gemma3_text", "sliding_window": 64, "use_bidirectional_attention": True},
            {65},
        ),
        (
            library.base("gemma4_text") | {"sliding_window": 64, "use_bidirectional_attention": "all"},
            {0, 67},
        ),
        (library.base("modernbert-decoder") | {"local_attention": 64, "is_causal": False}, {0, 65}),
        (library.base("gpt_bigcode") | {"is_causal": False}, {0}),
    ],
)
def test_a_decoder_whose_file_takes_its_mask_away_meets_keys_on_both_sides(config, windows):
    assert {(mixer.window, mixer.masked) for mixer in mixers(config)} == {(window, False) for window in windows}
    plain = {key: value for key, value in config.items() if key not in {"is_causal", "use_bidirectional_attention"}}
    assert all(mixer.masked for mixer in mixers(plain))
    assert parameters(config) == parameters(plain)


def test_a_decoder_without_a_mask_may_put_out_vectors():
    config = TEXT | {"is_causal": False, "architectures": ["Qwen2Model"]}

    assert parameters(config) == parameters(config | {"is_causal": True})


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "openai-gpt", "is_causal": False},
        {"model_type": "gpt_neo", "is_causal": False},
        TEXT | {"model_type": "internlm2", "is_causal": False},
        TEXT | {"model_type": "internlm2", "use_bidirectional_attention": True},
        library.base("bart") | {"is_causal": False},
    ],
)
def test_attention_without_a_mask_is_refused_where_it_is_not_known_that_the_class_asks_the_key(config):
    with pytest.raises(InputError, match=r"(is_causal|use_bidirectional_attention): expected .*without a mask"):
        architecture_of(config)


def test_attention_in_chunks_is_masked_whatever_a_file_says():
    with pytest.raises(InputError, match="is_causal: False: layers that are no plain attention"):
        architecture_of(library.base("llama4_text") | {"is_causal": False})


def test_a_file_that_says_of_attention_both_ways_what_its_class_does_anyway_is_told_nothing():
    eurobert = library.base("eurobert")

    assert architecture_of(eurobert | {"is_causal": False}) == architecture_of(eurobert)


def test_the_keys_in_a_window_that_lies_on_both_sides_are_said():
    config = TEXT | {"model_type": "mistral", "is_causal": False, "sliding_window": 64}

    (told,) = (told for told in architecture_of(config).assumed if "each token meets" in told)
    assert told == "is_causal = False: each token meets those after it too, in a window 129 keys, as many on each side"


def test_a_window_on_both_sides_is_not_counted_with_a_mask():
    config = library.base("longformer") | {"is_decoder": True}

    with pytest.raises(InputError, match="is_decoder: expected false: windows on both sides"):
        architecture_of(config)


def test_a_decoder_that_looks_both_ways_is_no_other_type_for_that():
    config = TEXT | {"model_type": "llama", "architectures": ["XverseForCausalLM"], "is_causal": False}

    assert not [told for told in architecture_of(config).assumed if "read as a llama" in told]


def test_layers_that_cannot_look_both_ways_are_refused_where_a_file_says_so():
    with pytest.raises(InputError, match="is_causal: False: layers that are no plain attention"):
        architecture_of({"model_type": "mamba", "num_hidden_layers": 2, "is_causal": False})


@pytest.mark.parametrize(
    ("kind", "key", "harmless", "changing"),
    [
        ("bert", "pruned_heads", {}, {"0": [1, 3]}),
        ("bert", "position_embedding_type", "absolute", "relative_key_query"),
        ("t5", "tie_encoder_decoder", False, True),
    ],
)
def test_a_key_that_only_some_values_make_a_size_of_is_refused_with_those(kind, key, harmless, changing):
    assert parameters({"model_type": kind, key: harmless}) == parameters({"model_type": kind})
    with pytest.raises(InputError, match=f"{key}: (not understood for model_type {kind}|expected 'absolute')"):
        architecture_of({"model_type": kind, key: changing})


def test_a_class_of_another_type_that_would_be_another_model_is_told():
    config = TEXT | {"model_type": "llama"}

    (told,) = architecture_of(config | {"architectures": ["Qwen2ForCausalLM"]}).assumed
    assert told == "read as a llama, which model_type says, not as qwen2, whose class Qwen2ForCausalLM is " \
        "(architectures): they differ"  # fmt: skip
    assert architecture_of(config | {"architectures": ["ArceeForCausalLM"]}).assumed
    assert not architecture_of(config | {"architectures": ["XverseForCausalLM"]}).assumed


def test_a_file_without_a_type_is_read_as_the_one_whose_class_it_names():
    config = {key: value for key, value in TEXT.items() if key != "model_type"}

    found = architecture_of(config | {"architectures": ["Qwen2ForCausalLM"]})
    assert found.architecture == architecture_of(TEXT).architecture
    assert found.assumed[0].startswith("the file names no model_type; Qwen2ForCausalLM is the class of qwen2")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}, "no size of a model is in it"),
        ({"bos_token_id": 1, "temperature": 0.6}, "no size of a model is in it"),
        ({"layers": 4, "hidden": 64, "heads": 4, "gated_mlp": True}, "hidden is hidden_size, heads is num_attention_h"),
        ({"layers": 4, "hidden": 64}, '; model_type "llama" is a decoder whose networks are gated'),
        ({"n_layer": 12, "n_embd": 768}, "expected a word such as llama"),
        (TEXT | {"num_key_value_heads": 0}, "num_key_value_heads: expected 1 or more, got 0"),
        (TEXT | {"model_type": "LLaMA"}, r"LLaMA is not known \(did you mean llama"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_is_missing(config, told):
    with pytest.raises(InputError, match=told):
        architecture_of(config)


def test_former_names_of_types_are_read_as_todays():
    llama = architecture_of(TEXT | {"model_type": "llama"}).architecture

    assert architecture_of(TEXT | {"model_type": "Yi"}).architecture == llama
    first = TEXT | {"model_type": "stablelm_epoch", "use_qkv_bias": True}
    assert parameters(first) == parameters(first | {"model_type": "stablelm"})
