"""Encoders of passages and tables against the library, and what own code does beside the library's class."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_encoders import NOMIC
from tests.unit.workload.configs.test_published_files import parameters

SMALL = {"hidden_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 192}
SMALL |= {"vocab_size": 1000}
LABELS = {"id2label": {str(place): f"kind {place}" for place in range(3)}}
TABLES = {"type_vocab_sizes": [3, 12, 9, 2], "type_vocab_size": [3, 12, 9, 2], "num_aggregation_labels": 4}


@pytest.mark.parametrize(
    ("kind", "named", "more"),
    [
        ("dpr", "DPRContextEncoder", {}),
        ("dpr", "DPRQuestionEncoder", {"projection_dim": 24}),
        ("dpr", "DPRReader", {}),
        ("tapas", "TapasModel", TABLES),
        ("tapas", "TapasForQuestionAnswering", TABLES),
        ("tapas", "TapasForQuestionAnswering", {}),
        ("tapas", "TapasForSequenceClassification", TABLES | LABELS),
    ],
)
def test_encoders_of_passages_and_tables_have_the_parameters_of_the_library(kind, named, more):
    pytest.importorskip("transformers")
    config = {"model_type": kind, "architectures": [named], **SMALL, **more}
    stored = {key: value for key, value in config.items() if key != "type_vocab_size"}

    assert parameters(config) == library.parameters(library.model(stored))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "dpr", "architectures": ["DPRReader"], "projection_dim": 8}, "projection_dim: expected 0"),
        ({"model_type": "tapas", "type_vocab_sizes": 7}, "type_vocab_sizes: expected a list of whole numbers"),
        ({"model_type": "tapas", "type_vocab_size": [2, 2]}, "type_vocab_size: expected"),
        ({"model_type": "tapas", "architectures": ["TapasForMaskedLM"]}, "TapasForMaskedLM is not counted"),
    ],
)
def test_a_record_encoder_of_other_sizes_than_are_counted_is_refused(config, told):
    with pytest.raises(InputError, match=told):
        architecture_of(config)


ROUTED = NOMIC | {"activation_function": "gelu", "moe_every_n_layers": 2, "num_experts": 4, "moe_top_k": 2}


def test_every_second_layer_of_a_nomic_encoder_has_experts_where_its_file_says_so():
    dense = parameters(ROUTED | {"moe_every_n_layers": 0})
    model = architecture_of(ROUTED).architecture
    network = 2 * 96 * 192

    assert model.parameters - dense == 3 * network + 4 * 96 + 96  # of three layers one: experts, router, one bias
    assert model.parameters - model.active_parameters == 2 * network


def test_biases_of_a_nomic_encoder_are_counted_where_its_file_says_so():
    gelu = NOMIC | {"activation_function": "gelu"}
    biases = parameters(gelu | {"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}) - parameters(gelu)

    assert biases == 3 * (4 * 96 + 192 + 96)
    assert parameters(NOMIC) - parameters(gelu) == 3 * 96 * 192  # the gate


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"moe_every_n_layers": 1}, "expected 2 or more"),
        ({"activation_function": "swiglu"}, "without a gate"),
        ({"moe_top_k": 5}, "5 of 4 experts"),
        ({"num_shared_experts": 1}, "num_shared_experts: expected 0"),
        ({"expert_choice_router": True}, "expert_choice_router: expected False"),
    ],
)
def test_experts_of_a_nomic_encoder_that_are_not_counted_are_refused(changed, told):
    with pytest.raises(InputError, match=told):
        architecture_of(ROUTED | changed)


JAIS = {"model_type": "jais", "n_embd": 96, "n_head": 4, "n_layer": 3, "n_inner": 200, "vocab_size": 1000} | {
    "activation_function": "swiglu",
    "position_embedding_type": "alibi",
}


def test_jais_has_a_gate_and_biases_in_the_shape_of_gpt_2_and_no_table_of_positions():
    layer = 4 * 96 * 96 + 4 * 96 + 3 * 96 * 200 + 2 * 200 + 96 + 4 * 96

    assert parameters(JAIS) == 1000 * 96 + 3 * layer + 2 * 96
    for changed in ({"activation_function": "gelu"}, {"position_embedding_type": "learned"}):
        with pytest.raises(InputError, match=f"{next(iter(changed))}: expected"):
            architecture_of(JAIS | changed)


def test_a_file_that_joins_models_says_which_of_them_can_be_read_alone():
    parts = {"reader": {"model_type": "bert"}, "writer": {"model_type": "quill"}, "ear": {"model_type": "hubert"}}
    told = r"it joins reader \(bert\), writer \(quill\), ear \(hubert\), which .* a file with what reader or ear says"

    with pytest.raises(InputError, match=told):
        architecture_of({"model_type": "house", "architectures": ["HouseModel"], **parts})
