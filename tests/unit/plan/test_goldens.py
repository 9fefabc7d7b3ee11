"""Prices from fixed inputs are equal to the stored ones: a change of the planners' code alone moves none of them."""

import json

import pytest

from tests.unit.plan.goldens import figures

STORED = json.loads(figures.STORED.read_text())


@pytest.mark.parametrize("section", ["measured", "published", "searched", "simulated"])
def test_figures_from_fixed_inputs_are_equal_to_the_stored_ones(section):
    found = getattr(figures, f"{section}_figures")()

    assert found.keys() == STORED[section].keys()
    for name, expected in STORED[section].items():
        assert found[name] == pytest.approx(expected, rel=1e-12), name
