"""The price of a worker of an asynchronous mode: its own layout's, at the pace of a machine where all workers run."""

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.plan.measured.data_parallel import predict_step
from meshwright.plan.measured.pipeline import predict_pipeline_step
from meshwright.plan.measured.spmd import predict_spmd_step
from meshwright.plan.search.asynchronous import worker_layout
from meshwright.timeline import step_parts
from meshwright.workload.stages import step_program
from tests.unit.plan.measured.test_spmd import inputs

JOBS = [
    "dp=4,mbs=1",
    "dp=8,mbs=2",
    "dp=8,mbs=1,recompute=full",
    "dp=4,tp=2,mbs=1",
    "dp=8,mbs=1,zero=3",
    "dp=4,pp=2,mbs=1",
]


def engine_of(layout):
    if layout.pp > 1:
        return predict_pipeline_step
    return predict_step if layout.is_plain else predict_spmd_step


def at_pace_of(given, busy):
    """Return the same figures as if they had been measured and are priced with `busy` ranks at work."""
    operators = tuple(msgspec.structs.replace(each, ranks=busy) for each in given.measured.operators)
    measured = msgspec.structs.replace(given.measured, operators=operators)
    return msgspec.structs.replace(given, measured=measured, busy_ranks=busy)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("job", JOBS)
def test_a_worker_costs_what_the_engine_says_of_its_own_layout(job, workers):
    layout = Layout.parse(job)
    worker = worker_layout(layout, workers)
    given = inputs(worker, global_batch=8)
    price = engine_of(worker)

    assert price(worker, at_pace_of(given, layout.world_size), 2**20) == price(worker, given, 2**20)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("job", JOBS)
def test_a_workers_program_reaches_no_other_worker(job, workers):
    layout = Layout.parse(job)
    worker = worker_layout(layout, workers)
    given = inputs(worker, global_batch=8)
    bounds = (0, 2, sum(layer.count for layer in given.workload.layers)) if worker.pp > 1 else ()
    program = step_program(given.workload, worker, 8 // (worker.dp * worker.mbs), bounds=bounds)
    axes = {axis for axis, _, _ in program.calls(range(worker.pp * worker.vpp))}

    assert worker.world_size * workers == layout.world_size
    assert worker.dp > 1 or not axes & {"dp", "data", "replica"}


def test_a_worker_of_one_rank_waits_for_nobody_and_fills_no_bucket():
    alone = worker_layout(Layout(dp=4, mbs=2), 4)
    step = step_parts(predict_step(alone, at_pace_of(inputs(alone), 4), 2**20).spans)

    assert step["exposed_comm_s"] == step["hidden_comm_s"] == 0
