"""Peak memory of the most loaded rank, against measured peaks and against arithmetic by hand."""

import csv

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.memory_rows import FOLDER, UNSEEN, left_out, peaks, published
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, book, price_layouts
from meshwright.plan.analytic.fits import (
    ABOVE,
    BAND,
    PEAKS_OF,
    SEEN,
    UNSEEN_ABOVE,
    UNSEEN_BAND,
    as_said,
    capacity_source,
    fit_verdicts,
    memory_basis,
    memory_trust,
    word,
)
from meshwright.plan.analytic.loads import loads
from meshwright.plan.analytic.memory import _entry, peak_memory
from meshwright.plan.analytic.price import coefficients_of, machine_of, verdicts_in
from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.plan.analytic.saved_activations import layer_parts
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.search.explore import row_of
from meshwright.report.planning import fits_text
from meshwright.workload.conventions import OWN
from meshwright.workload.models import load_model
from meshwright.workload.recomputed import modules_of
from tests.unit.plan.analytic.test_price import GRID, LLAMA, setting

ROWS = peaks()
DEEPSEEK = load_model("deepseek-v3").architecture


def priced(layout, *, model="llama3-8b", stack="bridge", precision="bf16", batch=64, seq_len=8192, modules=()):
    cluster = cluster_by_name(load_catalogue(), "dgx-h100", max(8, layout.world_size))
    architecture = load_model(model).architecture if isinstance(model, str) else model
    setting = Setting(
        architecture=architecture, cluster=cluster, gpus=layout.world_size, global_batch=batch, seq_len=seq_len,
        stack=stack, precision=precision, modules=modules,
    )  # fmt: skip
    return price_layouts(setting, Grid.of([layout]))


def test_measured_peaks_are_within_the_bar():
    errors = np.abs([row.error for row in ROWS if row.error is not None])

    assert len(errors) == 40
    assert np.median(errors) < 0.02
    assert errors.mean() < 0.04
    assert np.quantile(errors, 0.9) < 0.08


def test_no_layout_that_ran_is_refused_and_none_that_ran_out_is_promised():
    assert [row.id for row in ROWS if row.ran and row.fits == "does not fit"] == []
    assert [row.id for row in ROWS if not row.ran and row.fits == "fits"] == []


def test_of_the_published_runs_two_in_a_hundred_at_most_are_refused_and_one_in_ten_may_not_fit():
    total = published()[0][-1]

    assert total["does not fit"] <= 0.02 * total["rows"]
    assert total["may not"] <= 0.10 * total["rows"]


def test_the_stage_with_two_layers_of_experts_counts_not_the_mean_of_both():
    row = next(row for row in ROWS if row.id == "simumax-008")

    assert row.allocated_GiB == pytest.approx(114.0, rel=0.02)  # 71.2 on the stage with the dense layer


def xla_terms(model=LLAMA, *, batch=64, mbs=8, **facts):
    """Memory of a MaxText job on eight chips of v5p, with some of its stack's facts changed."""
    layout = Layout(dp=8, mbs=mbs, zero=3, recompute="full")
    given = setting(model, "tpu-v5p", 8, stack="maxtext", global_batch=batch)
    c = replace(coefficients_of(given), **facts)
    arguments = {"seq_len": given.seq_len, "global_batch": batch, "shard": 8.0}
    return peak_memory(machine_of(given), c, ModelQuantities.of(model), Grid.of([layout]), **arguments)


def test_xla_gathers_a_matrix_at_a_time_where_fsdp_gathers_a_layer():
    whole, apart = (xla_terms(mbs=1, batch=8, gathers_matrix=switch) for switch in (0.0, 1.0))
    layer, ends, matrix = 218_112_000, 2 * 128256 * 4096, 4096 * 14336

    freed = 2 * (2 * layer + ends) + 4 * layer - 2 * max(3 * matrix, ends)
    assert float(whole.working_bytes[0] - apart.working_bytes[0]) == pytest.approx(freed, rel=1e-3)


