"""Modules that predict further tokens cost time, memory and traffic where they are: on the rank with the output."""

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.cluster.builders import catalogue_cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, book, performance, price_layouts
from meshwright.plan.analytic.by_stage import memory_of_stages
from meshwright.plan.analytic.further_tokens import further_s
from meshwright.plan.analytic.layer import layer_s
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.products import linear_s
from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.plan.analytic.states import further_parameters
from meshwright.plan.analytic.step import head_s
from meshwright.plan.model_facts import model_facts
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.plan.search.simulated import simulate_plan
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.models import load_model

LLAMA, MIXTRAL = "llama3-8b", "mixtral-8x7b"
HALF = 2 + 4  # bytes of a weight and of its gradient's sum, which ZeRO 1 leaves whole


def setting(name: str = LLAMA, modules: int = 0, **changes) -> Setting:
    model = load_model(name).training(modules).architecture
    cluster = catalogue_cluster(load_catalogue(), "dgx-h100", gpus=64)
    batch = {"gpus": 64, "global_batch": 256, "seq_len": 4096, "stack": "megatron"}
    return Setting(architecture=model, cluster=cluster, **(batch | changes))


def quantities(given: Setting, layout: Layout):
    grid = Grid.of([layout])
    return machine_of(given), coefficients_of(given), ModelQuantities.of(given.architecture), grid


def test_a_module_takes_a_layer_a_projection_and_the_output_once_more():
    given, layout = setting(modules=1), Layout(dp=64)
    machine, c, model, grid = quantities(given, layout)
    head = head_s(machine, c, model, grid, 4096.0)
    layer = layer_s(machine, c, model, grid, 4096.0)
    joined = linear_s(machine, c, 4096.0, 4096.0, 2 * 4096.0)

    forward, backward = further_s(machine, c, model, grid, 4096.0, head)

    assert forward == pytest.approx(layer.forward.total_s + joined[0] + head[0], rel=0.05)
    assert backward == pytest.approx(layer.backward.total_s + joined[1] + head[1], rel=0.05)
    assert forward > layer.forward.total_s + joined[0] + head[0]  # by the norms


def test_full_recomputation_repeats_a_module_and_blocks_of_layers_leave_it_out():
    given = setting(modules=1)

    def backward(recompute, **changes):
        machine, c, model, grid = quantities(given, Layout(dp=64, recompute=recompute))
        return further_s(machine, replace(c, **changes), model, grid, 4096.0, (0.0, 0.0))[1]

    plain, full = backward("none"), backward("full")

    assert 1.4 < full / plain < 1.6
    assert backward("full", layers_again=1.0) == pytest.approx(plain)


def test_the_last_stage_alone_holds_modules_and_a_copy_of_the_embedding():
    layout = Layout(tp=2, pp=4, dp=8, zero=1)
    plain, two = (memory_of_stages(setting(modules=count), layout) for count in (0, 2))
    model = setting(modules=2).architecture
    more = [after.allocated_bytes - before.allocated_bytes for before, after in zip(plain, two, strict=True)]
    held = (2 * model.mtp_parameters + model.vocab_size * model.hidden_size) / layout.tp
    logits = 2 * 4 * 4096 * model.vocab_size / layout.tp  # in single precision, of two further outputs

    assert more[:3] == [0.0, 0.0, 0.0]
    assert held * (HALF + 12 / layout.dp) + logits < more[3] < 1.25 * (held * (HALF + 12 / layout.dp) + logits)


def test_an_embedding_that_is_the_output_or_on_its_rank_is_held_once():
    untied, tied = (load_model(name).training(1).architecture for name in (LLAMA, "llama3.2-1b"))

    def held(model, layout):
        dense, experts = further_parameters(ModelQuantities.of(model), Grid.of([layout]))
        return float(np.ravel(dense + experts)[0]) - model.mtp_parameters

    table = untied.vocab_size * untied.hidden_size
    assert held(untied, Layout(pp=4)) == table
    assert held(untied, Layout(dp=4)) == held(untied, Layout(pp=4, vpp=2, schedule="zb")) == 0
    assert held(tied, Layout(pp=4)) == 0


def test_logits_and_what_the_output_keeps_are_there_once_more_for_each_module():
    layouts = Grid.of([Layout(dp=64)])
    none, one, two = (price_layouts(setting(modules=count), layouts) for count in (0, 1, 2))

    assert one.logits_bytes[0] == pytest.approx(2 * none.logits_bytes[0])
    assert two.logits_bytes[0] == pytest.approx(3 * none.logits_bytes[0])
    assert two.activations_bytes[0] - one.activations_bytes[0] == pytest.approx(
        one.activations_bytes[0] - none.activations_bytes[0]
    )
    assert two.step_time_s[0] - one.step_time_s[0] == pytest.approx(one.step_time_s[0] - none.step_time_s[0], rel=0.01)


