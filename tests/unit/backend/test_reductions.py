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