def test_the_matrices_of_all_experts_are_gathered_as_one():
    mixtral = load_model("mixtral-8x7b").architecture
    whole, apart = (xla_terms(mixtral, mbs=1, batch=8, gathers_matrix=switch) for switch in (0.0, 1.0))

    assert float(whole.working_bytes[0] - apart.working_bytes[0]) > 2 * 8 * 4096 * 14336  # half of a layer's is left


def test_a_step_of_one_micro_batch_has_no_gradients_at_its_loss_under_xla():
    once, twice = xla_terms(logit_bytes=12.0), xla_terms(batch=128, logit_bytes=12.0)
    shares = 4 * LLAMA.parameters / 8

    assert float(once.logits_bytes[0]) > 0  # the loss decides
    assert float(twice.allocated_bytes[0] - once.allocated_bytes[0]) == pytest.approx(shares, rel=0.01)


def test_xla_reserves_what_it_has_laid_out_and_no_more():
    found = xla_terms()

    assert float(found.reserved_bytes[0]) == float(found.allocated_bytes[0])
    assert float(xla_terms(fragments=0.14).reserved_bytes[0]) > 1.05 * float(found.allocated_bytes[0])


def test_the_ranks_hold_all_layers_and_the_first_the_dense_ones():
    grid = Grid.of([Layout(pp=16)])
    first, between, last = loads(ModelQuantities.of(DEEPSEEK), grid, 32)

    assert (first.dense[0], first.moe[0], first.embedding[0]) == (3, 0, 1)
    assert (between.dense[0], between.moe[0]) == (0, 4)
    assert first.layers[0] + 14 * between.layers[0] + last.layers[0] == 61
    assert last.output[0] == 1


def test_the_logits_are_on_the_rank_with_the_output_alone():
    small = priced(Layout(dp=8, zero=1))
    staged = priced(Layout(pp=8, dp=1))

    assert small.logits_bytes[0] == pytest.approx(4 * 8192 * 128256)
    assert staged.logits_bytes[0] == 0  # the first rank, with eight micro-batches in flight, counts


def test_low_precision_sums_gradients_in_half_precision_and_keeps_inputs_in_eight_bits():
    high, low = (priced(Layout(dp=8, zero=1), precision=name) for name in ("bf16", "fp8"))

    assert low.gradients_bytes[0] == pytest.approx(high.gradients_bytes[0] / 2)
    assert low.activations_bytes[0] < 0.9 * high.activations_bytes[0]


def test_recomputation_keeps_less_the_more_of_it_is_done():
    kept = [
        float(priced(Layout(dp=8, zero=3, recompute=mode), stack="titan").activations_bytes[0])
        for mode in ("full", "selective", "none")
    ]

    assert kept[0] < kept[1] / 4 < kept[2] / 4


def test_three_figures_differ_and_the_verdict_has_a_doubt_between():
    prices = priced(Layout(dp=8, zero=3), stack="titan")
    assert prices.allocated_bytes[0] < prices.reserved_bytes[0] < prices.card_bytes[0]

    need = float(prices.allocated_bytes[0])
    words = [word(fit_verdicts(prices, need * share, SEEN)[0]) for share in (2.0, 1.02, 0.5)]

    assert words == ["fits", "may not", "does not fit"]


def test_the_verdict_on_a_stack_that_nobody_measured_doubts_by_what_stacks_left_out_were_off():
    prices = priced(Layout(dp=8, zero=3), stack="since-2024")
    beside = prices.card_bytes[0] - prices.reserved_bytes[0]
    most = (prices.allocated_bytes[0] + prices.reserved_bytes[0]) / 2 * (1 + UNSEEN_ABOVE) + beside
    least = prices.allocated_bytes[0] * (1 - UNSEEN_BAND) + beside

    def said(stack, capacity):
        return word(fit_verdicts(prices, capacity, memory_trust(book(), stack))[0])

    assert [said("since-2024", most * share) for share in (1.001, 0.999)] == ["fits", "may not"]
    assert [said("since-2024", least * share) for share in (1.001, 0.999)] == ["may not", "does not fit"]
    assert said("bridge", most * 0.999) == "fits"
    assert said("bridge", least * 1.001) == "does not fit"


