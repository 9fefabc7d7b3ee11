"""Memory of a rank: states by ZeRO and offload against arithmetic by hand, and the moment at which it holds most."""

import msgspec
import numpy as np
import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.train.model.decoder_sizes import decoder_config
from meshwright.workload.conventions import ENGINE, Conventions
from meshwright.workload.held import Counts, peak, states
from meshwright.workload.holdings import held_by
from meshwright.workload.models import load_model
from meshwright.workload.program import Held, Moment, States
from meshwright.workload.stages import step_program
from meshwright.workload.transformer import ModelConfig, describe_workload

COUNTS = Counts(held=1000, own=250, layer=100, ends=50, fused=80)
LAYOUTS = [
    *("dp=4", "dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=4,pp=2,zero=3", "dp=4,pp=2,zero=2"),
    *("dp=4,zero=1,offload=optimizer", "dp=4,zero=3,offload=optimizer", "dp=4,zero=3,offload=parameters"),
]


def of(text, c, single=True):
    layout = Layout.parse(text)
    return states(COUNTS, layout, c, sharded=True, offload=layout.offloaded, single=single)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=4", (4000, 4000, 8000, 0)),
        ("dp=4,zero=1", (4000, 4000 + 1000, 2000, 0)),  # the summed share lies in a buffer of its own
        ("dp=4,zero=2", (4000 + 1000, 1000, 2000, 400)),
        ("dp=4,zero=3", (1000, 1000, 2000, 4 * (2 * 100 + 50) + 400)),
        ("dp=4,zero=3,offload=optimizer", (1000, 1000, 0, 1000 + 400)),
        ("dp=4,zero=3,offload=parameters", (0, 0, 0, 1000 + 400)),
    ],
)
def test_our_engine_holds_what_zero_and_offload_leave(text, expected):
    found = of(text, ENGINE)

    assert found[:4] == expected
    assert found.host == (0 if "offload" not in text else 250 * 16)  # a weight, two moments and a gradient


def test_in_half_precision_a_master_copy_is_a_state_of_the_optimiser():
    found = of("dp=4,zero=1", Conventions(), single=False)

    assert found == States(2 * 1000, 4 * 1000, 12 * 250, 2 * 80)  # and the gradients that fused sums leave unused


@pytest.mark.parametrize("offload", ["", ",offload=optimizer"], ids=["nothing-away", "moments-away"])
def test_frozen_weights_stay_packed_in_a_grid_where_some_layout_offloads(offload):
    c = msgspec.structs.replace(Conventions(), trained=0.1, base_bytes=0.5)
    layouts = [Layout.parse(f"dp=1{offload}"), Layout.parse("dp=4,zero=3,offload=parameters")]
    grid = Grid.of(layouts)

    found = states(COUNTS, grid, c, sharded=grid.dp > 1, offload=grid.offload, single=False)

    packed = (950 / 1000) * (2 - 0.5) * 0.9 * 1000  # of all but embedding and output, the frozen share
    assert found.parameters[0] == pytest.approx(2 * 1000 - packed)


@pytest.mark.parametrize("c", [ENGINE, Conventions()], ids=["ours", "most"])
def test_states_of_many_layouts_at_once_are_those_of_each(c):
    layouts = [Layout.parse(text) for text in LAYOUTS]
    grid = Grid.of(layouts)

    found = states(COUNTS, grid, c, sharded=grid.dp > 1, offload=grid.offload, single=False)

    for index, text in enumerate(LAYOUTS):
        assert [float(np.broadcast_to(term, len(grid))[index]) for term in found] == list(of(text, c, single=False))


def test_the_fullest_rank_counts_at_the_moment_at_which_it_holds_most():
    first = Held(States(10, 10, 10, host=7), (Moment(5, 0, 1), Moment(0, 9, 0)))
    second = Held(States(10, 10, 10, host=3), (Moment(5, 0, 1), Moment(5, 4, 0)))

    assert peak([first, second]) == (10, 10, 10, 0, 9, 0, 0, 7, 0)
    assert peak([second]).allocated == 39


@pytest.mark.parametrize("text", ["dp=2,mbs=2,zero=3", "dp=2,pp=2,mbs=1,zero=1"])
def test_the_program_of_a_step_says_what_its_ranks_hold(text):
    layout = Layout.parse(text)
    workload = describe_workload(ModelConfig(num_hidden_layers=4), seq_len=32, micro_batch=layout.mbs, layout=layout)
    bounds = (0, 3, 6) if layout.pp > 1 else ()

    program = step_program(workload, layout, 4, bounds=bounds, held=True)

    assert len(program.held) == layout.pp
    assert program.held == held_by(workload, layout, 4, bounds)


@pytest.mark.parametrize("text", ["dp=8,mbs=1", "dp=8,mbs=1,zero=1", "dp=8,mbs=1,zero=1,offload=optimizer"])
def test_both_planners_say_the_same_states_of_our_own_engine(text):
    layout, model = Layout.parse(text), load_model("llama3-8b").architecture
    given = Setting(
        architecture=model,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=8, global_batch=64, seq_len=512,
        precision="fp32",
    )  # fmt: skip
    workload = describe_workload(decoder_config(model, 512), seq_len=512, micro_batch=1, layout=layout)

    prices, (held,) = price_layouts(given, Grid.of([layout])), held_by(workload, layout, 8)

    for name in ("parameters", "gradients", "optimizer"):
        assert prices.terms(0)[f"{name}_bytes"] == pytest.approx(getattr(held.states, name), rel=1e-6)
    assert prices.terms(0)["host_bytes"] == pytest.approx(held.states.host, rel=1e-6)
