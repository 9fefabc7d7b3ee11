"""Training on a device of its own, which runs beside the host: what a GPU would show, without one (tests/fake)."""

import pytest
import torch

from tests.fake import cases

pytestmark = pytest.mark.timeout(300)  # the device is compiled once on a machine

LAYOUTS = (
    *("dp=2", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2", "tp=2,sp=1", "cp=2", "pp=2,mbs=2,schedule=1f1b"),
    *("pp=2,mbs=2,schedule=gpipe", "pp=2,mbs=2,schedule=zb", "dp=2,recompute=full", "dp=2,recompute=selective"),
)


def test_one_rank_trains_as_on_a_cpu(rank_pool):
    assert rank_pool(1).run(cases.train, "dp=1", True) == [
        pytest.approx(rank_pool(1).run(cases.train, "dp=1", False)[0])
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_train_as_on_cpus(rank_pool, layout):
    on_device, on_cpu = (rank_pool(2).run(cases.train, layout, fake) for fake in (True, False))

    for mine, other in zip(on_device, on_cpu, strict=True):
        assert mine == pytest.approx(other, rel=1e-5)


def test_forward_runs_in_bf16(rank_pool):
    half, whole = (rank_pool(1).run(cases.train, "dp=1", True, dtype)[0] for dtype in (torch.bfloat16, None))

    assert half != whole
    assert half == pytest.approx(whole, rel=0.02)


def test_a_span_lasts_as_long_as_the_device_works_on_it_and_the_host_does_not_wait_for_each(rank_pool):
    ((spans, step_s, waits),) = rank_pool(1).run(cases.recorded, 2e-3)
    by_name = {}
    for span in spans:
        by_name[span.name] = by_name.get(span.name, 0.0) + span.duration_s

    assert by_name["forward"] > 0.05
    assert by_name["backward"] > by_name["forward"]
    assert sum(by_name.values()) == pytest.approx(step_s, rel=0.1)
    assert waits.get("copy to the host", 0) + waits.get("item", 0) <= 3  # a loss for each micro-batch, the norm
