"""Layers that use the weights of an earlier one: each is computed, and the weights are held and updated once."""

import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.jobs.emit.model import features_left_out
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.layouts.legality import illegal
from meshwright.plan.layouts.space import SHARED, legal_layouts
from meshwright.plan.model_facts import facts_about
from meshwright.plan.search.simulated import simulate_plan
from meshwright.workload.adapters import adapter_parameters
from meshwright.workload.configs import architecture_of

ALBERT = {"model_type": "albert", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}
ALBERT |= {"num_hidden_layers": 12, "vocab_size": 8000, "architectures": ["AlbertForMaskedLM"]}
LAYOUTS = {f"zero={zero}": Layout(dp=8, zero=zero) for zero in range(4)}


def model(groups: int):
    """Return an encoder of twelve layers with a number of sets of weights."""
    return architecture_of(ALBERT | {"num_hidden_groups": groups}).architecture


def priced(groups: int, layout: Layout):
    cluster = catalogue_cluster(load_catalogue(), "dgx-h100", gpus=8)
    setting = Setting(
        architecture=model(groups), cluster=cluster, gpus=8, global_batch=64, seq_len=512, stack="meshwright"
    )
    return price_layouts(setting, Grid.of([layout])), setting


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_shared_weights_take_the_memory_of_one_layer_and_the_products_of_all(layout):
    (one, _), (each, _) = priced(1, layout), priced(12, layout)
    eleven = model(12).parameters - model(1).parameters
    per_parameter = 2 if layout.zero == 0 else 2 / 8  # at the least, of weights or their shards

    assert model(1).matmul_parameters() == model(12).matmul_parameters()
    assert one.forward_s == each.forward_s
    assert one.activations_bytes == each.activations_bytes
    assert each.parameters_bytes[0] - one.parameters_bytes[0] >= 0.99 * per_parameter * eleven
    assert one.optimizer_bytes[0] < 0.2 * each.optimizer_bytes[0]
    assert one.optimizer_s[0] < 0.2 * each.optimizer_s[0]


def test_zero_3_gathers_shared_weights_for_every_layer_and_data_parallelism_sums_them_once():
    comm = {
        (groups, zero): sum(
            float(getattr(priced(groups, Layout(dp=8, zero=zero))[0], name)[0])
            for name in ("data_comm_s", "hidden_comm_s")
        )
        for groups in (1, 12)
        for zero in (0, 3)
    }

    assert comm[1, 3] == pytest.approx(comm[12, 3], rel=0.05)
    assert comm[1, 0] < 0.3 * comm[12, 0]


def test_the_simulator_gathers_shared_weights_under_zero_3_and_sums_them_once_without():
    moved = {}
    for groups in (1, 12):
        for zero in (0, 3):
            spans = simulate_plan(priced(groups, Layout(dp=8, zero=zero))[1], Layout(dp=8, zero=zero)).spans
            moved[groups, zero] = sum(span.bytes for span in spans if span.rank == 0)

    assert moved[1, 3] == pytest.approx(moved[12, 3], rel=0.05)
    assert moved[1, 0] < 0.3 * moved[12, 0]


def test_pipelines_adapters_and_other_engines_are_refused_for_layers_that_share_weights():
    shared, apart = model(1), model(12)

    assert "pp: 2, but layers share weights" in illegal(Layout(pp=2), shared, global_batch=8, seq_len=512)[0]
    assert not illegal(Layout(pp=2), apart, global_batch=8, seq_len=512)
    space = legal_layouts(shared, ranks=8, global_batch=8, seq_len=512)
    assert set(space.grid.pp) == {1}
    assert space.refused[SHARED]
    with pytest.raises(InputError, match="share weights are not counted"):
        adapter_parameters(shared, 8)
    assert "layers share their weights" in features_left_out(shared)
    assert "layers share their weights" not in features_left_out(apart)


def test_what_is_shared_is_said():
    (told,) = facts_about(model(4), 512).assumed

    assert told.startswith("8 of the 12 layers use weights of an earlier one: 0.1")