def test_weights_moments_and_gradients_that_do_not_fit_are_no_doubt_of_a_stack_that_nobody_measured():
    prices = priced(Layout(dp=8, recompute="full"), stack="deepspeed")
    least = float(prices.parameters_bytes[0] + prices.optimizer_bytes[0] + prices.gradients_bytes[0])
    beside = float(prices.card_bytes[0] - prices.reserved_bytes[0])
    assert least > prices.allocated_bytes[0] * (1 - UNSEEN_BAND)

    def said(capacity):
        return word(fit_verdicts(prices, capacity, memory_trust(book(), "deepspeed"))[0])

    assert [said((least + beside) * share) for share in (1.001, 0.999)] == ["may not", "does not fit"]


def test_gradients_in_single_precision_may_be_half_of_what_is_predicted():
    assert memory_trust(book(), "deepspeed").kept_gradients == 1.0
    assert memory_trust(book(), "trl").kept_gradients == 0.5


def test_our_own_engine_fits_where_all_that_the_allocator_holds_does_since_no_gpu_showed_what_it_gives_back():
    prices = priced(Layout(dp=8, zero=3), stack=OWN)
    beside = prices.card_bytes[0] - prices.reserved_bytes[0]
    most = prices.reserved_bytes[0] * (1 + ABOVE) + beside

    words = [word(fit_verdicts(prices, most * share, memory_trust(book(), OWN))[0]) for share in (1.001, 0.999)]

    assert words == ["fits", "may not"]


def test_a_row_that_fits_although_the_card_shows_more_says_how():
    given = setting(LLAMA, "dgx-h100", stack="bridge")
    grid = Grid.of([Layout(dp=8, zero=3)])
    prices = price_layouts(given, grid)
    row = row_of(given, grid, prices, 0)
    tight = replace(row, capacity_bytes=0.999 * float(prices.card_bytes[0]), fits="fits")

    assert not row.squeezes
    assert fits_text(tight) == "fits as split blocks are given back"


def test_a_row_that_only_its_doubt_makes_fit_does_not_fit_as_priced():
    given = setting(LLAMA, "dgx-h100", stack="since-2024")  # nobody said how it holds its weights
    grid = Grid.of([Layout(dp=8, mbs=1, recompute="full")])
    row = row_of(given, grid, price_layouts(given, grid), 0)

    doubtful, near = (
        replace(row, fits="may not", capacity_bytes=share * row.terms["allocated_bytes"]) for share in (0.9, 1.01)
    )

    assert fits_text(doubtful) == "does not fit as priced, but may"
    assert fits_text(near) == "may not fit"


def test_nine_in_ten_peaks_of_stacks_that_are_left_out_whole_are_within_either_end_of_their_band():
    rows = left_out()
    errors = np.array([row.error for row in rows if row.error is not None])

    assert len(errors) == 32
    assert np.quantile(1 / (1 + errors) - 1, 0.9) == pytest.approx(UNSEEN_ABOVE, abs=0.01)  # more than predicted
    assert -np.quantile(1 / (1 + errors) - 1, 0.1) == pytest.approx(UNSEEN_BAND, abs=0.01)  # less
    assert [row.id for row in rows if not row.ran and row.fits == "fits"] == []
    refused = [row.id for row in rows if row.ran and row.fits == "does not fit"]
    assert refused == []  # titan26-01 has its loss over parts of a sequence, which generic stacks leave open


def test_a_capacity_names_its_source():
    known = load_catalogue().accelerators["h100"].memory_bytes

    assert capacity_source("h100", known) == "the driver shows: driver-logs"
    assert capacity_source("h100", known - 1) == "the cluster's own figure"


@pytest.mark.parametrize(
    "name", ["nemotron3-nano-30b-a3b", "nemotron3-super-120b-a12b", "jamba-1.5-mini", "gemma4-26b-a4b", "t5-11b",
             "qwen3-next-80b-a3b", "deepseek-v3.2", "mamba2-2.7b", "llama4-maverick"],
)  # fmt: skip
def test_the_ranks_of_a_pipeline_hold_the_whole_model_whatever_its_layers_are(name):
    model = load_model(name).architecture
    prices = priced(Layout(dp=8), model=name, stack="megatron", seq_len=4096)

    assert prices.parameters_bytes[0] == pytest.approx(2 * model.parameters, rel=0.005)


