"""Keys that a class takes, passes over or reads as its own code does; small weights counted to the last one."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_published_files import TEXT, parameters


@pytest.mark.parametrize(
    ("kind", "key", "meant"),
    [
        ("llama", "n_layer", "num_hidden_layers"),
        ("bloom", "n_inner", ""),
        ("deepseek_v3", "shared_expert_intermediate_size", ""),
        ("deepseek_v3", "num_dense_layers", "first_k_dense_replace"),
        ("mixtral", "moe_intermediate_size", ""),
        ("glm4_moe_lite", "first_k_dense_replace", ""),
    ],
)
def test_a_name_of_a_size_that_the_class_does_not_take_is_refused_with_the_one_that_it_takes(kind, key, meant):
    with pytest.raises(InputError, match=f"{key}: not understood for model_type {kind}.*{meant}"):
        architecture_of({"model_type": kind, key: 6})


@pytest.mark.parametrize(
    ("kind", "read", "other"),
    [
        ("gpt_oss", {"num_experts_per_tok": 2}, {"experts_per_token": 4}),
        ("falcon", {"num_kv_heads": 71, "new_decoder_architecture": True}, {"n_head_kv": 8}),
        ("llama", {"max_position_embeddings": 4096}, {"max_sequence_length": 16384}),
    ],
)
def test_of_two_names_the_class_takes_its_own_and_what_the_other_says_is_told(kind, read, other):
    plain, found = (architecture_of(library.base(kind) | read | more) for more in ({}, other))

    assert found.architecture == plain.architecture
    ((key, size), (beside, value)) = next(iter(read.items())), next(iter(other.items()))
    told = f"{key} = {size} is read; {beside} = {value}, which the class passes over, says otherwise"
    assert told in found.assumed
    assert told not in plain.assumed


def test_the_files_of_the_librarys_answers_are_the_same_in_whatever_order_a_class_lists_its_keys():
    one, other = {"b": 1, "a": {"y": [2, 1], "x": 0}}, {"a": {"x": 0, "y": [2, 1]}, "b": 1}

    assert library.file_text({"llama": one}) == library.file_text({"llama": other})
    for file in (library.FILE, library.NAMES):
        assert file.read_text("utf-8") == library.file_text(json.loads(file.read_text("utf-8")))


@pytest.mark.slow
def test_the_names_of_sizes_are_the_ones_of_the_librarys_classes():
    pytest.importorskip("transformers")
    assert json.loads(library.NAMES.read_text("utf-8")) == library.read_names()


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("stablelm", {"use_parallel_residual": True, "qk_layernorm": True}),
        ("persimmon", {"qk_layernorm": True}),
        ("phi", {"qk_layernorm": True}),
        ("apertus", {"hidden_act": "xielu"}),
        ("apertus", {"hidden_act": "silu"}),
    ],
)
def test_norms_and_numbers_of_a_few_weights_are_counted_to_the_last_one(kind, changed):
    pytest.importorskip("transformers")
    config = library.base(kind) | changed

    assert parameters(config) == library.parameters(library.model(config))


MPT = {"model_type": "mpt", "d_model": 256, "n_heads": 8, "n_layers": 2, "vocab_size": 1000}


@pytest.mark.parametrize(
    ("attention", "kv_heads"),
    [
        ({"attn_type": "grouped_query_attention", "kv_n_heads": 2}, 2),
        ({"attn_type": "multiquery_attention"}, 1),
        ({"attn_type": "multihead_attention"}, 8),
    ],
)
def test_heads_of_mpts_own_code_are_counted_and_told(attention, kv_heads):
    found = architecture_of(MPT | {"attn_config": attention})

    assert found.architecture.num_key_value_heads == kv_heads
    assert any("as MPT's own code has them" in told for told in found.assumed) == (kv_heads != 8)


def test_biases_and_positions_of_mpts_own_code_are_counted_and_told():
    plain = MPT | {"max_seq_len": 128}
    biased = architecture_of(plain | {"no_bias": False})
    with_table = architecture_of(plain | {"attn_config": {"alibi": False}})

    # of qkv, output, up, down and two norms; the last norm
    assert biased.architecture.parameters - parameters(plain) == 2 * (3 + 1 + 4 + 1 + 2) * 256 + 256
    assert with_table.architecture.parameters - parameters(plain) == 128 * 256
    assert any(told.startswith("no_bias: biases, as MPT's own code") for told in biased.assumed)
    assert any(told.startswith("learned_pos_emb: a table of positions") for told in with_table.assumed)


def test_an_mpt_with_rotations_or_without_positions_has_no_table():
    for attention, table in (
        ({"alibi": False, "rope": True}, True),
        ({"alibi": False}, False),
        ({"alibi": True}, True),
    ):
        config = MPT | {"max_seq_len": 128, "attn_config": attention, "learned_pos_emb": table}
        assert parameters(config) == parameters(MPT | {"max_seq_len": 128})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"attn_config": {"attn_type": "grouped_query_attention"}},
            "attn_config.kv_n_heads: expected those of grouped",
        ),
        ({"attn_config": {"kv_n_heads": 2}}, "attn_config.kv_n_heads: expected those of multihead_attention"),
        ({"attn_config": {"attn_type": "ring_attention"}}, "attn_config.attn_type: expected one of"),
        ({"expansion_ratio": 2}, "expansion_ratio: expected 4"),
        ({"ffn_config": {"ffn_type": "mptglu"}}, "ffn_config: expected ffn_type mptmlp"),
    ],
)
def test_an_mpt_of_another_form_is_refused_by_the_key_that_says_so(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(MPT | changed)


def test_a_class_of_code_beside_the_weights_is_named():
    own = {"auto_map": {"AutoModelForCausalLM": "modeling_striped.StripedLlamaForCausalLM"}, "model_type": "llama"}
    told = "modeling_striped.StripedLlamaForCausalLM (auto_map) is counted as a llama: what that code has beside it is"
    assert any(text.startswith(told) for text in architecture_of(TEXT | own).assumed)

    named = {"architectures": ["Llama_Striped"], "auto_map": {"AutoModel": "modeling_striped.Llama_Striped"}}
    with pytest.raises(InputError, match="the code of Llama_Striped, which lies beside the weights, is not read"):
        architecture_of(TEXT | named)
