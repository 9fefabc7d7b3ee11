"""Where a local piece lies in the whole tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.parallel.shard_placement import ShardPlacement, boxes, runs, shard_blocks, shard_of


@given(st.lists(st.integers(1, 4), min_size=0, max_size=4), st.data())
def test_blocks_cover_a_range_of_the_flattened_tensor_once_and_in_order(shape, data):
    whole = torch.arange(int(torch.tensor(shape).prod())).view(shape)
    start = data.draw(st.integers(0, whole.numel()))
    stop = data.draw(st.integers(start, whole.numel()))

    found = []
    for offset, extent, first in shard_blocks(shape, start, stop):
        block = whole[tuple(slice(o, o + n) for o, n in zip(offset, extent, strict=True))]
        assert int(block.reshape(-1)[0]) == first
        found += block.reshape(-1).tolist()

    assert found == list(range(start, stop))


@pytest.mark.parametrize("index", range(4))
def test_boxes_say_where_each_section_of_a_fused_projection_lies(index):
    whole = torch.arange(32 * 3).view(32, 3)
    held = runs((16, 8, 8), index, 4)
    local = shard_of(whole, 0, held)
    placement = ShardPlacement((32, 3)).and_cut(0, held)

    found = list(boxes(placement, (0, 0), local.shape))

    assert len(found) == 3
    for box in found:
        at = tuple(slice(o, o + n) for o, n in zip(box.whole, box.extent, strict=True))
        assert torch.equal(box.of(local, (0, 0)), whole[at])