@pytest.mark.parametrize(("split", "ranks"), [({"dp": 8}, 1), ({"dp": 8, "zero": 3}, 8)])
def test_an_encoder_that_no_token_passes_is_held_as_frozen_weights(split, ranks):
    model = load_model("muse-glimmer-30b").architecture
    text = replace(model, tower_parameters=0)
    whole, without = (priced(Layout(**split), model=one, stack="torchtitan", seq_len=4096) for one in (model, text))

    assert whole.parameters_bytes[0] - without.parameters_bytes[0] == 2 * model.tower_parameters / ranks
    for term in ("gradients_bytes", "optimizer_bytes", "working_bytes"):
        assert getattr(whole, term)[0] == getattr(without, term)[0]


def test_an_encoder_leaves_for_the_host_with_all_other_weights():
    layout = Layout(dp=8, zero=3, offload="parameters")
    model = load_model("muse-glimmer-30b").architecture
    text = replace(model, tower_parameters=0)
    whole, without = (priced(layout, model=one, stack="torchtitan", seq_len=4096) for one in (model, text))

    assert whole.parameters_bytes[0] == without.parameters_bytes[0]
    assert whole.host_bytes[0] - without.host_bytes[0] == 2 * model.tower_parameters / 8


def test_what_lies_beside_layers_embedding_and_output_has_gradients_and_moments():
    model = load_model("phi-2").architecture
    wider = replace(model, beside_parameters=model.beside_parameters + 10**9)  # as a vector a layer and token
    more, plain = (priced(Layout(dp=8), model=one, stack="megatron", seq_len=2048) for one in (wider, model))

    found = [getattr(more, f"{n}_bytes")[0] - getattr(plain, f"{n}_bytes")[0] for n in ("parameters", "optimizer")]
    assert found == [2 * 10**9, 12 * 10**9]


def test_layers_of_experts_that_lie_between_others_are_spread_evenly_over_a_pipeline():
    hybrid = load_model("nemotron3-nano-30b-a3b").architecture
    first_dense = load_model("deepseek-v3").architecture
    grid = Grid.of([Layout(pp=4, dp=2)])

    of_hybrid, of_first = (loads(ModelQuantities.of(model), grid, np.array([8.0])) for model in (hybrid, first_dense))

    assert [float(load.moe[0] / load.layers[0]) for load in of_hybrid] == pytest.approx([23 / 52] * 3, abs=0.03)
    assert float(of_first[0].dense[0]) == 3
    assert float(of_first[1].dense[0]) == 0


def test_a_state_space_layer_keeps_what_its_kernel_saves_and_no_queries_or_keys():
    mamba = load_model("mamba2-2.7b").architecture
    mixer = mamba.runs[0].layer.mixer
    prices = priced(Layout(dp=8), model="mamba2-2.7b", stack="megatron", seq_len=4096)
    tokens, halves = 4096, 0.5  # a layer has a mixer and no network

    a_token = 2 * (3 * mixer.out_width + 2 * mixer.groups * mixer.state + mixer.heads + mixer.out_width)
    a_token += halves * 2 * 4 * mamba.hidden_size
    kept = tokens * (mamba.num_hidden_layers * a_token + 2 * 2 * mamba.hidden_size)
    assert prices.activations_bytes[0] == pytest.approx(kept, rel=0.01)


def test_rows_for_experts_of_a_narrower_stream_are_narrower():
    model = load_model("nemotron3-super-120b-a12b").architecture

    assert ModelQuantities.of(model).stream == 1024 / 4096


MODULES = {
    "layernorm": 2 * 4096 * 4096 * 2,  # two norms of 4,096 tokens, 4,096 wide, in half precision
    "mlp": 3 * 4096 * 14336 * 2,  # gate, up and their product
}


@pytest.mark.parametrize("name", MODULES)
def test_a_named_module_keeps_nothing_for_backward(name):
    one = Layout(dp=8, zero=1, recompute="selective")
    all_kept, named = (
        priced(one, modules=modules, seq_len=4096, stack="megatron").activations_bytes[0]
        for modules in (("core_attn",), (name,))
    )

    assert all_kept - named == pytest.approx(32 * MODULES[name])


