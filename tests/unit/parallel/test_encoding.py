"""Vectors in few bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.parallel.encoding import Feedback, decode, encode
from meshwright.plan.search.asynchronous import INT8_BLOCK, encoded_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wire", ["full", "bf16", "int8"])
@given(count=st.integers(0, 3 * INT8_BLOCK), seed=st.integers(0, 9))
def test_a_vector_comes_back_as_near_as_its_bits_allow(wire, dtype, count, seed):
    vector = torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=dtype)

    data = encode(vector, wire)
    back = decode(data, count, dtype, wire)

    assert data.numel() == encoded_bytes(count, dtype.itemsize, wire)
    largest = vector.abs().max().item() if count else 0.0
    bound = {"full": 0.0, "bf16": largest / 2**8, "int8": largest / 254 * 1.001}[wire]
    assert back.dtype == dtype
    assert (back - vector).abs().max().item() <= bound if count else not back.numel()


def test_zeros_and_huge_numbers_survive_int8():
    vector = torch.cat((torch.zeros(INT8_BLOCK), torch.full((INT8_BLOCK,), 1e30)))

    assert torch.allclose(decode(encode(vector, "int8"), 2 * INT8_BLOCK, torch.float32, "int8"), vector)


def test_data_of_another_length_are_refused():
    with pytest.raises(ValueError, match="are not 10 elements"):
        decode(torch.zeros(10, dtype=torch.uint8), 10, torch.float32, "int8")


def test_feedback_makes_up_for_what_was_lost():
    vector, feedback = torch.randn(INT8_BLOCK, generator=torch.Generator().manual_seed(0)), Feedback("int8")

    total = sum(decode(feedback.encode(vector), INT8_BLOCK, torch.float32, "int8") for _ in range(50))

    once = decode(encode(vector, "int8"), INT8_BLOCK, torch.float32, "int8")
    assert (total / 50 - vector).norm() < 0.1 * (once - vector).norm()
