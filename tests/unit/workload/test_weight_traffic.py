"""When weights and gradients travel in a step: one rule for the engine's program and for the simulated one."""

import numpy as np
import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Setting
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.search.simulated import step_program as simulated_program
from meshwright.workload.conventions import ENGINE, SHARDED, Conventions
from meshwright.workload.models import load_model
from meshwright.workload.split import adds_on_host, host_traffic
from meshwright.workload.weight_traffic import WeightTraffic, has_matrix_twice, outside_of_layers

HELD = 1_000


def simulated(layout, stack):
    layout = Layout.parse(layout)
    given = Setting(
        architecture=load_model("llama3.2-1b").architecture,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=layout.world_size, global_batch=16,
        seq_len=1024, stack=stack,
    )  # fmt: skip
    return simulated_program(given, layout)


def names(comms):
    return [comm.collective for comm in comms]


@pytest.mark.parametrize(
    ("layout", "stack", "after_update"),
    [
        *(("dp=8,zero=1", "megatron", False), ("dp=8,zero=2", "torchtitan", False)),
        *(("dp=8,zero=1", "deepspeed", True), ("dp=8,zero=2", "deepspeed", True), ("dp=8,zero=1", "meshwright", True)),
        ("dp=8,zero=2", "meshwright", False),
    ],
)
def test_weights_gathered_once_a_step_come_before_the_first_forward_unless_the_stack_waits(layout, stack, after_update):
    stage = simulated(layout, stack).stages[0]

    first = [comm for unit in stage.units for comm in unit.forward.ahead]
    assert set(names(stage.parameters)) == ({"all_gather"} if after_update else set())
    assert set(names(first)) == (set() if after_update else {"all_gather"})
    assert all(comm.calls == 0 and comm.once == 1 for comm in (*first, *stage.parameters))


def test_gradients_that_leave_once_a_step_add_up_on_no_host():
    def adds(layout, c):
        layout = Layout.parse(layout)
        leave = host_traffic(HELD, layout, c, offload=2, shards=2, copies=layout.replicas).leave
        return bool(adds_on_host(leave, c, offload=2, micro_batches=4))

    offload = "zero=3,offload=parameters"
    assert adds(f"dp=2,{offload}", SHARDED)
    assert not adds(f"dp=2,pp=2,{offload}", SHARDED)  # a pipeline that keeps its weights scatters once
    assert not adds(f"dp=4,replicas=2,{offload}", SHARDED)  # copies are summed first
    assert not adds(f"dp=2,{offload}", Conventions())
    many = np.array([1, 2])
    leave = host_traffic(HELD, Layout(dp=2, zero=3), SHARDED, offload=many, shards=2).leave
    assert np.all(adds_on_host(leave, SHARDED, offload=many, micro_batches=4) == [False, True])


def test_what_is_outside_of_the_layers_is_one_unit_where_all_of_it_stays_and_else_two():
    layout = Layout.parse("dp=4,zero=3")

    root, none = outside_of_layers(layout, ENGINE, HELD, HELD)
    embedding, output = outside_of_layers(layout, ENGINE, HELD, HELD // 4)

    assert [len(each) for each in (root, none, embedding, output)] == [1, 0, 1, 1]
    assert [names(one.sent) for one in root[0].both] == [["all_gather"], ["reduce_scatter"]]
    assert [names(one.sent) for one in embedding[0].both] == [["all_gather"], ["all_gather", "reduce_scatter"]]
    assert sum(unit.forward.ahead[0].bytes for unit in (*embedding, *output)) == root[0].forward.ahead[0].bytes
    assert outside_of_layers(Layout(dp=4), ENGINE, HELD, HELD) == ((), ())
    assert outside_of_layers(Layout(dp=1, zero=3), ENGINE, HELD, HELD) == ((), ())  # nothing is sent


def test_experts_alone_are_sent_among_the_ranks_that_share_them():
    layout = Layout.parse("dp=4,ep=2,zero=1")

    found = WeightTraffic.of(layout, ENGINE, 0, HELD)

    assert [(comm.axis, comm.collective) for comm in (*found.bucket, *found.updated)] == [
        ("edp", "reduce_scatter"), ("edp", "all_gather"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "twice"), [("dp=1,pp=2", True), ("dp=2", False), ("dp=1,pp=2,vpp=2,schedule=zb", False)]
)
def test_a_tied_matrix_is_there_twice_where_its_ends_are_on_two_ranks(layout, twice):
    assert has_matrix_twice(Layout.parse(layout), tied=True) == twice
    assert not has_matrix_twice(Layout.parse(layout), tied=False)
