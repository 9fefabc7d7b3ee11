"""Seconds of experts by their shapes: products of their rows, passes over these rows, biases, narrower streams."""

from dataclasses import replace as with_fields

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.coefficients import book, coefficients
from meshwright.plan.analytic.layer import BIAS_PASSES, _routed_network, layer_s
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.products import linear_s
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import setting

TOKENS = 32_768.0
WIDE = load_model("mixtral-8x7b").architecture


def routed(model, layout=None, cluster="dgx-h100", **changes):
    given = setting(model, cluster, 64, stack="bridge")
    c = replace(coefficients_of(given), **changes)
    grid = Grid.of([layout or Layout(dp=64, ep=8)])
    return [
        float(np.ravel(s)[0]) for s in _routed_network(machine_of(given), c, ModelQuantities.of(model), grid, TOKENS)
    ]


def test_experts_of_many_rows_take_as_long_as_one_product_of_each_and_passes_over_the_rows():
    given = setting(WIDE, "dgx-h100", 64, stack="bridge")
    machine, c = machine_of(given), coefficients_of(given)
    rows, width = TOKENS * 2, WIDE.expert_size  # one expert a rank, two a token
    up = linear_s(machine, c, rows, 2 * width, WIDE.hidden_size)
    down = linear_s(machine, c, rows, WIDE.hidden_size, width)

    assert routed(WIDE, routing=0.0) == pytest.approx([up[0] + down[0], up[1] + down[1]])
    assert routed(WIDE)[0] < 1.1 * routed(WIDE, routing=0.0)[0]


def test_passes_over_rows_weigh_more_the_narrower_the_experts():
    def share(name):
        model = load_model(name).architecture
        return 1 - routed(model, routing=0.0)[0] / routed(model)[0]

    assert share("mixtral-8x7b") < share("qwen3-235b-a22b") < share("qwen3-30b-a3b")


def test_biases_of_experts_are_passes_over_what_their_products_return():
    biased = load_model("gpt-oss-120b").architecture
    given = setting(biased, "dgx-h100", 64, stack="bridge")
    machine, c, model = machine_of(given), coefficients_of(given), ModelQuantities.of(biased)
    plain = _routed_network(machine, c, with_fields(model, expert_bias=0.0), Grid.of([Layout(dp=64, ep=8)]), TOKENS)
    columns = 2 * biased.expert_size + biased.hidden_size
    passes = BIAS_PASSES * 2 * TOKENS * biased.experts_per_token * columns / (machine.memory_rate * c.memory)

    assert routed(biased) == pytest.approx([float(plain[0][0]) + passes, float(plain[1][0]) + 2 * passes])


def test_experts_in_a_narrower_stream_are_products_as_deep_as_it_is():
    latent = load_model("nemotron3-super-120b-a12b").architecture  # 1,024 of 4,096 wide
    given = setting(latent, "dgx-h100", 64, stack="bridge")
    machine, c = machine_of(given), coefficients_of(given)
    rows = TOKENS * latent.experts_per_token * 8 / latent.experts
    up = linear_s(machine, c, rows, latent.expert_size, 1024)
    down = linear_s(machine, c, rows, 1024, latent.expert_size)

    assert routed(latent, routing=0.0)[0] == pytest.approx(latent.experts / 8 * (up[0] + down[0]))


@pytest.mark.parametrize(("stack", "traits"), [("automodel", ()), ("bridge", ("graphed",))])
def test_fused_kernels_pass_over_the_rows_no_more_often_than_is_counted(stack, traits):
    assert coefficients(book(), stack, "h100", "bf16", traits=traits).routing == 1.0
    assert coefficients(book(), "bridge", "h100", "bf16").routing > 1.0


def test_scans_are_no_faster_on_gpus_that_their_kernels_were_not_written_for():
    hybrid = load_model("nemotron3-nano-30b-a3b").architecture

    def scan(cluster):
        given = setting(hybrid, cluster, 8, stack="bridge")
        machine, grid, model = machine_of(given), Grid.of([Layout(dp=8, ep=8)]), ModelQuantities.of(hybrid)
        with_scan, without = (
            layer_s(machine, replace(coefficients_of(given), scan=times, launch_s=0.0, launch_moe_s=0.0,
                                     launch_expert_s=0.0), model, grid, 8192.0)
            for times in (2.0, 0.0)
        )  # fmt: skip
        return float(np.ravel(with_scan.forward.compute_s - without.forward.compute_s)[0])

    assert scan("dgx-b200") == pytest.approx(scan("dgx-h100"))


def test_a_module_of_experts_alone_that_predicts_further_tokens_has_a_time():
    hybrid = load_model("nemotron3-super-120b-a12b").architecture
    alone = replace(hybrid, mtp_trained=1, mtp_stack=())  # its last layer has no mixer
    given = setting(alone, "dgx-h100", 64, stack="bridge")
    model = ModelQuantities.of(alone).mtp_layers
    found = layer_s(machine_of(given), coefficients_of(given), model, Grid.of([Layout(dp=64, ep=64)]), 4096.0)

    assert np.isfinite(found.forward.total_s).all()
    assert np.isfinite(found.backward.total_s).all()


def test_one_machine_has_one_pace_whether_or_not_its_models_have_experts():
    dense, experts, long = (
        coefficients(book(), f"simumax_{kind}", "b200", "bf16").pace for kind in ("dense", "moe", "cp")
    )

    assert dense == experts == long != 1.0


def test_an_update_moves_its_bytes_no_faster_than_memory_does():
    update = book().constants["optimizer"]
    memory = coefficients(book(), "bridge", "h100", "bf16").memory

    assert memory / update.low < 0.95  # of the memory's rate, more than any kernel reaches


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_whose_experts_are_whole_sort_their_own_tokens_alone(tp):
    whole, cut = Layout(tp=tp, dp=64 // tp, ep=8, etp=1), Layout(tp=tp, dp=64 // tp, ep=8, etp=tp)

    def passes(layout):
        return routed(WIDE, layout)[0] - routed(WIDE, layout, routing=0.0)[0]

    assert passes(cut) == pytest.approx(passes(Layout(dp=64, ep=8)))
    assert passes(whole) == pytest.approx(passes(cut) / tp)
