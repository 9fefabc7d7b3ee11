"""Bytes and time of the modes of data parallelism."""

import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.search.asynchronous import (
    AsynchronousMode,
    Surroundings,
    WorkerStep,
    encoded_bytes,
    price_mode,
    worker_layout,
)
from meshwright.timeline import Performance

SLOW = Surroundings(parameters=1_000_000, compute_s=(0.1, 0.1, 0.1, 0.3), bandwidth_bytes_per_s=1e12)
EVEN = Surroundings(parameters=1_000_000, compute_s=(0.1,) * 4, bandwidth_bytes_per_s=12.5e6, far_workers=2)


def step_s(around, **mode):
    return price_mode(AsynchronousMode(**mode), around).step_time_s


def test_a_synchronous_step_takes_as_long_as_its_slowest_worker():
    assert step_s(SLOW) == pytest.approx(0.3, rel=1e-3)
    assert step_s(SLOW, mode="parameter_server", staleness=0) == pytest.approx(0.3, rel=1e-3)
    assert step_s(SLOW, mode="local_sgd", adapt=False) == pytest.approx(0.3, rel=1e-3)


def test_nobody_waiting_for_one_of_four_that_is_three_times_slower_gives_2_5_times_the_pace():
    ideal_s = 4 / (3 / 0.1 + 1 / 0.3)

    assert step_s(SLOW, mode="parameter_server", staleness=None) == pytest.approx(ideal_s, rel=0.02)
    assert step_s(SLOW, mode="diloco", adapt=True) == pytest.approx(ideal_s, rel=0.02)
    assert 0.3 / ideal_s == pytest.approx(2.5)


def test_the_pace_grows_with_the_staleness_that_is_allowed():
    times = [step_s(SLOW, mode="parameter_server", staleness=s) for s in (0, 1, 2, 4, None)]

    assert times == sorted(times, reverse=True)
    assert times[1] < times[0]


def test_one_parameter_server_is_bound_by_its_link_and_more_of_them_share_it():
    """The reference's 256 workers of 97.5 MB (25.557 M parameters are 102.2 MB = 97.5 MiB) at three steps a second."""
    around = Surroundings(parameters=25_557_032, compute_s=(1 / 3,) * 256, bandwidth_bytes_per_s=50e9)
    one = price_mode(AsynchronousMode(mode="parameter_server", staleness=None, servers=1), around)
    many = price_mode(AsynchronousMode(mode="parameter_server", staleness=None, servers=16), around)

    needed = one.server_link_bytes / 2 * 3  # per direction and second
    assert needed == pytest.approx(78.5e9, rel=1e-3)
    assert needed / 2**30 == pytest.approx(73.1, rel=1e-3)
    assert one.step_time_s == pytest.approx(needed / 50e9 / 3, rel=1e-3)
    assert many.step_time_s < 0.35


def test_diloco_moves_as_many_times_less_as_it_waits_and_as_its_bits_are_fewer():
    full = price_mode(AsynchronousMode(mode="diloco", sync_every=50), EVEN)
    int8 = price_mode(AsynchronousMode(mode="diloco", sync_every=50, wire="int8"), EVEN)

    assert full.wire_bytes == 2 * 4 * 4e6 / 50
    assert int8.wire_bytes / full.wire_bytes == pytest.approx(0.25, rel=0.005)
    assert encoded_bytes(1025, 4, "int8") == 1025 + 8


def test_what_is_streamed_costs_no_time_while_training_lasts_longer():
    streamed = step_s(EVEN, mode="diloco", sync_every=50, stream=True)
    waited = step_s(EVEN, mode="diloco", sync_every=50, stream=False)

    assert streamed == pytest.approx(0.1)
    assert waited == pytest.approx(0.1 + 2 * 2 * 4e6 / 12.5e6 / 50)
    assert step_s(EVEN, mode="sync") > 0.5


@pytest.mark.parametrize(
    ("job", "workers", "worker"),
    [
        ("dp=4,mbs=2", 4, "dp=1,mbs=2"),
        ("dp=4,mbs=2,recompute=full", 2, "dp=2,mbs=2,recompute=full"),
        ("dp=8,tp=2,mbs=1,zero=1", 4, "dp=2,tp=2,mbs=1,zero=1"),
        ("dp=4,mbs=2", 1, "dp=4,mbs=2"),
    ],
)
def test_a_worker_has_its_share_of_the_data_ranks_and_all_else_of_the_layout(job, workers, worker):
    assert worker_layout(Layout.parse(job), workers) == Layout.parse(worker)


def test_data_ranks_that_do_not_divide_over_the_workers_are_refused():
    with pytest.raises(InputError, match=r"dp=4 does not divide over 3 workers"):
        worker_layout(Layout(dp=4), 3)


@pytest.mark.parametrize(("mode", "share_s"), [("parameter_server", 0.9), ("local_sgd", 1.0), ("diloco", 1.0)])
def test_a_share_is_a_workers_whole_step_without_the_update_where_servers_do_it(mode, share_s):
    parts = dict.fromkeys(Performance.__struct_fields__[:-3], 0.0) | {"peak_memory_bytes_per_gpu": 0, "mfu": None}
    predicted = Performance(**parts | {"step_time_s": 1.0, "optimizer_s": 0.1, "exposed_comm_s": 0.2})
    worker = WorkerStep(layout=Layout(dp=2), workers=2, predicted=predicted)

    assert worker.share_s(AsynchronousMode(mode=mode)) == pytest.approx(share_s)
