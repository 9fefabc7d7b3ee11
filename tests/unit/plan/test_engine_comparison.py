"""A layout without a stack: what other engines would make of it, and the band of models with experts."""

import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.coefficients import UNSEEN, book
from meshwright.plan.search.engine_comparison import on_other_engines
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import priced, setting

MIXTURE = load_model("deepseek-v3").architecture
DENSE = load_model("llama3-8b").architecture


def test_other_engines_that_can_run_a_layout_are_priced_each_by_its_own_facts():
    layout = Layout(pp=4, dp=64, ep=64, vpp=8, zero=3, schedule="interleaved", recompute="full")
    given = setting(MIXTURE, "dgx-h100", 256, global_batch=512)

    found = on_other_engines(given, layout)

    assert [seconds for _, seconds in found] == sorted(seconds for _, seconds in found)
    named = dict(found)
    assert "automodel" in named
    assert "meshwright" not in named
    assert "megatron" not in named  # whose pipelines shard no weights
    for stack, seconds in found:
        assert seconds == priced(replace(given, stack=stack), layout).step_time_s[0]


def test_engines_that_recompute_by_operators_are_left_out_where_modules_are_named():
    given = setting(DENSE, "dgx-h100", 32, stack="since-2024", precision="fp8", modules=("layernorm",))

    found = dict(on_other_engines(given, Layout(dp=8, pp=4, recompute="selective")))

    assert "torchtitan" not in found
    assert "bridge" in found


def test_the_own_engine_of_a_setting_is_not_named_beside_itself():
    given = setting(DENSE, "dgx-h100", 8, stack="bridge")

    assert "bridge" not in dict(on_other_engines(given, Layout(dp=8)))


def test_the_band_of_a_model_with_experts_is_that_of_runs_with_experts():
    known = book()

    assert known.band("bridge", experts=128) == known.errors["bridge"].experts_band > known.band("bridge")
    assert known.band(UNSEEN, experts=8) > known.band(UNSEEN)
    assert known.band("titan", experts=8) == known.band(UNSEEN, experts=8)  # none of its runs had any
    assert known.band("nobody") == known.band(UNSEEN)


@pytest.mark.parametrize(("stack", "like"), [("megatron", "bridge"), ("nemo", "dgxc"), ("torchtitan", "titan")])
@pytest.mark.parametrize("experts", [0, 8])
def test_a_stack_that_is_like_another_has_no_narrower_band_than_stacks_that_were_left_out(stack, like, experts):
    known = book()

    assert known.band(stack, experts=experts) == max(known.band(name, experts=experts) for name in (like, UNSEEN))


@pytest.mark.parametrize("stack", ["simumax_moe", "bridge"])
def test_a_stack_whose_runs_had_experts_has_their_band(stack):
    assert book().band(stack, experts=8) == book().errors[stack].experts_band


def test_on_tpus_no_engine_of_gpus_is_named_beside_maxtext():
    assert on_other_engines(setting(DENSE, "tpu-v5e", 16, stack="maxtext"), Layout(dp=16, zero=3)) == []
