"""Values that are not finite are found, and finite ones are not."""

import math

import pytest
import torch

from meshwright.train.integrity.finite import all_finite, not_finite


def test_figures_that_are_no_numbers_are_named():
    assert not_finite(loss=1.0, grad_norm=0.0) == ""
    assert not_finite(loss=math.nan, grad_norm=math.inf) == "loss nan, grad norm inf"
    assert not_finite(validation_loss=-math.inf) == "validation loss -inf"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_element_of_any_tensor_is_found(bad):
    tensors = [torch.zeros(3), torch.ones(4, dtype=torch.bfloat16), torch.arange(5)]
    assert all_finite(tensors)

    tensors[1][3] = bad

    assert not all_finite(tensors)
