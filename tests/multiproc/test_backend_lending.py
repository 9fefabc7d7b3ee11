"""Ranks of a host that read each other's memory in place of slots: the same results in any mixture of ways."""

import random
import sys

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.ways import Forced
from meshwright.backend.faults.failures import CollectiveError
from meshwright.backend.local.helper import FILLING_BYTES
from meshwright.backend.local.ranks import READS
from meshwright.backend.local.slot_stores import Way
from tests.multiproc.test_backend_collectives import group

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory of other processes")
LEAST = FILLING_BYTES // 4  # elements from which on ranks may read


def native_of_group():
    return dist.group.WORLD._engine.group.native


def gathered(rank, world_size, elements):
    output = torch.zeros(world_size * elements)
    dist.all_gather_into_tensor(output, torch.arange(elements) + 1000.0 * rank)
    return output, torch.cat([torch.arange(elements) + 1000.0 * peer for peer in range(world_size)])


def gathered_in_place(rank, world_size, elements):
    output = torch.zeros(world_size * elements)
    mine = output[rank * elements : (rank + 1) * elements]
    mine.fill_(rank + 1.0)
    dist.all_gather_into_tensor(output, mine)
    return output, torch.arange(1.0, world_size + 1).repeat_interleave(elements)


def exchanged(rank, world_size, elements):
    source = torch.cat([torch.full((elements,), 10.0 * rank + peer) for peer in range(world_size)])
    output = torch.zeros(world_size * elements)
    dist.all_to_all_single(output, source)
    return output, torch.cat([torch.full((elements,), 10.0 * peer + rank) for peer in range(world_size)])


def exchanged_unevenly(rank, world_size, elements):
    """Rank i sends i + j parts to rank j: nothing from rank 0 to itself."""
    part = elements // world_size
    source = [torch.full((part * (rank + peer),), 10.0 * rank + peer) for peer in range(world_size)]
    output = [torch.zeros(part * (rank + peer)) for peer in range(world_size)]
    dist.all_to_all(output, source)
    wanted = [torch.full((part * (rank + peer),), 10.0 * peer + rank) for peer in range(world_size)]
    return torch.cat(output), torch.cat(wanted)


CALLS = (gathered, gathered_in_place, exchanged, exchanged_unevenly)


def call_in_mixed_ways(rank, world_size, store, seed):
    """Make every call in ways that each rank draws for itself; return what was wrong, and how many calls read."""
    wrong, read = [], 0
    with group(rank, world_size, store):
        native = native_of_group()
        native._fillings = chosen = Forced()
        own, common = random.Random(f"{seed} {rank}"), random.Random(seed)
        for number in range(40):
            call, elements = common.choice(CALLS), LEAST * common.choice((1, 2, 5)) + common.choice((0, 1, 17))
            chosen.way = own.choice(list(Way))
            read += chosen.way == Way.READ
            output, wanted = call(rank, world_size, elements)
            if not torch.equal(output, wanted):
                wrong.append((number, call.__name__, elements, chosen.way.name))
            if number % 3 == 0:  # and what follows finds the slots as they should be
                total = torch.ones(common.choice((3, LEAST)))
                dist.all_reduce(total)
                wrong += [(number, "all_reduce")] * (not torch.equal(total, torch.full_like(total, world_size)))
    return wrong, read


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("slot_bytes", ["65536", "1048576"])
def test_ranks_that_lend_and_ranks_that_fill_slots_bring_the_same(rank_pool, monkeypatch, ranks, slot_bytes):
    monkeypatch.setenv("MESHWRIGHT_SLOT_BYTES", slot_bytes)

    outcomes = rank_pool(ranks).run(call_in_mixed_ways, 7)

    assert [wrong for wrong, _ in outcomes] == [[]] * ranks
    assert all(read > 5 for _, read in outcomes)


def learn_to_read(rank, world_size, store):
    """Return whether reading was among the ways that were tried, at first and after some calls."""
    with group(rank, world_size, store):
        native, known = native_of_group(), []
        for _ in range(12):
            known.append(native._lends)
            output, wanted = gathered(rank, world_size, LEAST)
            assert torch.equal(output, wanted)
        filling = native._fillings.of("mw_all_gather", LEAST * 4, 3)
        return known, len(filling._costs[Way.READ])


def test_all_ranks_learn_after_the_same_call_that_they_may_read_and_try_it(rank_pool):
    outcomes = rank_pool(2).run(learn_to_read)

    assert outcomes[0] == outcomes[1]
    known, tried = outcomes[0]
    assert known == [None] + [True] * 11
    assert tried == 3


def be_forbidden_on_one(rank, world_size, store):
    """Return what ranks know after some calls where rank 0 may not read the others' memory."""
    with group(rank, world_size, store):
        local = dist.group.WORLD._engine.group
        if rank == 0:
            local.counters[local.mine + READS] = 0
        for _ in range(5):
            output, wanted = gathered(rank, world_size, LEAST)
            assert torch.equal(output, wanted)
        return local.native._lends


def test_where_one_rank_may_not_read_all_keep_to_slots(rank_pool):
    assert rank_pool(3).run(be_forbidden_on_one) == [False] * 3


def be_unreadable(rank, world_size, store):
    """Rank 0 looks for the memory of rank 1 where there is no process; return what each says, and how long it took."""
    with group(rank, world_size, store):
        native = native_of_group()
        native._fillings = chosen = Forced()
        gathered(rank, world_size, LEAST)
        chosen.way = Way.READ
        if rank == 0:
            native._state.pids[1] = 2**22 + 1  # beyond the largest that Linux gives
        try:
            gathered(rank, world_size, LEAST)
        except CollectiveError as error:
            return str(error)
    return None


def test_a_rank_whose_memory_can_no_longer_be_read_is_named_on_all_ranks(rank_pool):
    first, second = rank_pool(2).run(be_unreadable)

    assert "rank 1 " in first
    assert "let nobody read its memory any more, in all_gather" in first
    assert "let nobody read its memory any more" in second
