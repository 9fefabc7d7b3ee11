"""Gradients that add up whole on each rank between the passes of a step: more memory, and one scatter a step."""

import pytest
from msgspec.structs import replace

from meshwright.hardware import load_catalogue
from meshwright.jobs.emit.config import emitted
from meshwright.jobs.emit.target import EmitTarget
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.search.simulated import step_program
from meshwright.workload.models import load_model

MODEL = load_model("qwen2.5-7b").architecture
SYNCED = Setting(
    architecture=MODEL, cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=8, global_batch=32, seq_len=2048,
    stack="accelerate",
)  # fmt: skip
WHOLE = replace(SYNCED, traits=("no-sync",))
HALF = 2  # bytes: Accelerate reduces gradients in the type of the computation


def priced(given, layout):
    return price_layouts(given, Grid.of([Layout.parse(layout)])).terms(0)


@pytest.mark.parametrize(("zero", "passes"), [(2, 4), (3, 4), (3, 2), (3, 1), (0, 4)])
def test_whole_gradients_are_held_between_the_passes_of_a_sharded_step_alone(zero, passes):
    layout = f"dp=8,mbs={4 // passes},zero={zero}"

    whole, synced = priced(WHOLE, layout), priced(SYNCED, layout)

    more = HALF * MODEL.parameters if zero and passes > 1 else 0
    assert whole["gradients_bytes"] - synced["gradients_bytes"] == pytest.approx(more, rel=1e-3)
    assert whole["reserved_bytes"] - synced["reserved_bytes"] == pytest.approx(more, rel=1e-3)


def test_adapters_have_few_gradients_to_keep():
    whole, synced = (priced(replace(one, lora_rank=16), "dp=8,zero=3") for one in (WHOLE, SYNCED))

    assert 0 < whole["gradients_bytes"] - synced["gradients_bytes"] < 0.02 * HALF * MODEL.parameters


@pytest.mark.parametrize("zero", [2, 3])
def test_the_formulas_and_the_simulator_scatter_them_once_a_step(zero):
    layout = f"dp=8,zero={zero}"
    slow = [replace(one, intra_bytes_per_s=2e9) for one in (WHOLE, SYNCED)]  # so slow that traffic is the step

    whole, synced = (priced(one, layout)["step_time_s"] for one in slow)
    program, usual = (step_program(one, Layout.parse(layout)) for one in (WHOLE, SYNCED))

    def scattered(one):
        behind = [comm for unit in one.stages[0].units for comm in unit.backward.behind]
        return {(comm.calls, comm.once) for comm in behind if comm.collective == "reduce_scatter"}

    assert whole < 0.85 * synced
    assert (scattered(program), scattered(usual)) == ({(0, 1)}, {(1, 0)})


def test_what_is_emitted_keeps_gradients_sharded_unless_they_were_priced_whole():
    target = EmitTarget(
        layout=Layout.parse("dp=8,zero=3"), architecture=MODEL, model="qwen2.5-7b", global_batch=32, seq_len=2048
    )

    assert '"sync_each_batch": true' in emitted("accelerate", target)
    for other in (
        replace(target, sums_whole=True),
        replace(target, global_batch=8),  # one pass
        replace(target, layout=Layout(dp=8)),
    ):
        assert "sync_each_batch" not in emitted("accelerate", other)
