"""Processor time, and how much longer work takes among others."""

import time

import pytest
import torch

from meshwright.bench.cpu_clock import CpuClock


def test_pauses_do_not_count_for_a_piece_of_work_but_for_all_of_it(monkeypatch):
    wall, busy = iter([10.0, 18.0, 20.0, 22.0]), iter([1.0, 2.0, 2.5, 4.0, 4.5])
    monkeypatch.setattr(time, "perf_counter", wall.__next__)
    monkeypatch.setattr(time, "thread_time", busy.__next__)
    clock = CpuClock(torch.device("cpu"))

    with clock.counted():  # a second of work in eight
        pass
    with clock.counted():  # one and a half in two
        pass

    assert clock.slowdown == pytest.approx((8 + 2) / (1 + 1.5))
    assert clock.now_s() == 4.5


def test_work_that_nobody_disturbs_is_not_stretched():
    assert CpuClock(torch.device("cpu")).slowdown == 1.0
