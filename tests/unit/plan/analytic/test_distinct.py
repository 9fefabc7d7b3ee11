"""Parts of a price that many layouts share: computed once each, they come out the same."""

from dataclasses import fields

import numpy as np
import pytest

from meshwright.cluster.builders import catalogue_cluster
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic import Setting, distinct, price_layouts
from meshwright.plan.layouts.space import in_every_order, legal_layouts
from meshwright.workload.models import load_model


@pytest.mark.parametrize(
    ("model", "stack"), [("llama3-8b", "meshwright"), ("mixtral-8x7b", "meshwright"), ("mixtral-8x7b", "bridge")]
)
def test_prices_are_the_same_bits_whether_shared_parts_are_computed_once_or_for_each_layout(model, stack, monkeypatch):
    architecture = load_model(model).architecture
    space = legal_layouts(architecture, ranks=32, global_batch=64, seq_len=4096, node=8, folded=True)
    grid = in_every_order(space.grid)
    some = grid.take(np.random.default_rng(0).permutation(len(grid))[:8000])
    cluster = catalogue_cluster(load_catalogue(), "dgx-h100", gpus=32)
    asked = Setting(architecture=architecture, cluster=cluster, gpus=32, global_batch=64, seq_len=4096, stack=stack)

    shared = price_layouts(asked, some)
    monkeypatch.setattr(distinct, "FEW", len(some) + 1)
    apart = price_layouts(asked, some)

    for field in fields(shared):
        assert np.array_equal(getattr(shared, field.name), getattr(apart, field.name)), field.name


def test_rows_are_numbered_by_all_columns_even_where_their_ranges_do_not_fit_into_one_number():
    wide = [np.array([0.0, 2.0**40, 0.0, 2.0**40]), np.array([2.0**40, 0.0, 0.0, 0.0]), np.array([1.0, 2.0, 3.0, 2.0])]

    first, place = distinct._numbered(wide, 4)

    assert len(first) == 3
    assert place[1] == place[3]
    assert len(set(place[:3].tolist())) == 3


def test_a_table_numbers_rows_as_sorting_does(monkeypatch):
    columns = [np.random.default_rng(0).integers(low, low + 9, 500).astype(float) for low in (0, 7)]

    first, place = distinct._numbered(columns, 500)
    monkeypatch.setattr(distinct, "SPARSE", 0)
    sorted_first, sorted_place = distinct._numbered(columns, 500)

    assert np.array_equal(first, sorted_first)
    assert np.array_equal(place, sorted_place)
