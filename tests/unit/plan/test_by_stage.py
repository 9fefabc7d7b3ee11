"""Memory of each stage of a pipeline: the fullest is the one that a layout's price counts."""

import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.by_stage import memory_of_stages
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.workload.models import load_model


def setting(model: str, stack: str = "megatron") -> Setting:
    request = PlanRequest(
        model=load_model(model), cluster="dgx-h100", gpus=128, global_batch=128, seq_len=4096, stack=stack
    )
    return setting_of(request, load_catalogue())


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("llama3-70b", "tp=4,pp=4,dp=8,zero=1,sp=1"),
        ("llama3-70b", "tp=4,pp=4,dp=8,vpp=5,schedule=interleaved,zero=1,sp=1"),
        ("llama3-70b", "tp=8,dp=16,zero=1,sp=1"),
        ("qwen3-30b-a3b", "pp=4,dp=32,ep=8,zero=1"),
        ("llama4-maverick", "tp=8,pp=4,dp=4,ep=4,zero=1,sp=1"),
        ("jamba-1.5-mini", "tp=4,pp=2,dp=16,zero=1,sp=1"),
        ("deepseek-v3", "tp=2,pp=8,dp=8,ep=8,zero=1,sp=1,etp=1"),
    ],
)
def test_the_fullest_stage_holds_what_the_price_counts(model, layout):
    where, parsed = setting(model), Layout.parse(layout)

    stages = memory_of_stages(where, parsed)
    whole = price_layouts(where, Grid.of([parsed]))

    assert len(stages) == parsed.pp
    assert sum(stage.layers for stage in stages) == pytest.approx(where.architecture.num_hidden_layers)
    assert max(stage.allocated_bytes for stage in stages) == pytest.approx(float(whole.allocated_bytes[0]), rel=1e-9)


@pytest.mark.parametrize(
    "layout",
    [
        "pp=32,dp=4,ep=4,zero=1,recompute=full",  # stages: embedding, the three dense layers, then layers with experts
        "pp=16,dp=8,ep=8,zero=1",
        "pp=16,dp=8,ep=8,vpp=2,schedule=interleaved,zero=1",
        "pp=16,dp=8,ep=8,vpp=2,schedule=zb,zero=1",
    ],
)
def test_a_stage_of_experts_behind_dense_layers_counts_where_stages_are_cut_by_cost(layout):
    where, parsed = setting("deepseek-v3", "meshwright"), Layout.parse(layout)

    fullest = max(stage.allocated_bytes for stage in memory_of_stages(where, parsed))

    assert fullest == pytest.approx(float(price_layouts(where, Grid.of([parsed])).allocated_bytes[0]), rel=1e-9)


def test_stages_that_a_job_cuts_unevenly_hold_their_own_layers():
    where, layout = setting("llama3-70b"), Layout.parse("tp=4,pp=4,dp=8,zero=1,sp=1")

    stages = memory_of_stages(where, layout, (17, 21, 21, 21))
    even = memory_of_stages(where, layout)

    assert [stage.layers for stage in stages] == [17, 21, 21, 21]
    assert stages[0].allocated_bytes < even[0].allocated_bytes
    assert stages[1].allocated_bytes > even[1].allocated_bytes


def test_the_longest_of_stages_that_a_job_cuts_unevenly_sets_the_pace_and_the_fullest_the_memory():
    where, grid = setting("llama3-70b"), Grid.of([Layout.parse("tp=4,pp=4,dp=8,zero=1,sp=1")])

    even, uneven = price_layouts(where, grid), price_layouts(where, grid, (26, 18, 18, 18))
    light = price_layouts(where, grid, (21, 21, 21, 17))  # the last stage has the output too

    assert float(price_layouts(where, grid, (20, 20, 20, 20)).step_time_s[0]) == pytest.approx(
        float(even.step_time_s[0])
    )
    compute = [float(one.forward_s[0]) for one in (uneven, even)]
    assert compute[0] / compute[1] == pytest.approx(26 / 20)
    assert float(light.step_time_s[0]) < float(uneven.step_time_s[0])
    fullest = max(stage.allocated_bytes for stage in memory_of_stages(where, grid.layout(0), (26, 18, 18, 18)))
    assert fullest == pytest.approx(float(uneven.allocated_bytes[0]), rel=1e-9)


def test_virtual_stages_of_unequal_length_add_up_on_their_rank():
    where, grid = (
        setting("llama3-70b"),
        Grid.of([Layout.parse("tp=4,pp=2,dp=16,vpp=2,schedule=interleaved,zero=1,sp=1")]),
    )

    even, uneven = price_layouts(where, grid, (20, 20, 20, 20)), price_layouts(where, grid, (25, 15, 25, 15))

    assert float(uneven.forward_s[0]) / float(even.forward_s[0]) == pytest.approx(50 / 40)