def test_experts_of_a_module_are_sent_and_cut_as_those_of_layers():
    layout = Grid.of([Layout(dp=64, ep=8, zero=1)])
    prices = [price_layouts(setting(MIXTRAL, count), layout) for count in (0, 1)]
    model = setting(MIXTRAL, 1).architecture
    layer = model.runs[-1].layer.parameters(model.hidden_size)
    apart = layer - model.runs[-1].layer.network.count * model.expert_parameters
    held = apart + model.mtp_parameters - layer + model.expert_parameters  # one of eight experts

    assert prices[1].parameters_bytes[0] - prices[0].parameters_bytes[0] == pytest.approx(2 * held)
    assert prices[1].step_time_s[0] > prices[0].step_time_s[0] * 1.02


def test_a_pipelines_step_is_that_of_its_last_stage_where_modules_make_it_the_slowest():
    layout = Grid.of([Layout(pp=8, dp=8, zero=1)])
    none, one, three = (float(price_layouts(setting(modules=n), layout).step_time_s[0]) for n in (0, 1, 3))

    assert one / none > 1.15  # one layer of four, and the output once more
    assert three - one == pytest.approx(2 * (one - none), rel=0.1)


def test_rows_of_a_table_are_priced_as_alone_whatever_stands_beside_them(tmp_path):
    head = "family,gpu,num_gpus,model_name,seq_len,global_batch_sequences,micro_batch,zero_stage_fsdp,recompute"
    head += ",mtp_layers"
    models = ((LLAMA, ""), (LLAMA, 1), ("gpt3-175b", 0), (MIXTRAL, 2))
    rows = [f"megatron,h100,64,{name},4096,256,1,1,none,{count}" for name, count in models]
    whole = tmp_path / "whole.csv"
    whole.write_text("\n".join([head, *rows]))

    together = _predicted(whole)

    for number, line in enumerate(rows):
        one = tmp_path / f"{number}.csv"
        one.write_text(f"{head}\n{line}")
        alone = _predicted(one)[0]
        assert alone.step_time_s == pytest.approx(together[number].step_time_s, rel=1e-12)
        assert alone.peak_memory_bytes_per_gpu == together[number].peak_memory_bytes_per_gpu
    expected = price_layouts(setting(modules=1), Grid.of([Layout(dp=64, zero=1)]))
    assert together[1].step_time_s == pytest.approx(float(expected.step_time_s[0]), rel=1e-6)
    assert together[1].model.parameters == setting(modules=1).architecture.parameters
    assert not any(text.startswith("multi-token prediction") for text in together[1].doubts)  # fitted runs had it


def _predicted(path):
    catalogue = load_catalogue()
    return predict(read_rows(path, catalogue, book(), known_models()), catalogue, book())


def test_our_own_stack_refuses_modules_in_a_table_and_in_a_plan(tmp_path):
    path = tmp_path / "rows.csv"
    head = "family,gpu,num_gpus,model_name,seq_len,global_batch_sequences,mtp_layers"
    path.write_text(f"{head}\nmeshwright,h100,8,llama3-8b,4096,8,1\n")
    model = load_model(LLAMA).training(1)
    request = PlanRequest(
        model=model, cluster="dgx-h100", gpus=8, global_batch=8, seq_len=4096, stack="meshwright"
    )  # fmt: skip

    assert "trains no modules that predict further tokens" in _predicted(path)[0].reason
    with pytest.raises(InputError, match="--stack meshwright: Meshwright itself trains no modules"):
        setting_of(request, load_catalogue())


def test_an_answer_says_what_is_counted_and_which_option_counts_the_rest():
    alone, with_one = (model_facts(setting("deepseek-v3", count)).assumed for count in (0, 1))
    grid, layout = Grid.of([Layout(dp=64)]), Layout(dp=64)
    told = [performance(s, price_layouts(s, grid), 0, layout) for s in (setting(), setting(modules=1))]

    assert "1 layer to predict further tokens, not counted (--mtp-layers 1 counts it)" in alone
    assert "1 layer to predict further tokens, counted and trained: 11.61 B parameters" in with_one
    assert told[1].not_modelled == told[0].not_modelled  # runs with such modules were fitted to
    assert told[1].error_band == told[0].error_band


def test_the_simulator_plays_modules_on_the_last_stage():
    layout = Layout(pp=4, dp=2, zero=1)
    cluster = catalogue_cluster(load_catalogue(), "dgx-h100", gpus=8)
    times = []
    for count in (0, 1):
        given = replace(setting(modules=count), cluster=cluster, gpus=8, global_batch=32)
        simulated = max(span.end_s for span in simulate_plan(given, layout).spans)
        predicted = float(price_layouts(given, Grid.of([layout])).step_time_s[0])
        assert simulated == pytest.approx(predicted, rel=0.05)
        times.append(simulated)

    assert times[1] > 1.1 * times[0]


def test_layouts_without_modules_are_untouched_by_the_fields_that_say_so():
    model = ModelQuantities.of(load_model(LLAMA).architecture)

    assert (model.mtp, model.mtp_layers) == (0, None)
    assert np.all(price_layouts(setting(), Grid.of([Layout(dp=64)])).step_time_s > 0)
    assert msgspec.to_builtins(setting().architecture)["mtp_trained"] == 0
