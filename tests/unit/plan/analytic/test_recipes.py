"""Recipes of eight bits with a scale for each row or block are priced by what sources measure of their kernels."""

import pytest
from msgspec.structs import replace

from meshwright.cluster.builders import catalogue_cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, performance, price_layouts
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.price import PEAKS, machine_of, precision_named
from meshwright.plan.analytic.recipes import recipes
from meshwright.plan.model_facts import model_facts
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.workload.models import load_model

# milliseconds of all products of a layer on H200 NVL, casts included (TransformerEngine, gemm_profiling.rst)
BY_BLOCK, DELAYED, CURRENT = 22.882, 18.978, 20.285
CONSTANTS = 53  # of constants.toml: a recipe with a source adds none


def setting(precision: str, stack: str = "megatron", node: str = "dgx-h100", **changes) -> Setting:
    cluster = catalogue_cluster(load_catalogue(), node, gpus=8)
    batch = {"gpus": 8, "global_batch": 8, "seq_len": 8192}
    model = load_model("llama3-8b").architecture
    return Setting(architecture=model, cluster=cluster, stack=stack, precision=precision, **(batch | changes))


def priced(given: Setting, layout: Layout):
    prices = price_layouts(given, Grid.of([layout]))
    return performance(given, prices, 0, layout), prices


def test_products_by_block_are_as_much_slower_as_transformer_engine_s_are():
    rate = recipes()["fp8-block"].rate

    assert BY_BLOCK / CURRENT < 1 / rate < BY_BLOCK / DELAYED
    assert rate == pytest.approx((DELAYED * CURRENT) ** 0.5 / BY_BLOCK, abs=0.001)


def test_a_step_by_row_is_as_much_slower_as_torchtitan_s_was():
    """Llama 3 8B on eight H100, FSDP2: 6,424 tokens/s by row, 7,186 by tensor, 5,760 in bf16 (commit 7a04053)."""
    layout = Layout(dp=8, zero=3, recompute="selective")
    half, tensor, row, block = (
        priced(setting(name, "torchtitan"), layout)[0].tokens_per_s_per_gpu
        for name in ("bf16", "fp8", "fp8-row", "fp8-block")
    )

    assert row / tensor == pytest.approx(6424 / 7186, rel=0.06)
    assert half < block < row < tensor


def test_rows_under_tensor_parallelism_are_priced_by_the_constant_of_torchtitan_s_runs():
    layout = Layout(tp=8, dp=1, zero=3, sp=1, recompute="full")
    known = book()
    by_name = priced(setting("fp8-row", "titan"), layout)[0]
    plain = priced(setting("fp8", "titan"), layout)[0]

    assert coefficients(known, "titan", "h100", "fp8-row").scaled_cut == known.constants["rowwise"].value
    assert by_name.step_time_s > 1.25 * plain.step_time_s
    assert not any(text.startswith("precision") for text in by_name.not_modelled)
    assert by_name.error_band == plain.error_band


def test_a_recipe_that_no_run_had_widens_the_band_and_names_its_source():
    layout = Layout(dp=8, zero=1)
    plain = priced(setting("fp8"), layout)[0]
    for name in ("fp8-row", "fp8-block"):
        found = priced(setting(name), layout)[0]
        told = [text for text in found.not_modelled if text.startswith(f"precision {name}: in no measured run")]
        assert len(told) == 1
        assert recipes()[name].source in told[0]
        assert found.error_band == pytest.approx(plain.error_band + 0.1)
        assert found.step_time_s > plain.step_time_s


def test_scales_of_blocks_are_kept_beside_what_is_kept_in_eight_bits():
    layout = Layout(dp=8, zero=1)
    tensor, block = (priced(setting(name), layout)[1].activations_bytes[0] for name in ("fp8", "fp8-block"))
    sharded = [coefficients(book(), "torchtitan", "h100", name).low_input_bytes for name in ("fp8", "fp8-block")]

    assert coefficients(book(), "megatron", "h100", "fp8-block").low_input_bytes == 1 + 4 / 128
    assert 1.0 < block / tensor < 1 + 4 / 128
    assert sharded == [2, 2]  # which keeps what enters products in half precision


def test_blocks_are_emulated_where_tensor_cores_take_scales_of_blocks():
    known = book()
    block, mx = (coefficients(known, "megatron", "b200", name) for name in ("fp8-block", "mxfp8"))
    told = priced(setting("fp8-block", node="dgx-b200"), Layout(dp=8, zero=1))[0].not_modelled

    assert (block.product, block.scaled) == (mx.product, 1.0)
    assert any("emulated by mxfp8" in text for text in told)


def test_other_precisions_have_no_scales_of_rows_or_blocks():
    for name in ("bf16", "fp8", "mxfp8", "nvfp4"):
        found = coefficients(book(), "bridge", "b200", name)
        assert (found.scaled, found.scaled_cut) == (1.0, 1.0)
    assert len(book().constants) == CONSTANTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [("fp8-rowwise", "fp8-row"), ("FP8_SC", "fp8-block"), ("fp8-blockwise", "fp8-block"), ("fp8-tensorwise", "fp8")],
)
def test_names_that_engines_use_stand_for_ours(text, expected):
    assert precision_named(text) == expected


def test_a_name_that_is_none_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"--precision fp8-blok: no such precision \(did you mean fp8-block\?\)"):
        precision_named("fp8-blok")


def test_the_peak_is_that_of_eight_bits_and_the_answer_says_which_scales():
    given = setting("fp8-block")
    told = model_facts(given).assumed[-1]

    assert machine_of(given).peak == machine_of(replace(given, precision="fp8")).peak
    assert "scales: one for each 1 x 128 elements" in told
    assert "MFU is against the dense peak in fp8, 1,979 TFLOP/s" in told
    assert {PEAKS[name] for name in recipes()} == {"fp8"}


def test_an_accelerator_without_eight_bits_has_none_by_block_either():
    with pytest.raises(InputError, match="a100-80g has no fp8-block"):
        price_layouts(setting("fp8-block", node="dgx-a100-80g"), Grid.of([Layout(dp=8)]))


def test_our_own_stack_refuses_them():
    request = PlanRequest(
        model=load_model("llama3-8b"), cluster="dgx-h100", gpus=8, global_batch=8, seq_len=4096, stack="meshwright",
        precision="fp8-row",
    )  # fmt: skip

    with pytest.raises(InputError, match="--precision fp8-row: meshwright multiplies fp8 by tensor alone"):
        setting_of(request, load_catalogue())