def test_latent_attention_can_lift_its_queries_keys_and_values_again():
    one = Layout(dp=8, pp=1, ep=8, zero=1, recompute="selective")
    kept, lifted = (
        priced(one, model="deepseek-v2-lite", modules=modules, seq_len=4096, stack="megatron").activations_bytes[0]
        for modules in (("core_attn",), ("mla_up_proj",))
    )

    assert kept - lifted == pytest.approx(27 * 4096 * 16 * (2 * 192 + 128 + 128) * 2)


def test_modules_that_are_computed_again_take_longer_the_more_they_are():
    one = Layout(dp=8, ep=8, zero=1, recompute="selective")
    seconds = [
        priced(one, model="deepseek-v2-lite", modules=modules, stack="megatron").recompute_s[0]
        for modules in (("layernorm",), ("layernorm", "moe_act"), ("layernorm", "moe_act", "moe"))
    ]

    assert 0 < seconds[0] < seconds[1] < seconds[2]


def test_a_stack_that_recomputes_operators_refuses_modules():
    with pytest.raises(InputError, match="recomputes by operators"):
        priced(Layout(dp=8, zero=3, recompute="selective"), modules=("mlp",), stack="torchtitan")


def test_a_module_that_is_not_known_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="layernorms.*layernorm"):
        modules_of(["layernorms"], where="--recompute-modules")


def test_deepseek_s_own_run_fits_by_the_facts_of_its_report():
    cluster = cluster_by_name(load_catalogue(), "dgx-h100", 2048)
    layout = Layout(pp=16, dp=128, ep=64, zero=1, recompute="selective")
    setting = Setting(
        architecture=DEEPSEEK, cluster=cluster, gpus=2048, global_batch=15360, seq_len=4096, stack="deepseek",
        precision="fp8",
    )  # fmt: skip
    grid = Grid.of([layout])
    prices = price_layouts(setting, grid)

    assert word(verdicts_in(setting, grid, prices)[0]) == "fits"
    adam = price_layouts(replace(setting, stack="megatron"), Grid.of([layout])).optimizer_bytes[0]
    assert prices.optimizer_bytes[0] == pytest.approx(8 / 12 * adam)


def test_deepseek_s_own_training_takes_the_days_of_its_report():
    cluster = cluster_by_name(load_catalogue(), "hgx-h800", 2048)
    layout = Layout(pp=16, dp=128, ep=64, zero=1, recompute="selective", schedule="zb")
    setting = Setting(
        architecture=replace(DEEPSEEK, mtp_trained=1), cluster=cluster, gpus=2048, global_batch=15360, seq_len=4096,
        stack="deepseek", precision="fp8-block",
    )  # fmt: skip
    step_s = price_layouts(setting, Grid.of([layout])).step_time_s[0]

    days = 14.8e12 / (15360 * 4096) * step_s / 86400
    assert days == pytest.approx(2.664e6 / 2048 / 24, rel=0.1)  # hours of an H800, arXiv 2412.19437, table 1


def test_a_loss_in_eight_parts_holds_an_eighth_of_the_logits():
    whole, parts = (priced(Layout(dp=8, zero=3), stack=stack).logits_bytes[0] for stack in ("fsdp", "torchtitan"))

    assert whole == pytest.approx(14 * 8192 * 128256)
    assert parts == pytest.approx(12 * 8192 * 128256 / 8)


def test_xla_holds_logits_and_their_gradient_as_products_have_them_and_leaves_nothing_between_its_buffers():
    priced_by_xla = priced(Layout(dp=8, zero=3, recompute="full"), stack="maxtext")

    assert priced_by_xla.logits_bytes[0] == pytest.approx((2 + 2) * 8192 * 128256)
    assert priced_by_xla.reserved_bytes[0] == priced_by_xla.allocated_bytes[0]


