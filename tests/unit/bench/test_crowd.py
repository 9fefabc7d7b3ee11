"""Processor time, and how much longer work takes among others."""

import time

import pytest
import torch

from meshwright.bench.crowd import Crowd


def test_pauses_do_not_count_for_a_piece_of_work_but_for_all_of_it(monkeypatch):
    wall, busy = iter([10.0, 18.0, 20.0, 22.0]), iter([1.0, 2.0, 2.5, 4.0, 4.5])
    monkeypatch.setattr(time, "perf_counter", wall.__next__)
    monkeypatch.setattr(time, "thread_time", busy.__next__)
    crowd = Crowd(torch.device("cpu"))

    with crowd.counted():  # a second of work in eight
        pass
    with crowd.counted():  # one and a half in two
        pass

    assert crowd.stretch == pytest.approx((8 + 2) / (1 + 1.5))
    assert crowd.clock() == 4.5


def test_work_that_nobody_disturbs_is_not_stretched():
    assert Crowd(torch.device("cpu")).stretch == 1.0
