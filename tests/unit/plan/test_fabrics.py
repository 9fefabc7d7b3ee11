"""Fabrics between nodes that nobody asked for: what a plan assumes of machines whose own fabric is known."""

import pytest

from meshwright.hardware import load_catalogue
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.workload.models import load_model


def assumed(cluster, gpus, **more):
    """Return what is assumed of a small job on a cluster."""
    model = load_model("llama3-8b")
    request = PlanRequest(model=model, cluster=cluster, gpus=gpus, global_batch=64, seq_len=2048, **more)
    return [text for text in setting_of(request, load_catalogue()).assumed if text.startswith("one switch")]


@pytest.mark.parametrize("cluster", ["perlmutter", "juwels", "alps", "lumi"])
def test_a_machine_on_a_dragonfly_is_said_to_be_priced_on_one_switch(cluster):
    (text,) = assumed(cluster, 32)

    assert "has a dragonfly (--fabric dragonfly prices it)" in text


def test_nothing_is_said_where_the_fabric_is_asked_for_or_no_other_is_known_or_one_node_is_enough():
    assert assumed("perlmutter", 32, fabric="dragonfly") == []
    assert assumed("perlmutter", 4) == []
    assert assumed("dgx-h100", 32) == []
