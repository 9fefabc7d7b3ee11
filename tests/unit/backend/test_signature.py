"""The signature of a collective: different for different collectives, and readable."""

import itertools

import pytest
import torch

from meshwright.backend.group.signature import BARRIER, OPERATORS, Signature, signature

DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.float8_e5m2)


def test_no_two_collectives_have_the_same_numbers():
    names = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
    sizes = (0, 4, 8, [4, 4, 4], [4, 8, 4], [8, 4, 4])
    every = itertools.product(names, DTYPES, sizes, ("", "sum", "max"), (None, 0, 1))

    made = [signature(name, dtype, size, operator=op, root=root) for name, dtype, size, op, root in every]

    alike = len(names) * len(DTYPES) * 3 * 3  # equal parts of 4 bytes are told by their size alone
    assert len(set(made)) == len(made) - alike


def test_a_signature_reads_as_what_is_called():
    assert str(signature("all_reduce", torch.float32, 400, operator="sum")) == "all_reduce of 400 B (float32, sum)"
    assert str(signature("broadcast", torch.int64, 2048, root=3)) == "broadcast of 2 KiB (int64) with root 3"
    assert str(signature("all_gather", torch.bool, [4, 8])) == "all_gather of 12 B in uneven parts #b316 (bool)"
    assert str(signature("all_gather", torch.bool, [8, 4])) == "all_gather of 12 B in uneven parts #c40d (bool)"
    assert str(signature("all_gather", torch.int8, [4, 4])) == "all_gather of 4 B each (int8)"
    sent = signature("broadcast", torch.int8, 4, root=3)
    assert str(sent.after(1)) == "broadcast of 4 B (int8) with root 3 after a call that it refused"
    assert str(sent.after(2)) == "broadcast of 4 B (int8) with root 3 after 2 calls that it refused"
    assert sent.after(0) == sent
    assert sent.after(1000) == sent.after(255) != sent.after(254)
    assert str(BARRIER) == "barrier"


@pytest.mark.parametrize("numbers", [(2**64 - 1,) * 3, (255, 1, 1), (0, 0, 0)])
def test_what_another_version_calls_can_still_be_told(numbers):
    assert str(Signature(*numbers))


def test_every_operator_has_a_number():
    assert len({signature("reduce", torch.float32, 4, operator=name) for name in OPERATORS}) == len(OPERATORS)
