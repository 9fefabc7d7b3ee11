"""The decoder as numbers against the decoder as a module, and the golden figures of the field."""

import msgspec
import pytest
from torch.utils.flop_counter import FlopCounterMode

from meshwright.layout import Layout
from meshwright.train.model.decoder import Decoder
from meshwright.workload.conventions import ENGINE
from meshwright.workload.transformer import ModelConfig, _network, describe_workload, parameter_shapes

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
    workload = describe_workload(MODELS[name], seq_len=8, micro_batch=1)

    assert sum(layer.count * layer.parameters for layer in workload.layers) == workload.parameters


@pytest.mark.parametrize("name", MODELS)
def test_matrix_products_are_the_ones_that_torch_counts(name):
    """torch's counter leaves out attention on CPU, so it is the judge of the linear operators."""
    import torch

    workload = describe_workload(MODELS[name], seq_len=16, micro_batch=2)
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
    workload = describe_workload(model, seq_len=2048, micro_batch=16)
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


def test_of_a_compiled_decoder_each_layer_is_one_operator_with_the_arithmetic_of_all():
    plain, compiled = (
        describe_workload(ModelConfig(), seq_len=64, micro_batch=2, compiled=how) for how in (False, True)
    )
    embedding, layer, output = compiled.layers

    assert layer.timed == (layer.compiled,) == layer.run_again("full")
    assert layer.compiled.key == "compiled_layer[2x64x128x2x1x384]"
    assert layer.compiled.model_flops == sum(operator.model_flops for operator in plain.layers[1].operators)
    assert (embedding, output) == (plain.layers[0], plain.layers[2])
    assert layer.operators == plain.layers[1].operators == plain.layers[1].timed


@pytest.mark.parametrize("changes", [{"num_local_experts": 4}, {"hidden_dropout": 0.1}], ids=str)
def test_layers_that_torch_compiles_in_pieces_stay_operators(changes):
    workload = describe_workload(ModelConfig(**changes), seq_len=64, micro_batch=2, compiled=True)

    assert workload == describe_workload(ModelConfig(**changes), seq_len=64, micro_batch=2)


def test_a_compiled_layer_runs_under_autocast_as_its_operators_do():
    layer = describe_workload(ModelConfig(), seq_len=64, micro_batch=2, autocast="bf16", compiled=True).layers[1]

    assert {operator.autocast for operator in (*layer.operators, layer.compiled)} == {"bf16"}


@pytest.mark.parametrize(("returned", "weighted"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_rows_that_experts_return_are_kept_where_the_stack_keeps_them(returned, weighted):
    model = ModelConfig(num_local_experts=4)
    c = msgspec.structs.replace(ENGINE, returned_kept=returned, weighted_kept=weighted)
    none = msgspec.structs.replace(ENGINE, returned_kept=0, weighted_kept=0)

    kept, bare = (sum(one.saved_bytes for one in _network(model, 64, 64, Layout(), each)) for each in (c, none))

    rows = 64 * model.num_experts_per_tok
    assert kept - bare == (returned + weighted) * 4 * rows * model.hidden_size  # float32
