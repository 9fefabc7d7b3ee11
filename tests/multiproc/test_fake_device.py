"""Training on a device of its own, which runs beside the host: what a GPU would show, without one (tests/fake)."""

import pytest

from tests.fake import cases

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]  # the device is compiled once on a machine
START_S = 250.0


def test_two_ranks_train_as_one_does(rank_pool):
    alone = rank_pool(1).run(cases.train, "dp=1", True, timeout_s=START_S)[0]

    for found in rank_pool(2).run(cases.train, "dp=2", True, timeout_s=START_S):
        assert found == pytest.approx(alone, rel=1e-5)


def test_a_tensor_of_the_host_beside_those_of_the_device_is_refused(rank_pool):
    assert "same device" in rank_pool(1).run(cases.mixed, timeout_s=START_S)[0]
