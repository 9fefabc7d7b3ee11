"""Linear layers in fp8 by torchao: which are changed, what they keep, and what operators cost in it."""

import pytest
import torch
from torch import nn

from meshwright.bench.operators import time_operators
from meshwright.workload.conventions import EMULATES
from meshwright.workload.float8 import in_float8, indivisible
from meshwright.workload.graph import Operator
from meshwright.workload.transformer import ModelConfig, describe_workload

CPU = torch.device("cpu")
MODEL = ModelConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)


def kinds(module):
    return {name: type(part).__name__ for name, part in module.named_modules() if isinstance(part, nn.Linear)}


def test_products_of_layers_and_nothing_else_are_in_fp8():
    layer = describe_workload(MODEL, seq_len=64, micro_batch=2, autocast="fp8").layers

    assert {op.autocast for op in layer[1].operators if op.kind == "linear"} == {"fp8"}
    assert {op.autocast for op in layer[1].operators if op.kind != "linear"} == {"bf16"}
    assert {op.autocast for part in (layer[0], layer[2]) for op in part.operators} == {"bf16"}


def test_the_precision_of_a_step_is_that_of_its_narrowest_products():
    for precision in ("bf16", *EMULATES):
        assert describe_workload(MODEL, seq_len=64, micro_batch=2, autocast=precision).precision == precision


def test_sizes_that_kernels_do_not_take_are_named():
    assert not indivisible({"rows": 32, "columns": 48})
    assert indivisible({"rows": 40, "columns": 48}) == "fp8 kernels take multiples of 16, got rows = 40"


def test_linear_layers_of_lists_are_changed_and_no_parameter_is():
    pytest.importorskip("torchao")
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(32, 32, bias=False)]), "output": nn.Linear(32, 16)})
    before = dict(model.named_parameters())

    changed = in_float8(model, "fp8-emulated")

    assert kinds(changed) == {"layers.0": "Float8Linear", "output": "Linear"}
    assert {name: id(p) for name, p in changed.named_parameters()} == {name: id(p) for name, p in before.items()}


def test_a_module_in_another_precision_stays_as_it_is():
    model = nn.ModuleList([nn.Linear(32, 32)])

    assert in_float8(model, "") is model
    assert kinds(model) == {"0": "Linear"}


def test_eight_bits_lie_near_sixteen_and_not_on_them():
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    plain, x = nn.Linear(64, 64, bias=False), torch.randn(32, 64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        half = plain(x)
        narrow = in_float8(plain, "fp8-emulated")(x)

    error = float((narrow - half).float().norm() / half.float().norm())
    assert 0.005 < error < 0.08  # e4m3 has three bits after the point: 2^-4 at most, of each factor


def test_an_operator_in_fp8_is_timed(rank_pool):
    pytest.importorskip("torchao")

    (answer,) = rank_pool(1).run(timed, timeout_s=120)

    assert answer.operator == "linear[64x64x64]:fp8-emulated"
    assert answer.forward_s > 0
    assert answer.backward_s > 0


def timed(rank, world_size, store):
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    product = Operator(kind="linear", shape=(64, 64, 64), forward_flops=2 * 64**3, autocast="fp8-emulated")
    return time_operators([product], ranks=1, threads=1, budget_s=0.1, device=CPU)[0]
