"""The large product in fp8 that calibration times on an accelerator, whatever precision a job has."""

import pytest
import torch

from meshwright.bench import calibrate
from meshwright.bench.calibrate import Request, products_in_float8


@pytest.mark.parametrize("lacking", ["", "torchao is not installed"])
def test_an_accelerator_has_it_timed_or_says_why_not(monkeypatch, lacking):
    monkeypatch.setattr(calibrate, "uses_accelerators", lambda backend: True)
    monkeypatch.setattr(calibrate, "device_at", lambda: torch.device("cuda"))
    monkeypatch.setattr(calibrate, "product_side", lambda where: 4096)
    monkeypatch.setattr(calibrate, "lacking", lambda precision, where: lacking)

    products, reason = products_in_float8(Request(ranks=1, backend="nccl", operators=(), autocast="bf16"))

    assert [product.key for product in products] == ([] if lacking else ["linear[4096x4096x4096]:fp8"])
    assert reason == lacking


def test_a_processor_has_none():
    assert products_in_float8(Request(ranks=1, backend="gloo", operators=()))[0] == ()
