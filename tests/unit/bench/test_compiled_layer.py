"""A compiled decoder layer, which calibration times as one operator."""

import functools

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from meshwright.bench import operators
from meshwright.bench.compiled_layer import DenseLayer
from meshwright.bench.cpu_clock import CpuClock
from meshwright.train.model import decoder
from meshwright.workload.functional import rotary_tables
from meshwright.workload.transformer import ModelConfig, describe_workload

CPU = torch.device("cpu")
MODEL = ModelConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)


def compiled_operator(micro_batch=2, model=MODEL):
    operator = describe_workload(model, seq_len=8, micro_batch=micro_batch, compiled=True).layers[1].compiled
    assert operator is not None
    return operator


@pytest.fixture
def graphs(monkeypatch):
    """What is compiled from now on, each with the sizes that are left open in it."""
    found = []

    def backend(graph, inputs):
        found.append([size for tensor in inputs for size in getattr(tensor, "shape", ()) if not isinstance(size, int)])
        return graph.forward

    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend=backend))
    yield found
    torch._dynamo.reset()


def test_it_computes_what_a_layer_of_the_decoder_computes():
    theirs = decoder.DecoderLayer(MODEL)
    mine = DenseLayer(32, 4, 2, 48)
    for one, other in zip(mine.parameters(), [*parameters_by_use(theirs)], strict=True):
        assert one.shape == other.shape
        nn.init.normal_(other)
        with torch.no_grad():
            one.copy_(other)
    x, (cos, sin) = torch.randn(2, 8, 32), rotary_tables(8, 8, 10000.0)

    torch.testing.assert_close(mine(x, cos.float(), sin.float()), theirs(x, cos.float(), sin.float()))


def parameters_by_use(layer):
    yield from (layer.attention_norm.weight, layer.mlp_norm.weight)
    yield from (layer.attention.qkv.weight, layer.attention.out.weight, layer.gate_up.weight, layer.down.weight)


@pytest.mark.slow
def test_copies_share_one_compilation_of_the_whole_layer(graphs):
    for _ in range(3):
        (output,) = operators._make(compiled_operator()).forward()
        output.sum().backward()

    assert graphs == [[]]
    assert not counters["graph_break"]


@pytest.mark.slow
def test_each_shape_is_compiled_for_itself(graphs, monkeypatch):
    monkeypatch.setattr(operators.dist, "barrier", lambda: None)
    monkeypatch.setattr(operators, "run_others", lambda: None)
    monkeypatch.setattr(operators, "MAX_COPIES", 2)
    for micro_batch in (1, 2):
        operators._time(compiled_operator(micro_batch), 0.0, CPU, CpuClock(CPU))

    assert graphs == [[]] * 2


def test_what_is_compiled_is_timed_last_and_told_in_the_order_asked_for(monkeypatch):
    timed = []
    monkeypatch.setattr(operators, "_time", lambda operator, *_: (timed.append(operator), (len(timed), 0.0))[1])
    layer = describe_workload(MODEL, seq_len=8, micro_batch=2, compiled=True).layers[1]
    first, last = compiled_operator(), layer.operators[0]

    found = operators.time_operators([first, last], ranks=1, threads=1, budget_s=0.0, device=CPU)

    assert timed == [last, first]
    assert [(time.operator, round(time.forward_s / time.slowdown)) for time in found] == [(first.key, 2), (last.key, 1)]
