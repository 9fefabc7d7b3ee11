"""Faults in what closed formulas take to be sent, which holding them to the program of a step has shown."""

import pytest
from msgspec.structs import replace

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.calls import calls_of_ranks
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.workload.conventions import OWN
from meshwright.workload.models import load_model


def setting(model="llama3-8b", gpus=8, **more):
    return Setting(
        architecture=load_model(model).architecture, cluster=cluster_by_name(load_catalogue(), "dgx-h100", gpus),
        gpus=gpus, global_batch=64, seq_len=2048, **more,
    )  # fmt: skip


def traffic_s(given, layout):
    """Return the seconds of weights and gradients, hidden or not."""
    terms = price_layouts(given, Grid.of([Layout.parse(layout)])).terms(0)
    return terms["data_comm_s"] + terms["hidden_comm_s"]


def sent(given, layout):
    """Return the bytes that a rank sends of each collective along each axis."""
    found = {}
    for (axis, name, size), count in calls_of_ranks(given, Layout.parse(layout))[0].items():
        found[axis, name] = found.get((axis, name), 0) + size * count
    return found


@pytest.mark.parametrize("stack", ["torchtitan", OWN])
def test_beside_adapters_zero_1_gathers_the_weights_that_were_updated_and_no_frozen_ones(stack):
    given = setting(lora_rank=16, stack=stack)

    assert traffic_s(given, "dp=8,zero=1") == pytest.approx(traffic_s(given, "dp=8"), abs=0.01)
    assert sent(given, "dp=8,zero=1")["data", "all_gather"] < 0.05 * given.architecture.parameters  # bytes


@pytest.mark.parametrize("stack", ["torchtitan", OWN])
def test_copies_of_a_model_under_zero_2_scatter_in_their_nodes_and_sum_once_between_them(stack):
    given = setting(gpus=16, stack=stack, inter_bytes_per_s=10e9)
    whole, copied = "dp=16,mbs=1,zero=2", "dp=16,mbs=1,zero=2,replicas=2"

    assert traffic_s(given, copied) < 0.5 * traffic_s(given, whole)
    assert sent(given, whole).keys() - {("world", "all_reduce")} == {
        ("shard", "all_gather"), ("shard", "reduce_scatter"),
    }  # fmt: skip
    assert ("replica", "all_reduce") in sent(given, copied)


def test_a_router_is_whole_on_every_rank_of_tensor_parallelism():
    given = setting("mixtral-8x7b")
    model = given.architecture
    router = model.hidden_size * model.experts * model.moe_layers

    wide, narrow = (
        sent(replace(given, architecture=replace(model, experts=many)), "dp=4,tp=2,ep=2")["data", "all_reduce"]
        for many in (2 * model.experts, model.experts)
    )

    assert wide - narrow == pytest.approx(4 * router, rel=1e-6)


def test_what_embedding_and_output_send_is_in_the_price_of_our_own_engine():
    given = setting(stack=OWN)

    own, one = (price_layouts(given, Grid.of([Layout.parse(text)])).terms(0) for text in ("dp=4,tp=2", "dp=8"))

    assert own["tensor_comm_s"] > 0 == one["tensor_comm_s"]
    found = calls_of_ranks(given, Layout.parse("dp=4,tp=2"))[0]
    values = 4 * 2048  # of the loss, in single precision: highest logit, sum, chosen logit
    assert found["tp", "all_reduce", values] == 3 * given.global_batch // 4
