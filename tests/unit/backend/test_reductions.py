"""Reductions of blocks of one element type: the plain computation, without a warning."""

import numpy as np
import pytest
import torch

from meshwright.backend.local.reductions import reduction

NUMPY = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("operator", NUMPY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_three_blocks_are_combined_in_their_order_and_numpy_warns_of_nothing(operator, dtype):
    kind = reduction(dtype, operator)
    blocks = [torch.tensor([3, 1, 2 + i], dtype=dtype).numpy() for i in range(3)]
    out = np.empty_like(blocks[0])

    kind.reduce(blocks, out, 3)

    function = NUMPY[operator]
    assert out.tolist() == function(function(blocks[0], blocks[1]), blocks[2]).tolist()


@pytest.mark.parametrize(("dtype", "total"), [(torch.int8, -128), (torch.int16, -(2**15)), (torch.int64, -(2**63))])
def test_the_average_of_the_least_integers_keeps_its_sign(dtype, total):
    half = torch.tensor([total // 2, -3], dtype=dtype).numpy()
    out = np.empty_like(half)

    reduction(dtype, "avg").reduce([half, np.array([total // 2, 0], half.dtype)], out, 2)

    assert out.tolist() == [total // 2, -1]  # towards zero


@pytest.mark.parametrize(("dtype", "first", "average"), [(torch.int8, -128, -1), (torch.uint8, 255, 1)])
def test_an_average_over_more_ranks_than_the_type_can_count(dtype, first, average):
    given = torch.tensor([first, 7], dtype=dtype).numpy()
    ranks = abs(first)

    reduction(dtype, "avg").divide(given, ranks)

    assert given.tolist() == [average, 0]
