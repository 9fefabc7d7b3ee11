"""Low-rank adapters: how many parameters they train, and what is not counted."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.adapters import adapter_parameters, check_rank, trained_share
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
