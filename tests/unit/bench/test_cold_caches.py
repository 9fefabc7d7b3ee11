"""Operators are timed with caches as cold as those of a step."""

import pytest

from meshwright.bench import operators
from meshwright.bench.cpu_clock import CpuClock
from meshwright.device import CPU
from meshwright.workload.graph import Operator


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [("adamw", (2, 64), "long"), ("grad_norm", (2, 64), "long"), ("rms_norm", (4, 8), "short")],
)
def test_the_update_is_timed_after_as_much_other_work_as_a_step_has(kind, shape, expected, monkeypatch):
    before = []
    monkeypatch.setattr(operators.dist, "barrier", lambda: None)
    monkeypatch.setattr(operators, "MAX_COPIES", 2)
    monkeypatch.setattr(operators, "run_others", lambda: before.append("short"))
    monkeypatch.setattr(operators, "compute_at_length", lambda: before.append("long"))

    operators._time(Operator(kind=kind, shape=shape), 0.0, CPU, CpuClock(CPU))

    assert set(before) == {expected}
