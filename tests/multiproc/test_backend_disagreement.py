"""Ranks that call different things at the same place: each is told who called what, on one host and between hosts."""

import re

import pytest
import torch
import torch.distributed as dist

from meshwright.backend.group.torch_compat import all_gather_single, reduce_scatter_single
from tests.multiproc.fresh_ranks import launch

COUNT = 300


def collectives(odd):
    """Return calls by name; where `odd`, each asks for something else than the others do."""
    count = COUNT + 1 if odd else COUNT
    kind = torch.int32 if odd else torch.float32
    ones = torch.ones(COUNT)

    def gather(root):
        mine = dist.get_rank() == root
        dist.gather(ones, [torch.empty(COUNT) for _ in range(dist.get_world_size())] if mine else None, root)

    def scatter(root):
        mine = dist.get_rank() == root
        dist.scatter(torch.empty(COUNT), [ones] * dist.get_world_size() if mine else None, root)

    ranks = dist.get_world_size()
    parts = [1 - rank if odd and rank < 2 else rank for rank in range(ranks)]
    splits = [3 if odd and rank == 0 else 2 for rank in range(ranks)]
    return {
        "size of an all-reduce": lambda: dist.all_reduce(torch.ones(count)),
        "long all-reduce": lambda: dist.all_reduce(torch.ones(1_000_000 if odd else 10)),
        "size of an all-gather": lambda: dist.all_gather([torch.empty(count) for _ in range(ranks)], torch.ones(count)),
        "size of an all-gather into one": lambda: all_gather_single(torch.empty(count * ranks), torch.ones(count)),
        "size of a reduce-scatter": lambda: reduce_scatter_single(torch.empty(count), torch.ones(count * ranks)),
        "size of a broadcast": lambda: dist.broadcast(torch.ones(count), 0),
        "type": lambda: dist.all_reduce(torch.ones(COUNT, dtype=kind)),
        "type of a broadcast": lambda: dist.broadcast(torch.ones(COUNT, dtype=kind), 0),
        "operator": lambda: dist.all_reduce(ones, dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM),
        "operator of a reduce": lambda: dist.reduce(ones, 0, dist.ReduceOp.MIN if odd else dist.ReduceOp.AVG),
        "root of a broadcast": lambda: dist.broadcast(ones, 1 if odd else 0),
        "root of a reduce": lambda: dist.reduce(ones, 1 if odd else 0),
        "root of a gather": lambda: gather(1 if odd else 0),
        "root of a scatter": lambda: scatter(1 if odd else 0),
        "collective": lambda: dist.broadcast(ones, 0) if odd else dist.all_reduce(ones),
        "barrier": lambda: dist.barrier() if odd else dist.all_reduce(torch.ones(5)),
        "split sizes": lambda: dist.all_to_all_single(torch.empty(2 * ranks), torch.ones(sum(splits)), None, splits),
        "order of parts gathered": lambda: dist.all_gather(
            [torch.empty(COUNT + n) for n in parts], torch.ones(COUNT + parts[dist.get_rank()])
        ),
        "order of parts scattered": lambda: dist.reduce_scatter(
            torch.empty(COUNT + parts[dist.get_rank()]), [torch.ones(COUNT + n) for n in parts]
        ),
        "order of tensors": lambda: dist.group.WORLD.allreduce_coalesced([torch.ones(COUNT + n) for n in parts]).wait(),
        "coalesced sizes": lambda: dist.group.WORLD.allreduce_coalesced([ones, torch.ones(count)]).wait(),
    }


NAMES = (
    *("size of an all-reduce", "long all-reduce", "size of an all-gather", "size of an all-gather into one"),
    *("size of a reduce-scatter", "size of a broadcast", "type", "type of a broadcast", "operator"),
    *("operator of a reduce", "root of a broadcast", "root of a reduce", "root of a gather", "root of a scatter"),
    *("collective", "barrier", "split sizes", "coalesced sizes"),
    *("order of parts gathered", "order of parts scattered", "order of tensors"),
)
BETWEEN_HOSTS = (
    "size of an all-reduce",
    "root of a broadcast",
    "split sizes",
    "order of parts gathered",
)  # on every run


def disagree(rank, world_size, name):
    """Call one collective of which the last rank asks for something else, and then one that waits for all."""
    dist.all_reduce(torch.ones(7))
    collectives(odd=rank == world_size - 1)[name]()
    dist.all_reduce(torch.ones(7))
    return "done"


@pytest.mark.parametrize(
    ("name", "per_host"),
    [(name, None) for name in NAMES]
    + [pytest.param(name, 2, marks=[pytest.mark.slow] * (name not in BETWEEN_HOSTS)) for name in NAMES],
)
def test_ranks_that_disagree_are_told_who_calls_what(tmp_path, name, per_host):
    answers = launch(disagree, 4, tmp_path, name, per_host=per_host, TIMEOUT_S="3")

    for kind, message, took_s in answers:
        assert kind == "CollectiveMismatch", answers
        assert message.startswith("the ranks disagree: ")
        assert "something else" not in message
        assert re.search(r"rank 3 \(host \w+, pid \d+\)", message)
        assert took_s < 9


@pytest.mark.parametrize("name", ["size of an all-reduce", "root of a broadcast", "split sizes", "collective"])
def test_the_same_without_the_helper(tmp_path, name):
    answers = launch(disagree, 2, tmp_path, name, MESHWRIGHT_HELPER="0", TIMEOUT_S="8")

    assert [answer[0] for answer in answers] == ["CollectiveMismatch"] * 2, answers


def test_the_message_names_the_first_call_that_differs(tmp_path):
    answers = launch(disagree, 2, tmp_path, "root of a broadcast")

    for _, message, _ in answers:
        assert re.fullmatch(
            r"the ranks disagree: rank 0 \(host .+, pid \d+\) in broadcast of 1.17 KiB \(float32\) with root 0; "
            r"rank 1 \(host .+, pid \d+\) in broadcast of 1.17 KiB \(float32\) with root 1",
            message,
        )


def skip_one(rank, world_size):
    """Rank 1 leaves out a call: the next ones are of the same kind and size, and still not the same."""
    x = torch.ones(10)
    dist.broadcast(x, 0)
    if rank == 0:
        dist.broadcast(x, 0)
    for _ in range(3):
        dist.all_reduce(x)


def test_a_call_that_one_rank_leaves_out_is_noticed(tmp_path):
    answers = launch(skip_one, 2, tmp_path)

    assert [answer[0] for answer in answers] == ["CollectiveMismatch"] * 2, answers
    assert "in broadcast of 40 B" in answers[0][1]
    assert "in all_reduce of 40 B" in answers[0][1]


def run_ahead(rank, world_size):
    """A root that is as far ahead of its readers as it can be is in the same collectives all the same."""
    group = dist.new_group(list(range(world_size)))
    x = torch.zeros(1)
    for i in range(200):
        dist.broadcast(x.fill_(i) if rank == 0 else x, 0, group=group)
        assert x.item() == i
        if i % 50 == 7:
            dist.gather(x, [torch.empty(1) for _ in range(world_size)] if rank == 1 else None, 1, group=group)
        if i % 70 == 9:
            dist.broadcast(torch.empty(0), 1, group=group)
    dist.all_reduce(x, group=group)
    return x.item()


@pytest.mark.parametrize("helper", ["1", "0"])
def test_ranks_that_run_ahead_agree(tmp_path, helper):
    answers = launch(run_ahead, 3, tmp_path, MESHWRIGHT_HELPER=helper)

    assert [answer[:2] for answer in answers] == [("fine", 3 * 199.0)] * 3
