"""Rows on their way to experts: what travels between nodes, and how often."""

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.layer import _expert_parallel
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.plan.analytic.sent import layer_sizes
from meshwright.plan.search.simulated import effective_cluster, step_program
from meshwright.simulate.axes import AxisPrices
from meshwright.simulate.nodes import NodesTopology
from meshwright.simulate.problem import Costs, Disturbance
from meshwright.workload.models import load_model
from meshwright.workload.routing import nodes_beside, nodes_reached
from tests.unit.plan.analytic.test_price import setting

MIXTURE = load_model("deepseek-v3").architecture  # 8 experts a token
UNGROUPED = load_model("qwen3-30b-a3b").architecture  # likewise, of all experts alike


def seconds(layout, *, once, gpus=64, of=MIXTURE, beside=0.0):
    given = setting(of, "dgx-h100", gpus, stack="bridge")
    model, grid = ModelQuantities.of(given.architecture), Grid.of([layout])
    c = replace(coefficients_of(given), routed_once=once, experts_beside=beside)
    sizes = layer_sizes(model, grid, grid.mbs * 65_536.0)  # latency hardly counts
    return float(_expert_parallel(machine_of(given), c, model, sizes, grid)[0][0])


def drawn_on(places, top=8):
    """Return on how many of these places `top` evenly drawn experts lie, on average."""
    return np.mean([len(set(draw)) for draw in np.random.default_rng(0).integers(0, places, (20_000, top))])


def test_a_row_that_goes_once_to_each_node_travels_as_often_as_experts_lie_on_different_nodes():
    layout = Layout(dp=64, ep=64)  # 8 nodes: of 8 experts drawn from 4 of them 3.6 lie on different ones
    each, once = (seconds(layout, once=switch) for switch in (0.0, 1.0))

    assert once / each == pytest.approx(drawn_on(4) / 8, rel=0.02)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_inside_a_node_a_row_goes_once_to_each_rank_that_some_of_its_experts_are_on(ranks):
    layout = Layout(dp=64, ep=ranks)
    each, once = (seconds(layout, once=switch, of=UNGROUPED) for switch in (0.0, 1.0))

    assert once / each == pytest.approx(drawn_on(ranks) / 8, rel=0.03)


@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("chosen", [4, 8])
def test_nodes_that_a_row_reaches_are_those_of_experts_drawn_from_a_few_groups(nodes, chosen):
    draw = np.random.default_rng(0)
    experts = np.arange(240).reshape(8, 30)  # 8 groups of neighbours
    reached = [
        len(set(draw.choice(experts[draw.choice(8, chosen, replace=False)].ravel(), 8) * nodes // 240))
        for _ in range(3000)
    ]

    assert nodes_reached(nodes, 8, 8, chosen) == pytest.approx(np.mean(reached), rel=0.03)


def test_arrays_of_placements_reach_what_each_of_them_does():
    nodes, groups, chosen = np.array([1.0, 4.0, 8.0]), np.array([1, 8, 8]), np.array([1, 4, 4])

    found = nodes_reached(nodes, 8.0, groups, chosen)
    assert list(found) == [nodes_reached(*one) for one in zip(nodes, (8.0,) * 3, groups, chosen, strict=True)]


@pytest.mark.parametrize(
    ("name", "groups"), [("deepseek-v3", (8, 4)), ("deepseek-v2", (8, 3)), ("kimi-k2", (1, 1)), ("glm-4.5", (1, 1))]
)
def test_groups_of_a_router_are_read_from_the_config(name, groups):
    model = ModelQuantities.of(load_model(name).architecture)

    assert (model.expert_groups, model.top_groups) == groups


def test_the_simulator_sends_a_row_once_to_each_node_too():
    given = replace(setting(MIXTURE, "dgx-h100", 64, stack="bridge"), seq_len=65_536)  # latency hardly counts
    layout = Layout(dp=64, ep=64)
    found = {}
    for once in (False, True):
        program = step_program(replace(given, routed_once=once), layout)
        topology = NodesTopology(effective_cluster(given), layout.world_size)
        rows = next(comm for comm in program.stages[0].units[0].forward.comms if comm.axis == "ep")
        found[once] = AxisPrices(layout, topology, Costs(), Disturbance()).comm_s(rows)

    assert found[True] / found[False] == pytest.approx(3.6 / 8, rel=0.05)


@pytest.mark.parametrize("layout", [Layout(dp=64, ep=8), Layout(dp=64, ep=64)])
def test_with_one_expert_a_token_nothing_is_saved(layout):
    single = replace(MIXTURE, experts_per_token=1)

    assert seconds(layout, once=1.0, of=single) == seconds(layout, once=0.0, of=single)


@pytest.mark.parametrize(("stack", "once"), [("bridge", 1), ("automodel", 1), ("megatron", 0), ("torchtitan", 0)])
def test_dispatchers_are_facts_of_a_stack(stack, once):
    assert coefficients(book(), stack, "h100", "bf16").routed_once == once


@pytest.mark.parametrize(
    ("experts", "top", "nodes"), [(128, 8, 8), (256, 8, 64), (512, 22, 64), (128, 6, 8), (32, 4, 1)]
)
def test_experts_that_follow_those_of_the_token_before_lie_on_few_nodes(experts, top, nodes):
    drawn = (np.arange(experts * top) % experts).reshape(-1, top)
    reached = [len(set(row * nodes // experts)) for row in drawn]

    assert nodes_beside(nodes, top, experts) == pytest.approx(np.mean(reached))


def test_a_benchmark_whose_gate_takes_neighbouring_experts_sends_less_between_nodes():
    traits = coefficients(book(), "automodel", "h100", "bf16", traits=("beside",))

    assert traits.experts_beside == 1.0
    layout = Layout(dp=64, ep=64)
    assert seconds(layout, once=1.0, beside=1.0) < 0.5 * seconds(layout, once=1.0)