def test_norms_of_single_operators_keep_their_input_in_single_precision():
    fused, apart = (priced(Layout(dp=8, zero=3), stack=stack).activations_bytes[0] for stack in ("in-2023", "fsdp"))

    # two norms' inputs in 4 bytes and normed in 2 for inputs in 2, less queries and keys before their rotation
    norms, turned = 2 * 32 + 1, 32 * 2 * (32 + 8) * 128  # the last norm too
    assert apart - fused == pytest.approx(8192 * (norms * 4 * 4096 - turned))


def test_peaks_that_no_fact_was_chosen_by_when_they_were_collected_are_predicted_as_the_page_says():
    errors = np.abs([row.error for row in peaks(UNSEEN) if row.error is not None])

    assert len(errors) == 31
    assert np.median(errors) < 0.06


def test_the_bands_engines_are_those_whose_peaks_the_table_has():
    rows = csv.DictReader((FOLDER / "memory_rows.csv").read_text().splitlines())
    engines = {book().stacks[row["stack"]].engine if row["stack"] in book().stacks else row["stack"] for row in rows}

    assert engines <= PEAKS_OF
    assert memory_basis(book(), "torchtitan", 1) == (BAND, "")
    assert memory_basis(book(), "deepspeed", 8) == (UNSEEN_BAND, "no peak of this stack was measured")
    assert "no peak on a GPU" in memory_basis(book(), OWN, 8)[1]
    assert memory_basis(book(), "since-2024", 1, ["--weights"])[1].endswith("; --weights says what it holds")
    assert memory_basis(book(), "since-2024", 1, [])[1] == "no peak of this stack was measured"


def test_engines_whose_pipelines_need_more_than_predicted_are_those_of_the_tables():
    rows = [row for path in (FOLDER / "memory_rows.csv", UNSEEN) for row in peaks(path)]
    errors = [row.error for row in rows if row.family.startswith("titan") and "pp=" in row.layout]

    assert len(errors) == 5
    assert max(errors) < -ABOVE
    assert memory_basis(book(), "torchtitan", 8)[0] == UNSEEN_ABOVE


@pytest.mark.parametrize(("stack", "said"), [("torchtitan", "may not"), ("megatron", "fits")])
def test_a_pipeline_fits_where_it_would_with_what_its_engine_needs_beyond_what_is_predicted(stack, said):
    layout = Layout(tp=8, pp=8, zero=3 if stack == "torchtitan" else 1, sp=1, recompute="full")
    given = setting(LLAMA, "dgx-h100", 64, stack=stack, global_batch=8)
    cluster = given.cluster
    grid = Grid.of([layout])
    prices = price_layouts(given, grid)
    card = float(prices.card_bytes[0]) * 1.1
    group = replace(cluster.groups[0], gpu=replace(cluster.groups[0].gpu, memory_bytes=round(card)))

    assert word(verdicts_in(replace(given, cluster=replace(cluster, groups=(group,))), grid, prices)[0]) == said


def test_the_norm_before_the_output_keeps_as_much_as_each_of_a_layer_s():
    given = setting(LLAMA, "dgx-h100", stack="accelerate")
    machine, model = machine_of(given), ModelQuantities.of(LLAMA)
    eager = coefficients_of(given)
    fused = replace(eager, norms_single=0.0)

    def kept(c):
        of_layer = sum(layer_parts(machine, c, model, GRID, 4096.0, moe=False)) / 2.0
        return float(of_layer[0]), float(_entry(machine, c, model, GRID, 4096.0)[0])

    layer, last = (one - other for one, other in zip(kept(eager), kept(fused), strict=True))
    assert last == layer == 4096 * 4096 * 4.0


def test_nemo_whose_first_release_held_less_of_master_copies_may_fit_by_as_much():
    whole, parted = (as_said(memory_trust(book(), name), name, states=False, loss=True) for name in ("bridge", "nemo"))
    said = as_said(memory_trust(book(), "nemo"), "nemo", states=True, loss=True)

    assert (whole.spared_states, parted.spared_states, said.spared_states) == (0.0, 2 / 16, 0.0)
    assert memory_basis(book(), "nemo", 4, ["--weights"]) == (
        BAND,
        "NeMo 1 holds master copies in 2 bytes a parameter less",
    )
    assert memory_basis(book(), "nemo", 4, ["--loss"]) == (BAND, "")
