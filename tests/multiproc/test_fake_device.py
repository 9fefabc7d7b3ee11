"""Training on a device of its own, which runs beside the host: what a GPU would show, without one (tests/fake)."""

from collections.abc import Callable, Iterator

import pytest

from meshwright.bench.pool import RankPool
from meshwright.layout import Layout
from tests.fake import cases
from tests.multiproc.parallel.layouts import FAST, SLOW, Case
from tests.multiproc.parallel.parity import difference, loss_difference, run

pytestmark = pytest.mark.timeout(300)
START_S = 250.0  # the device is compiled once on a machine
LOSS, PARAMETERS = 1e-12, 1e-10  # rounding of float64 sums in another order
LAYOUTS = [case for case in (*FAST, *SLOW) if Layout.parse(case.layout).world_size <= 2]
MORE = [case for case in SLOW if case.layout in ("dp=1,pp=4,mbs=1,schedule=zb", "dp=4,mbs=2,zero=3,replicas=2")]
AT_ONCE = ("dp=2,mbs=4,zero=1", "dp=2,mbs=4,zero=3", "dp=1,tp=2,mbs=4,sp=1", "dp=1,pp=2,mbs=2")  # in `make test`


@pytest.fixture(scope="module")
def device_pool() -> Iterator[Callable[[int], RankPool]]:
    """Return a function from a rank count to ranks that know the device; other tests never get them."""
    pools: dict[int, RankPool] = {}

    def get(world_size: int) -> RankPool:
        if world_size not in pools or not pools[world_size].alive:
            pools[world_size] = RankPool(world_size)
        return pools[world_size]

    yield get
    for pool in pools.values():
        pool.close()


@pytest.fixture(scope="module")
def alone() -> Callable[[dict], list]:
    """Return a function from a model to what one process makes of it on the CPU."""
    known: dict[tuple, list] = {}

    def get(model: dict) -> list:
        key = tuple(sorted(model.items()))
        if key not in known:
            with RankPool(1) as pool:
                known[key] = pool.run(run, "dp=1,mbs=8", model, "gloo", timeout_s=START_S)
        return known[key]

    return get


@pytest.mark.parametrize(
    "case",
    [
        case if case.layout in AT_ONCE and not case.model else pytest.param(case, marks=pytest.mark.slow)
        for case in (*LAYOUTS, *MORE)
    ],
    ids=str,
)
def test_a_layout_trains_on_the_device_as_one_process_does_on_the_cpu(case: Case, alone, device_pool):
    expected = alone(case.model)

    ranks = device_pool(Layout.parse(case.layout).world_size)
    found = ranks.run(cases.parts, case.layout, case.model, timeout_s=START_S)

    assert loss_difference(expected, found) < LOSS
    assert difference(expected, found) < PARAMETERS
    assert difference(expected, found, "exp_avg_sq") < PARAMETERS
    assert all(result["norms"] == pytest.approx(expected[0]["norms"], rel=LOSS) for result in found)
    assert found[0]["validation"] == pytest.approx(expected[0]["validation"], rel=LOSS)


def test_a_tensor_of_the_host_beside_those_of_the_device_is_refused(device_pool):
    assert "same device" in device_pool(1).run(cases.mixed, timeout_s=START_S)[0]
