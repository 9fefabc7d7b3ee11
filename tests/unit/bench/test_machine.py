"""Rates of one machine."""

import torch

from meshwright.bench.machine import settle


def test_a_cpu_has_no_clock_to_settle():
    assert settle(torch.device("cpu")) is None
