"""The prediction of an asynchronous job: what a worker's own program costs, and what is measured for it."""

import msgspec
import pytest

from meshwright.cluster.graph import CollectiveFit, Host
from meshwright.layout import Layout
from meshwright.plan.measured.data_parallel import ERROR_BAND, SPLIT_ERROR_BAND
from meshwright.plan.search.measured_search import choose_layout
from meshwright.train.asynchronous.predict import island_of, repriced
from meshwright.train.choice import Chosen, Measuring, requests
from meshwright.train.job.config import DataParallelConfig, JobConfig
from tests.unit.plan.measured.test_data_parallel import measured
from tests.unit.plan.test_search import problem

BATCH = 16
JOB = Layout(dp=4, mbs=2)
SERVED = DataParallelConfig(mode="parameter_server")
LOCAL = DataParallelConfig(mode="local_sgd")
WAITING = DataParallelConfig(mode="diloco", stream=False)
ISLANDS = DataParallelConfig(mode="diloco", island=2, stream=False)


def figures(layout, *island_s):
    """Return times of operators with all ranks at work; sums over all ranks are slow, over islands take `island_s`."""
    found = measured(layout.world_size, alpha_s=1.0, beta_s_per_byte=0.0, busy_share=0.5)
    fits = [
        CollectiveFit(
            collective="all_reduce", backend="gloo", ranks=2, alpha_s=seconds, beta_s_per_byte=0.0, min_bytes=1,
            max_bytes=2**30, busy_share=0.0,
        )
        for seconds in island_s
    ]  # fmt: skip
    return msgspec.structs.replace(found, collectives=(*found.collectives, *fits))


def measuring(**options):
    return Measuring(
        host=Host(name="here", cores=2, memory_bytes=2**34), problem=problem(global_batch=BATCH), autocast="",
        datasheet=1e12, min_ranks=1, say=lambda _: None, **options,
    )  # fmt: skip


def priced(mode, *island_s, layout=JOB):
    """Return the synchronous plan, that of a worker, and the plan under the mode."""
    found = figures(layout, *island_s)
    plan, timeline = choose_layout([layout], measuring().problem, found, peak_flops_per_s={}, min_ranks=1)
    worker = measuring().worker(Chosen(measured=found, plan=plan, timeline=timeline), layout.dp // mode.island)
    return plan, worker, repriced(plan, worker.plan, JobConfig(data_parallel=mode), found, "gloo")


def exchange_s(plan, worker):
    return plan.predicted.exposed_comm_s - worker.plan.predicted.exposed_comm_s


@pytest.mark.parametrize(
    "layout", [JOB, Layout(dp=8, mbs=2), Layout(dp=2, mbs=2), Layout(dp=4, mbs=2, recompute="full")]
)
@pytest.mark.parametrize("mode", [SERVED, LOCAL, WAITING])
def test_a_job_costs_a_workers_own_step_and_what_workers_send(mode, layout):
    _, worker, plan = priced(mode, layout=layout)
    own = worker.plan.predicted
    update_s = own.optimizer_s if mode is SERVED else 0.0

    assert own.exposed_comm_s == 0.0
    assert plan.predicted.backward_s == own.backward_s
    assert plan.predicted.step_time_s == pytest.approx(own.step_time_s - update_s + exchange_s(plan, worker))
    assert not [span for span in worker.timeline.spans if span.lane == "comm"]


def test_the_reason_says_that_layouts_were_compared_as_synchronous_jobs():
    sync, _, plan = priced(ISLANDS, 0.5)

    assert plan.reason == f"as a synchronous job, {sync.reason}; data_parallel.mode = diloco: a worker runs dp=2,mbs=2"


def test_sums_over_all_ranks_are_no_part_of_a_workers_step():
    plan, worker, _ = priced(LOCAL)

    assert plan.predicted.exposed_comm_s > 1.0  # they take a second each, and half of the cores meanwhile
    assert worker.plan.predicted.step_time_s < plan.predicted.step_time_s - 1.0
    assert worker.plan.predicted.backward_s <= plan.predicted.backward_s


def test_an_island_waits_for_its_own_sums_alone():
    quick, slow = (priced(ISLANDS, seconds)[2].predicted for seconds in (0.5, 0.75))

    assert slow.exposed_comm_s - quick.exposed_comm_s == pytest.approx(2 * 0.25)  # one bucket, and the loss
    assert slow.step_time_s - quick.step_time_s == pytest.approx(2 * 0.25)
    assert any("islands" in what for what in slow.not_modelled)


def test_an_island_among_others_has_a_wider_band_since_its_sums_were_timed_alone():
    alone = priced(ISLANDS, 0.5, layout=Layout(dp=2, mbs=2))[2].predicted
    bands = [each.error_band for each in (priced(SERVED)[2].predicted, priced(ISLANDS, 0.5)[2].predicted, alone)]

    assert bands == [ERROR_BAND, SPLIT_ERROR_BAND, ERROR_BAND]


def test_workers_of_servers_hold_no_moments_and_single_ranks_no_buckets():
    sync, worker, served = priced(SERVED, layout=Layout(dp=8, mbs=2))  # a micro-batch each: nothing adds up in buckets
    weights_bytes = 4 * measuring().problem.describe(worker.plan.layout).parameters
    held = [each.predicted.peak_memory_bytes_per_gpu for each in (sync, worker.plan, served)]

    assert held[1] < held[0]
    assert held[1] - held[2] == 2 * weights_bytes


def test_a_mode_measures_sums_of_an_island_and_operators_with_all_ranks_at_work():
    def asked(mode):
        found = requests([JOB], measuring().problem, "", island=island_of(JobConfig(data_parallel=mode)))
        return {each.ranks: (len(each.operators) > 0, len(each.collective_bytes) > 0) for each in found}

    assert asked(DataParallelConfig()) == asked(SERVED) == asked(LOCAL) == {4: (True, True)}
    assert asked(ISLANDS) == {2: (False, True), 4: (True, True)}
