"""Calibration on live ranks: what is missing is measured, what is known is kept."""

import contextlib
import os
import re

import msgspec
import pytest

from meshwright.bench import calibrate, collectives
from meshwright.bench.collectives import fit_names
from meshwright.bench.ranks.pool import RankFailedError, RanksSilentError
from meshwright.cluster.discovery.local import discover_host
from meshwright.cluster.graph import Measurements, Pace, Timed
from meshwright.layout import Layout
from meshwright.plan.measured.spmd import RESUMING
from meshwright.workload.graph import Operator
from meshwright.workload.transformer import ModelConfig, describe_workload
from testkit.caches import new_cache

MODEL = ModelConfig(
    hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
)
WORKLOADS = [
    describe_workload(MODEL, seq_len=16, micro_batch=1, layout=layout) for layout in (None, Layout(tp=2), Layout(cp=2))
]
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
PEAK = Operator(kind="linear", shape=(64, 64, 64))  # one that fills the caches takes seconds
MEASURE = calibrate.measure_on_rank
STEADY = Pace(product_s=1e-3, product_error=0.01, copy_s=1e-3, copy_error=0.01)


def measure_quickly(*arguments):
    """Measure on a rank as ever, but with a moment of computation between two collectives, and in short turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "COMPUTE_S", 1e-4)
        patch.setitem(collectives.time_added.__kwdefaults__, "compute_s", 1e-4)
        patch.setattr(collectives, "ACTION_S", 1e-4)
        patch.setattr(collectives, "CALLS_A_TURN", 2)
        patch.setattr(calibrate, "CROWD_S", 0.01)
        return MEASURE(*arguments)


@pytest.fixture(autouse=True)
def _quick(monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, "measure_on_rank", measure_quickly)
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path))
    monkeypatch.setattr(calibrate, "OPERATOR_BUDGET_S", 0.1)
    monkeypatch.setattr(calibrate, "peak_product", lambda *_: PEAK)
    monkeypatch.setattr(calibrate, "pace", lambda: STEADY)


@pytest.mark.timeout(400)
def test_every_operator_and_size_is_measured_and_kept():
    request = calibrate.Request(
        ranks=2,
        backend="gloo",
        operators=EVERY,
        collective_bytes=(64, 2**16, 2**18),
        overlapped=BESIDE,
        blocking=WAITED_FOR,
    )
    first = calibrate.calibrate(discover_host(), [request])
    said = []
    again = calibrate.calibrate(discover_host(), [request], say=said.append)

    assert {t.operator for t in first.operators} == {op.key for op in (calibrate.peak_product(), *EVERY)}
    assert all(t.forward_s > 0 and t.ranks == 2 and t.threads >= 1 for t in first.operators)
    assert all(t.backward_s > 0 for t in first.operators if t.operator.startswith(("sharding", "recomputing")))
    assert all(t.slowdown >= 1 for t in first.operators)
    assert {op.kind for op in EVERY} > {"context_attention", "vocabulary_cross_entropy"}
    waited = {Timed(name, each.dtype) for each in WAITED_FOR for name in fit_names(each.collective)}
    sizes = {(64, 2**16), (2**16, 2**18)}
    assert {(f.collective, f.dtype, f.min_bytes, f.max_bytes) for f in first.collectives} == {
        (*each, *ends) for each in {*BESIDE, *waited} for ends in sizes
    }
    assert first.memory_bandwidth_bytes_per_s > 1e8
    assert (again, said) == (first, [])


def test_only_what_is_missing_is_measured_and_the_date_of_the_rest_stays(monkeypatch):
    known = calibrate.calibrate(discover_host(), [calibrate.Request(ranks=1, backend="gloo", operators=(SMALL,))])
    monkeypatch.setattr(calibrate, "pace", lambda: msgspec.structs.replace(STEADY, product_s=1.04e-3))
    other = Operator(kind="linear", shape=(8, 8, 16))
    said = []
    more = calibrate.calibrate(
        discover_host(), [calibrate.Request(ranks=1, backend="gloo", operators=(SMALL, other))], say=said.append
    )

    assert said[0].startswith("measuring 1 operator with 1 rank")
    assert set(known.operators) < set(more.operators)
    assert more.conditions == known.conditions


def _measured(said=None, **how):
    request = calibrate.Request(ranks=1, backend="gloo", operators=(SMALL,))
    return calibrate.calibrate(discover_host(), [request], say=said.append if said is not None else str, **how)


def test_a_calibration_says_when_it_was_made_and_how_busy_the_machine_was():
    (found,) = _measured().conditions

    assert found.ranks == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", found.made)
    assert 0 <= found.others_share <= 1
    assert found.pace == STEADY


def test_where_the_pace_of_the_machine_has_changed_it_is_measured_anew_and_where_it_has_not_it_is_not(monkeypatch):
    _measured()
    said = []
    near = msgspec.structs.replace(STEADY, product_s=1.04e-3)
    monkeypatch.setattr(calibrate, "pace", lambda: near)
    _measured(said)
    assert said == []
    far = msgspec.structs.replace(STEADY, copy_s=4.5e-3)
    monkeypatch.setattr(calibrate, "pace", lambda: far)
    _measured(said, sure={1})
    assert said == []

    again = _measured(said)

    assert said[0].startswith("warning: a copy in memory takes 4.50 times as long now as when this machine was calibra")
    assert said[0].endswith("it is measured anew")
    assert said[1].startswith("measuring 2 operators")
    assert again.conditions[0].pace == far
    _measured(said := [])
    assert said == []


def test_measurements_that_do_not_say_when_they_were_made_are_made_anew(tmp_path):
    known = _measured()
    (path,) = (tmp_path / "meshwright" / "calibration").glob("*.json")
    calibrate._store(path, msgspec.structs.replace(known, conditions=()))
    said = []

    again = _measured(said)

    assert said[0] == "warning: what was measured with 1 rank does not say when; it is measured anew"
    assert len(again.conditions) == 1


def test_a_calibration_on_a_busy_machine_says_so(monkeypatch):
    monkeypatch.setattr(calibrate, "busy_words", lambda loads: "other programs took 45% of the processors")
    said = []

    _measured(said)

    assert said[-1] == (
        "warning: meanwhile other programs took 45% of the processors; what is predicted is for a machine as busy as "
        "that"
    )


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


class SilentPool(contextlib.nullcontext):
    """Ranks that never answer."""

    def run(self, *_, **__):
        raise RanksSilentError("rank 0 did not answer within 300 s")


def test_ranks_that_a_crowded_machine_holds_up_are_told_with_what_to_do(monkeypatch):
    monkeypatch.setattr(calibrate, "RankPool", lambda ranks: SilentPool(SilentPool()))
    monkeypatch.setattr(os, "getloadavg", lambda: (500.0, 0.0, 0.0))
    request = calibrate.Request(ranks=1, backend="gloo", operators=(SMALL,))

    with pytest.raises(RankFailedError, match=r"calibration: rank 0 did not answer .*500 threads want the .*quiet"):
        calibrate.calibrate(discover_host(), [request], again=True)
