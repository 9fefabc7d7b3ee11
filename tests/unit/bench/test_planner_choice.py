"""The benchmark of the planner's choice, from figures given by hand."""

import numpy as np
import pytest

from benchmarks.planner_choice import at_one_pace, judged


def test_the_pace_of_a_turn_is_taken_out_and_what_one_layout_takes_longer_stays():
    own_s = np.array([1.0, 2.0, 4.0])
    pace = np.array([[1.0, 1.2], [0.9, 1.0]])  # of two rounds with two turns
    taken_s = pace[..., None] * own_s
    taken_s[1, 1, 2] *= 1.5

    even_s = at_one_pace(taken_s)

    assert even_s[..., :2].std(axis=(0, 1)) == pytest.approx(0, abs=1e-9)
    assert even_s[1, 1, 2] / even_s[0, 0, 2] == pytest.approx(1.5)
    assert np.median(even_s, axis=(0, 1)) == pytest.approx(own_s)


def test_the_choice_is_judged_by_what_it_took_beside_the_quickest():
    rows = [
        {
            "layout": name, "predicted_ms": predicted, "measured_ms": measured, "spread_ms": 2.0,
            "error_percent": 100 * (predicted / measured - 1), "memory_error_percent": -4.0,
        }
        for name, predicted, measured in (("a", 90.0, 110.0), ("b", 95.0, 100.0), ("c", 300.0, 200.0))
    ]  # fmt: skip

    choice, pairs, times, memory = judged(rows)

    assert choice.startswith("chosen a, 10.0% behind the best measured (b);")
    assert pairs.startswith("2 of 3 clearly different pairs")
    assert times.startswith("step time off by 18 % in the median, 50 % at worst;")
    assert memory.startswith("peak memory off by 4 % in the median, 4 % at worst;")
