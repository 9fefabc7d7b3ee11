"""The decoder as numbers against the decoder as a module, and the golden figures of the field."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from meshwright.train.decoder import Decoder
from meshwright.workload.transformer import ModelConfig, describe, parameter_shapes

MODELS = {
    "default": ModelConfig(),
    "untied": ModelConfig(tie_word_embeddings=False, num_key_value_heads=1),
    "grouped": ModelConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameter_shapes_are_those_of_the_module(name):
    model = MODELS[name]

    assert [tuple(p.shape) for p in Decoder(model).parameters()] == parameter_shapes(model)


@pytest.mark.parametrize("name", MODELS)
def test_layers_hold_all_parameters(name):
    workload = describe(MODELS[name], seq_len=8, micro_batch=1)

    assert sum(layer.count * layer.parameters for layer in workload.layers) == workload.parameters


@pytest.mark.parametrize("name", MODELS)
def test_matrix_products_are_those_that_torch_counts(name):
    """torch's counter leaves out attention on CPU, so it is the judge of the linear operators."""
    import torch

    workload = describe(MODELS[name], seq_len=16, micro_batch=2)
    tokens = torch.zeros(2, 16, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        Decoder(MODELS[name])(tokens, tokens)
    counted = counter.get_flop_counts()["Global"]
    products = sum(count for operator, count in counted.items() if "attention" not in str(operator))

    linear = sum(
        layer.count * op.model_flops for layer in workload.layers for op in layer.operators if op.kind == "linear"
    )
    assert linear == products


def test_a_decoder_costs_six_flops_a_parameter_and_token_besides_attention():
    model = ModelConfig(
        hidden_size=2560, intermediate_size=6912, num_hidden_layers=24, num_attention_heads=20, num_key_value_heads=20,
        vocab_size=32000, max_position_embeddings=2048,
    )  # fmt: skip
    workload = describe(model, seq_len=2048, micro_batch=16)
    attention = 3 * sum(
        layer.count * op.model_flops for layer in workload.layers for op in layer.operators if op.kind == "attention"
    )

    assert (workload.model_flops - attention) / (6 * workload.parameters * workload.tokens) == pytest.approx(
        1, rel=0.01
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_attention_heads", 5, "does not divide hidden_size"),
        ("num_key_value_heads", 2, "does not divide num_attention_heads"),
        ("num_hidden_layers", 0, "more than 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(hidden_size=192, **({"num_attention_heads": 3, "num_key_value_heads": 1} | {field: value}))
