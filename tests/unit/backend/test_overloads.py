"""A method of a group takes what every overload of torch's takes, and nothing else."""

import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

from meshwright.backend.faults.failures import ArgumentError
from meshwright.backend.group import overloads
from meshwright.backend.group.create import make_group
from meshwright.backend.group.torch_group import REFUSED

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


VALUES = {
    "list[list[torch.Tensor]]": [[X]],
    "list[torch.Tensor]": [X],
    "torch.Tensor": X,
    "list[int]": [2],
    "int": 0,
    "ReduceOp": MAX,
    "timedelta": LIMIT,
}
TO_OTHERS = ("send", "recv", "recv_anysource")  # there are none in a group of one


def kind_of(printed):
    """Return the type of an argument in short, as torch prints it."""
    short = printed.replace("typing.SupportsInt | typing.SupportsIndex", "int").replace(" | None", "")
    return re.sub(
        r"(torch\._C\._distributed_c10d|datetime|c10d)[.:]+", "", short.replace("collections.abc.Sequence", "list")
    )


def calls_as_printed():
    """Return the name of each method that torch's groups have, and one set of arguments for each of its overloads."""
    found = []
    for name in sorted(set(dir(ProcessGroup)) - {*TO_OTHERS, *REFUSED}):
        for line in (getattr(ProcessGroup, name).__doc__ or "").splitlines():
            if f"{name}(self: " in line and line.endswith("-> c10d::Work"):
                arguments = {}
                for each, kind in re.findall(r", (\w+): ([^=]*?)(?= = |, \w+: |\) -> )", line):
                    short = kind_of(kind)
                    arguments[each] = VALUES[short] if short in VALUES else getattr(c10d, short)()
                found.append(pytest.param(name, arguments, id=f"{name} of {' '.join(arguments)}"))
    return found


@pytest.fixture(scope="module")
def group_of_one():
    made = make_group(dist.HashStore(), 0, 1, LIMIT)
    yield made
    made.shutdown()


@pytest.mark.parametrize("rank", [-1, 2, 5])
def test_a_rank_that_is_none_of_the_group_is_refused_before_it_waits_for_anybody(rank):
    with pytest.raises(RuntimeError, match=f"rank {rank} of 2: expected 0 to 1"):
        make_group(dist.HashStore(), rank, 2, LIMIT)


@pytest.mark.parametrize(("name", "arguments"), calls_as_printed())
def test_a_group_takes_each_overload_by_the_names_that_torch_prints_and_by_place(group_of_one, name, arguments):
    getattr(group_of_one, name)(**arguments).wait()
    getattr(group_of_one, name)(*arguments.values()).wait()

    assert X.tolist() == [1, 1]
