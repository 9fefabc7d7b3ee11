"""The data of a run's page are equal to the stored ones: a change of the page's code alone moves none of them."""

import json

import pytest

from tests.unit.report.goldens.pages import RUNS, page_data, stored


@pytest.mark.parametrize("name", RUNS)
def test_the_data_of_a_stored_run_are_equal_to_the_stored_ones(name, tmp_path):
    assert page_data(name, tmp_path) == json.loads(stored(name).read_text())
