"""The engine sends exactly what the step's program says: axis, collective, bytes, how often, on every rank."""

from collections import Counter

import pytest
import torch

from meshwright.layout import Layout, micro_batches
from meshwright.mesh import position
from meshwright.pipelines import SLACK, StageTarget, best_cut, schedule
from meshwright.workload.chain import chain_units
from meshwright.workload.stages import rank_of_stages, step_program
from meshwright.workload.transformer import describe_workload
from tests.multiproc.parallel.layouts import EXPERTS, FAST, SLOW, Case
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, small_model
from tests.multiproc.parallel.recorded import BUCKET_BYTES, recorded

HALF = (
    *("dp=2,mbs=2,zero=3", "dp=2,mbs=2,zero=1", "dp=1,tp=2,mbs=8", "dp=1,tp=2,mbs=4,sp=1", "dp=1,cp=2,mbs=8"),
    *("dp=1,pp=2,mbs=2", "dp=1,tp=2,mbs=4,sp=1,recompute=full"),
)

# outside of the longest set too: one at least for each fact of what the engine sends (unit/parallel/test_engine_facts)
OFTEN = (*FAST, *SLOW[4::5])

pytestmark = pytest.mark.timeout(280)  # eight ranks on two processors may be slow beside other work


def programmed(case, precision="float32"):
    """Return what the program says of each rank."""
    layout, model = Layout.parse(case.layout), small_model(**case.model)
    count, bounds = micro_batches(layout, GLOBAL_BATCH), ()
    if layout.pp > 1:  # as the engine cuts where the plan does not say it
        grid = schedule(layout.schedule, layout.pp, layout.vpp, count)
        whole = describe_workload(model, seq_len=SEQ_LEN, micro_batch=layout.mbs)
        bounds = best_cut(chain_units(whole, recompute=layout.recompute), StageTarget.of(grid), slack=SLACK).bounds
    autocast = "" if precision == "float32" else precision
    workload = describe_workload(model, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout, autocast=autocast)
    program = step_program(workload, layout, count, bucket_bytes=BUCKET_BYTES, bounds=bounds)
    holders = rank_of_stages(layout, count)
    return [
        program.calls(stage for stage, holder in enumerate(holders) if holder == position(layout, rank).pp)
        for rank in range(layout.world_size)
    ]


def told_apart(case, calls):
    """Return what is the same on every rank, and the bytes of what depends on the rank.

    How many rows go to which expert depends on the data; of the norms' gradients a rank of ZeRO 1 has the part in
    its run of the flat gradients.
    """
    fixed, others = Counter(), Counter()
    for (axis, name, size), count in calls.items():
        of_rows = name == "all_to_all" and size != 8 * case.model.get("num_local_experts", 0)
        of_norms = "zero=1" in case.layout and (axis, name, count) == ("tp", "all_reduce", 1)
        if of_rows or of_norms:
            others[axis, name] += size * count
            fixed[axis, name] += count
        else:
            fixed[axis, name, size] += count
    return fixed, others


def check(case, rank_pool, precision="float32"):
    autocast = None if precision == "float32" else torch.bfloat16
    pool = rank_pool(Layout.parse(case.layout).world_size)
    found = pool.run(recorded, case.layout, case.model, case.backend, autocast, timeout_s=240)
    sent, said = Counter(), Counter()

    for calls, expected in zip(found, programmed(case, precision), strict=True):
        (same, more), (same_said, more_said) = (told_apart(case, one) for one in (Counter(calls), expected))
        assert same == same_said
        sent, said = sent + more, said + more_said
    assert sent == said


@pytest.mark.parametrize("case", FAST, ids=str)
def test_a_step_sends_what_its_program_says(case, rank_pool):
    check(case, rank_pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.soak) for one in SLOW], ids=str
)
def test_a_step_of_larger_layouts_sends_what_its_program_says(case, rank_pool):
    check(case, rank_pool)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*map(Case, HALF), Case("dp=2,ep=2,mbs=4", EXPERTS)], ids=str)
def test_under_bf16_products_alone_return_fewer_bytes(case, rank_pool):
    check(case, rank_pool, "bf16")
