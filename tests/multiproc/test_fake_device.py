"""Training on a device of its own, which runs beside the host: what a GPU would show, without one (tests/fake)."""

import pytest
import torch

from tests.fake import cases

pytestmark = pytest.mark.timeout(300)  # the device is compiled once on a machine
START_S = 250.0

LAYOUTS = (
    *("dp=2", "dp=2,zero=1", "dp=2,zero=3", "tp=2", "tp=2,sp=1", "cp=2", "pp=2,mbs=2,schedule=1f1b"),
    *("pp=2,mbs=2,schedule=zb", "dp=2,zero=2,recompute=full"),
)


def trained(pool, *what):
    return pool.run(cases.train, *what, timeout_s=START_S)


@pytest.mark.parametrize("layout", [LAYOUTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in LAYOUTS[1:])])
def test_two_ranks_train_as_on_cpus(rank_pool, layout):
    on_device, on_cpu = (trained(rank_pool(2), layout, fake) for fake in (True, False))

    for mine, other in zip(on_device, on_cpu, strict=True):
        assert mine == pytest.approx(other, rel=1e-5)


def test_forward_runs_in_bf16_where_that_is_asked_for(rank_pool):
    half, whole = (trained(rank_pool(1), "dp=1", True, dtype)[0] for dtype in (torch.bfloat16, None))

    assert half != whole
    assert half == pytest.approx(whole, rel=0.02)


def test_a_tensor_of_the_host_beside_those_of_the_device_is_refused(rank_pool):
    assert "same device" in rank_pool(1).run(cases.mixed, timeout_s=START_S)[0]


def test_what_one_stream_wrote_another_uses_only_behind_an_event(rank_pool):
    ((raced, ordered),) = rank_pool(1).run(cases.two_streams, timeout_s=START_S)

    assert "no event between them" in raced
    assert ordered == ""


def test_work_is_timed_until_the_device_has_done_it(rank_pool):
    ((asked_s, timed_s),) = rank_pool(1).run(cases.timed, 5e-3, timeout_s=START_S)

    assert asked_s < timed_s
    assert timed_s == pytest.approx(5e-3, rel=0.5)


def test_a_span_lasts_as_long_as_the_device_works_on_it_and_the_host_does_not_wait_for_each(rank_pool):
    ((spans, step_s, waits),) = rank_pool(1).run(cases.recorded, 2e-3, timeout_s=START_S)
    by_name = {}
    for span in spans:
        by_name[span.name] = by_name.get(span.name, 0.0) + span.end_s - span.start_s

    assert by_name["forward"] > 0.05
    assert by_name["backward"] > by_name["forward"]
    assert sum(by_name.values()) == pytest.approx(step_s, rel=0.2)
    assert waits["item"] == 1  # the norm
    assert waits["device"] == 2  # at the end of the step, and for the anchor of the next
