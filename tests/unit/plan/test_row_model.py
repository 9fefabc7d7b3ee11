"""The model of a row of a table."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.plan.tables.row_model import row_architecture
from meshwright.workload.models import load_model


def test_a_model_cut_to_fewer_layers_says_how_many_of_them_have_no_experts():
    assumed: list[str] = []
    known = {"deepseek-v3": load_model("deepseek-v3").architecture}

    found = row_architecture({"model_name": "deepseek-v3", "layers": "4"}, known, Path(), assumed)

    assert found.num_hidden_layers == 4
    assert assumed == ["3 of the 4 layers of deepseek-v3 without experts (dense_layers says it)"]


SIZES = {"layers": "2", "hidden": "512", "heads": "8", "seq_len": "128"}
WHOLE = SIZES | {"vocab": "1000", "kv_heads": "2", "ffn_hidden": "1536", "gated_mlp": "1", "tied": "0"}


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ("vocab", "vocabulary 51200"),
        ("kv_heads", "kv_heads 8, as many as heads"),
        ("ffn_hidden", "ffn_hidden 2048, 4 x hidden"),
        ("gated_mlp", "three matrices in the network, since it is not 4 x hidden wide (gated_mlp 0: two)"),
        ("tied", "tied 0: the output has weights of its own"),
    ],
)
def test_a_size_that_a_row_leaves_out_is_assumed_aloud(left_out, told):
    assumed: list[str] = []
    row_architecture(WHOLE | {left_out: ""}, {}, Path(), assumed)

    assert assumed == [told]


def test_a_model_of_routed_experts_alone_lacks_no_width_of_a_network():
    assumed: list[str] = []
    row_architecture(WHOLE | {"ffn_hidden": "", "experts": "4", "top_k": "2", "expert_ffn": "256"}, {}, Path(), assumed)

    assert assumed == []


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"ffn_hidden": "28672"}, "ffn_hidden: 28672, but llama3-8b has 14336"),
        ({"kv_heads": "32"}, "kv_heads: 32, but llama3-8b has 8"),
        ({"experts": "8"}, "experts: 8, but llama3-8b has 0"),
        ({"gated_mlp": "0"}, "gated_mlp: 0, but llama3-8b has 1"),
        ({"tied": "1"}, "tied: 1, but llama3-8b has 0"),
        ({"hidden": "2048", "heads": "16"}, "hidden: 2048, but llama3-8b has 4096"),
        ({"hidden": "4096", "layers": "16", "kv_heads": "4"}, "kv_heads: 4, but llama3-8b has 8"),
    ],
)
def test_numbers_that_contradict_a_model_by_its_name_are_refused(cells, told):
    known = {"llama3-8b": load_model("llama3-8b").architecture}

    with pytest.raises(InputError, match=told):
        row_architecture({"model_name": "llama3-8b", **cells}, known, Path(), [])


def test_a_model_by_its_name_has_the_vocabulary_that_the_row_says():
    known = {"llama3-8b": load_model("llama3-8b").architecture}

    found = row_architecture({"model_name": "llama3-8b", "vocab": "32000", "kv_heads": "8"}, known, Path(), [])

    assert known["llama3-8b"].parameters - found.parameters == 2 * (128_256 - 32_000) * 4096
