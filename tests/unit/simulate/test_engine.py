"""The event engine: max-min shares beside their definition, both engines beside each other, and closed cases."""

import contextlib
import math
import queue
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.simulate import native
from meshwright.simulate.engine import run_numpy
from meshwright.simulate.maxmin import fair_rates
from meshwright.simulate.native import load_engine, run_activities, run_native
from meshwright.simulate.program import Builder

from .fair_oracle import fair_rates_exactly

links_of_flows = st.integers(1, 6).flatmap(
    lambda links: st.tuples(
        st.lists(st.lists(st.integers(0, links - 1), min_size=1, max_size=4), min_size=1, max_size=12),
        st.lists(st.integers(1, 20), min_size=links, max_size=links),
    )
)


@given(links_of_flows)
def test_shares_are_max_min_fair_by_definition(network):
    ways, capacity = network
    owner = np.array([f for f, way in enumerate(ways) for _ in way])
    used = np.array([link for way in ways for link in way])

    rates = fair_rates(len(ways), owner, used, np.ones(len(used)), np.array(capacity, dtype=float))

    np.testing.assert_allclose(rates, [float(r) for r in fair_rates_exactly(ways, capacity)], rtol=1e-9)


@given(st.integers(0, 2**31))
def test_the_engine_in_c_and_the_one_in_numpy_agree(seed):
    library = load_engine()
    if library is None:
        pytest.skip("no C compiler here")
    rng = np.random.default_rng(seed)
    builder = Builder()
    rates = rng.integers(0 if seed % 9 == 0 else 1, 20, rng.integers(1, 9))
    bursts = rng.integers(0, 30, len(rates)) * (seed % 2)
    resources = [builder.resource(float(rate), float(burst)) for rate, burst in zip(rates, bursts, strict=True)]
    resources.append(builder.resource(math.inf if seed % 3 else 1000.0))  # that hardly holds anybody back
    for number in range(int(rng.integers(1, 40))):
        chosen = rng.choice(len(resources), min(len(resources), int(rng.integers(0, 4))), replace=False)
        uses = {int(r): float(rng.integers(1, 3)) for r in chosen}
        after = rng.choice(number, min(number, int(rng.integers(0, 3))), replace=False).tolist() if number else []
        builder.activity(float(rng.integers(0, 50)), uses, after=after, delay_s=float(rng.choice([0, 0.5, 1.7])))
    program = builder.build()

    try:
        expected = run_numpy(program)
    except InputError as error:
        with pytest.raises(InputError, match=str(error)[:20]):
            run_native(library, program)
        return
    found = run_native(library, program)

    np.testing.assert_allclose(found.end_s, expected.end_s, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.start_s, expected.start_s, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_the_engines_agree_on_many_flows_that_come_and_go_on_shared_links(seed):
    library = load_engine()
    if library is None:
        pytest.skip("no C compiler here")
    rng = np.random.default_rng(seed)
    builder = Builder()
    links = [builder.resource(float(rate)) for rate in rng.uniform(1, 10, 24)]
    core = builder.resource(60.0)  # at times full, at times not
    for number in range(500):
        uses = {links[i]: float(rng.integers(1, 3)) for i in rng.choice(24, 2, replace=False)} | {core: 1.0}
        after = [number - 100] if number >= 100 else []
        builder.activity(float(rng.uniform(1, 20)), uses, after=after, delay_s=float(rng.uniform(0, 3)))
    program = builder.build()

    found, expected = run_native(library, program), run_numpy(program)

    np.testing.assert_allclose(found.end_s, expected.end_s, rtol=1e-9)


def test_ranks_on_the_same_cores_share_them_as_flows_share_a_link():
    builder = Builder()
    cores = builder.resource(2.0)
    work = [builder.activity(1.0, {cores: 1.0, builder.resource(1.0): 1.0}) for _ in range(5)]

    outcome = run_activities(builder.build())

    np.testing.assert_allclose(outcome.end_s[work], 5 / 2)


def test_a_late_flow_takes_its_share_only_from_when_it_begins():
    builder = Builder()
    link = builder.resource(10.0)
    first = builder.activity(100.0, {link: 1.0})
    second = builder.activity(30.0, {link: 1.0}, delay_s=4.0)

    outcome = run_activities(builder.build())

    assert outcome.end_s[second] == pytest.approx(4 + 30 / 5)
    assert outcome.end_s[first] == pytest.approx(4 + 6 + (100 - 40 - 30) / 10)


@pytest.mark.parametrize("engine", [run_numpy, run_activities])
def test_a_token_bucket_passes_its_burst_at_once_and_fills_in_pauses(engine):
    builder = Builder()
    link = builder.resource(10.0, burst=20.0)
    first = builder.activity(50.0, {link: 1.0})
    second = builder.activity(30.0, {link: 1.0}, after=[first], delay_s=1.0)
    third = builder.activity(5.0, {link: 1.0}, after=[second], delay_s=9.0)

    outcome = engine(builder.build())

    assert outcome.end_s[first] == pytest.approx((50 - 20) / 10)
    assert outcome.end_s[second] == pytest.approx(3 + 1 + (30 - 10) / 10)
    assert outcome.end_s[third] == pytest.approx(6 + 9)


def test_what_can_never_end_is_an_error():
    builder = Builder()
    builder.activity(1.0, {builder.resource(0.0): 1.0})
    program = builder.build()

    for engine in (run_numpy, run_activities):
        with pytest.raises(InputError, match="never end"):
            engine(program)


def test_the_engine_runs_without_a_compiler(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_HELPER", "0")
    builder = Builder()
    builder.activity(3.0, {builder.resource(1.5): 1.0})

    assert run_activities(builder.build()).time_s == 2.0


@pytest.mark.skipif(load_engine() is None, reason="the engine in C is not there")
def test_a_program_whose_uses_all_count_once_runs_as_one_that_says_so():
    builder = Builder()
    link = builder.resource(1e9)
    first = builder.activity(1e6, {link: 1.0})
    builder.activity(2e6, {link: 1.0}, after=[first])
    said = builder.build()
    once = replace(said, weight=None)

    assert [run_activities(said).end_s.tolist(), run_numpy(said).end_s.tolist()] == [
        run_activities(once).end_s.tolist(),
        run_numpy(once).end_s.tolist(),
    ]


class Interrupted(queue.SimpleQueue):
    """An answer for which a person does not want to wait."""

    def get(self):
        begun.wait(10)
        raise KeyboardInterrupt


begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()


class SlowEngine:
    """An engine that still works when its caller has left."""

    @staticmethod
    def mw_simulate(*_):
        begun.set()
        goes_on.wait(10)
        ended.set()
        return 0


def test_an_engine_that_still_works_after_an_interrupt_keeps_the_memory_that_it_writes(monkeypatch):
    results, empty = [], np.empty

    def noted(count):
        array = empty(count)
        results.append(weakref.ref(array))
        return array

    builder = Builder()
    builder.activity(1.0, {builder.resource(1.0): 1.0})
    program = builder.build()
    monkeypatch.setattr(native.queue, "SimpleQueue", Interrupted)
    monkeypatch.setattr(native.np, "empty", noted)

    with contextlib.suppress(KeyboardInterrupt):
        native.run_native(SlowEngine, program)
    kept = [result() is not None for result in results]
    goes_on.set()
    ended.wait(10)

    assert kept == [True, True]
