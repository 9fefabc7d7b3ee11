"""Bytes moved and time wasted by each kind of parallelism: the field's formulas hold for schedules and prices alike."""

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.pricing.figures import figures
from meshwright.layout import Layout
from meshwright.pipelines import bubble_share
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.targets.envelope import step_flops
from tests.unit.plan.test_explore import setting

P = 8
CASE = setting("megatron-22b", "dgx-a100-80g", gpus=16, global_batch=64)


def sent(collective):
    """Return what a rank sends in the ring of P, as a share of the payload."""
    return float(figures(build_schedule(collective, "ring", P)).sent_most)


def test_zero_3_moves_one_and_a_half_times_what_plain_data_parallelism_moves():
    plain = sent("all_reduce")
    sharded = 2 * sent("all_gather") + sent("reduce_scatter")  # weights forward and backward, gradients

    assert plain == pytest.approx(2 * (P - 1) / P)
    assert sharded / plain == pytest.approx(1.5)


def test_zero_1_and_2_move_what_plain_data_parallelism_moves():
    assert sent("reduce_scatter") + sent("all_gather") == pytest.approx(sent("all_reduce"))


def test_a_column_cut_gathers_p_minus_1_parts_and_a_pipeline_sends_the_activations_once():
    width_times_batch = 1.0  # d B
    gathered = sent("all_gather") * width_times_batch

    assert gathered == pytest.approx(width_times_batch / P * (P - 1))
    assert sent("all_reduce") > gathered  # of the gradient of the input, in backward


@pytest.mark.parametrize(("micro_batches", "stages"), [(4, 4), (8, 4), (16, 4), (64, 8)])
def test_the_bubble_over_the_ideal_time_is_p_minus_1_over_m(micro_batches, stages):
    share = bubble_share("1f1b", stages, 1, micro_batches)  # of the whole step
    interleaved = bubble_share("interleaved", stages, 2, micro_batches)

    assert share / (1 - share) == pytest.approx((stages - 1) / micro_batches)
    assert interleaved / (1 - interleaved) == pytest.approx((stages - 1) / (2 * micro_batches))


def test_the_price_s_bubble_halves_with_twice_the_micro_batches():
    layouts = [Layout(tp=2, pp=8, mbs=mbs, dp=1) for mbs in (1, 2, 4)]
    prices = price_layouts(replace(CASE, inter_bytes_per_s=1e15), Grid.of(layouts))
    shares = prices.bubble_s / (prices.step_time_s - prices.bubble_s - prices.optimizer_s)

    assert shares[1] / shares[0] == pytest.approx(2, rel=0.05)
    assert shares[2] / shares[0] == pytest.approx(4, rel=0.05)


def test_recomputation_adds_a_third_of_the_flops():
    grid = Grid.of([Layout(tp=8, pp=2, dp=1, recompute=mode) for mode in ("none", "full")])
    prices = price_layouts(CASE, grid)
    work = prices.forward_s + prices.backward_s

    assert step_flops(1, 1, recompute=True) / step_flops(1, 1) == pytest.approx(4 / 3)
    assert work[1] / work[0] == pytest.approx(4 / 3, rel=0.05)


def test_tensor_parallelism_beyond_the_node_costs_more_than_inside():
    inside, across = price_layouts(
        CASE, Grid.of([Layout(tp=8, dp=2), Layout(tp=8, dp=2, order="dp-tp-cp-pp")])
    ).tensor_comm_s  # neighbours on the tp axis: one node, or two

    assert across > 1.4 * inside  # of two nodes a tree moves each byte once through the NICs


def test_sharding_divides_the_state_as_the_18_bytes_say():
    given = replace(CASE, stack="mcoreh100")  # weights in half precision with a master copy
    prices = price_layouts(given, Grid.of([Layout(dp=16, zero=zero) for zero in (0, 1, 2, 3)]))
    state = prices.parameters_bytes + prices.gradients_bytes + prices.optimizer_bytes
    parameters = CASE.architecture.parameters

    assert state[:3] / parameters == pytest.approx(np.array([18, 6 + 12 / 16, 2 + 16 / 16]), rel=0.01)
    assert state[3] / parameters < 18 / 16 + 0.5  # and the layers gathered at the time
