"""Training on a device of its own, which runs beside the host: what a GPU would show, without one (testkit/fake)."""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from meshwright.bench.ranks.pool import RankFailedError, RankPool
from meshwright.cluster.graph import Timed
from meshwright.layout import Layout
from meshwright.train.run.run_folder import RunFolder
from testkit.train_jobs import losses, run_rank, small_job, write_corpus, write_run
from tests.multiproc import fake_cases
from tests.multiproc.parallel.layouts import FAST, SLOW, Case
from tests.multiproc.parallel.parity import difference, loss_difference, run
from tests.multiproc.parallel.test_program import programmed

pytestmark = pytest.mark.timeout(300)
START_S = 250.0  # the device is compiled once on a machine
LOSS, PARAMETERS = 1e-12, 1e-10  # rounding of float64 sums in another order
LARGER = ("dp=1,pp=4,mbs=1,schedule=zb", "dp=4,mbs=2,zero=3,replicas=2")
LAYOUTS = [case for case in FAST if Layout.parse(case.layout).world_size <= 2]
MORE = [case for case in SLOW if Layout.parse(case.layout).world_size <= 2 or case.layout in LARGER]
OFFLOADING = (
    *("dp=1,mbs=4,offload=optimizer", "dp=2,mbs=2,zero=1,offload=optimizer", "dp=2,mbs=2,zero=3,offload=parameters"),
    *("dp=1,mbs=4,zero=3,offload=parameters", "dp=2,mbs=4,zero=2,offload=parameters"),
    *("dp=1,pp=2,mbs=2,zero=3,offload=parameters", "dp=1,tp=2,mbs=4,sp=1,zero=3,offload=parameters"),
)


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
    [*LAYOUTS, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE), *map(Case, OFFLOADING)],
    ids=str,
)
def test_a_layout_trains_on_the_device_as_one_process_does_on_the_cpu(case: Case, alone, device_pool):
    expected = alone(case.model)

    ranks = device_pool(Layout.parse(case.layout).world_size)
    found = ranks.run(fake_cases.parts, case.layout, case.model, timeout_s=START_S)

    assert loss_difference(expected, found) < LOSS
    assert difference(expected, found) < PARAMETERS
    assert difference(expected, found, "exp_avg_sq") < PARAMETERS
    assert all(result["norms"] == pytest.approx(expected[0]["norms"], rel=LOSS) for result in found)
    assert found[0]["validation"] == pytest.approx(expected[0]["validation"], rel=LOSS)


@pytest.mark.parametrize("layout", ["dp=2,mbs=2,zero=1", "dp=2,mbs=2,zero=3", "dp=1,pp=2,mbs=2"])
def test_a_job_on_the_device_goes_on_from_its_checkpoint_on_the_cpu_and_back(layout, tmp_path, device_pool, rank_pool):
    def train(name: str, pool: Callable[[int], RankPool], rank: Callable, start: RunFolder | None = None) -> RunFolder:
        job = small_job(corpus, steps=10, checkpoint_every=5, precision="float32")
        folder = write_run(tmp_path / name, job, Layout.parse(layout))
        if start is not None:
            shutil.copytree(start.checkpoints / "step-00000005", folder.checkpoints / "step-00000005")
        assert pool(2).run(rank, str(folder.path), timeout_s=START_S) == ["", ""]
        return folder

    corpus = write_corpus(tmp_path)
    whole = train("device", device_pool, fake_cases.job)
    on_cpu = train("cpu", rank_pool, run_rank, whole)
    back = train("back", device_pool, fake_cases.job, on_cpu)

    assert len(losses(whole)) == 10
    assert losses(on_cpu) == pytest.approx(losses(whole)[5:], rel=1e-5)
    assert losses(back) == pytest.approx(losses(whole)[5:], rel=1e-6)


def test_a_job_computes_in_bf16_on_the_device_unless_it_says_otherwise(tmp_path, device_pool):
    corpus, found = write_corpus(tmp_path), {}
    for precision in ("auto", "bf16", "float32"):
        folder = write_run(
            tmp_path / precision, small_job(corpus, steps=5, precision=precision), Layout.parse("dp=2,mbs=4")
        )
        assert device_pool(2).run(fake_cases.job, str(folder.path), timeout_s=START_S) == ["", ""]
        found[precision] = losses(folder)

    assert found["auto"] == found["bf16"] != found["float32"]
    assert found["bf16"] == pytest.approx(found["float32"], rel=1e-2)


def test_a_span_is_where_its_work_ran_and_costs_no_wait_of_the_host(device_pool):
    found = device_pool(1).run(fake_cases.recorded, 0.1, timeout_s=START_S)[0]

    assert found["waits"] == {}
    assert found["span_s"] == pytest.approx(0.3, rel=0.3)  # three products; the host was done at once
    assert found["host_s"] < 0.1


def test_calibration_times_the_device_and_not_the_host(device_pool):
    found = device_pool(2).run(fake_cases.calibrated, 0.005, timeout_s=START_S)

    for answer in found:
        product = next(time for time in answer.operators if time.operator == "linear[8x16x16]:bf16")
        assert product.forward_s >= 0.005
        assert product.backward_s >= 0.010  # two products
        assert answer.blocking[Timed("all_reduce")][0].added_s > 0


@pytest.mark.parametrize("text", ["dp=1,mbs=2", "dp=1,mbs=2,recompute=full"])
def test_the_host_waits_for_the_device_twice_a_step_whatever_the_micro_batches(text, device_pool):
    found = device_pool(1).run(fake_cases.waited, text, timeout_s=START_S)[0]

    assert found == {"copy to the host": 1, "item": 1}  # the loss, and the norm that says whether it is finite


@pytest.mark.slow
@pytest.mark.parametrize("text", ["dp=2,mbs=1", "dp=2,mbs=2,zero=3", "dp=1,tp=2,mbs=2", "dp=1,pp=2,mbs=2"])
def test_of_several_ranks_too_the_loss_comes_to_the_host_once_a_step(text, device_pool):
    for found in device_pool(2).run(fake_cases.waited, text, timeout_s=START_S):
        assert found.keys() <= {"copy to the host", "item", "transfer", "event"}
        assert found["copy to the host"] == 1


def test_one_group_serves_tensors_of_the_host_and_of_the_device(device_pool):
    assert device_pool(2).run(fake_cases.on_both, timeout_s=START_S) == [[3.0] * 6] * 2


@pytest.mark.slow
@pytest.mark.parametrize("text", OFFLOADING)
def test_what_crosses_between_a_device_and_its_host_is_what_the_program_says(text, device_pool):
    ranks = device_pool(Layout.parse(text).world_size)
    found = ranks.run(fake_cases.crossed, text, timeout_s=START_S)

    for elements, calls in zip(found, programmed(Case(text)), strict=True):
        expected = Counter()
        for (axis, name, size_bytes), count in calls.items():
            if axis == "host":
                expected[name] += count * size_bytes // 4
        assert elements == expected


def test_a_result_that_nobody_has_waited_for_is_not_there(device_pool):
    for before, after in device_pool(2).run(fake_cases.unawaited, timeout_s=START_S):
        assert math.isnan(before[0])
        assert after == [2.0]


@pytest.mark.slow
def test_two_ranks_that_wait_for_each_other_in_one_group_wait_forever(device_pool):
    with pytest.raises(RankFailedError, match="did not answer"):
        device_pool(2).run(fake_cases.crossing, timeout_s=15.0)


def test_a_tensor_of_the_host_beside_those_of_the_device_is_refused(device_pool):
    assert "same device" in device_pool(1).run(fake_cases.mixed, timeout_s=START_S)[0]
