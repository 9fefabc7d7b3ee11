"""Low-rank adapters: how many parameters they train, and what is not counted."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.adapters import (
    adapted_matrices,
    adapter_parameters,
    check_rank,
    trained_share,
    without_adapters,
)
from meshwright.workload.models import load_model


@pytest.mark.parametrize(
    ("name", "rank", "published"),
    [("llama3-8b", 16, 41_943_040), ("llama2-7b", 8, 19_988_480), ("mistral-7b", 64, 167_772_160)],
)  # fmt: skip
def test_adapters_on_all_matrices_have_the_parameters_that_peft_prints(name, rank, published):
    assert adapter_parameters(load_model(name).architecture, rank) == published


def test_adapters_of_latent_attention_are_those_of_its_matrices():
    model = load_model("deepseek-v2-lite").architecture
    h, heads = 2048, 16
    attention = (h + heads * 192) + (h + 576) + (512 + heads * 256) + (heads * 128 + h)
    dense, shared = 3 * (h + 10944), 3 * (h + 2 * 1408)

    assert adapter_parameters(model, 8) == 8 * (27 * attention + dense + 26 * shared)
    assert 0 < trained_share(model, 8) < 0.01


def test_layers_whose_adapters_are_not_known_are_refused():
    with pytest.raises(InputError, match="adapters of Mamba2 layers are not counted"):
        adapter_parameters(load_model("nemotron3-nano-30b-a3b").architecture, 16)


def test_a_rank_beyond_the_model_s_width_is_refused():
    model = load_model("llama3-8b").architecture

    check_rank(model, 4096, where="--lora-rank")
    with pytest.raises(InputError, match="--lora-rank: a rank of 4,097: expected at most the model's width, 4,096"):
        check_rank(model, 4097, where="--lora-rank")


@pytest.mark.parametrize(
    ("names", "kinds", "sides"),
    [
        ("k_proj,o_proj", ("k", "o"), (4096 + 1024) + (4096 + 4096)),
        ("['self_attn.q_proj']", ("q",), 4096 + 4096),
        ("up_proj down_proj", ("down", "up"), 2 * (4096 + 14336)),
        ("q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj", (), 41_943_040 // (16 * 32)),
        ("all-linear", (), 41_943_040 // (16 * 32)),
        ("", (), 41_943_040 // (16 * 32)),
    ],
)
def test_adapters_on_some_matrices_alone_are_counted_on_those(names, kinds, sides):
    model = load_model("llama3-8b").architecture

    assert adapted_matrices(model, names) == kinds
    assert adapter_parameters(model, 16, kinds) == 16 * 32 * sides


@pytest.mark.parametrize(("model", "names"), [("llama3-8b", "q_proj,Wqkv"), ("deepseek-v2-lite", "q_proj")])
def test_matrices_that_are_not_told_apart_have_no_count_of_their_own(model, names):
    assert adapted_matrices(load_model(model).architecture, names) is None


@pytest.mark.parametrize(
    ("names", "kinds", "left"),
    [
        ("query and value and mlp", ("down", "gate", "q", "up", "v"), "the keys, outputs of attention"),
        (r"^model\.layers\..*\.(q_proj|v_proj)$", None, "the keys, outputs of attention and the networks"),
        ("c_attn c_proj", None, "the gate and up projections of networks"),
        ("c_proj", ("down", "o"), "the queries, keys, values of attention and the gate and up projections of networks"),
        ("*.linear_fc1,*.linear_fc2", None, "the queries, keys, values, outputs of attention"),
        ("self_attn.o_proj mlp.down_proj", ("down", "o"), "the queries, keys, values of attention and the gate and up"),
        ("c_attn c_proj c_fc", (), ""),
        ("*", (), ""),
    ],
)
def test_names_of_matrices_mean_the_same_in_what_is_counted_and_in_what_is_said_to_be_left_out(names, kinds, left):
    assert adapted_matrices(load_model("llama3-8b").architecture, names) == kinds
    assert without_adapters(names).startswith(left)
    assert bool(left) == bool(without_adapters(names))
