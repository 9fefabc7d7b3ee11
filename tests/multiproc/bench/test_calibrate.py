"""Calibration on live ranks: what is missing is measured, what is known is kept."""

import pytest

from meshwright.bench import calibrate
from meshwright.cluster.local import discover_host
from meshwright.errors import InputError
from meshwright.workload.graph import Operator
from meshwright.workload.transformer import ModelConfig, describe

WORKLOAD = describe(
    ModelConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2),
    seq_len=16,
    micro_batch=1,
)
EVERY = tuple({op.key: op for layer in WORKLOAD.layers for op in layer.operators}.values()) + WORKLOAD.update
SMALL = Operator(kind="linear", shape=(8, 8, 8))


@pytest.fixture(autouse=True)
def _quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "OPERATOR_BUDGET_S", 0.1)


def test_every_operator_and_size_is_measured_and_kept():
    request = calibrate.Request(ranks=2, backend="gloo", operators=EVERY, collective_bytes=(64, 2**16, 2**18))
    first = calibrate.calibrate(discover_host(), [request])
    said = []
    again = calibrate.calibrate(discover_host(), [request], say=said.append)

    assert {t.operator for t in first.operators} == {op.key for op in (calibrate.PEAK, *EVERY)}
    assert all(t.forward_s > 0 and t.ranks == 2 and t.threads >= 1 for t in first.operators)
    assert {(f.min_bytes, f.max_bytes) for f in first.collectives} == {(64, 2**16), (2**16, 2**18)}
    assert first.memory_bandwidth_bytes_per_s > 1e8
    assert (again, said) == (first, [])


def test_only_what_is_missing_is_measured():
    known = calibrate.calibrate(discover_host(), [calibrate.Request(ranks=1, backend="gloo", operators=(SMALL,))])
    other = Operator(kind="linear", shape=(8, 8, 16))
    said = []
    more = calibrate.calibrate(
        discover_host(), [calibrate.Request(ranks=1, backend="gloo", operators=(SMALL, other))], say=said.append
    )

    assert said[0].startswith("measuring 1 operators")
    assert set(known.operators) < set(more.operators)


def test_a_damaged_cache_says_how_to_go_on(tmp_path):
    request = calibrate.Request(ranks=1, backend="gloo", operators=(SMALL,))
    calibrate.calibrate(discover_host(), [request])
    path = next((tmp_path / "meshwright" / "calibration").iterdir())
    path.write_text("{")

    with pytest.raises(InputError, match="--recalibrate"):
        calibrate.calibrate(discover_host(), [request])
    assert calibrate.calibrate(discover_host(), [request], again=True).operators
