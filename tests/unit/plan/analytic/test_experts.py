"""Rows on their way to experts: what travels between nodes, and how often."""

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.layer import _expert_parallel, _sizes
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import Grid, Model
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import setting

MIXTURE = load_model("deepseek-v3").architecture  # 8 experts a token


def seconds(layout, *, once, gpus=64, top=8):
    given = setting(replace(MIXTURE, experts_per_token=top), "dgx-h100", gpus, stack="bridge")
    model, grid = Model.of(given.architecture), Grid.of([layout])
    c = coefficients_of(given)._replace(routed_once=once)
    sizes = _sizes(model, grid, grid.mbs * 4096.0)
    return float(_expert_parallel(machine_of(given), c, model, sizes, grid)[0])


def test_a_row_that_goes_once_to_each_node_travels_as_often_as_experts_lie_on_different_nodes():
    layout = Layout(dp=64, ep=64)  # 8 nodes: of 8 experts drawn evenly 5.25 lie on different ones
    each, once = (seconds(layout, once=switch) for switch in (0.0, 1.0))

    distinct = np.mean([len(set(draw)) for draw in np.random.default_rng(0).integers(0, 8, (20_000, 8))]) / 8
    assert once / each == pytest.approx(distinct, rel=0.02)


@pytest.mark.parametrize(("layout", "top"), [(Layout(dp=64, ep=8), 8), (Layout(dp=64, ep=64), 1)])
def test_inside_a_node_or_with_one_expert_a_token_nothing_is_saved(layout, top):
    assert seconds(layout, once=1.0, top=top) == seconds(layout, once=0.0, top=top)


@pytest.mark.parametrize(("stack", "once"), [("bridge", 1), ("automodel", 1), ("meshwright", 0), ("torchtitan", 0)])
def test_dispatchers_are_facts_of_a_stack(stack, once):
    assert coefficients(book(), stack, "h100", "bf16").routed_once == once
