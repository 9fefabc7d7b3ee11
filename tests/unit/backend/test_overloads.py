"""A method of a group takes what every overload of torch's takes, and nothing else."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from meshwright.backend.faults.failures import ArgumentError
from meshwright.backend.group import overloads

X = torch.ones(2)
MAX, LIMIT = dist.ReduceOp.MAX, timedelta(seconds=20)


def test_options_come_as_an_object():
    given = dist.ReduceOptions()
    given.rootRank = 1

    tensors, options = overloads.REDUCE.bind(([X], given), {})

    assert tensors == [[X]]
    assert options is given


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((X, 1, MAX, LIMIT), {}),
        ((X,), {"root": 1, "op": MAX, "timeout": LIMIT}),
        ((), {"tensor": X, "root": 1, "op": MAX, "timeout": LIMIT}),
        ((X, 1), {"op": dist.ReduceOp(MAX), "timeout": LIMIT}),
        ((X, None, None), {"root": 1, "op": MAX, "timeout": LIMIT}),
    ],
)
def test_options_come_one_by_one(given, named):
    (tensor,), options = overloads.REDUCE.bind(given, named)

    assert tensor is X
    assert (options.rootRank, options.timeout) == (1, LIMIT)
    assert options.reduceOp == dist.ReduceOp(MAX)


def test_what_is_not_given_has_torchs_defaults():
    _, options = overloads.BROADCAST.bind((X,), {})

    assert (options.rootRank, options.reduceOp, options.asyncOp) == (0, dist.ReduceOp(dist.ReduceOp.SUM), True)


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((), {}, "tensors is not given"),
        ((X, 0, MAX, LIMIT, 3), {}, "4 arguments after the tensors"),
        ((X, 0), {"root": 1}, "root is given twice"),
        ((X,), {"tensor": X}, "tensor is given twice"),
        ((X,), {"dst": 1}, "expected root, op, timeout, got dst"),
        ((X, dist.ReduceOptions()), {"root": 1}, "both as an object and one by one"),
    ],
)
def test_a_call_of_no_overload_says_what_is_wrong(given, named, message):
    with pytest.raises(TypeError, match=message):
        overloads.REDUCE.bind(given, named)


@pytest.mark.parametrize(("name", "value"), [("op", "sum"), ("timeout", 20.0)])
def test_an_option_of_a_wrong_kind_is_refused(name, value):
    with pytest.raises(ArgumentError, match="expected a"):
        overloads.REDUCE.bind((X,), {name: value})
