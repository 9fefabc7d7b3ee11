"""The simulated step of our own engine sends what the step's program says, which the engine was recorded to send.

The simulator is filled from an architecture and a cluster, the program from a workload of operators; both take the
rules of one layer from `workload.split`. Left out is what the answer lists as not modelled (collectives of the
embedding and the loss, a tied matrix's gradient) and what is too small to price: norms of the gradient, gradients of
norms, messages of routers.
"""

import itertools
from collections import Counter

import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout, micro_batches
from meshwright.pipelines import SLACK, StageTarget, best_cut, schedule
from meshwright.plan.analytic import Setting
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.search.simulated import step_program as simulated_program
from meshwright.workload.chain import chain_units
from meshwright.workload.stages import ENDS, rank_of_stages, step_program
from meshwright.workload.transformer import describe_workload
from tests.multiproc.parallel.layouts import DROPOUT, EXPERTS, FAST, SLOW, UNTIED, Case
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, small_model
from tests.unit.plan.analytic.test_own_memory import AUTOCAST, architecture_of

COUNT_BYTES = 8
OFFLOADED = (
    Case("dp=2,mbs=2,zero=3,offload=parameters"),
    Case("dp=2,pp=2,mbs=1,zero=3,offload=parameters", UNTIED),
    Case("dp=2,ep=2,mbs=2,zero=3,offload=parameters", EXPERTS),  # experts of one rank alone
    Case("dp=4,ep=2,mbs=1,zero=3,offload=parameters", EXPERTS),
)
CASES = [case for case in (*FAST, *SLOW, *OFFLOADED) if case.model != DROPOUT]  # no configuration says dropout


def cut(case, layout, count):
    """Return the bounds of the stages in the chain of embedding, layers and output, as the engine cuts it."""
    model = small_model(**case.model)
    if layout.pp == 1:
        return 0, model.num_hidden_layers + 2
    whole = describe_workload(model, seq_len=SEQ_LEN, micro_batch=layout.mbs)
    target = StageTarget.of(schedule(layout.schedule, layout.pp, layout.vpp, count))
    return best_cut(chain_units(whole, recompute=layout.recompute), target, slack=SLACK).bounds


def priced(comm, unit, model):
    """Return whether the simulator has a collective of a layer at all."""
    experts = model.num_local_experts
    of_ends = unit.name in ENDS and comm.axis == "tp"
    of_router = experts and (comm.axis == "tp" or comm.bytes == COUNT_BYTES * experts)
    return not of_ends and not of_router


def bytes_of(program, stages, model):
    """Return the bytes that a rank of these stages sends in a step, by axis and collective."""
    found = Counter()
    for stage in (program.stages[number] for number in stages):
        for unit in stage.units:
            for one in (unit.forward, unit.backward):
                for comm in (comm for comm in one.sent if priced(comm, unit, model)):
                    found[comm.axis, comm.collective] += (
                        comm.in_step(program.micro_batches) * one.layers * comm.size_bytes
                    )
        for comm in (*stage.gradients, *stage.parameters):
            found[comm.axis, comm.collective] += comm.in_step(0) * comm.size_bytes
    return +found


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulated_step_sends_what_the_program_says(case, precision):
    layout, model = Layout.parse(case.layout), small_model(**case.model)
    count = micro_batches(layout, GLOBAL_BATCH)
    bounds = cut(case, layout, count)
    workload = describe_workload(
        model, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout, autocast=AUTOCAST[precision]
    )
    given = Setting(
        architecture=architecture_of(model), cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8),
        gpus=layout.world_size, global_batch=GLOBAL_BATCH, seq_len=SEQ_LEN, precision=precision,
    )  # fmt: skip
    layers = [len(set(range(a, b)) - {0, bounds[-1] - 1}) for a, b in itertools.pairwise(bounds)]

    program = step_program(workload, layout, count, bounds=bounds)
    simulated = simulated_program(given, layout, layers if layout.pp > 1 else ())

    holders = rank_of_stages(layout, count)
    for rank in range(layout.pp):
        mine = [stage for stage, holder in enumerate(holders) if holder == rank]
        said, found = bytes_of(program, mine, model), bytes_of(simulated, mine, model)
        assert found.keys() == said.keys()
        assert dict(found) == pytest.approx(dict(said), rel=0.005 if not model.num_local_experts else 0.06)
    assert [stage.output_bytes for stage in simulated.stages[:-1]] == [s.output_bytes for s in program.stages[:-1]]
