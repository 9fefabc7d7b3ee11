"""A layout that was asked for: what lets it fit, and what is said of how its stages and weights are taken."""

import json

import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.layouts.filters import notes_of_stack
from meshwright.plan.search.explore import row_of
from meshwright.plan.search.that_fit import changes, that_fit
from meshwright.workload.models import load_model
from tests.unit.plan.test_search_filters import invoke

BALANCED = "cut where that balances their cost"


def setting(model="llama3-70b", gpus=64, stack="bridge", batch=128, node="dgx-h100"):
    cluster = catalogue_cluster(load_catalogue(), node, gpus=gpus)
    return Setting(
        architecture=load_model(model).architecture, cluster=cluster, gpus=gpus, global_batch=batch, seq_len=8192,
        stack=stack,
    )  # fmt: skip


def fits(given, layout):
    grid = Grid.of([layout])
    return row_of(given, grid, price_layouts(given, grid), 0).fits


@pytest.mark.parametrize("text", ["tp=8,dp=8,mbs=2,sp=1", "tp=4,pp=2,dp=8,mbs=4,sp=1,zero=1"])
def test_what_lets_a_layout_fit_does_and_changes_as_little_as_can_be(text):
    given, layout = setting(), Layout.parse(text)
    found = that_fit(given, layout)

    assert fits(given, layout) != "fits"
    assert found
    assert {fits(given, row.layout) for row in found} == {"fits"}
    assert len({len(changes(layout, row.layout)) for row in found}) == 1
    assert [row.predicted.step_time_s for row in found] == sorted(row.predicted.step_time_s for row in found)


def test_a_layout_of_its_engine_stays_one_of_its_engine():
    given = setting(stack="torchtitan", gpus=8)
    found = that_fit(given, Layout.parse("dp=8,zero=3"))

    assert all(row.layout.offload != "optimizer" for row in found)  # FSDP2 offloads parameters along


def test_json_has_what_would_fit():
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --stack torchtitan --layout dp=8"
    answer = json.loads(invoke(f"{words},zero=0 --json").stdout)

    assert answer["fits"] == "does not fit"
    assert answer["would_fit"][0]["fits"] == "fits"


@pytest.mark.parametrize(
    ("stack", "text", "words"),
    [
        ("since-2024", "tp=8,pp=12,dp=10", "126 layers over 12 stages: the longest, of 11, is priced"),
        (
            "meshwright",
            "tp=8,pp=4,dp=32",
            f"126 layers over 4 stages: {BALANCED}, in turn 1 x 30, 3 x 32",
        ),
    ],
)
def test_layers_that_do_not_divide_over_the_stages_are_said(stack, text, words):
    assert words in notes_of_stack(setting("llama3-405b", 1024, stack), Layout.parse(text))
    assert not any("layers" in note for note in notes_of_stack(setting(stack="since-2024"), Layout.parse("tp=8,pp=8")))


def test_a_stack_that_cuts_by_cost_says_its_stages_also_where_the_layers_would_divide():
    layout = Layout.parse("tp=8,pp=8")

    assert notes_of_stack(setting(stack="meshwright"), layout) == [
        f"80 layers over 8 stages: {BALANCED}, in turn 1 x 4, 6 x 11, 1 x 10"
    ]
    assert not notes_of_stack(setting(stack="megatron"), layout)


def test_weights_that_travel_in_more_bytes_than_elsewhere_are_said():
    sharded, whole = Layout.parse("dp=64,zero=3"), Layout.parse("dp=64")

    assert any("float32" in note for note in notes_of_stack(setting(stack="meshwright"), sharded))
    assert not notes_of_stack(setting(stack="meshwright"), whole)
    assert not notes_of_stack(setting(stack="torchtitan"), sharded)
