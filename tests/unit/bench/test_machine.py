"""Rates of one machine."""

import pytest
import torch

from meshwright.bench.machine import FP8, _product, settle
from meshwright.bench.run import compute_against
from meshwright.hardware import load_catalogue


def test_a_cpu_has_no_clock_to_settle():
    assert settle(torch.device("cpu")) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_a_product_is_of_two_matrices_of_its_type(dtype, monkeypatch):
    drawn = []
    draw = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, **named: drawn.append(draw(*size, **named)) or drawn[-1])

    found = _product(32, 64, 16, torch.device("cpu"), dtype)()

    a, b = (each.to(dtype).double() for each in drawn)
    assert found.shape == (32, 16)
    assert torch.allclose(found.double(), a @ (b.t() if dtype is FP8 else b), atol=0.2, rtol=0.02)


@pytest.mark.parametrize(
    ("key", "dtype", "expected"),
    [
        ("h100", "float8_e4m3fn", "1.5e+03 TFLOP/s is 76 % of"),
        ("v100-32g", "bfloat16", "the catalogue has no dense bf16 peak of"),
        ("v100-32g", "float16", "dense fp16 peak"),
    ],
)
def test_a_rate_is_held_against_the_peak_of_its_own_type(key, dtype, expected):
    assert expected in compute_against(load_catalogue().accelerators[key], dtype, 1.5e15)
