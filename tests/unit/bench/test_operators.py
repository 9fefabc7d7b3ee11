"""Operators as calibration times them."""

import functools

import pytest
import torch
from torch._dynamo.utils import counters

from meshwright.bench import operators
from meshwright.bench.cpu_clock import CpuClock
from meshwright.bench.machine import settle
from meshwright.workload.graph import Operator
from meshwright.workload.transformer import ModelConfig, describe

COMPILED = [
    Operator(kind="linear", shape=(8, 16, 32), compiled=True),
    Operator(kind="rms_norm", shape=(8, 16), compiled=True),
    Operator(kind="split_heads", shape=(2, 8, 4, 2, 8), compiled=True, autocast="bf16"),
    Operator(kind="swiglu", shape=(8, 16), compiled=True),
]


@pytest.mark.parametrize("operator", COMPILED, ids=lambda operator: operator.key)
def test_the_copies_of_a_compiled_operator_share_one_compilation(operator, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    for _ in range(3):
        copy = operators._make(operator)
        with operators._precision(operator, torch.device("cpu")):
            expected, found = copy.forward(), operators._callable(operator, copy)()
        torch.testing.assert_close(found, expected)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_compiled_operator_is_kept_apart_from_the_same_one_that_is_not():
    plain = Operator(kind="linear", shape=(8, 16, 32), autocast="bf16")
    compiled = Operator(kind="linear", shape=(8, 16, 32), autocast="bf16", compiled=True)
    assert (plain.key, compiled.key) == ("linear[8x16x32]:bf16", "linear[8x16x32]:bf16:compiled")


def test_of_a_compiled_decoder_only_the_layers_are_compiled():
    embedding, layer, output = describe(ModelConfig(), seq_len=64, micro_batch=1, compiled=True).layers
    assert all(operator.compiled for operator in layer.operators)
    assert not any(operator.compiled for operator in (*embedding.operators, *output.operators))


def test_a_cpu_has_no_clock_to_settle():
    assert settle(torch.device("cpu")) is None


def test_more_shapes_of_one_operator_than_torch_compiles_of_one_function_are_all_compiled(monkeypatch):
    compiled = []

    def backend(graph, _inputs):
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    monkeypatch.setattr(operators.dist, "barrier", lambda: None)
    cpu = torch.device("cpu")
    shapes = 2 + torch._dynamo.config.recompile_limit
    for rows in range(1, shapes + 1):
        operator = Operator(kind="linear", shape=(rows, 4, 4), compiled=True)
        operators._time(operator, 0.0, cpu, CpuClock(cpu))
    assert len(compiled) == shapes
