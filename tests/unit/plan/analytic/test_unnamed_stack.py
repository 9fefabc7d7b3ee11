"""A question that names no stack: what is priced has fused layers, and the band holds plain ones too."""

import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.price import performance, price_layouts
from meshwright.plan.analytic.quantities import Grid
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import setting

MODEL = load_model("llama3-8b").architecture
ONE = Layout(mbs=2, recompute="full")


def predicted(stack, layout=ONE, cluster="dgx-h100", **changes):
    given = replace(setting(MODEL, cluster, layout.world_size, stack=stack), **changes)
    return performance(given, price_layouts(given, Grid.of([layout])), 0, layout)


def told(performance):
    return [text for text in performance.not_modelled if "nothing names it" in text]


def test_a_generic_stack_says_what_plain_layers_would_take():
    generic, plain = predicted("since-2024"), predicted("accelerate")
    (text,) = told(generic)

    assert "(--stack accelerate)" in text
    assert generic.step_time_s < plain.step_time_s
    slowest_s = plain.step_time_s / (1 - plain.error_band)
    assert generic.step_time_s / slowest_s - 1 == pytest.approx(-generic.error_band)


@pytest.mark.parametrize("layout", [Layout(tp=8, mbs=2), Layout(pp=4, dp=2), Layout(dp=4, cp=2)])
def test_layouts_that_plain_layers_are_not_cut_by_leave_no_such_doubt(layout):
    assert not told(predicted("since-2024", layout))


@pytest.mark.parametrize(
    ("stack", "precision"), [("torchtitan", "bf16"), ("accelerate", "bf16"), ("since-2024", "fp8")]
)
def test_a_stack_that_is_named_or_has_other_kernels_leaves_none(stack, precision):
    assert not told(predicted(stack, precision=precision))


def test_sharded_weights_are_doubted_as_one_gpu_is():
    assert told(predicted("since-2024", Layout(dp=16, mbs=2, zero=3)))
