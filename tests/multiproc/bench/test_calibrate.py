"""Calibration on live ranks: what is missing is measured, what is known is kept."""

import pytest

from meshwright.bench import calibrate
from meshwright.bench.collectives import fit_names
from meshwright.cluster.graph import Measurements, Timed
from meshwright.cluster.local import discover_host
from meshwright.layout import Layout
from meshwright.plan.measured.split_step import RESUMING
from meshwright.workload.graph import Operator
from meshwright.workload.transformer import ModelConfig, describe

MODEL = ModelConfig(
    hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
)
WORKLOADS = [describe(MODEL, seq_len=16, micro_batch=1, layout=layout) for layout in (None, Layout(tp=2), Layout(cp=2))]
EVERY = (
    *{op.key: op for work in WORKLOADS for layer in work.layers for op in layer.operators}.values(),
    *WORKLOADS[0].update,
    *(Operator(kind="sharding", shape=(6, zero)) for zero in (2, 3)),
    *(Operator(kind="recomputing", shape=(11, selective)) for selective in (0, 1)),
    RESUMING,
)
BESIDE = (Timed("all_reduce"), Timed("reduce_scatter"))
WAITED_FOR = (
    *map(Timed, ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "send_recv")),
    Timed("all_reduce", "bfloat16"),
)
SMALL = Operator(kind="linear", shape=(8, 8, 8))


@pytest.fixture(autouse=True)
def _quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "OPERATOR_BUDGET_S", 0.1)


def test_every_operator_and_size_is_measured_and_kept():
    request = calibrate.Request(
        ranks=2,
        backend="gloo",
        operators=EVERY,
        collective_bytes=(64, 2**16, 2**18),
        beside=BESIDE,
        blocking=WAITED_FOR,
    )
    first = calibrate.calibrate(discover_host(), [request])
    said = []
    again = calibrate.calibrate(discover_host(), [request], say=said.append)

    assert {t.operator for t in first.operators} == {op.key for op in (calibrate.peak_product(), *EVERY)}
    assert all(t.forward_s > 0 and t.ranks == 2 and t.threads >= 1 for t in first.operators)
    assert all(t.backward_s > 0 for t in first.operators if t.operator.startswith(("sharding", "recomputing")))
    assert all(t.stretch >= 1 for t in first.operators)
    assert {op.kind for op in EVERY} > {"context_attention", "vocabulary_cross_entropy"}
    waited = {Timed(name, each.dtype) for each in WAITED_FOR for name in fit_names(each.collective)}
    sizes = {(64, 2**16), (2**16, 2**18)}
    assert {(f.collective, f.dtype, f.min_bytes, f.max_bytes) for f in first.collectives} == {
        (*each, *ends) for each in {*BESIDE, *waited} for ends in sizes
    }
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


@pytest.mark.parametrize("damage", ["cut", "a figure", "of another machine"])
def test_a_damaged_cache_is_measured_anew_with_a_warning(tmp_path, damage):
    known = Measurements(fingerprint="there", memory_bandwidth_bytes_per_s=1.0)
    path = tmp_path / "there.json"
    calibrate._store(path, known)
    said = []
    assert calibrate._load(path, "there", said.append) == known
    assert not said
    text = path.read_text()
    broken = {"cut": text[:-9], "a figure": text.replace(": 1.0", ": 2.0"), "of another machine": text}
    name = "here" if damage == "of another machine" else "there"
    path.write_text(broken[damage])

    assert calibrate._load(path, name, said.append) == Measurements(fingerprint=name)
    assert said[0].startswith(f"warning: {path}: ")
    assert said[0].endswith("measured anew")
